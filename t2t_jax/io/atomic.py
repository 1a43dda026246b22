"""Files that are either complete or absent, on disk and in a bucket.

A bucket of Google Cloud Storage has objects in place of files. An object appears when
it is complete, and can neither grow nor be renamed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator

from etils import epath

from t2t_jax.io.locations import is_local

CHECKSUM = "checksum"  # the key under which a JSON object holds its own SHA-256


def write_atomically(file: epath.PathLike, content: bytes) -> None:
    """Writes a file so that a crash leaves the old content or the new, never half.

    Creates the file's folder. Survives the loss of power.
    """
    file = epath.Path(file)
    if not is_local(file):
        file.write_bytes(content)  # an object appears when it is complete
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder: a rename is atomic only within one file system.
    temporary = file.with_name(f".{file.name}.writing")
    try:
        with open(temporary, "wb") as f:
            f.write(content)
            f.flush()
            # Before the rename, which may otherwise reach the disk without the content.
            os.fsync(f.fileno())
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    fsync(file.parent)  # the rename itself


def checked_json(content: dict) -> bytes:
    """Encodes a JSON object with its own SHA-256, for `read_checked_json`."""
    checked = content | {CHECKSUM: _sha256_of(content)}
    return json.dumps(checked, indent=2, ensure_ascii=False).encode() + b"\n"


def read_checked_json(file: epath.PathLike) -> dict:
    """Reads a JSON object that `checked_json` encoded.

    Raises:
      ValueError: the file is not such an object, or was changed; says which.
    """
    try:
        content = dict(json.loads(epath.Path(file).read_bytes()))
        wanted = content.pop(CHECKSUM)
    # RecursionError: JSON that is nested to harm.
    except (ValueError, LookupError, TypeError, RecursionError) as e:
        raise ValueError(f"{type(e).__name__}: {e}") from None
    if wanted != _sha256_of(content):
        raise ValueError("it was changed after it was written: its SHA-256 differs")
    return content


def _sha256_of(content: dict) -> str:
    # Of the object, not the bytes of the file: layout and order of keys do not count.
    canonical = json.dumps(content, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def keep_earlier(*files: epath.PathLike) -> int:
    """Renames files with the next number that is free for all of them; returns it.

    For example a.json and a.de to a.1.json and a.1.de. Files that do not exist are
    skipped.
    """

    def numbered(file: epath.Path, number: int) -> epath.Path:
        return file.with_name(f"{file.stem}.{number}{file.suffix}")

    files = [epath.Path(file) for file in files]
    number = 1
    # One number for all, so that files of the same number belong together.
    while any(numbered(file, number).exists() for file in files):
        number += 1
    existing = [file for file in files if file.exists()]
    if all(map(is_local, existing)):
        for file in existing:
            file.rename(numbered(file, number))
        return number
    # A bucket cannot rename. Copy all before deleting the first: a crash loses none.
    for file in existing:
        write_atomically(numbered(file, number), file.read_bytes())
    for file in existing:
        file.unlink()
    return number


@contextlib.contextmanager
def exclusive(folder: epath.PathLike) -> Iterator[None]:
    """Holds a lock on a folder, so that one process at a time writes in it.

    Other processes wait. In a bucket, and on file systems without locks, does nothing.
    """
    folder = epath.Path(folder)
    with contextlib.ExitStack() as stack:
        if is_local(folder):
            folder.mkdir(parents=True, exist_ok=True)
            # The folder itself is locked, so no lock file is left behind. Closing it,
            # or the end of the process, releases the lock.
            opened = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, opened)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def fsync(place: epath.Path) -> None:
    """Flushes a file, or the names in a folder, to disk: they survive a power loss."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
