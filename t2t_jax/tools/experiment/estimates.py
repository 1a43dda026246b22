"""Estimates how long an experiment takes: before it is run, and while it runs."""

import collections
import dataclasses
import datetime
import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax

from t2t_jax.config import Config
from t2t_jax.costs import chips, step_costs
from t2t_jax.costs.chips import GIB, Chip
from t2t_jax.io.messages import say, waiting
from t2t_jax.io.tables import text_table
from t2t_jax.model.layers import compute_dtype
from t2t_jax.model.model import Model, build
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.tasks.table import task_of
from t2t_jax.tools.experiment.experiment import Row
from t2t_jax.tools.experiment.results import DONE, FAILED, LEFT, RUNNING, STATES
from t2t_jax.tools.experiment.running import Queue, Task
from t2t_jax.tools.plan import forecast
from t2t_jax.tools.plan.describe import checkpoint_bytes
from t2t_jax.tools.plan.forecast import plan

HOUR = 3600.0  # seconds


def dry_run(rows: Sequence[Row], slice: str = "", measure: bool = False) -> str:
    """Lists rows, their parameters, and the hours and disk space that training takes.

    The hours follow from the FLOPs of a step and the rate of this machine. Reading
    text, validation and translation are not part of them.

    Args:
      slice: also forecasts the hours on such chips, as `plan` does, such as `v5e:2x4`.
        The other hours are then those of this machine's processor.
      measure: measures a few steps of a full batch of each row instead.
    """
    header = ["row", "runs", "parameters", "steps", "ms/step", "hours here"]
    header += [f"hours on {slice}"] * bool(slice) + ["GiB"]
    lines = [header]
    sums = [0.0] * (2 + bool(slice))
    width = max(len(row.name) for row in rows)
    counted = set()  # runs that rows share count once
    costs = _Costs(measure)
    for row in rows:
        if row.config is None:
            functions = ", ".join(measure.function for measure in row.measures)
            lines.append([f"{row.name:{width}}  1  measures {functions}"])
            continue
        config = row.config
        # The forecast comes first: it sets JAX up for devices that are not here.
        rented = _forecast(config, slice) if slice else []
        cost = costs.run_cost(config, row.name)
        steps = config.train.steps
        new = {run.hash for run in row.runs} - counted
        counted |= new
        amounts = [_hours(config, step) for step in (cost.seconds, *rented)]
        amounts = [len(new) * x for x in (*amounts, cost.disk(config) / GIB)]
        sums = [total + amount for total, amount in zip(sums, amounts, strict=True)]
        cells = [row.name, str(row.seeds), f"{cost.parameters:,}", f"{steps:,}"]
        cells.append(f"{1e3 * cost.seconds:,.1f}")
        lines.append(cells + [f"{amount:,.3g}" for amount in amounts])
    lines.append(["all rows", "", "", "", "", *map("{:,.3g}".format, sums)])
    return "\n".join([*text_table(lines), "", *costs.explanation()])


