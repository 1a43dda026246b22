"""What a person sees of a run, and what is kept of it.

A live progress bar in a terminal and plain lines elsewhere; `metrics.jsonl`, one object
a line; TensorBoard files, written without TensorFlow.
"""

import contextlib
import functools
import io
import json
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

from t2t_jax.errors import UserError
from t2t_jax.files import on_disk
from t2t_jax.parallel import hosts
from t2t_jax.screen import say
from t2t_jax.training.divergence import Rollback


class _Grown:
    """A file that grows in a bucket, where none can: written anew at every flush."""

    def __init__(self, path: epath.Path, content: bytes = b""):
        self._path, self._content = path, bytearray(content)
        self._there = len(content)

    def write(self, more: bytes) -> None:
        self._content += more

    def flush(self) -> None:
        if self._there == len(self._content):
            return
        try:
            self._path.write_bytes(bytes(self._content))
            self._there = len(self._content)
        except Exception as e:  # the next flush has all that this one would have
            say(f"warning: {self._path} could not be written: {e}")

    def close(self) -> None:
        self.flush()


class _Events(_Grown):
    """A TensorBoard file in a bucket, as tensorboardX asks for it."""

    @classmethod
    def open(cls, path: str) -> "_Events":
        return cls(epath.Path(path))

    @staticmethod
    def directory_check(path: str) -> None:
        """A bucket has no folders to make."""


class _EventsOnDisk:
    """A TensorBoard file on disk that waits where there is no room.

    Its path begins with `disk:`.
    """

    def __init__(self, path: str):
        self._path, self._waiting = path.removeprefix("disk:"), b""

    @classmethod
    def open(cls, path: str) -> "_EventsOnDisk":
        return cls(path)

    @staticmethod
    def directory_check(path: str) -> None:
        os.makedirs(path.removeprefix("disk:"), exist_ok=True)

    def write(self, more: bytes) -> None:
        self._waiting += more

    def flush(self) -> None:
        if not self._waiting:
            return
        try:
            with open(self._path, "ab", buffering=0) as file:
                _append(file, self._waiting)
            self._waiting = b""
        except OSError as e:  # the next flush tries again
            say(f"warning: TensorBoard's {self._path} could not be written: {e}")

    def close(self) -> None:
        self.flush()


def _append(file: io.FileIO, content: bytes) -> None:
    """Writes at the end of a file, all or nothing."""
    before = os.fstat(file.fileno()).st_size
    try:
        left = memoryview(content)
        while left:
            left = left[file.write(left) :]
    except OSError as e:
        with contextlib.suppress(OSError):
            file.truncate(before)
        raise OSError(e.errno, e.strerror, file.name) from None


