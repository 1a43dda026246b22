"""The queue of an experiment's runs, with a training that takes no time."""

import errno
import json
import re

import pytest

from t2t_jax import load_config
from t2t_jax.io.errors import UserError
from t2t_jax.tools.experiment import Measure, Row, estimates, running, with_fields
from t2t_jax.tools.experiment.leases import Leases
from t2t_jax.tools.experiment.results import RunResult, read_results
from t2t_jax.tools.experiment.running import Queue, select
from tests.experiment.made_up import holder, row


class Runner:
    """Runs rows, and records which.

    Attributes:
      trained: the folders of runs, in order, without their hashes.
      faults: what a training raises, by the start of its folder's name.
      measured: names of folders and arguments, in order.
    """

    def __init__(self, folder, monkeypatch):
        self.folder, self.trained, self.measured = folder, [], []
        self.faults, self.said = {}, []
        monkeypatch.setattr(running, "train", self._train)
        monkeypatch.setattr(running, "totals", lambda workdir: {"minutes": 1.0})
        monkeypatch.setattr(running.jax, "clear_caches", lambda: None)
        monkeypatch.setattr(running.gc, "collect", lambda: None)
        monkeypatch.setitem(running.MEASURES, "count", self._count)
        monkeypatch.setattr(running, "say", self.said.append)

    def __call__(self, rows, patterns="", retry=False, wait=False):
        """A new process's look at the rows; runs them and returns their states."""
        queue = Queue(self.folder, rows)
        queue.run(select(rows, patterns), retry, wait, lambda: None)
        return {task.run.folder[:-13]: queue.state(task) for task in queue.tasks}

    def _train(self, config, workdir):
        name = workdir.name[:-13]
        self.trained.append(name)
        workdir.mkdir(parents=True, exist_ok=True)
        for start, fault in self.faults.items():
            if name.startswith(start):
                raise fault

    def _count(self, context, **arguments):
        self.measured.append((context.workdir.name[:-13], arguments))
        return {"needs": {name: len(paths) for name, paths in context.needs.items()}}

    def workdir(self, name):
        (workdir,) = self.folder.glob(f"runs/{name}-*")
        return workdir

    def leases(self):
        return [*self.folder.glob("leases/*.json")]


@pytest.fixture
def run(tmp_path, monkeypatch):
    return Runner(tmp_path, monkeypatch)


@pytest.fixture
def a_b():
    """Two rows of one seed."""
    return [row("a", seeds=1), row("b", seeds=1)]


def test_a_row_comes_after_those_it_needs_and_has_their_workdirs(run):
    needed = row("first", seeds=2)
    needing = Row("last", measures=[Measure("count")], needs=["first"])
    run.faults["first.seed1"] = ValueError("no")
    assert run([needed, needing])["last"] == "left"
    assert "not run: last; it needs first, which is not done" in run.said
    run.faults.clear()
    assert run([needed, needing], retry=True)["last"] == "done"
    measured = RunResult(None, run.workdir("last")).measure("count")
    assert measured == {"needs": {"first": 2}}
    assert run.trained == ["first", "first.seed1", "first.seed1"]
    # A measure of other runs is computed again.
    assert run([row("first", seeds=1), needing])["last"] == "done"
    assert [name for name, _ in run.measured] == ["last", "last"]


def test_a_failure_is_recorded_and_tried_again_only_when_asked(run, a_b):
    run.faults["a"] = ZeroDivisionError("by zero")
    assert run(a_b) == {"a": "failed", "b": "done"}
    failure = RunResult(None, run.workdir("a")).failure
    assert failure["error"] == "ZeroDivisionError('by zero')"
    assert "in _train" in failure["traceback"]
    assert run(a_b)["a"] == "failed"
    assert run.trained == ["a", "b"]
    run.faults["a"] = UserError("mend it")
    assert run(a_b, retry=True)["a"] == "failed"
    assert run.trained == ["a", "b", "a"]
    errors = {f.name: f.read_text() for f in run.workdir("a").glob("failure*")}
    assert "mend it" in errors["failure.json"]
    assert "ZeroDivisionError" in errors["failure.1.json"]
    run.faults.clear()
    assert run(a_b, retry=True)["a"] == "done"
    assert not (run.workdir("a") / "failure.json").exists()


