"""Checks of free disk space for checkpoints; buckets are taken to be unlimited."""

import errno
import shutil
from typing import Any

import jax
from etils import epath

from t2t_jax.io import locations, sealed
from t2t_jax.io.messages import say

MARGIN = 1 << 20  # bytes of a checkpoint beside its arrays, such as metadata


def warn_if_short(folder: epath.Path, most: int) -> None:
    """Warns if the checkpoints of a run may not fit on the disk.

    Args:
      folder: of all checkpoints; created if it does not exist.
      most: bytes that the checkpoints take at most.
    """
    if not locations.is_local(folder):
        return
    folder.mkdir(parents=True, exist_ok=True)
    used = sealed.size(folder)  # by checkpoints that are already written
    free = shutil.disk_usage(folder).free
    if free < most - used:
        gb = [f"{size / 1e9:,.2f} GB" for size in (most, used, free)]
        say(
            f"warning: the checkpoints of this run will take up to {gb[0]}; "
            f"{folder} has {gb[1]} of them, and {gb[2]} are free"
        )


def check_room(folder: epath.Path, items: Any) -> None:
    """Raises an OSError for a full disk before anything is half written.

    Args:
      folder: of all checkpoints; created if it does not exist.
      items: a pytree with the arrays to write.
    """
    if not locations.is_local(folder):
        return
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = 1.05 * nbytes(items) + MARGIN, shutil.disk_usage(folder).free
    if free < needed:
        mb = [f"{size / 1e6:,.1f} MB" for size in (needed, free)]
        raise OSError(errno.ENOSPC, f"it needs {mb[0]}, and {mb[1]} are free")


def nbytes(tree: Any) -> int:
    """Bytes of the arrays in a pytree."""
    return sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(tree))
