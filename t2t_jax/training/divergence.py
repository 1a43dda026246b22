"""When numbers go wrong: which steps to tell of, and when a run has diverged.

A gradient that is not finite never reaches the parameters (`step.py`). Here is what is
said of it, and what follows.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from t2t_jax.config import Config
from t2t_jax.data.feeding import Position
from t2t_jax.files import atomic
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say
from t2t_jax.training.meter import Row
from t2t_jax.workdir.workdir import Workdir

USUAL_OF = 20  # readings whose largest gradient norms tell what is usual
AT_LEAST = 5  # of them, or nothing is unusual yet
KEPT = 100  # batches of a run whose sentences are written out

# position -> a line for each pair of that batch, without its end
Describe = Callable[[Position], Sequence[str]]


class DivergedError(UserError):
    """The run cannot go on as it went; all processes come to that at the same step."""

    everywhere = True


class Divergence(NamedTuple):
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


def report_alarm(workdir: Workdir, alarm: Row, describe: Describe | None) -> None:
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
        atomic.write_atomically(file, "".join(f"{line}\n" for line in lines).encode())
        told += f"; its {len(lines):,} pairs: {file}"
    say(told)


def find_divergence(
    config: Config, rows: Sequence[Row], loss: float, lowest: float
) -> Divergence | None:
    """Whether the steps just read show that a run has diverged.

    Args:
      loss: their mean. lowest: the lowest mean loss of a reading before.
    """
    train = config.train
    worst = max(rows, key=lambda row: row["skipped_in_a_row"])
    in_a_row = int(worst["skipped_in_a_row"])
    if in_a_row >= train.max_skipped:
        return Divergence(
            int(worst["step"]) - in_a_row + 1,
            f"{in_a_row} gradients in a row were not finite and were skipped "
            f"(config.train.max_skipped={train.max_skipped})",
        )
    if train.max_rise and loss > lowest + train.max_rise:
        return Divergence(
            int(rows[0]["step"]),
            f"the loss rose to {loss:.3f}, from {lowest:.3f} at its lowest "
            f"(config.train.max_rise={train.max_rise:g})",
        )
    return None
