"""Folders sealed by a manifest, so that damage is found before they are used.

When a folder is complete, the size and the SHA-256 of every file in it are written
last, as `manifest.json`. A folder without a manifest was never finished.
"""

import hashlib
import os
import stat
from collections.abc import Iterator

from etils import epath

from t2t_jax.files.atomic import (
    checked_json,
    fsync,
    read_checked_json,
    write_atomically,
)
from t2t_jax.files.locations import is_local

MANIFEST = "manifest.json"


def seal(folder: epath.PathLike, **notes: object) -> None:
    """Writes the manifest of a folder that is complete.

    On disk every file is first made to survive the loss of power.

    Args:
      notes: what `notes` gives back, as JSON has it.
    """
    folder = epath.Path(folder)
    names = sorted(_below(folder))
    if is_local(folder):
        for place in {p for n in names for p in (folder / n, (folder / n).parent)}:
            fsync(place)
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
    if is_local(folder):
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)
        return place
    for name in _below(folder):
        (place / name).write_bytes((folder / name).read_bytes())
    folder.rmtree()
    return place


def remove(folder: epath.Path) -> None:
    """Deletes a folder; one that is half deleted has another name or no manifest."""
    if is_local(folder):
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
    if not is_local(folder):
        return True
    real = os.path.join(os.path.realpath(folder), name)
    return os.path.realpath(real) == real and stat.S_ISREG(os.lstat(real).st_mode)


def _hash(file: epath.Path) -> dict:
    with file.open("rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
        size = f.tell()
    return {"bytes": size, "sha256": digest}
