"""Folders sealed by a manifest, so that damage is detected before they are used.

When a folder is complete, the size and SHA-256 of every file in it are written last, to
`manifest.json`. A folder without a manifest was never finished.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from etils import epath

from t2t_jax.io.atomic import (
    checked_json,
    first_free,
    fsync,
    read_checked_json,
    write_atomically,
)
from t2t_jax.io.locations import is_local

MANIFEST = "manifest.json"


def seal(folder: epath.PathLike, **notes: object) -> None:
    """Writes the manifest of a complete folder; `notes` are JSON values to store in it.

    On disk, first flushes every file so that it survives the loss of power.
    """
    folder = epath.Path(folder)
    names = sorted(_below(folder))  # sorted: the manifest's own hash is a fingerprint
    if is_local(folder):
        # Files and their folders: a new file's name belongs to the folder.
        for place in {p for n in names for p in (folder / n, (folder / n).parent)}:
            fsync(place)
    hashed = {name: _hash(folder / name) for name in names}
    content = checked_json({"files": hashed, "notes": notes})
    write_atomically(folder / MANIFEST, content)


def is_sealed(folder: epath.PathLike) -> bool:
    """True if a folder was completely written; `damage` checks its content."""
    return (epath.Path(folder) / MANIFEST).exists()


def fingerprint(folder: epath.PathLike) -> str:
    """Identifies the content of a sealed folder, by the SHA-256 of its manifest."""
    return hashlib.sha256((epath.Path(folder) / MANIFEST).read_bytes()).hexdigest()


def hashes(folder: epath.PathLike, without: tuple[str, ...]) -> dict[str, str]:
    """The SHA-256 of each file of a sealed folder, but those of some endings."""
    files = read_checked_json(epath.Path(folder) / MANIFEST)["files"]
    return {n: f["sha256"] for n, f in files.items() if not n.endswith(without)}


def damage(folder: epath.PathLike) -> str:
    """Describes what is wrong with a sealed folder; empty if nothing is.

    Reads every file of the manifest. Ignores files that were added later.
    """
    folder = epath.Path(folder)
    if not is_sealed(folder):
        return f"it has no {MANIFEST}: it was not completely written"
    try:
        files = read_checked_json(folder / MANIFEST)["files"]
        expected = {name: (f["bytes"], f["sha256"]) for name, f in files.items()}
        # The folder may come from a stranger: no manifest may lead to other files.
        if any(".." in name.split("/") or name.startswith("/") for name in expected):
            raise ValueError("it names files outside of its folder")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as e:
        return f"its {MANIFEST} cannot be read: {e}"
    for name, (size, sha256) in expected.items():
        try:
            if not _is_regular(folder, name):
                return f"{name} is not a regular file"
            actual = _hash(folder / name)
        except (OSError, ValueError) as e:
            missing = isinstance(e, FileNotFoundError)
            return f"{name} {'is missing' if missing else f'cannot be read: {e}'}"
        if actual["bytes"] != size:
            return f"{name} has {actual['bytes']:,} bytes, not {size} as when written"
        if actual["sha256"] != sha256:
            return f"{name} was changed after it was written: its SHA-256 differs"
    return ""


def notes(folder: epath.PathLike) -> dict:
    """Returns the notes of a sealed folder; empty if they cannot be read."""
    try:
        return dict(read_checked_json(epath.Path(folder) / MANIFEST)["notes"])
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def publish(
    folder: epath.PathLike, write: Callable[[Path], None], **notes: object
) -> None:
    """Creates a sealed folder that is complete or absent; replaces a damaged one.

    If another process creates the folder at the same time, the first one stays.

    Args:
      folder: its content must be a function of its name.
      write: writes the files into the folder that it is called with, on disk.
      notes: as for `seal`.
    """
    local = is_local(folder)
    folder = Path(folder) if local else epath.Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # In the same parent folder: a rename is atomic only within one file system.
    place = folder.parent if local else Path(tempfile.gettempdir())
    draft = place / f".writing-{secrets.token_hex(4)}"
    draft.mkdir()  # for all whom the umask lets read, unlike `mkdtemp`
    try:
        write(draft)
        if not local:
            for name in _below(epath.Path(draft)):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                epath.Path(draft / name).copy(folder / name, overwrite=True)
            return seal(folder, **notes)
        seal(draft, **notes)
        if folder.is_file():
            folder.unlink()
        if folder.is_dir() and damage(folder):
            with contextlib.suppress(FileNotFoundError):  # another process removed it
                remove(epath.Path(folder))
        try:
            draft.rename(folder)
        except OSError:
            if not folder.is_dir():  # no other process was first
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def set_aside(folder: epath.Path, target: epath.Path) -> epath.Path:
    """Moves a folder to `target`, or to the first free of `target.1`, `target.2`, ...

    Its manifest is moved with it. Returns the path.
    """
    place = first_free(target)
    if is_local(folder):
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)
        return place
    # A bucket cannot rename: copy, the manifest last, then delete.
    manifest = [MANIFEST] if (folder / MANIFEST).exists() else []
    for name in [*_below(folder), *manifest]:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).copy(place / name)
    folder.rmtree()
    return place


def remove(folder: epath.Path) -> None:
    """Deletes a folder; after a crash in between, it does not count as complete."""
    if is_local(folder):
        # A rename is atomic; `checkpoint_folders.clear_away` deletes leftovers.
        doomed = folder.with_name(f"{folder.name}.deleted")
        if doomed.exists():  # half deleted by an earlier crash
            doomed.rmtree()
        folder = folder.rename(doomed)
    else:
        # A bucket cannot rename: without a manifest the folder does not count.
        (folder / MANIFEST).unlink(missing_ok=True)
    folder.rmtree()


def size(folder: epath.Path) -> int:
    """Bytes of all files below a folder on disk."""
    return sum((folder / name).stat().length for name in _below(folder))


def _below(folder: epath.Path, prefix: str = "") -> Iterator[str]:
    """Yields the names of all files below a folder except its manifest."""
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            yield from _below(entry, f"{name}/")
        elif name != MANIFEST:
            yield name


def _is_regular(folder: epath.Path, name: str) -> bool:
    """False for links, which may lead elsewhere, and for pipes and devices.

    Also False if a folder on the way to the file is a link.
    """
    if not is_local(folder):
        return True
    # `realpath` resolves every link: a path that it changes has one.
    real = os.path.join(os.path.realpath(folder), name)
    return os.path.realpath(real) == real and stat.S_ISREG(os.lstat(real).st_mode)


def _hash(file: epath.Path) -> dict:
    with file.open("rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
        size = f.tell()
    return {"bytes": size, "sha256": digest}
