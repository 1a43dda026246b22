"""Files that are either complete or absent, on disk and in a bucket.

A bucket of Google Cloud Storage has objects in place of files. An object appears when
it is complete, and can neither grow nor be renamed.
"""

import contextlib
import errno
import filecmp
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

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
    with together([file], replace=True) as (draft,):
        draft.write_bytes(content)


@contextlib.contextmanager
def together(files: Sequence[Path], replace: bool = False) -> Iterator[list[Path]]:
    """Yields drafts to be written; after the block they get the names of `files`.

    The names appear in order, so the last one can mark the set as complete. If the
    block raises, none appears. All survive the loss of power. On disk only.

    Args:
      files: names in one folder, which exists.
      replace: overwrite earlier files. Otherwise a file that exists must have the
        content of its draft.

    Raises:
      FileExistsError: a file exists with other content; has its name.
    """
    # In the same folder: a rename is atomic only within one file system.
    drafts = [file.with_name(f".{file.name}.writing") for file in files]
    try:
        yield drafts
        for draft in drafts:
            # Before the rename, which may otherwise reach the disk without the content.
            fsync(draft)
        for draft, file in zip(drafts, files, strict=True):
            draft.replace(file) if replace else appear(draft, file)
        fsync(files[0].parent)  # the renames themselves
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def appear(draft: Path, file: Path) -> None:
    """Gives a complete file its name, unless that has this content already.

    The draft's own name stays, or not: remove it afterwards with `missing_ok`.

    Raises:
      FileExistsError: a file of this name has other content.
      FileNotFoundError: the draft was removed.
    """
    # A link and not a rename, which would overwrite what another process has created.
    try:
        os.link(draft, file)
        return
    except FileNotFoundError:
        raise
    except OSError:
        if not file.exists():  # the file system has no hard links
            os.rename(draft, file)
            return
    # For example of a job that was killed right here, and was resumed.
    if not (file.is_file() and filecmp.cmp(draft, file, shallow=False)):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(file))


def checked_json(content: dict) -> bytes:
    """Encodes a JSON object with its own SHA-256, for `read_checked_json`."""
    checked = content | {CHECKSUM: sha256_of(content)}
    return json.dumps(checked, indent=2, ensure_ascii=False).encode() + b"\n"


def read_checked_json(file: epath.PathLike) -> dict:
    """Reads a JSON object that `checked_json` encoded.

    Raises:
      ValueError: the file is not such an object, or was changed; says which.
    """
    try:
        content = dict(json.loads(epath.Path(file).read_bytes()))
        checksum = content.pop(CHECKSUM)
    # RecursionError: JSON that is nested to harm.
    except (ValueError, LookupError, TypeError, RecursionError) as e:
        raise ValueError(f"{type(e).__name__}: {e}") from None
    if checksum != sha256_of(content):
        raise ValueError("it was changed after it was written: its SHA-256 differs")
    return content


def sha256_of(content: dict | list) -> str:
    """Hashes a JSON object: what it holds, and not how it is written."""
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


def first_free(path: epath.Path) -> epath.Path:
    """Returns `path`, or the first of PATH.1, PATH.2, ... if that exists."""
    free, number = path, 0
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


def fsync(place: epath.PathLike) -> None:
    """Flushes a file, or the names in a folder, to disk: they survive a power loss."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