class JsonLines:
    """Appends objects to a file, each once.

    A run that was killed makes some steps again: an object whose step and kind the file
    already holds is not written twice. Half a line left by a crash is cut off. After an
    object of kind `rollback` the steps after its own are other ones, and written anew.

    The file is the first process's; the others know and remember the same.

    Attributes:
      entries: the objects that count, in order.
    """

    def __init__(self, path: epath.PathLike):
        self._last: dict[str, int] = {}  # kind -> last step
        self.entries: list[dict] = []
        self.rollbacks = 0
        self._file = None
        opened = functools.partial(self._open, epath.Path(path))
        for entry in hosts.from_first("metrics", opened):
            self._remember(entry)

    def _open(self, path: epath.Path) -> list[dict]:
        """The objects of the file, which is then open for more."""
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if not content[len(whole) :].startswith(
            b'{"step": '[: len(content) - len(whole)]
        ):
            whole = content + b"\n"  # not half a line of ours: it stays, and is told
        entries = []
        for number, line in enumerate(whole.splitlines(), 1):
            if entry := _parsed(line):
                entries.append(entry)
            else:
                say(f"warning: {path}, line {number} is damaged; left as it is, unused")
        if not on_disk(path):
            self._file = _Grown(path, whole)
            return entries
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        if len(whole) > len(content):
            _append(self._file, b"\n")
        elif len(whole) < len(content):
            self._file.truncate(len(whole))
        return entries

    def write(self, step: int, kind: str, values: dict[str, float]) -> bool:
        """Writes one object; False if this step of this kind is there already."""
        if self.has(step, kind):
            return False
        # JSON has no nan or infinity: null.
        finite = {
            n: None if isinstance(v, float) and not math.isfinite(v) else v
            for n, v in values.items()
        }
        entry = {"step": step, "kind": kind, **finite}
        line = json.dumps(entry).encode() + b"\n"
        if isinstance(self._file, _Grown):
            self._file.write(line)
            self._file.flush()
        elif self._file:
            _append(self._file, line)
        self._remember(entry)
        return True

    def _remember(self, entry: dict) -> None:
        kind, step = entry["kind"], entry["step"]
        if kind == "rollback":
            self.rollbacks += 1
            self._last = {k: min(last, step) for k, last in self._last.items()}
            self.entries = [e for e in self.entries if e["step"] <= step]
        else:
            self._last[kind] = max(self._last.get(kind, -1), step)
            self.entries.append(entry)

    def has(self, step: int, kind: str) -> bool:
        """True if this step of this kind, or a later one, is there."""
        return kind != "rollback" and step <= self._last.get(kind, -1)

    def close(self) -> None:
        if self._file:
            self._file.close()


def _parsed(line: bytes) -> dict | None:
    """An object of the file, if that is what a line is."""
    try:
        entry = json.loads(line)
        whole = type(entry["step"]) is int and isinstance(entry["kind"], str)
    except (ValueError, LookupError, TypeError):
        return None
    return entry if whole else None


class _Board:
    """What TensorBoard draws.

    Written here and not by tensorboardX's SummaryWriter, whose thread ends at the first
    write that fails or when the clock jumps; a run then waits for it without end.
    """

    EVERY = 30.0  # seconds between two writes

    def __init__(self, folder: str, first_step: int):
        directory_check(folder)
        self._writer = EventsWriter(f"{folder}/events")
        self._written = -math.inf
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        # What a run before this one drew of later steps is not drawn any more.
        self._add(first_step + 1, session_log=start)

    def add(self, step: int, kind: str, values: dict[str, float]) -> None:
        """Draws some values of a step."""
        for name, value in values.items():
            self._add(step, summary=scalar(f"{kind}/{name}", value))
        if time.monotonic() - self._written >= self.EVERY:
            self._written = time.monotonic()
            self._writer.flush()

    def _add(self, step: int, **content: object) -> None:
        event = event_pb2.Event(wall_time=time.time(), step=step, **content)
        self._writer.write_event(event)

    def close(self) -> None:
        self._writer.close()


class Watch:
    """Tells of a run on the screen and in the workdir's files."""

    def __init__(self, workdir: epath.PathLike, first_step: int, steps: int):
        workdir = epath.Path(workdir)
        self._lines = JsonLines(workdir / "metrics.jsonl")
        register_writer_factory("gs", _Events)
        register_writer_factory("disk", _EventsOnDisk)
        self._folder = str(workdir / "tensorboard")
        if on_disk(workdir):
            self._folder = f"disk:{self._folder}"
        self._first = first_step
        self._board = None  # until there is a metric: a finished run adds no file
        self._bar = tqdm.tqdm(
            total=steps,
            initial=first_step,
            unit="step",
            desc="train",
            dynamic_ncols=True,
            disable=not (hosts.is_first() and sys.stderr.isatty()),
        )
        self._steps = steps

    def record(self, step: int, kind: str, values: dict[str, float]) -> None:
        """Keeps metrics of a step; `kind` is `train`, `dev` or `alarm`."""
        if self._lines.write(step, kind, values) and hosts.is_first():
            self._board = self._board or _Board(self._folder, self._first)
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
