"""Reporting of a run: progress in the terminal, `metrics.jsonl`, TensorBoard."""

import math
import os
import sys
import time
from collections.abc import Sequence

import tqdm
from etils import epath
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import directory_check, register_writer_factory
from tensorboardX.summary import scalar

from t2t_jax.io.errors import UserError
from t2t_jax.io.growing import open_growing
from t2t_jax.io.locations import is_local
from t2t_jax.io.messages import say
from t2t_jax.parallel import processes
from t2t_jax.sections import at_address
from t2t_jax.training.divergence import Rollback
from t2t_jax.training.metrics_log import METRICS, MetricsLog
from t2t_jax.workdir import Workdir


class Reporter:
    """Reports a run in the terminal and in the workdir's files.

    Args:
      first_step: the step that training continues from.
    """

    def __init__(self, workdir: Workdir, first_step: int, steps: int):
        self._workdir = workdir
        self._lines = MetricsLog(workdir / METRICS)
        self._first = first_step
        # TensorBoard, created with the first metric: restarting a finished run, which
        # only scores, adds no file.
        self._board = None
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
            self._board = self._board or TensorBoard(self._workdir, self._first)
            self._board.add(step, kind, values)

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
            # A new TensorBoard file, opened with the next metric, hides what the old
            # one has of later steps.
            self._first = rollback.step
            if self._board:
                self._board.close()
                self._board = None
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
        for shown in filter(None, (self._bar, self._live, self._board, self._lines)):
            shown.close()


# -------------------------------------------------------------------------- TensorBoard
# Its files, written without TensorFlow.


class _Events:
    """A TensorBoard file, with the methods that tensorboardX calls.

    It keeps what it cannot write and tries again: a full disk ends neither the file nor
    the run. On disk its path begins with `disk:`.
    """

    def __init__(self, path: str):
        self._file = open_growing(epath.Path(path.removeprefix("disk:")))

    @classmethod
    def open(cls, path: str) -> "_Events":
        """Creates the writer; tensorboardX calls this for every file."""
        return cls(path)

    @staticmethod
    def directory_check(path: str) -> None:
        """Creates the folder; a bucket has none to create."""
        if path.startswith("disk:"):
            os.makedirs(path.removeprefix("disk:"), exist_ok=True)

    def write(self, content: bytes) -> None:
        """Appends in memory, until the next `flush`."""
        self._file.write(content)

    def flush(self) -> None:
        """Appends to the file; warns if that fails, and keeps the content."""
        try:
            self._file.flush()
        except OSError as e:  # the next flush tries again
            say(f"warning: cannot write the TensorBoard file {e.filename}: {e}")

    def close(self) -> None:
        """Flushes, and closes the file."""
        self.flush()
        self._file.close()


class TensorBoard:
    """Writes the scalars that TensorBoard plots.

    Uses tensorboardX's EventsWriter, not its SummaryWriter: that one writes in a thread
    that ends at the first failed write or when the clock jumps, and a run then waits
    for it forever.
    """

    EVERY = 30.0  # seconds between two writes

    def __init__(self, workdir: Workdir, first_step: int):
        # tensorboardX picks the class of a file by what its path has before a colon.
        register_writer_factory("gs", _Events)
        register_writer_factory("disk", _Events)
        folder = str(workdir / "tensorboard")
        if is_local(folder):
            folder = f"disk:{folder}"
        directory_check(folder)
        self._writer = EventsWriter(f"{folder}/events")
        self._written = -math.inf
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        # TensorBoard hides the points of earlier files from this step on: a run that
        # was killed may have written steps that are repeated now.
        self._add(first_step + 1, session_log=start)

    def add(self, step: int, kind: str, values: dict[str, float]) -> None:
        """Adds scalars of a step, as `KIND/NAME`; writes them every `EVERY` seconds."""
        for name, value in values.items():
            self._add(step, summary=scalar(f"{kind}/{name}", value))
        # In a bucket every flush uploads the complete file.
        if time.monotonic() - self._written >= self.EVERY:
            self._written = time.monotonic()
            self._writer.flush()

    def _add(self, step: int, **content: object) -> None:
        event = event_pb2.Event(wall_time=time.time(), step=step, **content)
        self._writer.write_event(event)

    def close(self) -> None:
        """Writes what is pending, and closes the file."""
        self._writer.close()
