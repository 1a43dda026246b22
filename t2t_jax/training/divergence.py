"""Bad numbers: which steps to report, when a run has diverged, where it went back.

The update skips gradients that are not finite (`step.py`). This module reports them,
and decides when the run cannot continue. Then the loop returns to an earlier checkpoint
and skips data, which `rollbacks.json` records.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from t2t_jax.config import Config
from t2t_jax.data.feeding import Position
from t2t_jax.io import atomic
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.parallel import processes
from t2t_jax.training.metrics_log import StepMetrics
from t2t_jax.workdir import Workdir

USUAL_INTERVALS = 20  # logging intervals, the median of their maxima is the usual norm
MIN_INTERVALS = 5  # intervals; with fewer no norm counts as unusual
MAX_ALARM_FILES = 100  # alarms of a run whose batches are written out as sentences

# position -> one line for each pair of that batch, without a line end
Describe = Callable[[Position], Sequence[str]]


class DivergedError(UserError):
    """A run has diverged and may not, or cannot, go back to an earlier checkpoint."""

    # All processes see the same metrics and raise this at the same step, so that they
    # can exit in good order and only process 0 has to report it.
    everywhere = True


class Divergence(NamedTuple):
    """Evidence that a run has diverged: its first step, and a description."""

    step: int
    why: str


def alarms(
    config: Config, rows: Sequence[StepMetrics], norms: Sequence[float]
) -> list[StepMetrics]:
    """The steps to report: their gradients are not finite or unusually large.

    Args:
      norms: the largest gradient norm of each earlier interval; may be infinite.

    Returns:
      Rows, each with `usual_norm`, the median of the last `norms`; `nan` if unknown.
    """
    finite = [norm for norm in norms if math.isfinite(norm)][-USUAL_INTERVALS:]
    # A median: the large norms to be reported must not raise the limit.
    usual = statistics.median(finite) if len(finite) >= MIN_INTERVALS else math.nan
    limit = config.train.alarm_norm * usual  # if nan, no comparison below is true
    return [
        row | {"usual_norm": usual}
        for row in rows
        if not math.isfinite(row["gradient_norm"])
        or not math.isfinite(row["loss"])
        or (config.train.alarm_norm and row["gradient_norm"] > limit)
    ]


def report_alarm(
    workdir: Workdir, alarm: StepMetrics, describe: Describe | None
) -> None:
    """Prints a warning about a step, and saves the sentences of its batch.

    The pairs of the first `MAX_ALARM_FILES` alarms of a run go to `alarms/STEP.jsonl`.
    """
    step, norm = int(alarm["step"]), alarm["gradient_norm"]
    if math.isfinite(norm) and math.isfinite(alarm["loss"]):
        symptom = f"gradient norm {norm:.3g}, usually {alarm['usual_norm']:.3g}"
    else:
        symptom = f"loss {alarm['loss']:.3g}, gradient norm {norm:.3g}: update skipped"
    file = workdir / "alarms" / f"{step}.jsonl"
    message = f"warning: step {step:,}: {symptom}"
    if describe and not file.exists():
        if file.parent.exists() and len(list(file.parent.iterdir())) >= MAX_ALARM_FILES:
            say(f"{message}; python -m t2t_jax whatwas shows its sentences")
            return
        position = Position(int(alarm["epoch"]), int(alarm["batch"]))
        lines = describe(position)
        atomic.write_atomically(file, "".join(f"{line}\n" for line in lines).encode())
        message += f"; its {len(lines):,} pairs: {file}"
    say(message)


def find_divergence(
    config: Config, rows: Sequence[StepMetrics], loss: float, lowest: float
) -> Divergence | None:
    """Checks whether the steps of a logging interval show that a run has diverged.

    Args:
      lowest: the lowest mean loss of an earlier interval; infinite if there is none.
    """
    train = config.train
    worst = max(rows, key=lambda row: row["skipped_in_a_row"])
    in_a_row = int(worst["skipped_in_a_row"])
    if in_a_row >= train.max_skipped:
        return Divergence(
            # The first of the skipped steps; it may be in an earlier interval.
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


# ---------------------------------------------------------------------------- rollbacks


class Rollback(NamedTuple):
    """One return to an earlier state, followed by later data."""

    step: int  # the step of the state that the run returned to
    skipped: Position  # the first data position that the run skips
    to: Position  # the data position that it continues from
    why: str


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
                Rollback(
                    int(entry["step"]),
                    Position(*entry["skipped"]),
                    Position(*entry["to"]),
                    str(entry["why"]),
                )
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
        content = {"rollbacks": [rollback._asdict() for rollback in self.all]}
        if processes.is_first():
            atomic.write_atomically(self._file, atomic.checked_json(content))

    def in_effect(self) -> dict[int, Position]:
        """Step -> data position to continue from, for the rollbacks still in effect.

        A rollback to an earlier step undoes those to that step or later ones.
        """
        positions: dict[int, Position] = {}
        for rollback in self.all:
            positions = {s: p for s, p in positions.items() if s < rollback.step}
            positions[rollback.step] = rollback.to
        return positions

    def position(self, step: int, position: Position) -> Position:
        """The data position after a step; `position` unless a rollback moved it."""
        return self.in_effect().get(step, position)

    def last_before(self, step: int) -> tuple[int, Position]:
        """The last rollback before `step`: its step, and the position it moved to.

        Step 0 and the first position if there is none.
        """
        jumps = {0: Position()} | self.in_effect()
        latest = max(s for s in jumps if s < step)
        return latest, jumps[latest]
