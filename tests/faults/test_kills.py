"""A run that is stopped or killed, again and again, ends in the same bytes; dropout on.

The slow tests are `python -m pytest -m slow tests/faults/test_kills.py`.
"""

import functools
import signal

import pytest

from t2t_jax import Translator, train
from t2t_jax.training import loop
from tests.faults.damage import QUIET
from tests.faults.killing import MOMENTS, SAVING, killed_at, runs_in
from tests.small_run import assert_same_run, config_for, flags_for

pytestmark = pytest.mark.usefixtures("compiled_once")

# The fields of a run -> after which steps it ends and is continued. Steps 4, 8 and 12
# are saved on schedule; ends at others are not averaged.
STOPS = {
    "saved_on_schedule": ({}, [4, 12]),
    "between_two_saves": ({}, [6, 7, 12]),
    "with_a_moving_average": ({"ema_decay": 0.9}, [5, 12]),
    "by_a_time_limit": ({}, [{"minutes": 1e-6}, {"minutes": 0.0}]),
    "on_eight_devices": ({}, [4, 7, 12]),
}
SLOW = ("with_a_moving_average", "on_eight_devices")


@pytest.mark.parametrize(
    "how", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in STOPS]
)
def test_a_run_continued_is_one_run(how, trained, text, tmp_path, request, monkeypatch):
    fields, ends = STOPS[how]
    whole = trained[0]
    if how == "on_eight_devices":
        devices = request.getfixturevalue("all_devices")
        mesh = functools.partial(loop.meshes.make_mesh, devices=devices)
        monkeypatch.setattr(loop.meshes, "make_mesh", mesh)
    if how in SLOW:
        whole = tmp_path / "whole"
        train(config_for(text, train=fields), whole)
    for end in ends:
        end = end if isinstance(end, dict) else {"steps": end}
        train(config_for(text, train=fields | end), tmp_path / "work")
        assert (tmp_path / "work/scores/test.json").exists()
    # Where it ended it was evaluated and scored, which is kept.
    kept = ("metrics", "best", "scores", "translations", "names", "config")
    assert_same_run(whole, tmp_path / "work", *kept)
    assert Translator.load(tmp_path / "work").steps == (8, 12)


def test_a_kill_leaves_nothing_behind(undisturbed, text, tmp_path, start):
    workdir = tmp_path / "work"
    command = flags_for(text, workdir, data=QUIET)
    see = MOMENTS["parameters being written"].see
    killed = start(1, *command).until(lambda: [*see(None, workdir)])
    killed.send(signal.SIGKILL).ends(-signal.SIGKILL)
    start(1, *command).ends(0)
    assert_same_run(undisturbed, workdir)


@pytest.mark.slow
def test_fifty_kills_leave_nothing_behind(tmp_path):
    """About six minutes on two cores."""
    runs = runs_in(tmp_path / "runs")
    whole = runs.finished("whole")
    for killed in killed_at(runs, kills=50, seed=1):
        assert_same_run(whole, killed.workdir)


@pytest.mark.slow
def test_fifty_kills_of_two_processes_leave_nothing_behind(tmp_path):
    """About fifteen minutes on two cores: each process writes its half of a state."""
    runs = runs_in(tmp_path / "runs", processes=2)
    whole = runs.finished("whole")
    parts = (whole / "checkpoints").rglob("ocdbt.process_1/d/*")
    assert [*parts], "process 1 has written nothing"
    for killed in killed_at(runs, 50, seed=1, names=SAVING):
        assert_same_run(whole, killed.workdir)
