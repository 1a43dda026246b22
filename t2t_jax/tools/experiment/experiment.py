"""An experiment: what its rows train and measure, and its frozen plan."""

import dataclasses
import functools
import hashlib
import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ml_collections import ConfigDict

from t2t_jax import __version__
from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.io import ideas
from t2t_jax.io.atomic import (
    checked_json,
    keep_earlier,
    read_checked_json,
    write_atomically,
)
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.lock import exclusive
from t2t_jax.io.messages import say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS, LEASES = "runs", "leases"  # folders in the workdir of experiments


@dataclasses.dataclass(frozen=True)
class Measure:
    """A measurement after training: a function of the table `measures.MEASURES`.

    Attributes:
      function: its key in `MEASURES`.
      arguments: its keyword arguments, as JSON can hold them.
      name: of the result, `measures/NAME.json`; by default that of the function.
    """

    function: str
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    name: str = ""

    def __post_init__(self):
        object.__setattr__(self, "name", self.name or self.function)
        object.__setattr__(self, "arguments", dict(self.arguments))


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of an experiment's table: what to train and what to measure of it.

    Attributes:
      name: unique in the experiment; part of the name of its workdir.
      config: what to train; None trains nothing.
      seeds: repetitions, with the seeds `config.train.seed`, and those after it.
      measures: what to measure, after training.
      needs: names of rows that come first; measures may read their results.
      values: what sets the row apart, such as `{"layers": 4}`: columns of
        the table, and axes of plots.
      paper: the paper's figures, by column.
      group: the part of the table; rows of one group are listed together.
    """

    name: str
    config: Config | ConfigDict | None = None
    seeds: int = 1
    measures: Sequence[Measure] = ()
    needs: Sequence[str] = ()
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    paper: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)
    group: str = ""

    def __post_init__(self):
        if isinstance(self.config, ConfigDict):
            config = fields.from_config_dict(self.config)
            object.__setattr__(self, "config", config)
        row = f"row {self.name!r} has"
        if self.config is None and not self.measures:
            raise UserError(f"{row} neither a config nor measures; give it one")
        if self.config is None and self.seeds != 1:
            raise UserError(
                f"{row} seeds={self.seeds}, but no config: only training is repeated "
                "with other seeds"
            )
        if self.seeds < 1:
            raise UserError(f"{row} seeds={self.seeds}; want 1 or more")
        kinds = {"measures": tuple, "needs": tuple, "values": dict, "paper": dict}
        for name, kind in kinds.items():
            object.__setattr__(self, name, kind(getattr(self, name)))

    @functools.cached_property
    def runs(self) -> tuple["Run", ...]:
        """The row's runs, one for each seed."""
        if self.config is None:
            measures = [dataclasses.asdict(measure) for measure in self.measures]
            return (Run(self.name, 0, None, _folder(self.name, measures)),)
        first_seed = self.config.train.seed
        return tuple(map(self._trained, range(first_seed, first_seed + self.seeds)))

    def _trained(self, seed: int) -> "Run":
        config = fields.changed(self.config, "train", seed=seed)
        name = f"{self.name}.seed{seed}" if seed else self.name
        return Run(self.name, seed, config, _folder(name, fields.unusual(config)))


class Run(NamedTuple):
    """One repetition of a row."""

    row: str  # the row's name
    seed: int  # of training
    config: Config | None  # what it trains; None if it only measures
    # The name of its workdir: the row's and a hash of the fields. Runs of the same hash
    # are one, whatever their rows are called.
    folder: str

    @property
    def hash(self) -> str:
        """The part of `folder` that identifies what is run."""
        return self.folder.rpartition("-")[2]


