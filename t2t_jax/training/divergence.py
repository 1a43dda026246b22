"""When numbers go wrong: which steps to tell of, and when a run has diverged.

A gradient that is not finite never reaches the parameters (`step.py`). Here is what is
said of it, and what follows.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from etils import epath

from t2t_jax import files
from t2t_jax.config import Config
from t2t_jax.data.feeding import Position
from t2t_jax.errors import UserError
from t2t_jax.parallel import hosts
from t2t_jax.screen import say
from t2t_jax.training.meter import Row

USUAL_OF = 20  # readings whose largest gradient norms tell what is usual
AT_LEAST = 5  # of them, or nothing is unusual yet
KEPT = 100  # batches of a run whose sentences are written out

# position -> a line for each pair of that batch, without its end
Describe = Callable[[Position], Sequence[str]]


class DivergedError(UserError):
    """The run cannot go on as it went; all processes come to that at the same step."""

    everywhere = True


class Trouble(NamedTuple):
    """Why a run has diverged: the first step that shows it, and what it shows."""

    step: int
    why: str


def alarms(config: Config, rows: Sequence[Row], norms: Sequence[float]) -> list[Row]:
    """The steps to tell of: gradients that are not finite, or unusually large.

    Args:
      norms: the largest gradient norm of each reading before, infinite ones included.

    Returns:
      Rows, each with `usual_norm`, the median of the last `norms`; `nan` if unknown.
    """
    known = [norm for norm in norms if math.isfinite(norm)][-USUAL_OF:]
    usual = statistics.median(known) if len(known) >= AT_LEAST else math.nan
    limit = config.train.alarm_norm * usual  # of nan: nothing is above it
    return [
        row | {"usual_norm": usual}
        for row in rows
        if not math.isfinite(row["gradient_norm"])
        or not math.isfinite(row["loss"])
        or (config.train.alarm_norm and row["gradient_norm"] > limit)
    ]


def tell(workdir: epath.Path, alarm: Row, describe: Describe | None) -> None:
    """Says what was wrong with a step.

    The pairs of its batch go to `alarms/STEP.jsonl`, those of the first `KEPT` alarms.
    """
    step, norm = int(alarm["step"]), alarm["gradient_norm"]
    if math.isfinite(norm) and math.isfinite(alarm["loss"]):
        what = f"gradient norm {norm:.3g}, usually {alarm['usual_norm']:.3g}"
    else:
        what = f"loss {alarm['loss']:.3g}, gradient norm {norm:.3g}: not used"
    file = workdir / "alarms" / f"{step}.jsonl"
    told = f"warning: step {step:,}: {what}"
    if describe and not file.exists():
        if file.parent.exists() and len(list(file.parent.iterdir())) >= KEPT:
            say(f"{told}; python -m t2t_jax.whatwas shows its sentences")
            return
        position = Position(int(alarm["epoch"]), int(alarm["batch"]))
        lines = describe(position)
        files.write_atomically(file, "".join(f"{line}\n" for line in lines).encode())
        told += f"; its {len(lines):,} pairs: {file}"
    say(told)


def diverged(
    config: Config, rows: Sequence[Row], loss: float, lowest: float
) -> Trouble | None:
    """Whether the steps just read show that a run has diverged.

    Args:
      loss: their mean. lowest: the lowest mean loss of a reading before.
    """
    train = config.train
    worst = max(rows, key=lambda row: row["skipped_in_a_row"])
    in_a_row = int(worst["skipped_in_a_row"])
    if in_a_row >= train.max_skipped:
        return Trouble(
            int(worst["step"]) - in_a_row + 1,
            f"{in_a_row} gradients in a row were not finite and were skipped "
            f"(config.train.max_skipped={train.max_skipped})",
        )
    if train.max_rise and loss > lowest + train.max_rise:
        return Trouble(
            int(rows[0]["step"]),
            f"the loss rose to {loss:.3f}, from {lowest:.3f} at its lowest "
            f"(config.train.max_rise={train.max_rise:g})",
        )
    return None


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

    def __init__(self, workdir: epath.PathLike):
        self._file = epath.Path(workdir) / "rollbacks.json"
        self.all = [
            Rollback(step, Position(*skipped), Position(*to), why)
            for step, skipped, to, why in hosts.from_first("rollbacks", self._read)
        ]

    def _read(self) -> list[Rollback]:
        if not self._file.exists():
            return []
        try:
            return [
                Rollback(int(told["step"]), *_places(told), str(told["why"]))
                for told in files.read_checked_json(self._file)["rollbacks"]
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
        if hosts.is_first():
            files.write_atomically(self._file, files.checked_json(content))

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
