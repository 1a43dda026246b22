"""Rows of an experiment: what each trains and measures, and the runs it consists of."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.io import ideas
from t2t_jax.io.errors import UserError, did_you_mean


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
        problem = ""
        if self.config is None and not self.measures:
            problem = "neither a config nor measures; give it one"
        elif self.config is None and self.seeds != 1:
            problem = (
                f"seeds={self.seeds}, but no config: only training is repeated with "
                "other seeds"
            )
        elif self.seeds < 1:
            problem = f"seeds={self.seeds}; want 1 or more"
        if problem:
            raise UserError(f"row {self.name!r} has {problem}")
        kinds = {"measures": tuple, "needs": tuple, "values": dict, "paper": dict}
        for name, kind in kinds.items():
            object.__setattr__(self, name, kind(getattr(self, name)))

    @functools.cached_property
    def runs(self) -> tuple["Run", ...]:
        """The row's runs: one for each seed."""
        if self.config is None:
            measures = [dataclasses.asdict(measure) for measure in self.measures]
            return (Run(self.name, 0, None, _folder(self.name, measures)),)
        first = self.config.train.seed
        return tuple(map(self._trained, range(first, first + self.seeds)))

    def _trained(self, seed: int) -> "Run":
        config = fields.changed(self.config, "train", seed=seed)
        name = f"{self.name}.seed{seed}" if seed else self.name
        return Run(self.name, seed, config, _folder(name, fields.unusual(config)))


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
