"""Leases: one owner at a time, and none that is dead."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from t2t_jax.tools.experiment import leases
from t2t_jax.tools.experiment.leases import SILENCE, Leases, LostError
from tests.experiment.made_up import holder
from tests.small_run import ROOT, until

# In each round processes take the same lease at the same moment; prints how many have
# it.
RACE = """
import os, sys
from pathlib import Path
from t2t_jax.tools.experiment.leases import Leases

for number in range(int(sys.argv[2])):
    begin, started = os.pipe()
    tried, taken = os.pipe()
    end, ended = os.pipe()
    children = []
    for _ in range(4):
        child = os.fork()
        if not child:
            os.close(started), os.close(ended)
            os.read(begin, 1)  # returns once the other end is closed
            lease = Leases(Path(sys.argv[1])).take(f"row{number}")
            os.write(taken, b"1" if lease else b"0")
            os.read(end, 1)  # holds it until all have tried
            os._exit(0)
        children.append(child)
    os.close(started)
    answers = b"".join(os.read(tried, 1) for _ in children)
    os.close(ended)
    for child in children:
        os.waitpid(child, 0)
    print(answers.count(b"1"))
"""


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock of this process, which goes on when it is told to."""

    class Clock:
        now = 1_000.0

    monkeypatch.setattr(leases.time, "monotonic", lambda: Clock.now)
    return Clock


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def change(folder, **fields):
    """Changes the file of the lease `row` as another machine would have written it."""
    file = folder / "row.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_a_live_owner_keeps_its_lease_until_it_gives_it_back(tmp_path):
    owner, reader = Leases(tmp_path), Leases(tmp_path)
    assert reader.owner("row") == ""
    lease = owner.take("row")
    assert f"process {os.getpid()} on" in reader.owner("row")
    assert reader.take("row") is None
    assert owner.take("row") is None
    assert reader.take("another row") is not None
    lease.check()
    lease.release()
    assert files(tmp_path) == ["another row.json"]
    for content in ("", '{"owner": "pro'):  # what a loss of power leaves is nobody's
        (tmp_path / "row.json").write_text(content)
        assert reader.owner("row") == ""
        reader.take("row").release()


def test_a_killed_process_loses_its_lease_at_once_a_stopped_one_never(tmp_path, clock):
    reader = Leases(tmp_path)
    with holder(tmp_path, "row") as process:
        process.send_signal(signal.SIGSTOP)
        assert str(process.pid) in reader.owner("row")
        clock.now += 10 * SILENCE
        assert reader.take("row") is None
        assert reader.starts("row") == 1
    assert reader.owner("row") == ""
    lease = reader.take("row")
    assert reader.starts("row") == 2
    lease.release()
    assert reader.starts("row") == 0
    assert files(tmp_path) == []


def test_elsewhere_it_is_lost_after_a_silence_by_the_readers_clock(tmp_path, clock):
    lease = Leases(tmp_path).take("row")
    change(tmp_path, host="another machine")
    reader, touched = Leases(tmp_path), time.time() + 1e6
    os.utime(tmp_path / "row.json", (touched, touched))
    assert reader.take("row") is None  # seen for the first time
    clock.now += SILENCE - 1
    assert reader.take("row") is None
    os.utime(tmp_path / "row.json", (touched + 10, touched + 10))
    clock.now += SILENCE - 1
    assert reader.take("row") is None  # touched since
    clock.now += SILENCE + 1
    new = reader.take("row")
    # The owner that was taken for dead notices, and leaves the new one alone.
    with pytest.raises(LostError, match="row was taken over by another process"):
        lease.check()
    lease.release()
    new.check()
    assert Leases(tmp_path).take("row") is None
    new.release()
    assert files(tmp_path) == []


def test_the_heart_touches_the_lease(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "HEARTBEAT", 0.01)
    lease, file = Leases(tmp_path).take("row"), tmp_path / "row.json"
    os.utime(file, (0, 0))
    until(lambda: file.stat().st_mtime, seconds=20)
    lease.release()


def test_of_those_who_come_at_the_same_moment_one_has_it(tmp_path):
    command = [sys.executable, "-c", RACE, str(tmp_path), "20"]
    printed = subprocess.check_output(command, cwd=ROOT, text=True, timeout=500)
    assert printed.split() == ["1"] * 20
    assert len(files(tmp_path)) == 20  # of processes that ended; no temporary ones
