"""Tables of an experiment for programs: the same values, unformatted."""

import csv
import io
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_jax.metrics.measures import TESTS
from t2t_jax.tools.experiment.experiment import Experiment
from t2t_jax.tools.experiment.results import Results, RowResult, RunResult
from t2t_jax.tools.experiment.statistics import Comparison


def with_paper(experiment: Experiment, results: Results) -> list[tuple[str, bool]]:
    """The columns, each followed by that of the paper's figures if there are any.

    Returns:
      Pairs of a column and whether it is the paper's.
    """
    paper = dict.fromkeys(name for row in results for name in row.row.paper)
    columns = []
    for column in experiment.columns:
        columns.append((column, False))
        if column in paper:
            columns.append((column, True))
    only_paper = [name for name in paper if name not in experiment.columns]
    return columns + [(name, True) for name in only_paper]


def workdirs(row: RowResult, folder: Path) -> list[str]:
    """The row's workdirs, relative to the experiment's folder."""
    return [os.path.relpath(run.path, folder) for run in row.runs]


def table_csv(
    experiment: Experiment,
    results: Results,
    found: Mapping[str, Comparison],
    states: Mapping[str, str],
    folder: Path,
) -> str:
    """A line for each row: of each column mean, std and n, and what was tested."""
    return _csv(
        {"row": row.row.name, "group": row.row.group, "state": states[row.row.name]}
        | dict(_figures(experiment, results, row))
        | _tested(found.get(row.row.name))
        | {"workdirs": " ".join(workdirs(row, folder))}
        for row in results
    )


def _figures(experiment: Experiment, results: Results, row: RowResult):
    for column, paper in with_paper(experiment, results):
        if paper:
            yield f"{column} paper", row.row.paper.get(column)
        elif any(column in other.row.values for other in results):
            yield column, row.row.values.get(column)
        else:
            yield f"{column} mean", row.mean(column)
            yield f"{column} std", row.deviation(column)
            yield f"{column} n", len(row.values(column))


def _tested(one: Comparison | None) -> dict[str, Any]:
    names = ("verdict", "reason", "difference", "p_seeds", "p_adjusted")
    lines = one.p_lines if one else {}
    return {name: getattr(one, name, None) for name in names} | {
        f"p_{test}": lines.get(test) for test in TESTS
    }


def runs_csv(
    experiment: Experiment,
    results: Results,
    states: Mapping[tuple[str, int], str],
    folder: Path,
) -> str:
    """A line for each run, with all columns.

    Args:
      states: by row and seed.
    """
    return _csv(
        {
            "row": row.row.name,
            "seed": run.run.seed,
            "workdir": os.path.relpath(run.path, folder),
            "state": states[row.row.name, run.run.seed],
        }
        | {
            column: row.row.values.get(column, run.value(column))
            for column in experiment.columns
        }
        | {"machine": _machine(run)}
        for row in results
        for run in row.runs
    )


def _machine(run: RunResult) -> str:
    """Names the machine of a finished run: minutes differ between machines."""
    machine = run.outcome.get("machine", {})
    devices = f"{machine.get('devices')} {machine.get('device')}"
    cores = f"{machine.get('processor')}, {machine.get('cores')} cores"
    return f"{devices} ({cores})" if machine else ""


def _csv(rows) -> str:
    """Encodes rows of the same keys; what is unknown stays empty."""
    rows = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: "" if _unknown(v) else v for key, v in row.items()})
    return text.getvalue()


def _unknown(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
