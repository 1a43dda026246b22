"""Which checkpoints a run keeps."""

import dataclasses

from etils import epath

from t2t_jax.training.checkpoint_folders import best_steps, sealed_steps

KINDS = ("parameters", "state", "best")


@dataclasses.dataclass(frozen=True)
class Retention:
    """The number of checkpoints of each kind that a run keeps.

    Attributes:
      parameters: the newest, for the average (`config.decode.average`).
      best: those of the best dev BLEU (`config.train.keep_best`).
      state: the newest, to continue from. The second survives damage to the first.
    """

    parameters: int
    best: int
    state: int = 2

    def count(self, kind: str) -> int:
        return getattr(self, kind)

    def steps_to_remove(self, kind: str, folder: epath.Path) -> list[int]:
        """The steps in the folder of a kind that are no longer kept."""
        steps = sealed_steps(folder)[::-1]
        if kind == "best":
            steps = [*best_steps(folder)]
        return steps[self.count(kind) :]

    def most_bytes(self, state: int, parameters: int) -> int:
        """Disk space at most, from the sizes of a state and of parameters.

        One more of each kind than is kept: old ones are removed after new ones are
        complete.
        """
        alone = self.parameters + 1 + self.best + 1
        return (self.state + 1) * state + alone * parameters
