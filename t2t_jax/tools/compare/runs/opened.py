"""A finished or running run, opened for comparison; nothing in it is changed."""

from functools import cached_property
from typing import Any, NamedTuple

from t2t_jax.config import Config
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.model.model import build
from t2t_jax.run.rerun import state_shapes
from t2t_jax.run.step_lookup import RunText, open_text
from t2t_jax.training import checkpoint_folders
from t2t_jax.training.checkpoint_folders import KINDS
from t2t_jax.training.divergence import Rollbacks
from t2t_jax.training.metrics_log import METRICS, Log, Metrics, read_log
from t2t_jax.training.provenance_log import Start, read_starts
from t2t_jax.training.step import TrainState
from t2t_jax.workdir import Workdir


class Section(NamedTuple):
    """One part of the comparison of two runs.

    Attributes:
      differs: True if the runs part here; None if it cannot be compared.
      facts: what was found, as JSON.
      lines: the same for a person.
    """

    differs: bool | None
    facts: dict[str, Any]
    lines: list[str]


class OpenedRun:
    """A run; each part is read when it is first asked for.

    Attributes:
      workdir: of the run.
      name: a short name, for people.

    Raises:
      UserError: not a workdir, or a part of it is damaged.
    """

    def __init__(self, workdir: Workdir, name: str):
        self.workdir, self.name = workdir, name
        self.config: Config = workdir.config()  # raises now if it is not a workdir

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Its tokenizer."""
        return self.workdir.vocabulary()

    @cached_property
    def text(self) -> RunText:
        """Its training text, if it is on this machine."""
        return open_text(self.workdir)

    @cached_property
    def rollbacks(self) -> Rollbacks:
        """Where it went back and skipped data."""
        return Rollbacks(self.workdir)

    @cached_property
    def starts(self) -> list[Start]:
        """Its starts, oldest first."""
        return read_starts(self.workdir)

    @cached_property
    def _log(self) -> Log:
        return read_log(self.workdir / METRICS)

    @cached_property
    def train(self) -> dict[int, Metrics]:
        """Logged metrics of training by step."""
        return self._log.metrics("train")

    @cached_property
    def dev(self) -> dict[int, Metrics]:
        """Logged scores of the dev set by step."""
        return self._log.metrics("dev")

    @cached_property
    def shapes(self) -> TrainState:
        """The shapes of its state."""
        model = build(self.config.model, *self.vocabulary.sizes)
        return state_shapes(model, self.config)

    @cached_property
    def stored(self) -> dict[str, list[int]]:
        """The steps of its complete checkpoints, by kind."""
        folder = self.workdir.checkpoints
        return {kind: checkpoint_folders.sealed_steps(folder / kind) for kind in KINDS}

    @property
    def steps(self) -> int:
        """The number of steps trained, as far as checkpoints and the log show."""
        kept = (step for steps in self.stored.values() for step in steps)
        return max([*kept, *self.train, 0])
