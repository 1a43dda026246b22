"""The status line of an experiment, of workdirs that nobody trained."""

import json
import re

import pytest

from t2t_jax import load_config
from t2t_jax.tools.experiment import Row, estimates, with_fields
from t2t_jax.tools.experiment.leases import Leases
from t2t_jax.tools.experiment.running import Queue

STEPS = 600
BASE = load_config("tiny", train={"steps": STEPS})


@pytest.fixture
def queue(tmp_path):
    rows = [Row(f"row{n}", with_fields(BASE, {"model.layers": n})) for n in range(1, 6)]
    return Queue(tmp_path, rows)


def trained(queue, number, step, seconds_per_step):
    """Writes what a run has logged, every 50 steps, and that it is finished."""
    path = queue.workdir(queue.tasks[number])
    path.mkdir(parents=True)
    entry = {"kind": "train", "seconds": 50 * seconds_per_step}
    lines = [json.dumps(entry | {"step": s}) for s in range(50, step + 1, 50)]
    (path / "metrics.jsonl").write_text("\n".join([*lines, '{"kind": "tra']))
    if step == STEPS:
        outcome = {"seconds": STEPS * seconds_per_step}
        (path / "outcome.json").write_text(json.dumps(outcome))
    return path


def minutes(queue, **options):
    """The minutes that are left, as the line says."""
    line = estimates.status(queue, **options)
    hours, minutes = re.search(r"about (\d+):(\d\d):00 more", line).groups()
    return 60 * int(hours) + int(minutes)


def test_the_time_that_is_left_is_that_of_the_runs_so_far(queue, tmp_path):
    assert estimates.status(queue).startswith("5 left; the first run will tell")
    trained(queue, 0, STEPS, 0.1)
    trained(queue, 1, STEPS, 0.3)
    assert estimates.status(queue).startswith("2 done, 3 left; about ")
    assert minutes(queue) == 3 * 2
    trained(queue, 2, 300, 2.0)  # it is slower than those, and still running
    lease = Leases(tmp_path / "leases").take(queue.tasks[2].run.hash)
    assert "2 done, 1 running, 2 left" in estimates.status(queue)
    assert minutes(queue) > 10
    lease.release()


def test_processes_share_the_runs_that_are_left(queue, tmp_path):
    trained(queue, 0, STEPS, 0.1)
    lease = Leases(tmp_path / "leases").take(queue.tasks[1].run.hash)
    assert (minutes(queue), minutes(queue, joining=True)) == (4, 2)
    lease.release()
