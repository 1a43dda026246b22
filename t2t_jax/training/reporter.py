"""Reporting of a run: progress in the terminal, `metrics.jsonl`, trackers."""

import math
import sys
from collections.abc import Sequence

import tqdm

from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.parallel import processes
from t2t_jax.sections import at_address
from t2t_jax.training.divergence import Rollback
from t2t_jax.training.metrics_log import METRICS, MetricsLog
from t2t_jax.training.trackers import DEFAULT, TRACKERS
from t2t_jax.workdir import Workdir


class Reporter:
    """Reports a run in the terminal and in the workdir's files.

    Args:
      first_step: the step that training continues from.
      track: the names of trackers.
    """

    def __init__(
        self,
        workdir: Workdir,
        first_step: int,
        steps: int,
        track: Sequence[str] = DEFAULT,
    ):
        self._workdir = workdir
        self._lines = MetricsLog(workdir / METRICS)
        self._first = first_step
        # Created with the first metric: restarting a finished run, which only scores,
        # adds no file.
        self._track, self._trackers = track, []
        self._bar = tqdm.tqdm(
            total=steps,
            initial=first_step,
            unit="step",
            desc="train",
            dynamic_ncols=True,
            disable=not (processes.is_first() and sys.stderr.isatty()),
        )
        self._live = at_address("tools.pages.live_curve.live_curve")(workdir)

    def record(self, step: int, kind: str, values: dict[str, float]) -> None:
        """Records metrics of a step, once; `kind` is `train`, `dev` or `alarm`."""
        # `write` comes first: all processes keep the entries.
        if self._lines.write(step, kind, values) and processes.is_first():
            self._trackers = self._trackers or [
                TRACKERS[name](self._workdir, self._first) for name in self._track
            ]
            for tracker in self._trackers:
                tracker.add(step, kind, values)

    def roll_back(self, rollbacks: Sequence[Rollback]) -> None:
        """Logs rollbacks that are not logged yet; discards the steps that they undo."""
        if self._lines.rollbacks > len(rollbacks):
            raise UserError(
                f"metrics.jsonl records {self._lines.rollbacks} rollbacks, but "
                f"rollbacks.json only {len(rollbacks)}: it was lost. It records which "
                "data the run skipped; restore it from a copy"
            )
        # A run that was killed may have stored a rollback without logging it.
        for rollback in rollbacks[self._lines.rollbacks :]:
            entry = {"why": rollback.why, "data": [rollback.skipped, rollback.to]}
            self._lines.write(rollback.step, "rollback", entry)
            # Opened again with the next metric: a new TensorBoard file hides what the
            # old one has of later steps.
            self._first = rollback.step
            self._close_trackers()
            self._bar.n = rollback.step

    def column(self, kind: str, name: str, before: int) -> dict[int, float]:
        """One metric of all entries of a kind before a step, by step.

        `nan` stands for every value that was not finite: JSON has null for all.
        """
        return {
            e["step"]: math.nan if e[name] is None else e[name]
            for e in self._lines.entries
            if e["kind"] == kind and name in e and e["step"] < before
        }

    def has(self, step: int, kind: str) -> bool:
        """True if metrics of this kind are recorded for this step or a later one."""
        return self._lines.has(step, kind)

    def progress(
        self, step: int, values: dict[str, float], seconds_left: float
    ) -> None:
        """Shows progress: the bar in a terminal, a curve in a notebook, or a line."""
        fields = {
            "loss": f"{values['loss']:.3f}",
            "tokens/s": f"{values['tokens_per_second']:,.0f}",
            "ms/step": f"{1e3 * values['seconds_per_step']:,.0f}",
        }
        if "mfu" in values:
            fields["MFU"] = f"{values['mfu']:.1%}"
        if values["skipped"]:
            fields["skipped"] = f"{values['skipped']:.0f}"
        if not self._bar.disable:
            self._bar.set_postfix(fields, refresh=False)
            self._bar.update(step - self._bar.n)  # `update` takes an increment
            return
        listed = "  ".join(f"{name} {value}" for name, value in fields.items())
        time_left = tqdm.tqdm.format_interval(seconds_left)
        line = f"step {step:,}/{self._bar.total:,}  {listed}  left {time_left}"
        if self._live:
            self._live.show(line)
        else:
            say(line)

    def close(self) -> None:
        """Closes the bar and the files."""
        self._bar.close()
        if self._live:
            self._live.close()
        self._lines.close()  # first: a tracker of a user's may raise an error
        self._close_trackers()

    def _close_trackers(self) -> None:
        for tracker in self._trackers:
            tracker.close()
        self._trackers = []
