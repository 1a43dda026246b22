"""The object of a measurement: the workdir of a run, and those of other rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from t2t_jax.config import Config


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
