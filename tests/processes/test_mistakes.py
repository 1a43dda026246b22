"""A mistake on one host is told by the first process, and ends all of them at once."""

import shutil
import socket

import pytest

from tests.faults.processes import flags
from tests.processes.group import PLAIN, ours
from tests.small_run import ROOT

HOST = socket.gethostname()
IMPATIENT = "from t2t_jax.parallel import rendezvous; rendezvous.CONNECT_TIMEOUT = 8"


@pytest.fixture
def hosts(group, text, tmp_path):
    """Two places where `text` is the training text, as if on the disks of two hosts;
    and what the first process says when both have ended there with status 2."""
    places = tmp_path / "one", tmp_path / "another"
    for place in places:
        shutil.copytree(text, place / "text")

    def refused(*different):
        command = flags("text", tmp_path / "work", **PLAIN)
        command[0] = f"--config={ROOT}/{command[0].partition('=')[2]}"
        two = group(0)
        for they, place, more in zip(ours(2), places, ([], different), strict=True):
            here = {"cwd": place, "PYTHONPATH": str(ROOT)}
            two.start(*they, *command, *more, **here)
        assert two.end(60) == [2, 2], two.said()
        assert two.err(1) == ""
        assert "Traceback" not in two.err()
        assert not (tmp_path / "work" / "config.json").exists()
        return two.err().splitlines()[-1]

    return places[1], refused


def test_another_config_is_told(hosts):
    _, refused = hosts
    assert refused("--config.train.seed=7") == (
        f"error: the config of process 1 on {HOST} is not that of process 0 on {HOST}; "
        "give all processes the same"
    )


@pytest.mark.slow
def test_other_ideas_are_told(hosts):
    other, refused = hosts
    (other / "mine.py").write_text("")
    assert refused("--ideas=mine") == (
        f"error: the code of --ideas of process 1 on {HOST} is not that of process 0 "
        f"on {HOST}; give all processes the same files"
    )


@pytest.mark.slow
def test_another_text_is_told(hosts):
    """Every host has files of these names, but not the same."""
    other, refused = hosts
    text = other / "text" / "train.de"
    first, second, *lines = text.read_text().splitlines(keepends=True)
    text.write_text("".join([second, first, *lines]))
    assert refused() == (
        f"error: the prepared text of process 1 on {HOST} is not that of process 0 on "
        f"{HOST}; all processes read and prepare the same text: put the same files on "
        "each machine, or point T2T_JAX_CACHE to a folder that all of them see"
    )


@pytest.mark.slow
def test_a_text_that_one_lacks_is_told(hosts):
    other, refused = hosts
    (other / "text" / "train.de").unlink()
    told = refused()
    assert told.startswith(f"error: process 1 on {HOST}: ")
    assert "text/train.de" in told


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_never_comes_is_told(group, text, tmp_path, number):
    one = group(0)
    command = flags(text, tmp_path / "work", **PLAIN)
    one.start(*ours(2)[number], *command, patch=IMPATIENT)
    assert one.end(60) == [2], one.said()
    assert f"error: the processes failed to connect (process {number} of 2" in one.err()
    assert "Start all of them within 8 seconds" in one.err()
    assert "Traceback" not in one.err()
    assert not (tmp_path / "work").exists()
