"""Mistakes on one host and deaths of one process end all of them, and are told."""

import os
import re
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest

from t2t_jax.io import sealed
from t2t_jax.tools.verify.child_runs import rendezvous_flags
from t2t_jax.training.checkpoint_folders import sealed_steps
from t2t_jax.workdir import Workdir
from tests.processes.conftest import PLAIN
from tests.small_run import ROOT, flags_for

HOST = socket.gethostname()
IMPATIENT = "from t2t_jax.parallel import rendezvous; rendezvous.CONNECT_TIMEOUT = 8"
SECONDS = 60  # in which the others have to end; JAX knows of a death after 30


@pytest.mark.slow
@pytest.mark.parametrize("what", ["config", "text"])
def test_what_differs_between_hosts_is_told(start, text, tmp_path, what):
    hosts = tmp_path / "one", tmp_path / "another"
    for host in hosts:
        shutil.copytree(text, host / "text")
    flags, subject = [], "the prepared text"
    if what == "text":  # every host has files of these names, but not the same
        file = hosts[1] / "text" / "train.de"
        first, second, *lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([second, first, *lines]))
    else:
        flags, subject = ["--config.train.seed=7"], "the config"
    command = flags_for("text", tmp_path / "work", **PLAIN)
    two = start(0)
    for they, host, more in zip(rendezvous_flags(2), hosts, ([], flags), strict=True):
        two.start(*they, *command, *more, folder=host, PYTHONPATH=str(ROOT))
    two.ends(2, 2, seconds=60)
    assert two.err(1) == ""
    assert "Traceback" not in two.err()
    assert not (tmp_path / "work" / "config.json").exists()
    error = two.err().splitlines()[-1]
    there = f"of process 1 on {HOST} is not that of process 0 on {HOST}"
    assert error.startswith(f"error: {subject} {there}")


@pytest.mark.slow
def test_a_process_that_never_comes_is_told(start, text, tmp_path):
    command = flags_for(text, tmp_path / "work", **PLAIN)
    one = start(0).start(*rendezvous_flags(2)[1], *command, patch=IMPATIENT)
    one.ends(2, seconds=60)
    assert "error: the processes failed to connect (process 1 of 2" in one.err()
    assert "Start all of them within 8 seconds" in one.err()
    assert not (tmp_path / "work").exists()


def process_of(workdir, number):
    """The process of this number that local.sh has started, and no other run."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has just ended
            continue
        if {f"--process_id={number}".encode(), f"--workdir={workdir}".encode()} <= {
            *words
        }:
            return int(place.name)
    raise AssertionError(f"no process {number}")


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 0])
def test_a_process_that_is_killed_ends_all(text, tmp_path, start, number):
    workdir = tmp_path / "work"
    long = PLAIN | {"train": PLAIN["train"] | {"steps": 100_000, "eval_every": 100_000}}
    flags = flags_for(text, workdir, **long)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    launcher = start(0).run(
        ["bash", f"{ROOT}/launch/local.sh", "2", *flags],
        PATH=path,
        TMPDIR=str(tmp_path),
        JAX_NUM_CPU_DEVICES="4",
    )
    launcher.until(lambda: re.search(r"^step 2\d/", launcher.err(), re.M))
    pid = process_of(workdir, number)
    os.kill(pid, signal.SIGKILL)
    statuses = launcher.end(SECONDS)
    told = launcher.err()
    assert statuses == [128 + signal.SIGKILL], told
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
    shutil.copytree(workdir, tmp_path / "copy")
    again = start(1, *flags_for(text, tmp_path / "copy", **short), devices=4).ends(0)
    assert f"continuing after step {steps[-1]:,}" in again.err()
