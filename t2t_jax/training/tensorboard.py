"""TensorBoard: its files, written without TensorFlow."""

import math
import struct
import time

from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import scalar

from t2t_jax.io.growing import open_growing
from t2t_jax.io.messages import say
from t2t_jax.workdir import Workdir


class TensorBoard:
    """Writes the scalars that TensorBoard plots.

    A file is written here, not by tensorboardX: its SummaryWriter writes in a thread
    that ends at the first failed write or when the clock jumps, and a run then waits
    for it forever. What cannot be written is kept and tried again: a full disk ends
    neither the file nor the run.
    """

    EVERY = 30.0  # seconds between two writes

    def __init__(self, workdir: Workdir, first_step: int):
        folder = workdir / "tensorboard"
        folder.mkdir(parents=True, exist_ok=True)
        self._file = open_growing(folder / f"events.out.tfevents.{time.time():.6f}")
        self._written = -math.inf
        self._add(0, file_version="brain.Event:2")
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
            self._flush()

    def _add(self, step: int, **content: object) -> None:
        event = event_pb2.Event(wall_time=time.time(), step=step, **content)
        data = event.SerializeToString()
        for part in (struct.pack("<Q", len(data)), data):
            self._file.write(part + struct.pack("<I", masked_crc32c(part)))

    def _flush(self) -> None:
        try:
            self._file.flush()
        except OSError as e:  # the next flush tries again
            say(f"warning: cannot write the TensorBoard file {e.filename}: {e}")

    def close(self) -> None:
        """Writes what is pending, and closes the file."""
        self._flush()
        self._file.close()
