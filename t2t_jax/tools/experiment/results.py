"""Reads what the runs of an experiment have written, finished or not."""

import dataclasses
import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_jax.config import Config
from t2t_jax.io.errors import UserError
from t2t_jax.tasks.table import known_measures, task_of
from t2t_jax.tasks.translation import Translation
from t2t_jax.tools.experiment.rows import Row, Run
from t2t_jax.training.metrics_log import METRICS, read_log

# Files of a run's workdir that the runner adds to those of training.
TRAINING = "training"  # the step of a failure; or the name of a measure
OUTCOME, FAILURE, MEASURED = "outcome.json", "failure.json", "measures"
# Which value of a column is better, by the last part of its name; those of
# `Task.measures` are added.
BETTER = {
    **dict.fromkeys(("bleu", "bleu_lc", "chrf", "f1", "accuracy"), "higher"),
    **dict.fromkeys(("ter", "perplexity", "loss"), "lower"),
}


def better(column: str) -> str:
    """`higher` or `lower`, whichever is better in a column; empty if neither is."""
    name = column.rpartition(".")[2]
    if measure := known_measures().get(name):
        return "higher" if measure.higher_is_better else "lower"
    return BETTER.get(name, "")


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The files that one run has written.

    Attributes:
      run: what it is.
      path: its workdir, which may not exist yet.
    """

    run: Run
    path: Path

    @functools.cached_property
    def outcome(self) -> dict[str, Any]:
        """Totals of the training; empty until it is finished."""
        return read_json(self.path / OUTCOME)

    @functools.cached_property
    def failure(self) -> dict[str, Any]:
        """The error that ended the run; empty if none did."""
        return read_json(self.path / FAILURE)

    @functools.cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The entries of `metrics.jsonl`, in order."""
        return read_log(self.path / METRICS).entries

    @property
    def started(self) -> float:
        """Unix time of the first start of the training; infinite if there was none."""
        try:
            first, *_ = (self.path / "starts.jsonl").read_bytes().splitlines()
        except (FileNotFoundError, ValueError):
            return math.inf
        return json.loads(first)["time"]

    def value(self, column: str) -> Any:
        """The run's value of a column of `Experiment.columns`; None if it has none yet.

        Values are there when the training is finished; those of `dev` and `train` are
        the last in `metrics.jsonl`, `nan` if they were not finite.
        """
        if column in self.outcome:
            return self.outcome[column]
        first, _, key = column.partition(".")
        if first in ("dev", "train"):
            logged = [e[key] for e in self.metrics if e["kind"] == first and key in e]
            if not (self.outcome and logged):
                return None
            return math.nan if logged[-1] is None else logged[-1]
        test_set, _, metric = column.rpartition(".")  # a set's name may have dots
        return self.measure(first).get(key, self.scores(test_set).get(metric))

    def failed(self, row: Row) -> bool:
        """True if the run failed in a step of this row; others may share the run."""
        steps = (TRAINING, *(measure.name for measure in row.measures))
        return self.failure.get("step", TRAINING) in steps if self.failure else False

    def scores(self, test_set: str) -> dict[str, Any]:
        """The content of `scores/SET.json`; empty until the set is scored."""
        return read_json(self.path / "scores" / f"{test_set}.json")

    def measure(self, name: str) -> dict[str, Any]:
        """The result of a measure; empty until it is measured."""
        return self.measured(name).get("result", {})

    def measured(self, name: str) -> dict[str, Any]:
        """The content of a measure's file, `seconds` and `machine` included."""
        return read_json(self.path / MEASURED / f"{name}.json")


@dataclasses.dataclass(frozen=True)
class RowResult:
    """A row and its runs, one for each seed."""

    row: Row
    runs: Sequence[RunResult]

    def values(self, column: str) -> list[float]:
        """The numbers of a column, of those runs that have one."""
        if column in self.row.values:
            return [self.row.values[column]]
        values = [run.value(column) for run in self.runs]
        return [value for value in values if _is_number(value)]

    def mean(self, column: str) -> float:
        """The mean over seeds; `nan` if no run has a value."""
        values = self.values(column)
        return float(np.mean(values)) if values else math.nan

    def deviation(self, column: str) -> float:
        """The sample standard deviation over seeds; `nan` of fewer than two."""
        values = self.values(column)
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


@dataclasses.dataclass(frozen=True)
class Results:
    """All rows of an experiment, in the order of its plan.

    Attributes:
      rows: with their runs.
    """

    rows: Sequence[RowResult]

    def __iter__(self) -> Iterator[RowResult]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> RowResult:
        """The row of a name; raises KeyError if there is none."""
        for result in self.rows:
            if result.row.name == name:
                return result
        raise KeyError(name)

    def __contains__(self, name: str) -> bool:
        return any(result.row.name == name for result in self.rows)

    def groups(self) -> dict[str, list[RowResult]]:
        """The rows by their group, in order."""
        groups: dict[str, list[RowResult]] = {}
        for result in self.rows:
            groups.setdefault(result.row.group, []).append(result)
        return groups


def read_results(rows: Sequence[Row], runs_folder: Path) -> Results:
    """Reads the results of rows.

    Args:
      runs_folder: holds the workdirs of runs.
    """
    return Results(
        [
            RowResult(
                row,
                [RunResult(run, workdir_of(run, runs_folder)) for run in row.runs],
            )
            for row in rows
        ]
    )


def workdir_of(run: Run, runs_folder: Path) -> Path:
    """The run's workdir: the one that has its hash already, or a new one."""
    # Another experiment, or an earlier plan, may call the row by another name.
    existing = sorted(runs_folder.glob(f"*-{run.hash}"))
    return existing[0] if existing else runs_folder / run.folder


class Context(NamedTuple):
    """A row of an experiment, for a function that measures it.

    Attributes:
      workdir: that of the run; if the row trains nothing, an empty folder.
      config: what was trained; None if the row trains nothing.
      needs: the workdirs of the rows that the row needs, by name, one for each seed.
    """

    workdir: Path
    config: Config | None
    needs: Mapping[str, Sequence[Path]]

    def check_translates(self, measure: str) -> None:
        """Raises UserError if the row's task is not translation.

        Args:
          measure: the name of a measure of translations.
        """
        if self.config and not isinstance(task_of(self.config), Translation):
            raise UserError(
                f"{measure} measures translations, and the row trains "
                f"config.task.kind={self.config.task.kind!r}; leave the measure out"
            )


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object, empty if the file does not exist."""
    try:
        return json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
