"""Estimates how long an experiment takes: before it is run, and while it runs."""

import collections
import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence

import jax

from t2t_jax.config import Config
from t2t_jax.io.messages import say, waiting
from t2t_jax.io.tables import text_table
from t2t_jax.model.model import build
from t2t_jax.tasks.table import task_of
from t2t_jax.tools.experiment.results import FAILURE, RunResult, read_json
from t2t_jax.tools.experiment.rows import Row
from t2t_jax.tools.experiment.running import Queue, Task
from t2t_jax.tools.plan import forecast
from t2t_jax.tools.plan.plan import plan

HOUR = 3600.0  # seconds


def dry_run(rows: Sequence[Row], slice: str = "") -> str:
    """Lists rows, their parameters, and the hours that training takes.

    The hours on this machine are measured: on a few steps of a full batch for each row.
    Reading text, validation and translation are not part of them.

    Args:
      slice: also forecasts the hours on such chips, as `plan` does, such as `v5e:2x4`.
        The measurement is then that of this machine's processor.

    Returns:
      A table as text.

    Raises:
      UserError: no such slice, or a config that cannot be trained.
    """
    header = ["row", "runs", "parameters", "steps", "ms/step", "hours here"]
    lines = [header + ([f"hours on {slice}"] if slice else [])]
    width = max(len(row.name) for row in rows)
    sums = [0.0, 0.0]
    counted = set()  # runs that rows share count once
    for row in rows:
        if row.config is None:
            functions = ", ".join(measure.function for measure in row.measures)
            lines.append([f"{row.name:{width}}  1  measures {functions}"])
            continue
        config = row.config
        model = build(config.model, *task_of(config).vocab_sizes)
        # The forecast comes first: it sets JAX up for devices that are not here.
        rented = _forecast(config, slice) if slice else []
        with waiting(f"measuring {row.name}"):
            seconds = _step_seconds(config)
        steps = config.train.steps
        new = {run.hash for run in row.runs} - counted
        counted |= new
        hours = [len(new) * _hours(config, step) for step in (seconds, *rented)]
        sums = [total + more for total, more in zip(sums, [*hours, 0.0], strict=False)]
        cells = [row.name, str(row.seeds), f"{model.count():,}", f"{steps:,}"]
        lines.append([*cells, f"{1e3 * seconds:,.1f}", *map("{:,.3g}".format, hours)])
    totals = [f"{total:,.3g}" for total in sums[: 1 + bool(slice)]]
    lines.append(["all rows", "", "", "", "", *totals])
    return "\n".join(text_table(lines))


def _hours(config: Config, step: float) -> float:
    """Hours of training one run, within the config's limit."""
    seconds = step * config.train.steps
    limit = config.train.minutes * 60
    return (min(seconds, limit) if limit else seconds) / HOUR


_measured: dict[tuple, float] = {}


def _step_seconds(config: Config) -> float:
    """Seconds of a step; measured once for rows that differ in nothing that costs."""
    same = dataclasses.replace(config.model, dropout=bool(config.model.dropout) / 2)
    key = same, config.data, config.mesh, config.train.accumulate, config.train.loss
    if key not in _measured:
        _measured[key] = forecast.measure_step(config, jax.devices())
        jax.clear_caches()
    return _measured[key]


def _forecast(config: Config, slice: str) -> list[float]:
    """The forecast seconds of a step on a slice."""
    result = plan(config, slice, remedy=False)
    if not result["fits"]:
        say(f"does not fit on {slice}: {config.model}")
    return [result["time"]["step"]]


STATES = ("done", "running", "failed", "left")


def status(queue: Queue, joining: bool = False) -> str:
    """Says how far the runs are, with an estimate of the time that is left.

    Args:
      joining: True if this process is about to take a run, as the running ones do.
    """
    states = {task: queue.state(task) for task in queue.tasks}
    counts = collections.Counter(states.values())
    listed = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    return ", ".join(listed) + _end(queue, states, counts["running"] + joining)


def failures(queue: Queue) -> list[str]:
    """A line for each failed run, with its error."""
    lines = []
    for task in queue.tasks:
        if queue.state(task) == "failed":
            error = read_json(queue.workdir(task) / FAILURE).get("error", "")
            first, _, _ = error.partition("\n")
            lines.append(f"failed: {queue.workdir(task)}: {first}")
    return lines


def _end(queue: Queue, states: Mapping[Task, str], processes: int) -> str:
    """Estimates when the runs that are left will end, by the speed of all so far."""
    finished = [_Cost(queue, task) for task in states if states[task] == "done"]
    # Rows may share a run, which is trained once.
    left = {
        task.run.hash: _Cost(queue, task)
        for task, state in states.items()
        if state in ("running", "left")
    }
    if not left:
        return ""
    started = [cost for cost in (*finished, *left.values()) if cost.step_seconds]
    if not started and not finished:
        return "; the first run will tell how long the others take"
    # The time outside of training: compilation, translation, measures.
    others = [max(0.0, cost.seconds - cost.training) for cost in finished]
    fixed = math.fsum(others) / len(others) if others else 0.0
    seconds = [fixed + cost.to_train(started) for cost in left.values()]
    # A run is not divided among processes.
    rest = max(math.fsum(seconds) / max(1, processes), *seconds)
    end = datetime.datetime.now() + datetime.timedelta(seconds=rest)
    return (
        f"; about {datetime.timedelta(minutes=math.ceil(rest / 60))} more, until "
        f"{end:%a %H:%M}"
    )


class _Cost:
    """The time of a run, as far as it is known.

    Attributes:
      row: its row's name.
      steps: that it is to train; 0 if it only measures.
      done: steps trained so far.
      training: seconds that those took.
      seconds: of a finished run, from its start to its end.
    """

    def __init__(self, queue: Queue, task: Task):
        result = RunResult(task.run, queue.workdir(task))
        self.row = task.row.name
        self.steps = task.run.config.train.steps if task.run.config else 0
        trained = [entry for entry in result.metrics if entry["kind"] == "train"]
        self.done = trained[-1]["step"] if trained else 0
        self.training = math.fsum(entry["seconds"] for entry in trained)
        measured = [result.measured(measure.name) for measure in task.row.measures]
        self.seconds = math.fsum(
            [
                # An interrupted run's outcome has the time of the last process alone.
                max(self.training, result.outcome.get("seconds", 0.0)),
                *(measure.get("seconds", 0.0) for measure in measured),
            ]
        )

    @property
    def step_seconds(self) -> float:
        """Seconds of a step; 0 until that is known."""
        return self.training / self.done if self.done else 0.0

    def to_train(self, started: Sequence["_Cost"]) -> float:
        """Seconds of the steps that are left.

        Args:
          started: runs whose speed counts as this one's, if it has not started:
            those of the same row, else all.
        """
        others = [cost.step_seconds for cost in started if cost.row == self.row]
        others = others or [cost.step_seconds for cost in started]
        rate = self.step_seconds or (math.fsum(others) / len(others) if others else 0.0)
        return max(0, self.steps - self.done) * rate
