"""JAX's persistent compilation cache, set up in the user's cache folder."""

import contextlib
import hashlib
import os
import tempfile
import zlib
from importlib import metadata
from pathlib import Path

import jax

from t2t_jax.io.cache import cache_folder
from t2t_jax.io.messages import say
from t2t_jax.parallel.machine import processor_name

FOLDER = "xla"
LIMIT = 2**30  # bytes of all entries
MIN_COMPILE_SECONDS = 0.2  # seconds; programs that compile faster are not kept
CHECKED = "checked"  # file whose modification time is that of the last check

# The threshold that JAX would use instead of `WORTH`. A user's own setting stays.
_WORTH = "jax_persistent_cache_min_compile_time_secs"


def use() -> None:
    """Lets JAX keep compiled programs, unless the user has configured its cache.

    Programs are reused only by the same jaxlib on the same kind of processor: XLA
    compiles for the instructions of a processor and, given the program of another,
    would execute instructions that this one lacks.

    If the folder cannot be used, prints a warning and keeps nothing.
    """
    config = jax.config
    if config.jax_compilation_cache_dir is not None:
        return
    if not config.jax_enable_compilation_cache:
        return
    try:
        root = cache_folder() / FOLDER
        folder = root / _kind_of_machine()
        _claim(folder)
        _tidy(root)
    except (OSError, RuntimeError) as e:  # RuntimeError: no home directory
        say(
            f"warning: cannot use the compilation cache, so the next start compiles "
            f"again: {e}; set T2T_JAX_CACHE to another folder"
        )
        return
    config.update("jax_compilation_cache_dir", str(folder))
    if _WORTH.upper() not in os.environ:
        config.update(_WORTH, MIN_COMPILE_SECONDS)


def _kind_of_machine() -> str:
    """A name shared by machines that can run each other's programs."""
    cpuinfo = Path("/proc/cpuinfo")
    features = ""
    if cpuinfo.is_file():
        # The instruction sets: "flags" on x86, "Features" on ARM.
        lines = cpuinfo.read_text(errors="replace").splitlines()
        features = next((x for x in lines if x.startswith(("flags", "Features"))), "")
    kind = f"{processor_name()} {features}"
    digest = hashlib.sha256(kind.encode()).hexdigest()[:12]
    return f"jaxlib-{metadata.version('jaxlib')}-{digest}"


def _claim(folder: Path) -> None:
    """Creates a private folder: its content is executed, so no one else may write it.

    Raises:
      OSError: the folder cannot be written, or belongs to another user.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "geteuid") and folder.stat().st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    with tempfile.TemporaryFile(dir=folder):
        pass  # it is writable


def _tidy(root: Path) -> None:
    """Deletes truncated entries, and the least recently used ones beyond `LIMIT`."""
    files = {}
    for file in root.rglob("*"):
        with contextlib.suppress(OSError):  # another process may delete it first
            stat = file.stat()  # before the file is read, which sets its access time
            if file.is_file() and not _delete_if_truncated(file):
                files[file] = stat
    (root / CHECKED).touch()
    size = sum(stat.st_size for stat in files.values())
    # Many file systems are mounted without access times: then the age counts.
    used = {f: max(stat.st_atime, stat.st_mtime) for f, stat in files.items()}
    for file in sorted(used, key=used.get):
        if size <= LIMIT:
            break
        with contextlib.suppress(OSError):
            file.unlink()
        size -= files[file].st_size


def _delete_if_truncated(file: Path) -> bool:
    """Deletes an entry that was cut off while it was written; True if it did.

    JAX would never replace it.
    """
    checked = file.parent.parent / CHECKED
    if not file.name.endswith("-cache"):
        return False
    # Read only entries written since the last check, or up to a minute before it: they
    # may have been incomplete then.
    if checked.exists() and file.stat().st_mtime < checked.stat().st_mtime - 60:
        return False
    content = file.read_bytes()
    # 0x78 is the first byte of zlib. JAX uses zstandard instead if it is installed.
    if not content.startswith(b"\x78"):
        return False
    try:
        zlib.decompress(content)
    except zlib.error:
        file.unlink()
        return True
    return False
