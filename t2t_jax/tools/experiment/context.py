"""The object of a measurement: the workdir of a run, and those of other rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from t2t_jax.config import Config
from t2t_jax.io.errors import UserError
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.translation import Translation


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