class RunCost(NamedTuple):
    """The cost of a run before it is started."""

    parameters: int
    seconds: float  # of a step
    parameter_bytes: int
    state_bytes: int

    def disk(self, config: Config) -> float:
        """Bytes of the checkpoints that a run of this config keeps."""
        saves = -(-config.train.steps // config.train.save_every)
        copies = min(config.decode.average, saves) + config.train.keep_best
        # Two states: the last one, and the one before until that is complete. Besides,
        # the end of training, if it is not on schedule.
        end = bool(config.train.steps % config.train.save_every)
        copies += end and saves > config.decode.average
        return copies * self.parameter_bytes + (2 + end) * self.state_bytes


class _Costs:
    """Estimates the costs of runs, once for those that differ in nothing that costs."""

    def __init__(self, measure: bool):
        self._measure = measure
        self._costs: dict[tuple, RunCost] = {}
        self._dtypes: set[str] = set()  # of the products of those models

    def run_cost(self, config: Config, name: str) -> RunCost:
        """Returns the cost of a run of this config; `name` is that of its row."""
        model, train = config.model, config.train
        model = dataclasses.replace(model, dropout=bool(model.dropout) / 2)
        update = train.optimizer, train.freeze, train.ema_decay, train.accumulate
        loss = train.loss, train.options
        key = model, config.data, config.mesh, config.task, loss, update
        if key not in self._costs:
            activity = "measuring" if self._measure else "forecasting"
            with waiting(f"{activity} {name}"):
                self._costs[key] = self._estimate(config)
        return self._costs[key]

    def _estimate(self, config: Config) -> RunCost:
        model = build(config.model, *task_of(config).vocab_sizes)
        size = checkpoint_bytes(config, model)
        if self._measure:
            seconds = forecast.measure_step(config, jax.devices())
            jax.clear_caches()
        else:
            seconds = self._forecast(config, model, size["state"])
        return RunCost(model.count(), seconds, size["parameters"], size["state"])

    def _forecast(self, config: Config, model: Model, state: int) -> float:
        """The seconds of a step, by its FLOPs and the bytes of the state."""
        mesh = make_mesh(config.mesh)
        shape, _ = step_costs.assumed_shape(config, mesh)
        flops = step_costs.model_flops(model, config, shape)
        _, chip = self._chip
        dtype = compute_dtype(config.model).name
        self._dtypes.add(dtype)
        rate = chip.peak(dtype) * chips.SHARE_OF_PEAK
        # Devices of a CPU share its cores, by which the rate was measured.
        devices = 1 if jax.devices()[0].platform == "cpu" else mesh.size
        # The state is read and written once in a step.
        return max(flops / devices / rate, 2 * state / chip.bandwidth)

    @functools.cached_property
    def _chip(self) -> tuple[str, Chip]:
        return chips.chip_here(jax.devices()[0])

    def explanation(self) -> list[str]:
        """Says how the hours and the disk space are estimated."""
        disk = "GiB: of the checkpoints that are kept."
        scope = "Reading text, validation and translation are not in them"
        if self._measure:
            return [f"hours: measured on a few steps of each row. {scope}.", disk]
        name, chip = self._chip
        rates = " and ".join(
            f"{chip.peak(dtype) / chips.GIGA:,.0f} GFLOP/s in {dtype}"
            for dtype in sorted(self._dtypes)
        )
        return [
            f"hours: forecast from the FLOPs of a step, at {chips.SHARE_OF_PEAK:.0%} "
            f"of {rates} ({name};",
            f"  {chip.source}).",
            f"  {scope}; small models take longer. --measure times some steps of each.",
            disk,
        ]


def _hours(config: Config, step: float) -> float:
    """Hours of training one run, within the config's limit."""
    seconds = step * config.train.steps
    limit = config.train.minutes * 60
    return (min(seconds, limit) if limit else seconds) / HOUR


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
    failed = (queue.result(t) for t in queue.tasks if queue.state(t) == FAILED)
    return [f"failed: {result.path}: {result.error}" for result in failed]


def _end(queue: Queue, states: Mapping[Task, str], processes: int) -> str:
    """Estimates when the runs that are left will end, by the speed of all so far."""
    finished = [_Cost(queue, task) for task in states if states[task] == DONE]
    # Rows may share a run, which is trained once.
    pending = {
        task.run.hash: _Cost(queue, task)
        for task, state in states.items()
        if state in (RUNNING, LEFT)
    }
    if not pending:
        return ""
    started = [cost for cost in (*finished, *pending.values()) if cost.step_seconds]
    if not started and not finished:
        return "; the first run will tell how long the others take"
    # The time outside of training: compilation, translation, measures.
    overheads = [max(0.0, cost.seconds - cost.training) for cost in finished]
    seconds = [_mean(overheads) + cost.to_train(started) for cost in pending.values()]
    # A run is not divided among processes.
    remaining = max(math.fsum(seconds) / max(1, processes), *seconds)
    end = datetime.datetime.now() + datetime.timedelta(seconds=remaining)
    return (
        f"; about {datetime.timedelta(minutes=math.ceil(remaining / 60))} more, until "
        f"{end:%a %H:%M}"
    )


class _Cost:
    """The time of a run, as far as it is known."""

    def __init__(self, queue: Queue, task: Task):
        result = queue.result(task)
        self.row = task.row.name
        step = result.trained[-1]["step"] if result.trained else 0
        # Steps that are left to train.
        self.left = max(0, task.run.config.train.steps - step) if task.run.config else 0
        # Seconds of the steps so far, and of one; 0 until that is known.
        self.training = math.fsum(entry["seconds"] for entry in result.trained)
        self.step_seconds = self.training / step if step else 0.0
        measured = [result.measured(measure.name) for measure in task.row.measures]
        # Of a finished run, from its start to its end: an interrupted run's outcome has
        # the time of the last process alone.
        total = max(self.training, result.outcome.get("seconds", 0.0))
        self.seconds = math.fsum([total, *(m.get("seconds", 0.0) for m in measured)])

    def to_train(self, started: Sequence["_Cost"]) -> float:
        """Seconds of the steps that are left.

        A run that has not started is as fast as those of its row, else as all.
        """
        row_seconds = [cost.step_seconds for cost in started if cost.row == self.row]
        step_seconds = row_seconds or [cost.step_seconds for cost in started]
        return self.left * (self.step_seconds or _mean(step_seconds))


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values or [0.0])
