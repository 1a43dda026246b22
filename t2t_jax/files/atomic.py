"""Files that are complete or absent, on disk and in a bucket.

A bucket of Google Cloud Storage has objects in place of files: they appear complete,
and can neither grow nor be renamed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator

from etils import epath

from t2t_jax.files.locations import is_local

CHECKSUM = "checksum"  # key of a JSON object's own SHA-256


def write_atomically(file: epath.PathLike, content: bytes) -> None:
    """Writes a file that is there whole or not at all."""
    file = epath.Path(file)
    if not is_local(file):
        file.write_bytes(content)  # an object appears when it is complete
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.writing")
    try:
        with open(temporary, "wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    fsync(file.parent)


def checked_json(content: dict) -> bytes:
    """A JSON object with its own SHA-256, as `read_checked_json` wants it."""
    told = content | {CHECKSUM: _sha256_of(content)}
    return json.dumps(told, indent=2, ensure_ascii=False).encode() + b"\n"


def read_checked_json(file: epath.PathLike) -> dict:
    """The object of a file that `checked_json` made.

    Raises:
      ValueError: it is another than what was written, or none; says which.
    """
    try:
        content = dict(json.loads(epath.Path(file).read_bytes()))
        wanted = content.pop(CHECKSUM)
    except (ValueError, LookupError, TypeError, RecursionError) as e:
        raise ValueError(f"{type(e).__name__}: {e}") from None
    if wanted != _sha256_of(content):
        raise ValueError("it was changed after it was written: its SHA-256 is another")
    return content


def _sha256_of(content: dict) -> str:
    canonical = json.dumps(content, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def keep_earlier(*files: epath.PathLike) -> None:
    """Moves files to the next number that is free for all: a.json to a.1.json.

    In a bucket they are copied, all of them, before the first is taken away.
    """

    def numbered(file: epath.Path, number: int) -> epath.Path:
        return file.with_name(f"{file.stem}.{number}{file.suffix}")

    files = [epath.Path(file) for file in files]
    number = 1
    while any(numbered(file, number).exists() for file in files):
        number += 1
    there = [file for file in files if file.exists()]
    if all(map(is_local, there)):
        for file in there:
            file.rename(numbered(file, number))
        return
    for file in there:
        write_atomically(numbered(file, number), file.read_bytes())
    for file in there:
        file.unlink()


@contextlib.contextmanager
def exclusive(folder: epath.PathLike) -> Iterator[None]:
    """Lets only one process at a time write in a folder on disk; the others wait."""
    folder = epath.Path(folder)
    with contextlib.ExitStack() as stack:
        if is_local(folder):
            folder.mkdir(parents=True, exist_ok=True)
            opened = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, opened)
            with contextlib.suppress(OSError):  # no locks here
                fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def fsync(place: epath.Path) -> None:
    """Makes a file, or the names in a folder, survive the loss of power."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
