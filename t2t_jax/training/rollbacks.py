"""`rollbacks.json`: when a run returned to an earlier checkpoint and skipped data."""

from typing import NamedTuple

from t2t_jax.data.feeding import Position
from t2t_jax.io import atomic
from t2t_jax.io.errors import UserError
from t2t_jax.parallel import processes
from t2t_jax.workdir import Workdir


class Rollback(NamedTuple):
    """One return to an earlier state, followed by later data.

    Attributes:
      step: the step of the state that the run returned to.
      skipped: the first data position that the run skips.
      to: the data position that it continues from.
      why: the reason, for a person to read.
    """

    step: int
    skipped: Position
    to: Position
    why: str


def _positions(entry: dict) -> list[Position]:
    return [Position(*entry[name]) for name in ("skipped", "to")]


class Rollbacks:
    """The rollbacks of a run, oldest first, in `rollbacks.json`."""

    def __init__(self, workdir: Workdir):
        self._file = workdir / "rollbacks.json"
        self.all = [
            # Other processes receive JSON, which has lists in place of tuples.
            Rollback(step, Position(*skipped), Position(*to), why)
            for step, skipped, to, why in processes.from_first("rollbacks", self._read)
        ]

    def _read(self) -> list[Rollback]:
        if not self._file.exists():
            return []
        try:
            return [
                Rollback(int(entry["step"]), *_positions(entry), str(entry["why"]))
                for entry in atomic.read_checked_json(self._file)["rollbacks"]
            ]
        except (ValueError, LookupError, TypeError) as e:
            raise UserError(
                f"{self._file} is damaged ({e}). It records which data the run "
                "skipped; restore it from a copy"
            ) from None

    def add(self, rollback: Rollback) -> None:
        """Adds a rollback; it is on disk before it takes effect."""
        self.all.append(rollback)
        content = {"rollbacks": [each._asdict() for each in self.all]}
        if processes.is_first():
            atomic.write_atomically(self._file, atomic.checked_json(content))

    def in_effect(self) -> dict[int, Position]:
        """Step -> data position to continue from, for the rollbacks still in effect.

        A rollback to an earlier step undoes those to that step or later ones.
        """
        valid: dict[int, Position] = {}
        for rollback in self.all:
            valid = {s: to for s, to in valid.items() if s < rollback.step}
            valid[rollback.step] = rollback.to
        return valid

    def position(self, step: int, position: Position) -> Position:
        """The data position after a step; `position` unless a rollback moved it."""
        return self.in_effect().get(step, position)

    def last_before(self, step: int) -> tuple[int, Position]:
        """The last rollback before `step`: its step, and the position it moved to.

        Step 0 and the first position if there is none.
        """
        jumps = {0: Position()} | self.in_effect()
        last = max(s for s in jumps if s < step)
        return last, jumps[last]
