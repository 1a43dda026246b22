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
from t2t_jax.data.corpus import Corpus, heaviest_first, open_corpora
from t2t_jax.io.errors import UserError
from t2t_jax.tasks.table import known_measures, task_of
from t2t_jax.tasks.translation import Translation
from t2t_jax.tools.experiment.experiment import Measure, Row, Run
from t2t_jax.training.metrics_log import METRICS, read_log
from t2t_jax.workdir import STARTS

# Files of a run's workdir that the runner adds to those of training.
TRAINING = "training"  # the step of a failure; or the name of a measure
OUTCOME, FAILURE, MEASURED = "outcome.json", "failure.json", "measures"
# States of a run.
DONE, RUNNING, FAILED, LEFT = STATES = "done", "running", "failed", "left"
# The workdirs of the rows that a row needs, by name, one for each seed.
Needs = Mapping[str, Sequence[Path]]
# Columns by the last part of their names: which value is better, and the digits after
# the point, of millions for `tables.MILLIONS`; those of `Task.measures` are added.
COLUMNS = {
    "bleu": ("higher", 1),
    "bleu_lc": ("higher", 1),
    "bleu_paper": ("", 1),
    "chrf": ("higher", 1),
    "ter": ("lower", 1),
    "loss": ("lower", 3),
    "perplexity": ("lower", 3),
    "minutes": ("", 1),
    "steps": ("", 0),
    "parameters": ("", 3),
    "tokens": ("", 2),
}


def column_of(name: str) -> tuple[str, int | None]:
    """The line of `COLUMNS` of a column; ("", None) if nothing is known of it."""
    key = name.rpartition(".")[2]
    if key not in COLUMNS and (measure := known_measures().get(key)):
        return "higher" if measure.higher_is_better else "lower", measure.digits
    return COLUMNS.get(key, ("", None))


def better(column: str) -> str:
    """`higher` or `lower`, whichever is better in a column; empty if neither is."""
    return column_of(column)[0]


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The files that one run has written."""

    run: Run
    path: Path  # its workdir, which may not exist yet

    @functools.cached_property
    def outcome(self) -> dict[str, Any]:
        """Totals of the training; empty until it is finished."""
        return read_json(self.path / OUTCOME)

    @functools.cached_property
    def failure(self) -> dict[str, Any]:
        """The record of the error that ended the run; empty if none did."""
        return read_json(self.path / FAILURE)

    @property
    def error(self) -> str:
        """The first line of the error that ended the run."""
        return self.failure.get("error", "").strip().partition("\n")[0]

    @functools.cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The entries of `metrics.jsonl`, in order."""
        return read_log(self.path / METRICS).entries

    @property
    def trained(self) -> list[dict[str, Any]]:
        """The entries of training."""
        return [entry for entry in self.metrics if entry["kind"] == "train"]

    @property
    def started(self) -> float:
        """Unix time of the first start of the training; infinite if there was none."""
        try:
            line, *_ = (self.path / STARTS).read_bytes().splitlines()
        except (FileNotFoundError, ValueError):
            return math.inf
        return json.loads(line)["time"]

    def value(self, column: str) -> Any:
        """The run's value of a column of `Experiment.columns`; None if it has none yet.

        Values are there when the training is finished; those of `dev` and `train` are
        the last in `metrics.jsonl`, `nan` if they were not finite.
        """
        if column in self.outcome:
            return self.outcome[column]
        prefix, _, key = column.partition(".")
        if prefix in ("dev", "train"):
            logged = [e[key] for e in self.metrics if e["kind"] == prefix and key in e]
            if not (self.outcome and logged):
                return None
            return math.nan if logged[-1] is None else logged[-1]
        test_set, _, metric = column.rpartition(".")  # a set's name may have dots
        return self.measure(prefix).get(key, self.scores(test_set).get(metric))

    def state(self, row: Row, needs: Needs) -> str:
        """The state by the run's files, whoever runs it: `done`, `failed` or `left`."""
        trained = row.config is None or self.outcome
        if trained and all(self.has(measure, needs) for measure in row.measures):
            return DONE
        # Other rows may share the run, and their measures may fail.
        steps = (TRAINING, *(measure.name for measure in row.measures))
        failed = self.failure and self.failure.get("step", TRAINING) in steps
        return FAILED if failed else LEFT

    def has(self, measure: Measure, needs: Needs) -> bool:
        """True if a measure of these arguments and needed runs is stored."""
        expected = dataclasses.asdict(measure) | {"needs": names_of(needs)}
        expected = json.loads(json.dumps(expected))  # tuples are lists
        return expected.items() <= ({"needs": {}} | self.measured(measure.name)).items()

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
    needs: Needs

    @functools.cached_property
    def states(self) -> list[str]:
        """The state of each run, by its files."""
        return [run.state(self.row, self.needs) for run in self.runs]

    def values(self, column: str) -> list[float]:
        """The numbers of a column, of those runs that have one."""
        if column in self.row.values:
            return [self.row.values[column]]
        values = [run.value(column) for run in self.runs]
        return [value for value in values if is_number(value)]

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
    """All rows of an experiment, in the order of its plan."""

    rows: Sequence[RowResult]

    def __iter__(self) -> Iterator[RowResult]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> RowResult:
        """The row of a name; raises KeyError if there is none."""
        return {result.row.name: result for result in self.rows}[name]

    def __contains__(self, name: str) -> bool:
        return any(result.row.name == name for result in self.rows)

    def measured(self, name: str) -> list[RunResult]:
        """The runs that have the result of a measure."""
        return [run for row in self.rows for run in row.runs if run.measure(name)]

    def groups(self) -> dict[str, list[RowResult]]:
        """The rows by their group, in order."""
        groups: dict[str, list[RowResult]] = {}
        for result in self.rows:
            groups.setdefault(result.row.group, []).append(result)
        return groups


