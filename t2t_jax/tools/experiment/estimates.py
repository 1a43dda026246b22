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
from t2t_jax.tools.experiment.experiment import Row
from t2t_jax.tools.experiment.results import DONE, FAILED, LEFT, RUNNING, STATES
from t2t_jax.tools.experiment.running import Queue, Task
from t2t_jax.tools.plan import forecast
from t2t_jax.tools.plan.forecast import plan

HOUR = 3600.0  # seconds


def dry_run(rows: Sequence[Row], slice: str = "") -> str:
    """Lists rows, their parameters, and the hours that training takes.

    The hours on this machine are measured: on a few steps of a full batch for each row.
    Reading text, validation and translation are not part of them.

    Args:
      slice: also forecasts the hours on such chips, as `plan` does, such as `v5e:2x4`.
        The measurement is then that of this machine's processor.
    """
    header = ["row", "runs", "parameters", "steps", "ms/step", "hours here"]
    sums = [0.0]
    if slice:
        header.append(f"hours on {slice}")
        sums.append(0.0)
    lines = [header]
    width = max(len(row.name) for row in rows)
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
        sums = [total + more for total, more in zip(sums, hours, strict=True)]
        cells = [row.name, str(row.seeds), f"{model.count():,}", f"{steps:,}"]
        lines.append([*cells, f"{1e3 * seconds:,.1f}", *map("{:,.3g}".format, hours)])
    lines.append(["all rows", "", "", "", "", *map("{:,.3g}".format, sums)])
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


def status(queue: Queue, joining: bool = False) -> str:
    """Says how far the runs are, with an estimate of the time that is left.

    Args:
      joining: True if this process is about to take a run, as the running ones do.
    """
    states = {task: queue.state(task) for task in queue.tasks}
    counts = collections.Counter(states.values())
    listed = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    return ", ".join(listed) + _end(queue, states, counts[RUNNING] + joining)


def failures(queue: Queue) -> list[str]:
    """A line for each failed run, with its error."""
    failed = [task for task in queue.tasks if queue.state(task) == FAILED]
    results = map(queue.result, failed)
    return [f"failed: {result.path}: {result.error}" for result in results]


def _end(queue: Queue, states: Mapping[Task, str], processes: int) -> str:
    """Estimates when the runs that are left will end, by the speed of all so far."""
    finished = [_Cost(queue, task) for task in states if states[task] == DONE]
    # Rows may share a run, which is trained once.
    left = {
        task.run.hash: _Cost(queue, task)
        for task, state in states.items()
        if state in (RUNNING, LEFT)
    }
    if not left:
        return ""
    started = [cost for cost in (*finished, *left.values()) if cost.step_seconds]
    if not started and not finished:
        return "; the first run will tell how long the others take"
    # The time outside of training: compilation, translation, measures.
    others = [max(0.0, cost.seconds - cost.training) for cost in finished]
    seconds = [_mean(others) + cost.to_train(started) for cost in left.values()]
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
      left: steps that are left to train.
      training: seconds of the steps so far.
      step_seconds: those of a step; 0 until that is known.
      seconds: of a finished run, from its start to its end.
    """

    def __init__(self, queue: Queue, task: Task):
        result = queue.result(task)
        self.row = task.row.name
        done = result.trained[-1]["step"] if result.trained else 0
        self.left = max(0, task.run.config.train.steps - done) if task.run.config else 0
        self.training = math.fsum(entry["seconds"] for entry in result.trained)
        self.step_seconds = self.training / done if done else 0.0
        measured = [result.measured(measure.name) for measure in task.row.measures]
        # An interrupted run's outcome has the time of the last process alone.
        whole = max(self.training, result.outcome.get("seconds", 0.0))
        self.seconds = math.fsum([whole, *(m.get("seconds", 0.0) for m in measured)])

    def to_train(self, started: Sequence["_Cost"]) -> float:
        """Seconds of the steps that are left.

        A run that has not started is as fast as those of its row, else as all.
        """
        of_row = [cost.step_seconds for cost in started if cost.row == self.row]
        others = of_row or [cost.step_seconds for cost in started]
        return self.left * (self.step_seconds or _mean(others))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
