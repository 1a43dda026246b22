"""Memory of the host, where the host computes."""

import ctypes
import functools
import sys

# glibc's malloc.h: what each parameter of mallopt is called there.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8


@functools.cache
def keep_freed_memory() -> bool:
    """Asks glibc to keep freed memory for the next step. Call it before JAX starts.

    XLA on a CPU allocates and frees its buffers at every step. By default glibc hands
    large ones back to the kernel, which then fills the next ones with zeros page by
    page: 120,000 page faults a step of `configs/tiny.py`, 40% of its time. One arena,
    because threads that have started keep the one they have.

    Returns:
      True if glibc took it; False elsewhere, where nothing changes.
    """
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
