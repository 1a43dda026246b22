"""A process of its own for a function, and the memory of a process.

Without JAX, which would be part of the memory that is measured.
"""

import concurrent.futures
import contextlib
import ctypes
import gc
import multiprocessing
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def megabytes(field: str) -> float | None:
    """Memory of this process in MiB: `VmRSS` now, `VmHWM` at most; None if unknown."""
    size = process_memory(field)
    return None if size is None else size / 2**20


class PeakMemory:
    """Bytes that were in use at most since this object was created.

    On a CPU the process's resident memory, as Linux reports it, with XLA's buffers.
    On other devices the allocator's count, whose peak is that of the whole process: if
    an earlier computation took more, the peak of this one is unknown.
    """

    def __init__(self, device):
        self._device = device
        gc.collect()
        if device.platform == "cpu":
            # glibc returns freed memory to the kernel, so that it is not counted.
            with contextlib.suppress(OSError, AttributeError):  # another system or libc
                ctypes.CDLL("libc.so.6").malloc_trim(0)
            self._peak_reset = False
            with contextlib.suppress(OSError):  # the peak is what it is now
                Path("/proc/self/clear_refs").write_text("5")
                self._peak_reset = True
            self._before = process_memory("VmRSS")
        else:
            stats = device.memory_stats() or {}
            self._before = stats.get("bytes_in_use")
            self._earlier = stats.get("peak_bytes_in_use")

    def bytes(self) -> int | None:
        """The peak above what was in use before; None if it is unknown."""
        if self._before is None:
            return None
        if self._device.platform == "cpu":
            peak = process_memory("VmHWM") if self._peak_reset else None
        else:
            peak = (self._device.memory_stats() or {}).get("peak_bytes_in_use")
            if peak is not None and peak <= self._earlier:
                return None
        return None if peak is None else peak - self._before


def process_memory(field: str) -> int | None:
    """A field of /proc/self/status in bytes; None where there is none."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    match = re.search(rf"^{field}:\s*(\d+) kB", status, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def in_own_process(function: Callable[..., T], *arguments) -> T:
    """Calls a function in a new process and returns its result; raises its errors.

    The function must be at the top of a module; the arguments and the result must be
    picklable. The new process has this one's environment, but no state.

    Raises:
      concurrent.futures.process.BrokenProcessPool: the process died, such as when the
        machine runs out of memory.
    """
    context = multiprocessing.get_context("spawn")  # JAX does not survive a fork
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()
