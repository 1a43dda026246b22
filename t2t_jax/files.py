"""Files and folders that are there whole or not at all, on disk and in a bucket.

A folder that holds something precious is sealed when it is complete: the size and the
SHA-256 of every file in it are written last, as `manifest.json`. What was damaged
later, or never finished, is found before it is used.

A bucket of Google Cloud Storage has objects in place of files: they appear whole, and
can neither grow nor be renamed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator

from etils import epath

MANIFEST = "manifest.json"
CHECKSUM = "checksum"  # of a JSON object, in it: its SHA-256


def on_disk(place: epath.PathLike) -> bool:
    """False in a bucket."""
    return "://" not in os.fspath(place)


def write_atomically(file: epath.PathLike, content: bytes) -> None:
    """Writes a file that is there whole or not at all."""
    file = epath.Path(file)
    if not on_disk(file):
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
    _fsync(file.parent)


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


def seal(folder: epath.PathLike, **notes: object) -> None:
    """Writes the manifest of a folder that is complete.

    On disk every file is first made to survive the loss of power.

    Args:
      notes: what `notes` gives back, as JSON has it.
    """
    folder = epath.Path(folder)
    names = sorted(_below(folder))
    if on_disk(folder):
        for place in {p for n in names for p in (folder / n, (folder / n).parent)}:
            _fsync(place)
    hashed = {name: _hash(folder / name) for name in names}
    content = checked_json({"files": hashed, "notes": notes})
    write_atomically(folder / MANIFEST, content)


def is_sealed(folder: epath.PathLike) -> bool:
    """True if the writing of a folder came to its end; see `damage`."""
    return (epath.Path(folder) / MANIFEST).exists()


def fingerprint(folder: epath.PathLike) -> str:
    """Tells sealed folders of other content apart."""
    return hashlib.sha256((epath.Path(folder) / MANIFEST).read_bytes()).hexdigest()


def damage(folder: epath.PathLike) -> str:
    """What is wrong with a sealed folder, for a person to read; empty if nothing is.

    Reads every file. Files that were added are not looked at.
    """
    folder = epath.Path(folder)
    if not is_sealed(folder):
        return f"it has no {MANIFEST}: writing it did not come to its end"
    try:
        files = read_checked_json(folder / MANIFEST)["files"]
        wanted = {name: (f["bytes"], f["sha256"]) for name, f in files.items()}
        if any(".." in name.split("/") or name.startswith("/") for name in wanted):
            raise ValueError("it names files outside of its folder")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as e:
        return f"its {MANIFEST} cannot be read: {e}"
    for name, (size, sha256) in wanted.items():
        try:
            if not _is_plain(folder, name):
                return f"{name} is no plain file of its own"
            found = _hash(folder / name)
        except (OSError, ValueError) as e:
            missing = isinstance(e, FileNotFoundError)
            return f"{name} {'is missing' if missing else f'cannot be read: {e}'}"
        if found["bytes"] != size:
            return f"{name} has {found['bytes']:,} bytes, not {size} as when written"
        if found["sha256"] != sha256:
            return f"{name} is not what was written: its SHA-256 is another"
    return ""


def notes(folder: epath.PathLike) -> dict:
    """What was noted when a folder was sealed; empty where that cannot be read."""
    try:
        return dict(read_checked_json(epath.Path(folder) / MANIFEST)["notes"])
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def set_aside(folder: epath.Path, to: epath.Path) -> epath.Path:
    """Moves a folder to `to`, or to the next number that is free; returns where."""
    number, place = 0, to
    while place.exists():
        number += 1
        place = to.with_name(f"{to.name}.{number}")
    if on_disk(folder):
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)
        return place
    for name in _below(folder):
        (place / name).write_bytes((folder / name).read_bytes())
    folder.rmtree()
    return place


def remove(folder: epath.Path) -> None:
    """Deletes a folder; one that is half deleted has another name or no manifest."""
    if on_disk(folder):
        gone = folder.with_name(f"{folder.name}.deleted")
        if gone.exists():  # half deleted before
            gone.rmtree()
        folder = folder.rename(gone)
    else:
        (folder / MANIFEST).unlink(missing_ok=True)
    folder.rmtree()


def size(folder: epath.Path) -> int:
    """Bytes of all files below a folder on disk."""
    return sum((folder / name).stat().length for name in _below(folder))


@contextlib.contextmanager
def turn(folder: epath.PathLike) -> Iterator[None]:
    """Lets only one process at a time write in a folder on disk; the others wait."""
    folder = epath.Path(folder)
    with contextlib.ExitStack() as stack:
        if on_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            opened = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, opened)
            with contextlib.suppress(OSError):  # no locks here
                fcntl.flock(opened, fcntl.LOCK_EX)
        yield


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
    if all(map(on_disk, there)):
        for file in there:
            file.rename(numbered(file, number))
        return
    for file in there:
        write_atomically(numbered(file, number), file.read_bytes())
    for file in there:
        file.unlink()


def _below(folder: epath.Path, prefix: str = "") -> Iterator[str]:
    """The names of all files below a folder, but for its manifest."""
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            yield from _below(entry, f"{name}/")
        elif name != MANIFEST:
            yield name


def _is_plain(folder: epath.Path, name: str) -> bool:
    """False for what may lie elsewhere or never end: links, pipes, devices."""
    if not on_disk(folder):
        return True
    real = os.path.join(os.path.realpath(folder), name)
    return os.path.realpath(real) == real and stat.S_ISREG(os.lstat(real).st_mode)


def _hash(file: epath.Path) -> dict:
    with file.open("rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
        size = f.tell()
    return {"bytes": size, "sha256": digest}


def _fsync(place: epath.Path) -> None:
    """Makes a file, or the names in a folder, survive the loss of power."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