def read_results(rows: Sequence[Row], runs_folder: Path) -> Results:
    """Reads the results of rows from the folder of the runs' workdirs."""
    runs = {
        row.name: [RunResult(run, workdir_of(run, runs_folder)) for run in row.runs]
        for row in rows
    }
    needs = {
        row.name: {name: [run.path for run in runs.get(name, ())] for name in row.needs}
        for row in rows
    }
    return Results([RowResult(row, runs[row.name], needs[row.name]) for row in rows])


def workdir_of(run: Run, runs_folder: Path) -> Path:
    """The run's workdir: the one that has its hash already, or a new one."""
    # Another experiment, or an earlier plan, may call the row by another name.
    existing = sorted(runs_folder.glob(f"*-{run.hash}"))
    return existing[0] if existing else runs_folder / run.folder


class Context(NamedTuple):
    """A row of an experiment, for a function that measures it."""

    workdir: Path  # that of the run; if the row trains nothing, an empty folder
    config: Config | None  # what was trained; None if the row trains nothing
    needs: Needs  # the workdirs of the rows that the row needs

    def corpora(self, split: str) -> list[Corpus]:
        """The config's `train`, `dev` or `test`."""
        data, weights = self.config.data, split == "train"
        specs = getattr(data, split)
        return heaviest_first(
            open_corpora(specs, data.source, data.target, data.dir, weights, data)
        )

    def check_translates(self, measure: str) -> None:
        """Raises UserError if the row's task is not translation."""
        if self.config and not isinstance(task_of(self.config), Translation):
            raise UserError(
                f"{measure} measures translations, and the row trains "
                f"config.task.kind={self.config.task.kind!r}; leave the measure out"
            )


def names_of(needs: Needs) -> dict[str, list[str]]:
    """`needs` with the names of the workdirs, as JSON holds them."""
    return {row: [path.name for path in paths] for row, paths in needs.items()}


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object, empty if the file does not exist."""
    try:
        return json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}


def is_number(value: Any) -> bool:
    """True for numbers, which JSON has besides True, False and texts."""
    return isinstance(value, int | float) and not isinstance(value, bool)
