"""What XLA has compiled is kept, in the user's cache folder, for the next start."""

import contextlib
import hashlib
import os
import tempfile
import zlib
from importlib import metadata
from pathlib import Path

import jax

from t2t_jax.files.cache import cache_folder
from t2t_jax.parallel.machine import processor_name
from t2t_jax.terminal.messages import say

FOLDER = "xla"
LIMIT = 2**30  # bytes of all that is kept
WORTH = 0.2  # seconds of compilation from which on a program is kept
CHECKED = "checked"  # its time: what was written before it is known to be whole

# A number that a user has set already stays. What JAX takes otherwise:
_WORTH = "jax_persistent_cache_min_compile_time_secs"


def use() -> None:
    """Lets JAX keep what it compiles; does nothing where the user has said where.

    Programs are only reused by the same jaxlib on the same kind of processor: XLA
    compiles for what a processor can do, and would run what another one cannot.

    A folder that cannot be used is told of, and nothing is kept.
    """
    config = jax.config
    if config.jax_compilation_cache_dir is not None:
        return
    if not config.jax_enable_compilation_cache:
        return
    try:
        everything = cache_folder() / FOLDER
        folder = everything / _kind_of_machine()
        _claim(folder)
        _tidy(everything)
    except (OSError, RuntimeError) as e:  # RuntimeError: there is no home
        say(
            f"warning: what is compiled is not kept for the next start: {e}; "
            "T2T_JAX_CACHE names another folder"
        )
        return
    config.update("jax_compilation_cache_dir", str(folder))
    if _WORTH.upper() not in os.environ:
        config.update(_WORTH, WORTH)


def _kind_of_machine() -> str:
    """A name for machines that can run each other's programs."""
    cpuinfo = Path("/proc/cpuinfo")
    can = ""
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(errors="replace").splitlines()
        can = next((x for x in lines if x.startswith(("flags", "Features"))), "")
    told = hashlib.sha256(f"{processor_name()} {can}".encode()).hexdigest()[:12]
    return f"jaxlib-{metadata.version('jaxlib')}-{told}"


def _claim(folder: Path) -> None:
    """Makes a folder that is ours alone: what is in it is run.

    Raises:
      OSError: it cannot be written, or is another user's.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "geteuid") and folder.stat().st_uid != os.geteuid():
        raise PermissionError(f"{folder} is another user's")
    with tempfile.TemporaryFile(dir=folder):
        pass


def _tidy(everything: Path) -> None:
    """Deletes what was cut off while it was written, and the oldest beyond `LIMIT`."""
    files = {}
    for file in everything.rglob("*"):
        with contextlib.suppress(OSError):  # another process was quicker
            stat = file.stat()  # before it is read
            if file.is_file() and not _cut_off(file):
                files[file] = stat
    (everything / CHECKED).touch()
    size = sum(stat.st_size for stat in files.values())
    used = {f: max(stat.st_atime, stat.st_mtime) for f, stat in files.items()}
    for file in sorted(used, key=used.get):
        if size <= LIMIT:
            break
        with contextlib.suppress(OSError):
            file.unlink()
        size -= files[file].st_size


def _cut_off(file: Path) -> bool:
    """Deletes a new entry that is not whole, which JAX would leave so for ever."""
    checked = file.parent.parent / CHECKED
    if not file.name.endswith("-cache"):
        return False
    if checked.exists() and file.stat().st_mtime < checked.stat().st_mtime - 60:
        return False
    content = file.read_bytes()
    if not content.startswith(b"\x78"):
        return False  # not written with zlib
    try:
        zlib.decompress(content)
    except zlib.error:
        file.unlink()
        return True
    return False
