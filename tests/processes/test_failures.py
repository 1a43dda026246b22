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
@pytest.mark.parametrize("difference", ["config", "text"])
def test_what_differs_between_hosts_is_told(start, text, tmp_path, difference):
    hosts = tmp_path / "one", tmp_path / "another"
    for host in hosts:
        shutil.copytree(text, host / "text")
    flags, subject = [], "the prepared text"
    if difference == "text":  # every host has files of these names, but not the same
        file = hosts[1] / "text" / "train.de"
        line1, line2, *lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([line2, line1, *lines]))
    else:
        flags, subject = ["--config.train.seed=7"], "the config"
    command = flags_for("text", tmp_path / "work", **PLAIN)
    children = start(0)
    for process_flags, host, extra in zip(
        rendezvous_flags(2), hosts, ([], flags), strict=True
    ):
        children.start(
            *process_flags, *command, *extra, folder=host, PYTHONPATH=str(ROOT)
        )
    children.ends(2, 2, seconds=60)
    assert children.err(1) == ""
    assert "Traceback" not in children.err()
    assert not (tmp_path / "work" / "config.json").exists()
    error = children.err().splitlines()[-1]
    sentence = f"of process 1 on {HOST} is not that of process 0 on {HOST}"
    assert error.startswith(f"error: {subject} {sentence}")


@pytest.mark.slow
def test_a_process_that_never_comes_is_told(start, text, tmp_path):
    command = flags_for(text, tmp_path / "work", **PLAIN)
    child = start(0).start(*rendezvous_flags(2)[1], *command, patch=IMPATIENT)
    child.ends(2, seconds=60)
    assert "error: the processes failed to connect (process 1 of 2" in child.err()
    assert "Start all of them within 8 seconds" in child.err()
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
    endless = PLAIN | {
        "train": PLAIN["train"] | {"steps": 100_000, "eval_every": 100_000}
    }
    flags = flags_for(text, workdir, **endless)
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
    error = launcher.err()
    assert statuses == [128 + signal.SIGKILL], error
    killed = f"process {number} (pid {pid}) was killed by SIGKILL"
    assert f"local: {killed}; the others have 60 s to end" in error
    assert f"local: the run failed: {killed}" in error
    assert error.endswith(
        "local: the same command continues from the last checkpoint\n"
    )
    if number == 0:  # what the runtime tells of a survivor is long
        assert "local: process 1 ends, too; what it says of that is in " in error
        assert "[1]   File" not in error
    folder = Workdir(workdir).checkpoints / "state"
    steps = sealed_steps(folder)
    assert steps[-1] >= 20 - PLAIN["train"]["save_every"]
    assert not any(sealed.damage(folder / str(step)) for step in steps)

    short = PLAIN | {"train": PLAIN["train"] | {"steps": steps[-1] + 1}}
    shutil.copytree(workdir, tmp_path / "copy")
    child = start(1, *flags_for(text, tmp_path / "copy", **short), devices=4).ends(0)
    assert f"continuing after step {steps[-1]:,}" in child.err()
