"""Folders of checkpoints: which exist and are complete, and disk space.

The folders of a kind are named by their steps; see `checkpoint.py`.
"""

import contextlib
import errno
import math
import re
import secrets
import shutil
from typing import Any

import jax
from etils import epath

from t2t_jax.io import locations, sealed
from t2t_jax.io.errors import UserError, listed
from t2t_jax.io.messages import say
from t2t_jax.parallel import processes
from t2t_jax.parallel.machine import tree_bytes
from t2t_jax.training.orbax_files import UNFINISHED, steps_in, stored_tree

KINDS = ("parameters", "state", "best")


def seen_by_all(folder: epath.Path) -> bool:
    """True if all of several processes can write to one folder; collective.

    Their paths to it may differ. Each leaves a file in it; process 0 looks for them.
    """
    if not processes.distributed():
        return False
    if processes.is_first():
        folder.mkdir(parents=True, exist_ok=True)
    prefix = processes.from_first("a name", lambda: secrets.token_hex(8))
    probes = [f".probe-{prefix}.{i}" for i in range(jax.process_count())]
    with contextlib.suppress(Exception):  # of a disk, or of a bucket's library
        (folder / probes[processes.index()]).write_text(prefix)
    processes.exchange("files in a shared folder", None)

    def all_there() -> bool:
        files = [*folder.glob(".probe-*")]  # also those of a run that was killed here
        for probe in files:
            probe.unlink()
        return {*probes} <= {probe.name for probe in files}

    shared = processes.from_first("a shared folder", all_there)
    with contextlib.suppress(Exception):
        (folder / probes[processes.index()]).unlink(missing_ok=True)
    return shared


def run_name(folder: epath.Path) -> str:
    """A part of the names of what is not finished that only this run has; collective.

    When process 0 is killed, another one may still write its part until JAX ends it.
    Perhaps the run is started again by then, and must not find these files among its
    own. Empty for a bucket, where Orbax has no such names.
    """
    run = processes.from_first("a name", lambda: secrets.token_hex(4))
    return run if locations.is_local(folder) else ""


def sealed_steps(folder: epath.Path) -> list[int]:
    """The steps of all complete checkpoints in a folder, ascending."""
    return [step for step in steps_in(folder) if sealed.is_sealed(folder / str(step))]


def seal(path: epath.Path, **notes: float) -> None:
    """Seals a checkpoint; notes its kind and step, taken from its path."""
    sealed.seal(path, kind=path.parent.name, step=int(path.name), **notes)


def damage(path: epath.Path) -> str:
    """Describes what is wrong with a checkpoint; empty if it is intact."""
    if trouble := sealed.damage(path):
        return trouble
    # An intact checkpoint under the name of another step would also give wrong results.
    notes = sealed.notes(path)
    stored_name, name = (
        f"{notes.get('kind')}/{notes.get('step')}",
        "/".join(path.parts[-2:]),
    )
    return "" if stored_name == name else f"it was written as {stored_name}"


def check_names(folder: epath.Path, shapes: Any, part: str = "") -> None:
    """Refuses stored parameters that have other names than those of the model.

    Args:
      folder: written by Orbax, in a checkpoint.
      part: the name of the parameters in what is stored; empty: all of it.
    """
    stored = stored_tree(folder)
    stored_names, model_names = (
        {
            jax.tree_util.keystr(path, simple=True, separator=".")
            for path, _ in jax.tree.leaves_with_path(tree)
        }
        for tree in (stored[part] if part else stored, shapes)
    )
    if stored_names != model_names:
        has, lacks = (
            listed(sorted(names), 3) or "nothing"
            for names in (stored_names - model_names, model_names - stored_names)
        )
        raise UserError(
            f"{folder.parent} was written by another version of the model (of t2t_jax, "
            f"or of the module given as --ideas): it has {has}, where "
            f"this one has {lacks}. Use the version that wrote it, or "
            "train in another --workdir"
        )


def best_steps(folder: epath.Path) -> dict[int, float]:
    """The dev score of each checkpoint that is kept for it, by step, best first.

    Scores of which less is better are negated.
    """

    def goodness(step: int) -> float:
        notes = sealed.notes(folder / str(step))
        # It was always BLEU, and had its name, before there were other tasks.
        return float(notes.get("goodness", notes.get("bleu", 0.0)))

    return ranked({step: goodness(step) for step in sealed_steps(folder)})


def ranked(goodness: dict[int, float]) -> dict[int, float]:
    """Sorts scores by step: the best first; of equal scores the earlier step first."""
    return dict(sorted(goodness.items(), key=lambda entry: (-entry[1], entry[0])))


def clear_away(folder: epath.Path) -> None:
    """Deletes checkpoints that a killed run left half written or half deleted."""
    for place in (folder.parent, folder):
        if place.exists() and not place.is_dir():
            raise UserError(
                f"{place} is a file; want the folder of a run's checkpoints"
            )
    if not folder.exists():
        return
    steps = {str(step) for step in steps_in(folder)}
    for entry in folder.iterdir():
        # Orbax's temporary names, and those of `sealed.remove`.
        half = re.fullmatch(rf"{UNFINISHED}|\d+\.deleted", entry.name)
        # A bucket has no temporary names: there a number that Orbax does not list is
        # unfinished.
        uploading = not locations.is_local(entry) and entry.name.isdecimal()
        if half or (uploading and entry.name not in steps):
            entry.rmtree()
        elif entry.name.isdecimal() and not entry.is_dir():
            set_aside(entry, "is a file, not a checkpoint")


def set_aside(path: epath.Path, reason: str) -> None:
    """Moves a checkpoint to the folder `set_aside`, with a warning that says why."""
    name = f"{path.parent.name}-{path.name}"
    place = sealed.set_aside(path, path.parent.parent / "set_aside" / name)
    say(f"warning: {path} {reason}; moved to {place}")


# --------------------------------------------------------------------------- disk space
# Buckets are taken to be unlimited.

MARGIN = 1 << 20  # bytes of a checkpoint besides its arrays, such as metadata


def free_bytes(folder: epath.Path) -> float:
    """Free space for checkpoints in a folder, which is created."""
    if not locations.is_local(folder):
        return math.inf
    folder.mkdir(parents=True, exist_ok=True)
    return shutil.disk_usage(folder).free


def warn_if_short(folder: epath.Path, needed: int) -> None:
    """Warns if the checkpoints of a run, of at most so many bytes, may not fit."""
    free = free_bytes(folder)
    if free < needed and free < needed - (used := sealed.size(folder)):
        gb = [f"{size / 1e9:,.2f} GB" for size in (needed, used, free)]
        say(
            f"warning: the checkpoints of this run will take up to {gb[0]}; "
            f"{folder} has {gb[1]} of them, and {gb[2]} are free"
        )


def check_room(folder: epath.Path, items: Any) -> None:
    """Raises an OSError for a full disk before a tree of arrays is half written."""
    needed, free = 1.05 * tree_bytes(items) + MARGIN, free_bytes(folder)
    if free < needed:
        mb = [f"{size / 1e6:,.1f} MB" for size in (needed, free)]
        raise OSError(errno.ENOSPC, f"it needs {mb[0]}, and {mb[1]} are free")
