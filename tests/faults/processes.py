"""Runs of the commands as processes, for faults that come from outside."""

import hashlib
import json
import os
import subprocess
import sys
import threading

import jax
import numpy as np
import orbax.checkpoint as ocp

from t2t_jax.tools.verify.child_runs import config_flags
from t2t_jax.training.checkpoint import KINDS
from t2t_jax.training.checkpoint_folders import sealed_steps
from t2t_jax.workdir import Workdir
from tests.small_run import ROOT, config_for

RUN = {"train": {"steps": 40, "log_every": 4, "eval_every": 20, "dev_lines": 200}}
LONG = 180  # seconds after which a process that does not end is killed

# Runs the command as `-m` does, once something of the product is another.
PATCHED = """
import runpy, sys, time
from t2t_jax.io import sealed
from t2t_jax.io.messages import say
{patch}
runpy.run_module("t2t_jax.{module}", run_name="__main__", alter_sys=True)
"""


def flags(text, workdir, **sections):
    """The command line of a small run."""
    given = ["--config=configs/tiny.py", f"--workdir={workdir}"]
    return [*given, *config_flags(config_for(text, **sections).to_dict())]


class Process:
    """A command, and what it has said on standard error as far as that was read."""

    def __init__(self, *arguments, module="main", patch="", before=(), **env):
        start = ["-m", f"t2t_jax.{module}"]
        if patch:
            start = ["-c", PATCHED.format(patch=patch, module=module)]
        self.popen = subprocess.Popen(
            [*before, sys.executable, *start, *arguments],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"} | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.told = ""
        self._watchdog = threading.Timer(LONG, self.popen.kill)
        self._watchdog.start()

    def until(self, text):
        """Waits until it has said this."""
        for line in self.popen.stderr:
            self.told += line
            if text in line:
                return self
        raise AssertionError(f"ended, and never said {text!r}:\n{self.told}")

    def send(self, signum):
        self.popen.send_signal(signum)
        return self

    def end(self):
        """Waits for its end: its exit status, negative if a signal killed it."""
        with self.popen.stderr:
            self.told += self.popen.stderr.read()
        self._watchdog.cancel()
        assert "Traceback" not in self.told, self.told[:2_000]
        return self.popen.wait()


def metrics(workdir):
    """What `metrics.jsonl` holds, but for times."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    entries = map(json.loads, lines)
    return [{k: v for k, v in e.items() if "second" not in k} for e in entries]


def checkpoints(workdir):
    """A hash of all arrays of every checkpoint that counts, by its name.

    Of states only the last: the one before may be that of an interruption.
    """
    found = {}
    for kind in KINDS:
        item = "state" if kind == "state" else "parameters"
        steps = sealed_steps(Workdir(workdir).checkpoints / kind)
        for step in steps[-1:] if kind == "state" else steps:
            with ocp.PyTreeCheckpointer() as reader:
                tree = reader.restore(
                    Workdir(workdir).checkpoints / kind / str(step) / item
                )
            digest = hashlib.sha256()
            for leaf in jax.tree.leaves(tree):
                digest.update(np.asarray(leaf).tobytes())
            found[f"{kind}/{step}"] = digest.hexdigest()
    return found


def outcome(workdir):
    """All that a run ends in, but for times."""
    written = {
        str(file.relative_to(workdir)): file.read_text(encoding="utf-8")
        for folder in ("scores", "translations")
        for file in sorted((workdir / folder).glob("*"))
    }
    return checkpoints(workdir) | written | {"metrics": metrics(workdir)}
