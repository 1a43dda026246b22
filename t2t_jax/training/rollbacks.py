"""`rollbacks.json`: when a run returned to an earlier checkpoint and skipped data."""

from typing import NamedTuple

from t2t_jax.data.feeding import Position
from t2t_jax.files import atomic
from t2t_jax.parallel import processes
from t2t_jax.terminal.errors import UserError
from t2t_jax.workdir.workdir import Workdir


class Rollback(NamedTuple):
    """A run went back to the state of a step, and on with later data.

    Attributes:
      step: the state it went back to.
      skipped: the position of the data that had come after that step.
      to: the position it went on from.
      why: what had happened.
    """

    step: int
    skipped: Position
    to: Position
    why: str


def _places(told: dict) -> list[Position]:
    return [Position(*told[name]) for name in ("skipped", "to")]


class Rollbacks:
    """The rollbacks of a run, oldest first, in `rollbacks.json`."""

    def __init__(self, workdir: Workdir):
        self._file = workdir / "rollbacks.json"
        self.all = [
            Rollback(step, Position(*skipped), Position(*to), why)
            for step, skipped, to, why in processes.from_first("rollbacks", self._read)
        ]

    def _read(self) -> list[Rollback]:
        if not self._file.exists():
            return []
        try:
            return [
                Rollback(int(told["step"]), *_places(told), str(told["why"]))
                for told in atomic.read_checked_json(self._file)["rollbacks"]
            ]
        except (ValueError, LookupError, TypeError) as e:
            raise UserError(
                f"{self._file} is damaged ({e}); it tells where the run skipped data, "
                "so put it back from a copy"
            ) from None

    def add(self, rollback: Rollback) -> None:
        """Remembers one, on disk before it has any effect."""
        self.all.append(rollback)
        content = {"rollbacks": [each._asdict() for each in self.all]}
        if processes.is_first():
            atomic.write_atomically(self._file, atomic.checked_json(content))

    def _valid(self) -> dict[int, Position]:
        """Step -> the position to go on from; those before a later one's step."""
        valid: dict[int, Position] = {}
        for rollback in self.all:
            valid = {s: to for s, to in valid.items() if s < rollback.step}
            valid[rollback.step] = rollback.to
        return valid

    def position(self, step: int, position: Position) -> Position:
        """Where to go on after a step whose own data ended at `position`."""
        return self._valid().get(step, position)

    def last_before(self, step: int) -> tuple[int, Position]:
        """The last step before `step` after which the data jumped, and where to; step 0
        and the beginning where it never did."""
        jumps = {0: Position()} | self._valid()
        last = max(s for s in jumps if s < step)
        return last, jumps[last]
