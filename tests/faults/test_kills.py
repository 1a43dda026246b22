"""A run that is killed again and again ends in the same bytes; dropout on.

The slow test is `python -m pytest -m slow tests/faults`; `killing.py` is its harness.
"""

import dataclasses
import random
import signal

import pytest

from tests.faults import killing
from tests.faults.moments import ALL, MOMENTS

CHIEF = (
    # The first of all states: the first metrics are gathered from before it and after.
    dataclasses.replace(MOMENTS["state written"], pass_by=0),
    MOMENTS["parameters being written"],
    MOMENTS["state being written"],
    MOMENTS["evaluation"],
    MOMENTS["end and scoring"],
)


def survives(folder, moments, kills, seed, **options):
    """Kills runs and compares all that they leave with an undisturbed run's."""
    place = killing.Place(folder, **options)
    whole, again = killing.undisturbed(place, twice=kills > 2)
    assert again is None or again.is_equal(), again
    chance = random.Random(seed)
    trials = [*killing.killed(whole, moments, kills, [signal.SIGKILL], chance)]
    assert sum(trial.kills() for trial in trials) == kills
    different = [str(trial) for trial in trials if not trial.is_equal()]
    assert not different, "\n".join([f"seed {seed}", *different])


def test_a_kill_leaves_nothing_behind(tmp_path):
    survives(tmp_path / "runs", CHIEF[1:2], kills=1, seed=0, steps=30)


@pytest.mark.slow
def test_five_kills_leave_nothing_behind(tmp_path):
    survives(tmp_path / "runs", CHIEF, kills=5, seed=0)


@pytest.mark.slow
def test_fifty_kills_leave_nothing_behind(tmp_path):
    """About six minutes on two cores."""
    survives(tmp_path / "runs", ALL, kills=50, seed=1)
