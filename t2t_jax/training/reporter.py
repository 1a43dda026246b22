"""Reports a run: progress in the terminal, `metrics.jsonl`, TensorBoard."""

import math
import sys
from collections.abc import Sequence

import tqdm

from t2t_jax.parallel import processes
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say
from t2t_jax.training.metrics_log import MetricsLog
from t2t_jax.training.rollbacks import Rollback
from t2t_jax.training.tensorboard import TensorBoard
from t2t_jax.workdir.workdir import Workdir


class Reporter:
    """Tells of a run on the screen and in the workdir's files."""

    def __init__(self, workdir: Workdir, first_step: int, steps: int):
        self._workdir = workdir
        self._lines = MetricsLog(workdir / "metrics.jsonl")
        self._first = first_step
        self._board = None  # until there is a metric: a finished run adds no file
        self._bar = tqdm.tqdm(
            total=steps,
            initial=first_step,
            unit="step",
            desc="train",
            dynamic_ncols=True,
            disable=not (processes.is_first() and sys.stderr.isatty()),
        )
        self._steps = steps

    def record(self, step: int, kind: str, values: dict[str, float]) -> None:
        """Keeps metrics of a step; `kind` is `train`, `dev` or `alarm`."""
        if self._lines.write(step, kind, values) and processes.is_first():
            self._board = self._board or TensorBoard(self._workdir, self._first)
            self._board.add(step, kind, values)

    def roll_back(self, rollbacks: Sequence[Rollback]) -> None:
        """Lets the steps after each rollback that is not told yet count no more.

        Raises:
          UserError: more are told of than there are.
        """
        if self._lines.rollbacks > len(rollbacks):
            raise UserError(
                f"metrics.jsonl tells of {self._lines.rollbacks} rollbacks, but "
                f"rollbacks.json has {len(rollbacks)}: it was lost. It says which data "
                "the run skipped, so put it back from a copy"
            )
        for rollback in rollbacks[self._lines.rollbacks :]:
            told = {"why": rollback.why, "data": [rollback.skipped, rollback.to]}
            self._lines.write(rollback.step, "rollback", told)
            self._first = rollback.step
            if self._board:
                self._board.close()
                self._board = None
            self._bar.n = rollback.step

    def column(self, kind: str, name: str, before: int) -> dict[int, float]:
        """A metric of each entry before a step, by step; `nan` where it was none."""
        return {
            e["step"]: math.nan if e[name] is None else e[name]
            for e in self._lines.entries
            if e["kind"] == kind and name in e and e["step"] < before
        }

    def has(self, step: int, kind: str) -> bool:
        """True if metrics of this kind are kept of this step already."""
        return self._lines.has(step, kind)

    def progress(
        self, step: int, values: dict[str, float], seconds_left: float
    ) -> None:
        """Shows where training is: the bar in a terminal, a line elsewhere."""
        shown = {
            "loss": f"{values['loss']:.3f}",
            "tokens/s": f"{values['tokens_per_second']:,.0f}",
            "ms/step": f"{1e3 * values['seconds_per_step']:,.0f}",
        }
        if "mfu" in values:
            shown["MFU"] = f"{values['mfu']:.1%}"
        if values["skipped"]:
            shown["skipped"] = f"{values['skipped']:.0f}"
        if not self._bar.disable:
            self._bar.set_postfix(shown, refresh=False)
            self._bar.update(step - self._bar.n)
        else:
            told = "  ".join(f"{name} {value}" for name, value in shown.items())
            left = tqdm.tqdm.format_interval(seconds_left)
            say(f"step {step:,}/{self._steps:,}  {told}  left {left}")

    def close(self) -> None:
        """Ends the bar and the files."""
        self._bar.close()
        if self._board:
            self._board.close()
        self._lines.close()
