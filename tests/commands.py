"""Commands of the package, many of them by one process that has imported them all.

A process of its own takes seconds for its imports. Here one imports everything and
forks for each command that is asked for, before JAX has made any thread or device; what
the command does, prints and returns is what it does when a user starts it.
"""

import json
import os
import subprocess
import sys
from typing import NamedTuple

import jax

from tests.compiler import FAST
from tests.small_run import ROOT

FORKING = """
import importlib, json, os, pkgutil, runpy, sys, tempfile
import jax
import t2t_jax

package = sys.argv[1]
if package == "t2t_jax":
    for module in pkgutil.walk_packages(t2t_jax.__path__, "t2t_jax."):
        if not module.name.endswith("__main__") and "peers" not in module.name:
            importlib.import_module(module.name)
else:
    import benchmarks.decode, benchmarks.train_step, benchmarks.doctor

for line in sys.stdin:
    name, arguments, source, fast = json.loads(line)
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed, \\
            tempfile.TemporaryFile() as told:
        given.write(bytes.fromhex(source))
        given.seek(0)
        child = os.fork()
        if not child:
            for number, file in enumerate((given, printed, told)):
                os.dup2(file.fileno(), number)
            sys.stdin = open(0)
            jax.config.update("jax_disable_most_optimizations", fast)
            module, words = "t2t_jax", [name, *arguments]
            if package != "t2t_jax":
                module, words = f"{package}.{name}", arguments
                sys.modules.pop(module, None)
            sys.argv = [module, *words]
            status = 0
            try:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            except SystemExit as end:
                status = end.code or 0
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)  # the end of an interpreter takes long
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer = [status]
        for file in (printed, told):
            file.seek(0)
            answer.append(file.read().decode())
        print(json.dumps(answer), flush=True)
"""


class Ended(NamedTuple):
    """A command: its exit status, and what it has printed and told."""

    returncode: int
    stdout: str
    stderr: str


class Commands:
    """Runs a command: `commands("translate", "--workdir=...", source=b"a line")`.

    Or a benchmark: `Commands("benchmarks")("decode", "--rounds=1")`.
    """

    def __init__(self, package="t2t_jax"):
        self._process = subprocess.Popen(
            [sys.executable, "-c", FORKING, package],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, module, *arguments, source=b""):
        # It compiles as the test that asks does, not as the first that ever asked.
        fast = jax.config.read(FAST)
        request = json.dumps([module, [*map(str, arguments)], source.hex(), fast])
        self._process.stdin.write(f"{request}\n")
        self._process.stdin.flush()
        return Ended(*json.loads(self._process.stdout.readline()))

    def close(self):
        self._process.communicate()
