"""Setup of a process before JAX starts: compilation cache, and memory on a CPU."""

import ctypes
import functools
import sys

import jax

from t2t_jax.parallel import compilation_cache, platforms

# Parameters of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8


@functools.cache
def set_up_process() -> None:
    """Sets up the compilation cache, and makes memory on a CPU fast; once per process.

    XLA on a CPU allocates its buffers at every step and frees them afterwards. Two
    defaults make that slow, 459 ms per step instead of 247 (docs/performance.md):

    - glibc returns large blocks to the kernel, which zeroes the next ones page by page.
      `keep_freed_memory` changes that.
    - JAX dispatches steps before earlier ones have ended, each with its own buffers.
      Without asynchronous dispatch one step ends before the next starts; other threads
      still prepare batches meanwhile. Accelerators are not affected.

    A third default, small pages, can only be changed before a process starts:
    `huge_pages.py`.
    """
    platforms.skip_absent_tpu()
    compilation_cache.use()
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
    taken = [mallopt(parameter, value) for parameter, value in settings.items()]
    return all(taken)
