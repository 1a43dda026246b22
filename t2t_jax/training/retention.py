"""Retention policy: the checkpoints that a run keeps."""

import dataclasses

from etils import epath

from t2t_jax.training.checkpoint_folders import best_steps, sealed_steps

KINDS = ("parameters", "state", "best")


@dataclasses.dataclass(frozen=True)
class Retention:
    """Number of checkpoints of each kind that a run keeps.

    Attributes:
      parameters: the newest, to be averaged (`config.decode.average`).
      best: those with the best dev BLEU (`config.train.keep_best`).
      state: the newest, to continue from. The second is a spare in case the first is
        damaged.
    """

    parameters: int
    best: int
    state: int = 2

    def count(self, kind: str) -> int:
        """The number of checkpoints kept of a kind, one of `KINDS`."""
        return getattr(self, kind)

    def steps_to_remove(self, kind: str, folder: epath.Path) -> list[int]:
        """The steps of one kind, in its folder, that are no longer kept."""
        steps = sealed_steps(folder)[::-1]  # newest first
        if kind == "best":
            steps = [*best_steps(folder)]  # best first
        return steps[self.count(kind) :]

    def most_bytes(self, state_bytes: int, parameters_bytes: int) -> int:
        """The most disk space that checkpoints take at any time.

        Args:
          state_bytes, parameters_bytes: of one checkpoint.
        """
        # One more of each kind than is kept: an old checkpoint is removed only after
        # the new one is complete.
        alone = self.parameters + 1 + self.best + 1
        return (self.state + 1) * state_bytes + alone * parameters_bytes
