"""A run that is stopped or killed, again and again, ends in the same bytes; dropout on.

The slow tests are `python -m pytest -m slow tests/faults/test_kills.py`.
"""

import signal

import pytest

from t2t_jax import Translator, train
from tests.faults.damage import QUIET
from tests.faults.killing import MOMENTS, SAVING, killed_at, runs_in
from tests.small_run import assert_same_run, config_for, flags_for, logged

pytestmark = pytest.mark.usefixtures("compiled_once")

# Where a run ends and is continued. Steps 4, 8 and 12 are saved on schedule; ends at
# others are in test_ends.py. `tests/covering.py` varies all the rest, and kills.
STOPS = {
    "saved_on_schedule": [{"steps": 4}, {"steps": 12}],
    "by_a_time_limit": [{"minutes": 1e-6}, {"minutes": 0.0}],
}


@pytest.mark.parametrize("stop", STOPS)
def test_a_run_continued_is_one_run(stop, trained, text, tmp_path):
    for end in STOPS[stop]:
        train(config_for(text, train=end), tmp_path / "work")
        assert (tmp_path / "work/scores/test.json").exists()
    # Where it ended it was evaluated and scored, which is kept.
    stored_before = ("metrics", "best", "scores", "translations", "names", "config")
    assert_same_run(trained[0], tmp_path / "work", *stored_before)
    assert Translator.load(tmp_path / "work").steps == (8, 12)


def test_a_kill_leaves_nothing_behind(undisturbed, text, tmp_path, start):
    workdir = tmp_path / "work"
    see = MOMENTS["parameters being written"].see
    killed = start(1, *flags_for(text, workdir, data=QUIET))
    killed.until(lambda: [*see(None, workdir)])
    killed.send(signal.SIGKILL).ends(-signal.SIGKILL)
    train(config_for(text, data=QUIET), workdir)
    # The killed process added up its losses in a program of its own.
    assert_same_run(undisturbed, workdir, "metrics")
    logs = [logged(folder, "train") for folder in (undisturbed, workdir)]
    steps, losses = (
        [[e[name] for e in log] for log in logs] for name in ("step", "loss")
    )
    assert steps[0] == steps[1]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.slow
def test_fifty_kills_of_two_processes_leave_nothing_behind(tmp_path):
    """About fifteen minutes on two cores: each process writes its half of a state."""
    runs = runs_in(tmp_path / "runs", processes=2)
    undisturbed_run = runs.finished("whole")
    parts = (undisturbed_run / "checkpoints").rglob("ocdbt.process_1/d/*")
    assert [*parts], "process 1 has written nothing"
    for killed in killed_at(runs, 50, seed=1, names=SAVING):
        assert_same_run(undisturbed_run, killed.workdir)
