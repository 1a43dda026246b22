"""A process that is killed: the others end soon, what was saved is whole, and the
launcher tells whose death it was."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from t2t_jax.io import sealed
from t2t_jax.training.checkpoint_folders import sealed_steps
from t2t_jax.workdir import Workdir
from tests.faults.processes import flags
from tests.processes.group import PLAIN
from tests.small_run import ROOT

SECONDS = 60  # in which the others have to end; JAX knows of a death after 30


def child(launcher, number):
    """The process of this number that local.py has started."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
        if f"--process_id={number}".encode() in words and parent == launcher.pid:
            return int(place.name)
    raise AssertionError(f"no process {number}")


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 0])
def test_a_process_that_is_killed_ends_all(text, processes_cache, tmp_path, number):
    workdir, log = tmp_path / "work", tmp_path / "log"
    long = PLAIN | {"train": PLAIN["train"] | {"steps": 100_000, "eval_every": 100_000}}
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "4",
        "JAX_COMPILATION_CACHE_DIR": str(processes_cache / "xla"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "T2T_JAX_CACHE": str(processes_cache / "prepared"),
    }
    with log.open("wb") as stderr:
        launcher = subprocess.Popen(
            ["bash", "launch/local.sh", "2", *flags(text, workdir, **long)],
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        end = time.monotonic() + 120
        while not re.search(r"^step 2\d/", log.read_text(), re.M):
            assert launcher.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        pid = child(launcher, number)
        os.kill(pid, signal.SIGKILL)
        status = launcher.wait(SECONDS)
    finally:
        launcher.terminate()
        launcher.wait(30)
    told = log.read_text()
    assert status == 128 + signal.SIGKILL
    killed = f"process {number} (pid {pid}) was killed by SIGKILL"
    assert f"local: {killed}; the others have 60 s to end" in told
    assert f"local: the run failed: {killed}" in told
    assert told.endswith("local: the same command continues from the last checkpoint\n")
    if number == 0:  # what the runtime tells of a survivor is long
        assert "local: process 1 ends, too; what it says of that is in " in told
        assert "[1]   File" not in told
    folder = Workdir(workdir).checkpoints / "state"
    steps = sealed_steps(folder)
    assert steps[-1] >= 20 - PLAIN["train"]["save_every"]
    assert not any(sealed.damage(folder / str(step)) for step in steps)

    short = PLAIN | {"train": PLAIN["train"] | {"steps": steps[-1] + 1}}
    assert shutil.copytree(workdir, tmp_path / "copy")
    command = [sys.executable, "-m", "t2t_jax.main"]
    again = subprocess.run(
        [*command, *flags(text, tmp_path / "copy", **short)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert f"continuing after step {steps[-1]:,}" in again.stderr
