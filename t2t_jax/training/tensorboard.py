"""TensorBoard files, written without TensorFlow."""

import math
import os
import time

from etils import epath
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import directory_check, register_writer_factory
from tensorboardX.summary import scalar

from t2t_jax.files.growing import BucketFile, append
from t2t_jax.files.locations import is_local
from t2t_jax.terminal.messages import say
from t2t_jax.workdir.workdir import Workdir


class _Events(BucketFile):
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
                append(file, self._waiting)
            self._waiting = b""
        except OSError as e:  # the next flush tries again
            say(f"warning: TensorBoard's {self._path} could not be written: {e}")

    def close(self) -> None:
        self.flush()


class TensorBoard:
    """What TensorBoard draws.

    Written here and not by tensorboardX's SummaryWriter, whose thread ends at the first
    write that fails or when the clock jumps; a run then waits for it without end.
    """

    EVERY = 30.0  # seconds between two writes

    def __init__(self, workdir: Workdir, first_step: int):
        register_writer_factory("gs", _Events)
        register_writer_factory("disk", _EventsOnDisk)
        folder = str(workdir / "tensorboard")
        if is_local(folder):
            folder = f"disk:{folder}"
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
