"""A mistake on one host is told by the first process, and ends all of them at once."""

import shutil
import socket

import pytest

from t2t_jax.tools.verify.child_runs import rendezvous_flags
from tests.processes.conftest import PLAIN
from tests.small_run import ROOT, flags_for

HOST = socket.gethostname()
IMPATIENT = "from t2t_jax.parallel import rendezvous; rendezvous.CONNECT_TIMEOUT = 8"


def swap_lines(host):
    """Every host has files of these names, but not the same."""
    text = host / "text" / "train.de"
    first, second, *lines = text.read_text().splitlines(keepends=True)
    text.write_text("".join([second, first, *lines]))


def not_that(of_what):
    return f"error: {of_what} of process 1 on {HOST} is not that of process 0 on {HOST}"


# What the second of two hosts has in its folder and on its command line, and the error.
DIFFERENT = {
    "config": (None, ["--config.train.seed=7"], not_that("the config")),
    "ideas": (
        lambda host: (host / "mine.py").write_text(""),
        ["--ideas=mine"],
        not_that("the code of --ideas"),
    ),
    "text": (swap_lines, [], not_that("the prepared text")),
    "no text": (
        lambda host: (host / "text/train.de").unlink(),
        [],
        f"error: process 1 on {HOST}: ",
    ),
}


@pytest.mark.parametrize(
    "what",
    [pytest.param(n, marks=[pytest.mark.slow] * (n != "config")) for n in DIFFERENT],
)
def test_what_differs_between_hosts_is_told(start, text, tmp_path, what):
    change, flags, told = DIFFERENT[what]
    hosts = tmp_path / "one", tmp_path / "another"
    for host in hosts:
        shutil.copytree(text, host / "text")
    if change:
        change(hosts[1])
    command = flags_for("text", tmp_path / "work", **PLAIN)
    two = start(0)
    for they, host, more in zip(rendezvous_flags(2), hosts, ([], flags), strict=True):
        two.start(*they, *command, *more, folder=host, PYTHONPATH=str(ROOT))
    two.ends(2, 2, seconds=60)
    assert two.err(1) == ""
    assert "Traceback" not in two.err()
    assert not (tmp_path / "work" / "config.json").exists()
    error = two.err().splitlines()[-1]
    assert error.startswith(told)
    assert what != "no text" or "text/train.de" in error


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_never_comes_is_told(start, text, tmp_path, number):
    command = flags_for(text, tmp_path / "work", **PLAIN)
    one = start(0).start(*rendezvous_flags(2)[number], *command, patch=IMPATIENT)
    one.ends(2, seconds=60)
    assert f"error: the processes failed to connect (process {number} of 2" in one.err()
    assert "Start all of them within 8 seconds" in one.err()
    assert not (tmp_path / "work").exists()
