"""Commands of several processes, started as a launcher starts them, but apart."""

import os
import signal
import subprocess
import sys
import time

from t2t_jax.tools.verify.child_runs import free_port
from tests.small_run import ROOT

LONG = 180.0  # seconds after which a process that has not ended is killed
DEVICES = 2  # of each process

# Of a small run whose metrics are compared: with a long warmup, Adam, which divides by
# what it has seen, does not make rounding errors grow.
PLAIN = {
    "model": {"dropout": 0.0},
    "data": {"test": ""},
    "train": {
        "steps": 20,
        "warmup": 400,
        "log_every": 1,
        "eval_every": 10,
        "save_every": 5,
        "dev_lines": 0,
    },
}

# A run that lasts long enough for something to happen to it.
SLOWLY = """
from t2t_jax.training import loop
step = loop.TrainingRun._step
def slowly(self):
    time.sleep(0.25)
    step(self)
loop.TrainingRun._step = slowly
"""

# Runs a command as `-m` does, once something of the product is another.
PATCHED = """
import os, runpy, sys, time
{patch}
module, *command = "{module}".split()
sys.argv[1:1] = command
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


class Group:
    """Processes of one command, and what each has said.

    Args:
      cache: a folder, for compiled code and prepared text.
      logs: a folder, for what they say.
    """

    def __init__(self, cache, logs):
        self._cache, self._logs = cache, logs
        logs.mkdir(parents=True)
        self._popen: list[subprocess.Popen] = []

    def start(self, *arguments, stdin="", **given):
        """Starts one more; `arguments` are all that it is given.

        Args:
          stdin: what it reads there.
          given: `module`, the command, and `patch`, of which it is to be another;
            `devices` and `cwd`; and environment variables.
        """
        devices, cwd = given.pop("devices", DEVICES), given.pop("cwd", ROOT)
        command = _command(given.pop("module", "t2t_jax.main"), given.pop("patch", ""))
        environment = {
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(devices),
            "JAX_COMPILATION_CACHE_DIR": str(self._cache / "xla"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "T2T_JAX_CACHE": str(self._cache / "prepared"),
        }
        number = len(self._popen)
        (self._logs / f"{number}.in").write_text(stdin, encoding="utf-8")
        with (
            (self._logs / f"{number}.in").open("rb") as read,
            (self._logs / f"{number}.out").open("wb") as out,
            (self._logs / f"{number}.err").open("wb") as err,
        ):
            self._popen.append(
                subprocess.Popen(
                    [*command, *map(str, arguments)],
                    cwd=cwd,
                    env=os.environ | environment | given,
                    stdin=read,
                    stdout=out,
                    stderr=err,
                )
            )
        return self

    def out(self, number=0) -> str:
        return (self._logs / f"{number}.out").read_text(encoding="utf-8")

    def err(self, number=0) -> str:
        return (self._logs / f"{number}.err").read_text(errors="replace")

    def said(self) -> str:
        """All that all have said, for a test that fails."""
        parts = [f"--- {i}\n{self.err(i)[-3_000:]}" for i in range(len(self._popen))]
        return "\n".join(parts)

    def until(self, text: str, number=0):
        """Waits until a process has said this on standard error."""
        end = time.monotonic() + LONG
        while text not in self.err(number):
            ended = self._popen[number].poll() is not None
            if (ended and text not in self.err(number)) or time.monotonic() > end:
                raise AssertionError(f"never said {text!r}:\n{self.said()}")
            time.sleep(0.02)
        return self

    def send(self, signum: signal.Signals, number: int):
        self._popen[number].send_signal(signum)
        return self

    def end(self, seconds: float = LONG) -> list[int]:
        """Waits for all: their exit statuses, negative where a signal killed one."""
        end = time.monotonic() + seconds
        try:
            for process in self._popen:
                process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            told = f"not over in {seconds} s:\n{self.said()}"
            raise AssertionError(told) from None
        return [process.returncode for process in self._popen]

    def kill(self) -> None:
        for process in self._popen:
            process.kill()
            process.wait()


def _command(module: str, patch: str) -> list[str]:
    if patch:
        return [sys.executable, "-c", PATCHED.format(patch=patch, module=module)]
    return [sys.executable, "-m", *module.split()]


def ours(n: int) -> list[list[str]]:
    """The flags by which each of n processes finds the others."""
    where = f"--coordinator_address=127.0.0.1:{free_port()}"
    return [[where, f"--num_processes={n}", f"--process_id={i}"] for i in range(n)]
