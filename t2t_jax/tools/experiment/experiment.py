"""The classes that an experiment is written with: rows, measures, columns."""

import collections
import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ml_collections import ConfigDict

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.io import ideas
from t2t_jax.io.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from t2t_jax.tools.experiment.results import Results


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
      values: what the row has and others have not, such as `{"layers": 4}`: columns of
        the table, and axes of plots.
      paper: the paper's figures, by column.
      group: the part of the table; rows of one group stand together.
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
        if self.config is None and not self.measures:
            raise UserError(
                f"row {self.name!r} has neither a config nor measures; give it one"
            )
        if self.config is None and self.seeds != 1:
            raise UserError(
                f"row {self.name!r} has seeds={self.seeds}, but no config: only "
                "training is repeated with other seeds"
            )
        if self.seeds < 1:
            raise UserError(f"row {self.name!r} has seeds={self.seeds}; want 1 or more")
        for name in ("measures", "needs"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @functools.cached_property
    def runs(self) -> tuple["Run", ...]:
        """The row's runs: one for each seed."""
        if self.config is None:
            measures = [dataclasses.asdict(measure) for measure in self.measures]
            return (Run(self.name, 0, None, _folder(self.name, measures)),)
        runs = []
        for i in range(self.seeds):
            seed = self.config.train.seed + i
            config = fields.changed(self.config, "train", seed=seed)
            name = f"{self.name}.seed{seed}" if seed else self.name
            runs.append(
                Run(self.name, seed, config, _folder(name, fields.unusual(config)))
            )
        return tuple(runs)


class Run(NamedTuple):
    """One repetition of a row.

    Attributes:
      row: the row's name.
      seed: of training.
      config: what it trains; None if it only measures.
      folder: the name of its workdir: the row's and a hash of the fields. Runs of the
        same hash are one, whatever their rows are called.
    """

    row: str
    seed: int
    config: Config | None
    folder: str

    @property
    def hash(self) -> str:
        """The part of `folder` that identifies what is run."""
        return self.folder.rpartition("-")[2]


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Rows, and how they are shown.

    Attributes:
      rows: in the order in which they are run, and shown within their groups.
      columns: of the table: `parameters`, `flops`, `tokens`, `minutes`, `steps`;
        `SET.METRIC` of a test set, such as `test.bleu`; `dev.METRIC` and `train.METRIC`
        of `metrics.jsonl`; `MEASURE.KEY` of a measure; a key of `Row.values`.
      compared: the column that decides which rows differ from the baseline; by default
        the first one that `results.BETTER` knows.
      baseline: the row that the others are compared with; empty compares none.
      note: what the paper's figures may be compared with; printed below the table.
      fixed: fields that the rows were computed from, such as `model.*`; `--config`
        does not change them.
      plot: draws the results as a figure; None draws nothing.
      report: writes what stands below the table, as Markdown.
    """

    rows: Sequence[Row]
    columns: Sequence[str]
    compared: str = ""
    baseline: str = ""
    note: str = ""
    fixed: Sequence[str] = ()
    plot: Callable[["Results"], "Figure | None"] | None = None
    report: Callable[["Results"], str] | None = None

    def __post_init__(self):
        object.__setattr__(self, "rows", tuple(self.rows))
        object.__setattr__(self, "columns", tuple(self.columns))
        counts = collections.Counter(row.name for row in self.rows)
        twice = [name for name, count in counts.items() if count > 1]
        if twice or not counts:
            raise UserError(
                f"two rows are called {twice[0]!r}; rows need names of their own"
                if twice
                else "the experiment has no rows"
            )
        wanted = [need for row in self.rows for need in row.needs]
        for name in [*wanted, *([self.baseline] if self.baseline else [])]:
            if name not in counts:
                hint = did_you_mean(name, counts)
                raise UserError(f"no row is called {name!r}{hint}")
        _in_order(self.rows)
        _one_measure_of_a_name(self.rows)


def _in_order(rows: Sequence[Row]) -> None:
    """Refuses rows that need a later one, and so all circles."""
    seen = set()
    for row in rows:
        if later := [need for need in row.needs if need not in seen]:
            raise UserError(
                f"row {row.name!r} needs {later[0]!r}, which comes after it; put it "
                "before"
            )
        seen.add(row.name)


def _one_measure_of_a_name(rows: Sequence[Row]) -> None:
    """Refuses two measures of one run that would be stored in the same file."""
    known = {}
    for row in rows:
        for run in row.runs:
            for measure in row.measures:
                first = known.setdefault((run.hash, measure.name), measure)
                if first != measure:
                    raise UserError(
                        f"row {row.name!r}: a run has two measures called "
                        f"{measure.name!r}, which differ in their arguments; give one "
                        "another name: Measure(..., name=NAME)"
                    )


def with_fields(config: Config | ConfigDict, changes: Mapping[str, Any]) -> Config:
    """Returns the config with some fields changed, by their full names.

    For example `with_fields(base, {"model.heads": 1, "model.head_width": 512})`; an
    option of a variant is `model.options.NAME`.

    Raises:
      UserError: no such field, or a value that it does not take.
    """
    if isinstance(config, ConfigDict):
        config = fields.from_config_dict(config)
    sections = dataclasses.asdict(config)
    names = fields.field_names()
    for name, value in changes.items():
        if name not in names:
            raise UserError(f"config.{name}: no such field{did_you_mean(name, names)}")
        section, _, field = name.partition(".")
        if field.startswith("options."):
            options = sections[section]["options"]
            value = {**options, field.removeprefix("options."): value}
            field = "options"
        sections[section][field] = value
    return fields.from_config_dict(sections)


def _folder(name: str, content: Any) -> str:
    """The name of a run's workdir."""
    # What an entry of --ideas does is in its code; without any, as in most runs,
    # nothing is added.
    code = sorted(ideas.imported.values())
    text = json.dumps([content, code] if code else content, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    readable = re.sub(r"[^\w.=+]+", "-", name).strip("-")
    return f"{readable}-{digest}"
