"""The status line of an experiment, of workdirs that nobody trained."""

import json
import re
from contextlib import ExitStack, closing

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


class Workdirs:
    """Runs as they would be on disk, and who holds them."""

    def __init__(self, folder, rows):
        self.queue = Queue(folder, rows)
        self._leases = Leases(folder / "leases")
        self._held = []

    def trained(self, number, step, seconds_per_step):
        """Logs every 50 steps."""
        path = self.queue.workdir(self.queue.tasks[number])
        path.mkdir(parents=True)
        entry = {"kind": "train", "seconds": 50 * seconds_per_step}
        lines = [json.dumps(entry | {"step": s}) for s in range(50, step + 1, 50)]
        (path / "metrics.jsonl").write_text("\n".join([*lines, '{"kind": "tra']))
        return path

    def finished(self, number, seconds_per_step, after=0.0):
        """Took some seconds more in training's process and in the measure, together."""
        path = self.trained(number, STEPS, seconds_per_step)
        seconds = STEPS * seconds_per_step + after / 2
        (path / "outcome.json").write_text(json.dumps({"seconds": seconds}))
        (path / "measures").mkdir()
        content = {"function": "speed", "arguments": {}, "name": "speed"}
        content |= {"result": {}, "seconds": after / 2}
        (path / "measures/speed.json").write_text(json.dumps(content))

    def running(self, number):
        task = self.queue.tasks[number]
        self._held.append(self._leases.take(task.run.hash))

    def minutes(self, **options):
        """The minutes that are left, as the line says."""
        line = estimates.status(self.queue, **options)
        hours, minutes = re.search(r"about (\d+):(\d\d):00 more", line).groups()
        return 60 * int(hours) + int(minutes)

    def close(self):
        for lease in self._held:
            lease.release()


@pytest.fixture
def workdirs(tmp_path):
    with ExitStack() as stack:
        yield lambda rows: stack.enter_context(closing(Workdirs(tmp_path, rows)))


def test_runs_that_are_left_take_as_long_as_those_so_far(workdirs):
    these = workdirs(rows(4))
    before = "4 left; the first run will tell how long the others take"
    assert estimates.status(these.queue) == before
    these.finished(0, 0.1, after=60)
    these.finished(1, 0.3, after=180)
    assert estimates.status(these.queue).startswith("2 done, 2 left; about ")
    assert these.minutes() == 2 * (2 + 2)


def test_a_running_one_is_judged_by_its_own_speed(workdirs):
    these = workdirs(rows(2))
    these.finished(0, 0.1)
    these.trained(1, 300, 1.0)
    these.running(1)
    assert "1 done, 1 running" in estimates.status(these.queue)
    assert these.minutes() == 5


def test_another_seed_is_judged_by_those_of_its_row(workdirs):
    these = workdirs(rows(2, seeds=2))
    for number, seconds in ((0, 0.1), (1, 0.1), (2, 2.0)):
        these.finished(number, seconds)
    assert these.minutes() == 20


def test_processes_share_the_runs_but_none_of_them(workdirs):
    these = workdirs(rows(5))
    these.finished(0, 0.1)
    these.running(1)
    assert these.minutes() == 4
    assert these.minutes(joining=True) == 2
    for number in (2, 3, 4):
        these.running(number)
    assert these.minutes(joining=True) == 1


def test_a_run_of_two_rows_is_counted_once_and_failures_are_told(workdirs):
    config = with_fields(BASE, {})
    these = workdirs([Row("a", config), Row("b", config)])
    path = these.trained(0, 300, 0.2)
    assert these.minutes() == 1
    assert estimates.failures(these.queue) == []
    (path / "failure.json").write_text(json.dumps({"error": "one\ntwo"}))
    assert estimates.failures(these.queue) == [f"failed: {path}: one"]
