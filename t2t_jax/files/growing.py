"""Files that grow: by appending on disk, by rewriting in a bucket."""

import contextlib
import io
import os

from etils import epath

from t2t_jax.terminal.messages import say


def append(file: io.FileIO, content: bytes) -> None:
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


class BucketFile:
    """A growing file in a bucket: objects cannot grow, so every flush rewrites it."""

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
