"""The host's processor, where it is what computes."""

import ctypes
import functools
import sys

import jax

from t2t_jax.parallel import compilation_cache, platforms

# glibc's malloc.h: what each parameter of mallopt is called there.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8


@functools.cache
def set_up_process() -> None:
    """What a process does before JAX starts: keeps what is compiled, and memory.

    XLA on a CPU allocates its buffers at every step and frees them after it. Two habits
    make that slow, 459 ms a step where 247 are enough (`docs/performance.md`):

    - glibc hands large blocks back to the kernel, which fills the next ones with zeros
      page by page. Here it is asked to keep them, in one arena, since large blocks are
      only kept there.
    - JAX starts a step before those before it have ended, each with its own buffers.
      Here one step ends before the next one starts; other threads fill batches all the
      same. This changes nothing on an accelerator.

    A third, small pages, can only be changed before a process starts: `huge_pages.py`.
    """
    platforms.skip_absent_tpu()
    compilation_cache.use()
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    keep_freed_memory()


def keep_freed_memory() -> bool:
    """Asks glibc not to hand freed memory back; True if it took it."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another libc
        return False
    settings = {
        _M_MMAP_MAX: 0,
        _M_TRIM_THRESHOLD: 2**31 - 1,
        _M_TOP_PAD: 256 << 20,
        _M_ARENA_MAX: 1,
    }
    taken = [mallopt(parameter, value) for parameter, value in settings.items()]
    return all(taken)
