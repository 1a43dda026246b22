"""The queue of an experiment's runs, with a training that takes no time."""

import errno
import json

import pytest

from t2t_jax import load_config
from t2t_jax.io.errors import UserError
from t2t_jax.tools.experiment import Measure, Row, running, with_fields
from t2t_jax.tools.experiment.results import RunResult, read_results
from t2t_jax.tools.experiment.running import Queue, select
from tests.experiment.made_up import holder


def row(name, seeds=1, layers=None, **rest):
    """A row of its own config, by its name."""
    layers = layers or 1 + sum(map(ord, name))
    return Row(
        name, with_fields(load_config("tiny"), {"model.layers": layers}), seeds, **rest
    )


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
        made = Queue(self.folder, rows)
        made.run(select(rows, patterns), retry, wait, lambda: None)
        return {task.run.folder[:-13]: made.state(task) for task in made.tasks}

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


@pytest.fixture
def run(tmp_path, monkeypatch):
    return Runner(tmp_path, monkeypatch)


def workdir(run, name):
    (found,) = run.folder.glob(f"runs/{name}-*")
    return found


def leases(run):
    return [*run.folder.glob("leases/*.json")]


def test_a_row_comes_after_those_it_needs_and_has_their_workdirs(run):
    first = row("first", seeds=2)
    last = Row("last", measures=[Measure("count")], needs=["first"])
    run.faults["first.seed1"] = ValueError("no")
    assert run([first, last])["last"] == "left"
    assert "not run: last; it needs first, which is not done" in run.said
    run.faults.clear()
    assert run([first, last], retry=True)["last"] == "done"
    assert RunResult(None, workdir(run, "last")).measure("count") == {
        "needs": {"first": 2}
    }
    assert run.trained == ["first", "first.seed1", "first.seed1"]
    # A measure of other runs is computed again.
    assert run([row("first"), last])["last"] == "done"
    assert [name for name, _ in run.measured] == ["last", "last"]


def test_a_failure_is_recorded_and_tried_again_only_when_asked(run):
    rows = [row("a"), row("b")]
    run.faults["a"] = ZeroDivisionError("by zero")
    assert run(rows) == {"a": "failed", "b": "done"}
    failure = RunResult(None, workdir(run, "a")).failure
    assert failure["error"] == "ZeroDivisionError('by zero')"
    assert "in _train" in failure["traceback"]
    assert run(rows)["a"] == "failed"
    assert run.trained == ["a", "b"]
    run.faults["a"] = UserError("mend it")
    assert run(rows, retry=True)["a"] == "failed"
    assert run.trained == ["a", "b", "a"]
    failure = RunResult(None, workdir(run, "a")).failure
    assert failure["error"] == "mend it"
    earlier = json.loads((workdir(run, "a") / "failure.1.json").read_text())
    assert earlier["error"] == "ZeroDivisionError('by zero')"
    run.faults.clear()
    assert run(rows, retry=True)["a"] == "done"
    assert {p.name for p in workdir(run, "a").glob("failure*")} == {
        "failure.1.json",
        "failure.2.json",
    }


def test_a_retry_ends_though_the_clock_stands_still(run, monkeypatch):
    run.faults["a"] = ValueError("no")
    monkeypatch.setattr(running.time, "time", lambda: 1_000.0)
    assert run([row("a")], retry=True) == {"a": "failed"}
    assert run.trained == ["a"]


@pytest.mark.parametrize(
    "end", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")]
)
def test_what_would_end_every_row_ends_the_queue(run, end):
    rows = [row("a"), row("b")]
    run.faults["a"] = end
    with pytest.raises(type(end)):
        run(rows)
    assert run.trained == ["a"]
    assert not [*run.folder.glob("runs/*/failure*")]
    assert leases(run) == []
    run.faults.clear()
    assert run(rows) == {"a": "done", "b": "done"}


def test_rows_that_share_all_fields_are_trained_once(run):
    one = row("one", layers=2, measures=[Measure("count")])
    two = row("two", layers=2, measures=[Measure("count", {"n": 2}, "second")])
    assert set(run([one, two]).values()) == {"done"}
    renamed = row("three", layers=2, measures=[Measure("count", {"n": 3}, "third")])
    assert run([renamed]) == {"three": "done"}
    assert run.trained == ["one"]
    assert run.measured == [("one", {}), ("one", {"n": 2}), ("one", {"n": 3})]
    (result,) = read_results([renamed], run.folder / "runs")
    assert result.runs[0].measured("third")["arguments"] == {"n": 3}


def test_a_measure_with_other_arguments_is_computed_again(run):
    for n in (1, 2, 2):
        run([row("a", measures=[Measure("count", {"n": (n,)})])])
    assert run.measured == [("a", {"n": (1,)}), ("a", {"n": (2,)})]
    folder = workdir(run, "a") / "measures"
    assert json.loads((folder / "count.1.json").read_text())["arguments"] == {"n": [1]}
    assert json.loads((folder / "count.json").read_text())["arguments"] == {"n": [2]}
    assert run.trained == ["a"]


def test_a_row_whose_processes_died_comes_last(run):
    rows = [row("a"), row("b")]
    with holder(run.folder / "leases", rows[0].runs[0].hash):
        pass
    run(rows)
    assert run.trained == ["b", "a"]
    assert leases(run) == []


def test_rows_are_run_in_order_with_all_their_seeds_and_once(run):
    rows = [row("heads=1", seeds=2), row("heads=2"), row("layers=1"), row("base")]
    run(rows, "heads=*, bas?")
    assert run.trained == ["heads=1", "heads=1.seed1", "heads=2", "base"]
    assert {*run(rows, retry=True).values()} == {"done"}
    assert run.trained[4:] == ["layers=1"]
    assert leases(run) == []
    with pytest.raises(UserError, match="--rows=head: no such row.*heads=1"):
        run(rows, "head")


def test_another_process_is_waited_for_and_its_row_taken_if_it_dies(run, monkeypatch):
    rows = [row("a"), row("b"), row("c", needs=["a"])]
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


def test_a_process_that_lost_its_row_leaves_it_and_goes_on(run, monkeypatch):
    def train(config, folder):
        run.trained.append(folder.name[:-13])
        if run.trained == ["a"]:
            (lease,) = leases(run)
            content = json.loads(lease.read_text()) | {"host": "another machine"}
            lease.write_text(json.dumps(content))
            raise ValueError("the other one holds the workdir")

    monkeypatch.setattr(running, "train", train)
    assert run([row("a"), row("b")]) == {"a": "running", "b": "done"}
    assert run.trained == ["a", "b"]
    assert not [*run.folder.glob("runs/*/failure*")]
    assert any("was taken over by another process" in text for text in run.said)


def test_a_measure_that_fails_is_not_the_failure_of_rows_without_it(run):
    config = row("a").config
    broken = Row("broken", config, measures=[Measure("no such measure")])
    assert run([broken]) == {"broken": "failed"}
    counted = Row("counted", config, measures=[Measure("count")])
    assert run([Row("plain", config)]) == {"plain": "done"}
    assert run([counted, broken]) == {"counted": "done", "broken": "failed"}
    assert run.trained == ["broken"]
