"""TensorBoard files, written without TensorFlow."""

import math
import os
import time

from etils import epath
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import directory_check, register_writer_factory
from tensorboardX.summary import scalar

from t2t_jax.io.growing import BucketFile, append
from t2t_jax.io.locations import is_local
from t2t_jax.io.messages import say
from t2t_jax.workdir import Workdir


class _Events(BucketFile):
    """A TensorBoard file in a bucket, with the methods that tensorboardX calls."""

    @classmethod
    def open(cls, path: str) -> "_Events":
        """Creates the writer; tensorboardX calls this for every file."""
        return cls(epath.Path(path))

    @staticmethod
    def directory_check(path: str) -> None:
        """Does nothing: a bucket has no folders to create."""


class _EventsOnDisk:
    """A TensorBoard file on disk that keeps what it cannot write and tries again.

    A full disk then ends neither TensorBoard's file nor the run. Its path begins with
    `disk:`, by which tensorboardX picks this class.
    """

    def __init__(self, path: str):
        self._path, self._pending = path.removeprefix("disk:"), b""

    @classmethod
    def open(cls, path: str) -> "_EventsOnDisk":
        """Creates the writer; tensorboardX calls this for every file."""
        return cls(path)

    @staticmethod
    def directory_check(path: str) -> None:
        """Creates the folder."""
        os.makedirs(path.removeprefix("disk:"), exist_ok=True)

    def write(self, more: bytes) -> None:
        """Appends in memory, until the next `flush`."""
        self._pending += more

    def flush(self) -> None:
        """Appends to the file; warns if that fails, and keeps the content."""
        if not self._pending:
            return
        try:
            with open(self._path, "ab", buffering=0) as file:
                append(file, self._pending)
            self._pending = b""
        except OSError as e:  # the next flush tries again
            say(f"warning: cannot write the TensorBoard file {self._path}: {e}")

    def close(self) -> None:
        """Flushes; the file is open only while it is written."""
        self.flush()


class TensorBoard:
    """Writes the scalars that TensorBoard plots.

    Uses tensorboardX's EventsWriter, not its SummaryWriter: that one writes in a thread
    that ends at the first failed write or when the clock jumps, and a run then waits
    for it forever.

    Args:
      first_step: the step that training continues from.
    """

    EVERY = 30.0  # seconds between two writes

    def __init__(self, workdir: Workdir, first_step: int):
        # tensorboardX picks the class of a file by what its path has before a colon.
        register_writer_factory("gs", _Events)
        register_writer_factory("disk", _EventsOnDisk)
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
