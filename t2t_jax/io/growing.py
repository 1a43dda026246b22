"""Files that grow: by appending on disk, by rewriting in a bucket."""

import contextlib
import io
import os

from etils import epath

from t2t_jax.io.messages import say


def append(file: io.FileIO, content: bytes) -> None:
    """Appends to an unbuffered file, all or nothing.

    Raises:
      OSError: the write failed, on a full disk for example; the file is as before.
    """
    before = os.fstat(file.fileno()).st_size
    try:
        rest = memoryview(content)
        while rest:  # one unbuffered write may take only a part
            rest = rest[file.write(rest) :]
    except OSError as e:
        with contextlib.suppress(OSError):
            file.truncate(before)  # no half line
        # Again, with the file's name in the message.
        raise OSError(e.errno, e.strerror, file.name) from None


class BucketFile:
    """A growing file in a bucket.

    Objects in a bucket cannot grow, so every flush writes the file again.

    Args:
      content: what the file already holds.
    """

    def __init__(self, path: epath.Path, content: bytes = b""):
        self._path, self._content = path, bytearray(content)
        self._uploaded = len(content)  # bytes

    def write(self, more: bytes) -> None:
        """Appends in memory, until the next `flush`."""
        self._content += more

    def flush(self) -> None:
        """Writes the file, if it grew; warns if that fails."""
        if self._uploaded == len(self._content):
            return
        try:
            self._path.write_bytes(bytes(self._content))
            self._uploaded = len(self._content)
        # Of several libraries. A bucket that is out of reach for a moment does not end
        # the run: the next flush writes everything.
        except Exception as e:
            say(f"warning: {self._path} could not be written: {e}")

    def close(self) -> None:
        """Flushes; there is nothing to close."""
        self.flush()