@pytest.mark.parametrize(
    "end", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")]
)
def test_what_would_end_every_row_ends_the_queue(run, a_b, end):
    run.faults["a"] = end
    with pytest.raises(type(end)):
        run(a_b)
    assert run.trained == ["a"]
    assert not [*run.folder.glob("runs/*/failure*")]
    assert run.leases() == []
    run.faults.clear()
    assert run(a_b) == {"a": "done", "b": "done"}


def test_rows_that_share_all_fields_are_trained_once(run):
    row_a = row("one", seeds=1, measures=[Measure("count")])
    row_b = Row("two", row_a.config, measures=[Measure("count", {"n": 2}, "second")])
    assert set(run([row_a, row_b]).values()) == {"done"}
    renamed = Row("three", row_a.config, measures=[Measure("count", {"n": 3}, "third")])
    assert run([renamed]) == {"three": "done"}
    assert run.trained == ["one"]
    assert run.measured == [("one", {}), ("one", {"n": 2}), ("one", {"n": 3})]
    (result,) = read_results([renamed], run.folder / "runs")
    assert result.runs[0].measured("third")["arguments"] == {"n": 3}


def test_a_measure_with_other_arguments_is_computed_again_and_the_first_kept(run):
    for n in (1, 2, 2):
        run([row("a", seeds=1, measures=[Measure("count", {"n": (n,)})])])
    assert run.measured == [("a", {"n": (1,)}), ("a", {"n": (2,)})]
    folder = run.workdir("a") / "measures"
    assert json.loads((folder / "count.1.json").read_text())["arguments"] == {"n": [1]}
    assert json.loads((folder / "count.json").read_text())["arguments"] == {"n": [2]}
    assert run.trained == ["a"]


def test_the_first_seed_of_every_row_is_run_first_and_each_run_once(run):
    rows = [row("heads=1", seeds=2), row("layers=1", seeds=1), row("base", seeds=1)]
    run(rows, "heads=*, bas?")
    assert run.trained == ["heads=1", "base", "heads=1.seed1"]
    assert {*run(rows, retry=True).values()} == {"done"}
    assert run.trained[3:] == ["layers=1"]
    with pytest.raises(UserError, match="--rows=head: no such row.*heads=1"):
        run(rows, "head")


def test_another_process_is_waited_for_and_its_row_taken_if_it_dies(
    run, a_b, monkeypatch
):
    rows = [*a_b, row("c", seeds=1, needs=["a"])]
    with holder(run.folder / "leases", rows[0].runs[0].hash) as process:
        assert run(rows, wait=False) == {"a": "running", "b": "done", "c": "left"}

        def sleep(seconds):
            assert run.trained == ["b"]
            assert f"process {process.pid} on" in run.said[-1]
            process.kill()
            process.wait()

        monkeypatch.setattr(running.time, "sleep", sleep)
        assert set(run(rows, wait=True).values()) == {"done"}
    assert run.trained == ["b", "a", "c"]


def test_a_process_that_lost_its_row_leaves_it_and_goes_on(run, a_b, monkeypatch):
    def train(config, folder):
        run.trained.append(folder.name[:-13])
        if run.trained == ["a"]:
            (lease,) = run.leases()
            content = json.loads(lease.read_text()) | {"host": "another machine"}
            lease.write_text(json.dumps(content))
            raise ValueError("the other one holds the workdir")

    monkeypatch.setattr(running, "train", train)
    assert run(a_b) == {"a": "running", "b": "done"}
    assert run.trained == ["a", "b"]
    assert not [*run.folder.glob("runs/*/failure*")]
    assert any("was taken over by another process" in text for text in run.said)


# ---------------------------------------------------------------- the time that is left

STEPS = 600


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


def test_the_time_that_is_left_is_that_of_the_runs_so_far(tmp_path):
    base = load_config("tiny", train={"steps": STEPS})
    rows = [Row(f"row{n}", with_fields(base, {"model.layers": n})) for n in range(1, 6)]
    queue = Queue(tmp_path, rows)
    assert estimates.status(queue).startswith("5 left; the first run will tell")
    trained(queue, 0, STEPS, 0.1)
    trained(queue, 1, STEPS, 0.3)
    # The mean of both runs, for each of those that are left.
    assert "2 done, 3 left; about 0:06:00 more" in estimates.status(queue)
    trained(queue, 2, 300, 2.0)  # it is slower than those, and still running
    lease = Leases(tmp_path / "leases").take(queue.tasks[2].run.hash)
    status = estimates.status(queue)
    assert "2 done, 1 running, 2 left" in status
    assert int(re.search(r"about 0:(\d+):00 more", status)[1]) > 10
    lease.release()
