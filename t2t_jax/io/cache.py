"""The user's cache folder: prepared text, tokenizers and compiled programs.

Prepared text and tokenizers are folders that are complete or absent. A folder's name is
a hash of everything that its content depends on: the text, the tokenizer, the options.
So a second run starts at once, a changed input never reuses old data, and runs share
what they have in common. `sealed.publish` writes a folder; a damaged one is
built again.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from t2t_jax.io import lock, sealed
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say

FORMAT = 3  # part of every key; increment it when the content of a folder changes


def cache_folder() -> Path:
    """Returns `$T2T_JAX_CACHE`, or `t2t_jax` in the user's cache folder."""
    if folder := os.environ.get("T2T_JAX_CACHE"):
        return Path(folder)
    # Asked last: a container's user may have no home.
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "t2t_jax"


def cache_key(**parts) -> str:
    """A hash of the inputs and options that a folder depends on, in 24 hex digits."""
    text = json.dumps({"format": FORMAT, **parts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def build_once(folder: Path, write: Callable[[Path], None], content: str = "") -> None:
    """Creates `folder` unless it is intact; of several processes, only one writes.

    The others wait for it. Raises UserError if the cache folder cannot be written.
    `content` names it in the message that it was found.
    """
    if is_intact(folder):
        if content:
            say(f"{content} found in {folder}")
        return
    try:
        with lock.exclusive(cache_folder() / "turns" / folder.name):
            # Check again: another process may have built it while this one waited.
            if not folder.is_dir() or sealed.damage(folder):
                sealed.publish(folder, write)
    except OSError as e:
        raise UserError(
            f"{cache_folder()} cannot be written: {e}. Fix that, or set the "
            "environment variable T2T_JAX_CACHE to another folder for prepared text"
        ) from e


def is_intact(folder: Path) -> bool:
    """True if a folder exists exactly as it was written; warns if it is damaged."""
    if not folder.is_dir():
        return False
    if trouble := sealed.damage(folder):
        say(f"warning: {folder} is damaged ({trouble}); building it again")
    return not trouble


def remember_size(text: list[str], pairs: int) -> None:
    """Stores the number of pairs of a text, for the progress bar of the next reading.

    `text` are the fingerprints of its corpora.
    """

    def write(folder: Path) -> None:
        (folder / "pairs").write_text(str(pairs))

    build_once(_size_folder(text), write)


def known_size(text: list[str]) -> int | None:
    """The number of pairs that `remember_size` stored for a text, or None."""
    folder = _size_folder(text)
    # Checked, because parts of a text begin and end by it.
    return int((folder / "pairs").read_text()) if is_intact(folder) else None


def _size_folder(text: list[str]) -> Path:
    return cache_folder() / "sizes" / cache_key(text=text)
