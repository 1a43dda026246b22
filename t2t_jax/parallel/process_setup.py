"""Sets a process up before JAX starts: platforms, compiled programs, CPU memory."""

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import sys
import tempfile
import zlib
from importlib import metadata
from pathlib import Path

import jax
from jax.extend.backend import register_backend_factory

from t2t_jax.io.cache import cache_folder
from t2t_jax.io.messages import say
from t2t_jax.parallel.jax_internals import has_tpu
from t2t_jax.parallel.machine import processor_name

# Parameters of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8


@functools.cache
def set_up_process() -> None:
    """Sets up the compilation cache, and makes memory on a CPU fast; once per process.

    XLA on a CPU allocates its buffers at every step and frees them afterwards. Two
    defaults make that slow, 459 ms per step instead of 247 (docs/results/speed.md):

    - glibc returns large blocks to the kernel, which zeroes the next ones page by page.
      `keep_freed_memory` changes that.
    - JAX dispatches steps before earlier ones have ended, each with its own buffers.
      Without asynchronous dispatch one step ends before the next starts; other threads
      still prepare batches meanwhile. Accelerators are not affected.

    A third default, small pages, can only be changed before a process starts:
    `huge_pages.py`.
    """
    skip_absent_tpu()
    use_compilation_cache()
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    keep_freed_memory()


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory for reuse; returns True if it accepts."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another libc
        return False
    settings = {
        _M_MMAP_MAX: 0,  # large blocks from the heap too: mmap's go back when freed
        _M_TRIM_THRESHOLD: 2**31 - 1,  # never shrink the heap; the largest C int
        _M_TOP_PAD: 256 << 20,  # grow the heap in large steps
        # One arena for all threads: the others consist of heaps of at most 64 MB, and
        # return larger blocks all the same.
        _M_ARENA_MAX: 1,
    }
    accepted = [mallopt(parameter, value) for parameter, value in settings.items()]
    return all(accepted)


def skip_absent_tpu() -> None:
    """Keeps JAX from starting a TPU that is not there.

    `libtpu` is also installed to compile for TPUs on other machines (`pip install
    '.[plan]'`). JAX would then try to start a TPU in every command, and libtpu prints
    pages of warnings. Does nothing if the user chose the platforms, or if this cannot
    be decided.
    """
    if os.environ.get("JAX_PLATFORMS") or jax.config.jax_platforms:
        return
    if importlib.util.find_spec("libtpu") is None or has_tpu():
        return

    def absent():
        raise RuntimeError("no TPU is attached")

    # JAX passes over it, and chooses among all other platforms.
    register_backend_factory("tpu", absent, fail_quietly=True)


# -------------------------------------------------------------------- compiled programs

CACHE_FOLDER = "xla"
CACHE_LIMIT = 2**30  # bytes of all entries
MIN_COMPILE_SECONDS = 0.2  # seconds; programs that compile faster are not kept
CHECKED = "checked"  # file whose modification time is that of the last check

# JAX's own threshold, which `MIN_COMPILE_SECONDS` replaces unless the user has set it.
_THRESHOLD = "jax_persistent_cache_min_compile_time_secs"


def use_compilation_cache() -> None:
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
        root = cache_folder() / CACHE_FOLDER
        folder = root / _kind_of_machine()
        claim(folder)
        _tidy(root)
    except (OSError, RuntimeError) as e:  # RuntimeError: no home directory
        say(
            f"warning: cannot use the compilation cache, so the next start compiles "
            f"again: {e}; set T2T_JAX_CACHE to another folder"
        )
        return
    config.update("jax_compilation_cache_dir", str(folder))
    if _THRESHOLD.upper() not in os.environ:
        config.update(_THRESHOLD, MIN_COMPILE_SECONDS)


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


def claim(folder: Path) -> None:
    """Creates a private folder: its content is executed, so only we may write it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.stat()
    if hasattr(os, "geteuid") and state.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    if state.st_mode & 0o022:
        raise PermissionError(f"others may write to {folder}: chmod go-w it")
    with tempfile.TemporaryFile(dir=folder):
        pass  # it is writable


def _tidy(root: Path) -> None:
    """Deletes truncated entries, and the least recently used beyond `CACHE_LIMIT`.

    Choices of kernels stay: without them a run would continue with others.
    """
    files = {}
    for file in root.rglob("*"):
        if file.parent.name.startswith("xla_"):  # XLA's own, such as its choices
            continue
        with contextlib.suppress(OSError):  # another process may delete it first
            stat = file.stat()  # before the file is read, which sets its access time
            if file.is_file() and not _delete_if_truncated(file):
                files[file] = stat
    (root / CHECKED).touch()
    size = sum(stat.st_size for stat in files.values())
    # Many file systems are mounted without access times: then the age counts.
    used = {f: max(stat.st_atime, stat.st_mtime) for f, stat in files.items()}
    for file in sorted(used, key=used.get):
        if size <= CACHE_LIMIT:
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
