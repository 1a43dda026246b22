"""Files that grow: by appending on disk, by rewriting in a bucket."""

import contextlib
import os
from typing import Any

from etils import epath

from t2t_jax.io.json_lines import Parse, parse_lines
from t2t_jax.io.locations import is_local
from t2t_jax.io.messages import say


def open_growing(
    path: epath.Path, content: bytes | None = None
) -> "DiskFile | BucketFile":
    """Opens a file that grows.

    Args:
      content: what the file is to hold now: a part of what it holds, from its
        beginning, or all of it and more. None: it stays as it is.

    Raises:
      OSError: it cannot be written.
    """
    return DiskFile(path, content) if is_local(path) else BucketFile(path, content)


def open_log(
    file: epath.Path, parse: Parse, begin: bytes
) -> tuple[list[Any], "DiskFile | BucketFile"]:
    """Opens a log to append lines, which begin with `begin`; also returns its entries.

    Half of such a line, which a crash has left, is cut off. A line that only lacks its
    end stays. Another tail was not written here: it becomes a damaged line.
    """
    content = file.read_bytes() if file.exists() else b""
    entries, tail = parse_lines(content, parse)
    if (whole := parse_lines(tail + b"\n", parse).entries[0]) is not None:
        return [*entries, whole], open_growing(file, content + b"\n")
    # The tail may be shorter than the beginning it is compared with.
    if tail.startswith(begin[: len(tail)]):
        return entries, open_growing(file, content[: len(content) - len(tail)])
    return [*entries, None], open_growing(file, content + b"\n")


class DiskFile:
    """A growing file on disk. It stays open, so it may be renamed meanwhile."""

    def __init__(self, path: epath.Path, content: bytes | None = None):
        # Unbuffered: a failed write is seen, and undone.
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._pending = b""
        size = os.fstat(self._file.fileno()).st_size
        if content is not None and len(content) < size:
            self._file.truncate(len(content))
        elif content is not None:
            self.write(content[size:])
            self.flush()

    def write(self, content: bytes) -> None:
        """Appends in memory, until the next `flush`."""
        self._pending += content

    def flush(self) -> None:
        """Appends to the file, all or nothing.

        Raises:
          OSError: the write failed, on a full disk for example; the file is as before,
            and the next flush tries again.
        """
        size_before = os.fstat(self._file.fileno()).st_size
        try:
            unwritten = memoryview(self._pending)
            while unwritten:  # one unbuffered write may take only a part
                unwritten = unwritten[self._file.write(unwritten) :]
        except OSError as e:
            with contextlib.suppress(OSError):
                self._file.truncate(size_before)  # no half line
            # Again, with the file's name in the message.
            raise OSError(e.errno, e.strerror, self._file.name) from None
        self._pending = b""

    def close(self) -> None:
        """Closes the file; what is not flushed is lost."""
        self._file.close()


class BucketFile:
    """A growing file in a bucket.

    Objects in a bucket cannot grow, so every flush writes the file again.
    """

    def __init__(self, path: epath.Path, content: bytes | None = None):
        self._path, self._content = path, bytearray(content or b"")
        self._uploaded = len(self._content)  # bytes

    def write(self, content: bytes) -> None:
        """Appends in memory, until the next `flush`."""
        self._content += content

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