def _folder(name: str, content: Any) -> str:
    """The name of a run's workdir."""
    # What an entry of --ideas does is in its code; without any, as in most runs,
    # nothing is added.
    code = sorted(ideas.imported.values())
    text = json.dumps([content, code] if code else content, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    readable = re.sub(r"[^\w.=+]+", "-", name).strip("-")
    return f"{readable}-{digest}"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Rows, and how they are shown.

    Attributes:
      rows: in the order in which they are run, and shown within their groups.
      columns: of the table: `parameters`, `flops`, `tokens`, `minutes`, `steps`;
        `SET.METRIC` of a test set, such as `test.bleu`; `dev.METRIC` and `train.METRIC`
        of `metrics.jsonl`; `MEASURE.KEY` of a measure; a key of `Row.values`.
      compared: the column that decides which rows differ from the baseline; by default
        the first one of which it is known which value is better.
      baseline: the row that the others are compared with; empty compares none.
      note: what the paper's figures may be compared with; printed below the table.
      fixed: fields that the rows were computed from, such as `model.*`; `--config`
        does not change them.
      plot: draws `results.Results` as a figure; None draws nothing.
      report: writes what comes below the table of `results.Results`, as Markdown.
    """

    rows: Sequence[Row]
    columns: Sequence[str]
    compared: str = ""
    baseline: str = ""
    note: str = ""
    fixed: Sequence[str] = ()
    plot: Callable[[Any], "Figure | None"] | None = None
    report: Callable[[Any], str] | None = None

    def __post_init__(self):
        object.__setattr__(self, "rows", tuple(self.rows))
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.rows:
            raise UserError("the experiment has no rows")
        names = [row.name for row in self.rows]
        needed = [need for row in self.rows for need in row.needs]
        for name in [*needed, *([self.baseline] if self.baseline else [])]:
            if name not in names:
                hint = did_you_mean(name, names)
                raise UserError(f"no row is called {name!r}{hint}")
        earlier = set()
        for row in self.rows:
            if row.name in earlier:
                raise UserError(
                    f"two rows are called {row.name!r}; rows need names of their own"
                )
            if late := [need for need in row.needs if need not in earlier]:
                raise UserError(  # and so circles are refused, too
                    f"row {row.name!r} needs {late[0]!r}, which comes after it; put "
                    "it before"
                )
            earlier.add(row.name)
        _one_measure_of_a_name(self.rows)


def _one_measure_of_a_name(rows: Sequence[Row]) -> None:
    """Refuses two measures of one run that would be stored in the same file."""
    measures = {}
    for row in rows:
        for run in row.runs:
            for measure in row.measures:
                stored = measures.setdefault((run.hash, measure.name), measure)
                if stored != measure:
                    raise UserError(
                        f"row {row.name!r}: a run has two measures called "
                        f"{measure.name!r}, which differ in their arguments; give one "
                        "another name: Measure(..., name=NAME)"
                    )


PLAN = "plan.json"


@dataclasses.dataclass(frozen=True)
class ExperimentRequest:
    """An experiment as the command line asks for it."""

    experiment: str  # the name, or the path of the file
    # Arguments of its `get_experiment`, by name.
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Those of `--config.SECTION.FIELD=VALUE`, by the field's full name.
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # SHA-256 of the modules of `--ideas`, by their names.
    ideas: Mapping[str, str] = dataclasses.field(default_factory=dict)


def freeze(
    folder: Path,
    requested: ExperimentRequest,
    named: Collection[str],
    define: Callable[[ExperimentRequest], Experiment],
    replan: bool = False,
) -> Experiment:
    """Writes the plan of an experiment, or takes the rows of the one that is there.

    Args:
      folder: of the experiment.
      requested: what the command line asks for. If there is a plan, what it leaves out
        is as it was when the plan was made.
      named: the parameters that the command line names; the others have defaults.
      define: defines the experiment as its file does now.
      replan: makes a new plan; the old one is kept as `plan.1.json`, and so on. Runs
        that are the same in both are not repeated.
    """
    file = folder / PLAN
    with exclusive(folder):
        if file.exists() and not replan:
            try:
                plan = read_checked_json(file)
            except ValueError as e:
                raise UserError(
                    f"{file} is damaged: {e}. Restore it from a copy, or make a new "
                    "plan with --replan: runs that it shares with the old one are not "
                    "repeated"
                ) from None
            _check_request(file, plan, requested, named)
            names = [field.name for field in dataclasses.fields(ExperimentRequest)]
            experiment = define(
                ExperimentRequest(**{name: plan[name] for name in names})
            )
            _report_edits(file, plan["rows"], [_encoded(r) for r in experiment.rows])
            rows = [_decoded(row) for row in plan["rows"]]
            return dataclasses.replace(experiment, rows=rows)
        experiment = define(requested)
        if file.exists():
            keep_earlier(file)
        content = dataclasses.asdict(requested) | {
            "t2t_jax": __version__,
            "time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "rows": [_encoded(row) for row in experiment.rows],
        }
        write_atomically(file, checked_json(content))
    return experiment


def with_changes(experiment: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """Changes fields of all rows that train.

    Raises:
      UserError: the rows differ in one of the fields, or were computed from it.
    """
    trained = [row.config for row in experiment.rows if row.config is not None]
    for name in changes:
        if any(fnmatchcase(name, pattern) for pattern in experiment.fixed):
            raise UserError(
                f"--config.{name}: the rows of this experiment were computed from that "
                "field; change a copy of its file instead"
            )
        values = {_value(config, name) for config in trained}
        if len(values) > 1:
            listed = ", ".join(map(repr, sorted(values, key=str)))
            raise UserError(
                f"--config.{name}: the rows of this experiment differ in that field "
                f"({listed}); change a copy of its file instead"
            )
    rows = [
        dataclasses.replace(
            row, config=row.config and fields.with_fields(row.config, changes)
        )
        for row in experiment.rows
    ]
    return dataclasses.replace(experiment, rows=rows)


def _value(config: Config, name: str) -> Any:
    """The value of a field or an option, by its full name."""
    section, *options, field = name.split(".")
    values = getattr(config, section)
    if options:  # which are stored only if they differ from their defaults
        return values.options.get(field, fields.default_of(name))
    return getattr(values, field)


def _check_request(
    file: Path,
    plan: Mapping[str, Any],
    request: ExperimentRequest,
    named: Collection[str],
) -> None:
    """Refuses flags that are given now and were given otherwise for the plan."""

    def as_flags(parameters: Mapping, changes: Mapping) -> dict[str, Any]:
        fields = {f"--config.{name}": value for name, value in changes.items()}
        return {f"--{name}": value for name, value in parameters.items()} | fields

    planned = as_flags(plan["parameters"], plan["changes"])
    named_values = {name: request.parameters[name] for name in named}
    for flag, value in as_flags(named_values, request.changes).items():
        if planned.get(flag) != value:
            was = f"{flag}={planned[flag]}" if flag in planned else f"no {flag}"
            raise UserError(
                f"{file} was made with {was}, and now {flag}={value} is given; leave "
                "it out to continue that plan, give --replan to make a new one in its "
                "place, or --name=NAME to keep both"
            )
    for name, sha256 in plan["ideas"].items():
        if request.ideas.get(name) != sha256:
            fault = "has changed since" if name in request.ideas else "is not given now"
            raise UserError(
                f"{file} was made with --ideas={name}, which {fault}; give the same, "
                "or --replan"
            )


def _report_edits(file: Path, frozen: list[dict], current: list[dict]) -> None:
    """Says which rows the experiment's file defines otherwise by now."""
    old, new = ({row["name"]: row for row in rows} for rows in (frozen, current))
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if names:
        listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        say(
            f"the experiment has changed since {file} was made ({listed}); continuing "
            "with the plan. --replan makes a new one"
        )


def _encoded(row: Row) -> dict[str, Any]:
    """A row as JSON has it: tuples become lists."""
    return json.loads(json.dumps(dataclasses.asdict(row)))


def _decoded(content: Mapping[str, Any]) -> Row:
    """The row of `_encoded`."""
    config = content["config"] and fields.from_config_dict(content["config"])
    measures = [Measure(**measure) for measure in content["measures"]]
    return Row(**{**content, "config": config, "measures": measures})
