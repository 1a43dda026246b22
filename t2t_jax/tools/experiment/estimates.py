"""Estimates the cost of an experiment before it is run."""

import dataclasses
from collections.abc import Sequence

import jax

from t2t_jax.config import Config
from t2t_jax.io.messages import say, waiting
from t2t_jax.model.model import build
from t2t_jax.tasks.table import task_of
from t2t_jax.tools.experiment.experiment import Row
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
    sums = [0.0, 0.0]
    known = set()  # runs that rows share count once
    for row in rows:
        if row.config is None:
            functions = ", ".join(measure.function for measure in row.measures)
            lines.append([row.name, "1", f"measures {functions}"])
            continue
        config = row.config
        model = build(config.model, *task_of(config).vocab_sizes)
        # The forecast comes first: it sets JAX up for devices that are not here.
        rented = _forecast(config, slice) if slice else []
        with waiting(f"measuring {row.name}"):
            seconds = _step_seconds(config)
        steps = config.train.steps
        new = {run.hash for run in row.runs} - known
        known |= new
        hours = [len(new) * _hours(config, step) for step in (seconds, *rented)]
        sums = [total + more for total, more in zip(sums, [*hours, 0.0], strict=False)]
        cells = [row.name, row.seeds, f"{model.count():,}", f"{steps:,}"]
        lines.append([*cells, f"{1e3 * seconds:,.1f}", *map("{:,.3g}".format, hours)])
    totals = [f"{total:,.3g}" for total in sums[: 1 + bool(slice)]]
    lines.append(["all rows", "", "", "", "", *totals])
    return _aligned(lines)


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


def _aligned(lines: list[list]) -> str:
    """Formats a table of texts and numbers, with its first column to the left."""
    texts = [[str(cell) for cell in line] for line in lines]
    columns = max(map(len, texts))
    widths = [
        max(len(line[i]) for line in texts if len(line) > i and len(line) == columns)
        for i in range(columns)
    ]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 or len(line) < columns else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=False))
        ).rstrip()
        for line in texts
    )
