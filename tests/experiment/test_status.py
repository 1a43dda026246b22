"""The status line of an experiment, of workdirs that nobody trained."""

import json
import re
from contextlib import ExitStack

import pytest

from t2t_jax import load_config
from t2t_jax.tools.experiment import Measure, Row, estimates, with_fields
from t2t_jax.tools.experiment.leases import Leases
from t2t_jax.tools.experiment.running import Queue

STEPS = 600
BASE = load_config("tiny", train={"steps": STEPS})
MEASURES = [Measure("speed")]


def rows(count, seeds=1):
    return [
        Row(f"row{n}", with_fields(BASE, {"model.layers": n + 1}), seeds, MEASURES)
        for n in range(count)
    ]


def trained(queue, number, step, seconds_per_step):
    """Writes what a run has logged, every 50 steps."""
    path = queue.workdir(queue.tasks[number])
    path.mkdir(parents=True)
    entry = {"kind": "train", "seconds": 50 * seconds_per_step}
    lines = [json.dumps(entry | {"step": s}) for s in range(50, step + 1, 50)]
    (path / "metrics.jsonl").write_text("\n".join([*lines, '{"kind": "tra']))
    return path


def finished(queue, number, seconds_per_step, after=0.0):
    """The same with `after` seconds more, half of them in a measure."""
    path = trained(queue, number, STEPS, seconds_per_step)
    seconds = STEPS * seconds_per_step + after / 2
    (path / "outcome.json").write_text(json.dumps({"seconds": seconds}))
    (path / "measures").mkdir()
    content = {"function": "speed", "arguments": {}, "name": "speed"}
    content |= {"result": {}, "seconds": after / 2}
    (path / "measures/speed.json").write_text(json.dumps(content))


def minutes(queue, **options):
    """The minutes that are left, as the line says."""
    line = estimates.status(queue, **options)
    hours, minutes = re.search(r"about (\d+):(\d\d):00 more", line).groups()
    return 60 * int(hours) + int(minutes)


@pytest.fixture
def running(tmp_path):
    """Marks a run of a queue as taken by a process."""
    with ExitStack() as stack:

        def take(queue, number):
            lease = Leases(tmp_path / "leases").take(queue.tasks[number].run.hash)
            stack.callback(lease.release)

        yield take


def test_runs_take_as_long_as_those_so_far_or_as_their_own_speed(tmp_path, running):
    queue = Queue(tmp_path, rows(4))
    before = "4 left; the first run will tell how long the others take"
    assert estimates.status(queue) == before
    finished(queue, 0, 0.1, after=60)
    finished(queue, 1, 0.3, after=180)
    assert estimates.status(queue).startswith("2 done, 2 left; about ")
    assert minutes(queue) == 2 * (2 + 2)
    trained(queue, 2, 300, 2.0)
    running(queue, 2)
    assert "2 done, 1 running, 1 left" in estimates.status(queue)
    assert minutes(queue) > 10


def test_another_seed_is_judged_by_those_of_its_row(tmp_path):
    queue = Queue(tmp_path, rows(2, seeds=2))
    for number, seconds in ((0, 0.1), (1, 0.1), (2, 2.0)):
        finished(queue, number, seconds)
    assert minutes(queue) == 20


def test_processes_share_the_runs_but_none_of_them(tmp_path, running):
    queue = Queue(tmp_path, rows(5))
    finished(queue, 0, 0.1)
    running(queue, 1)
    assert (minutes(queue), minutes(queue, joining=True)) == (4, 2)
    for number in (2, 3, 4):
        running(queue, number)
    assert minutes(queue, joining=True) == 1


def test_a_run_of_two_rows_is_counted_once_and_failures_are_told(tmp_path):
    config = with_fields(BASE, {})
    queue = Queue(tmp_path, [Row("a", config), Row("b", config)])
    path = trained(queue, 0, 300, 0.2)
    assert minutes(queue) == 1
    (path / "failure.json").write_text(json.dumps({"error": "one\ntwo"}))
    assert {*estimates.failures(queue)} == {f"failed: {path}: one"}
