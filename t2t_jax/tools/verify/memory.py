"""Measures the memory that a computation takes: a device's, or that of this process."""

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path

import jax


class PeakMemory:
    """Bytes that were in use at most since this object was created.

    On a CPU the process's resident memory, which Linux tells; XLA's buffers are in it.
    On other devices the allocator's count, whose peak is that of the whole process: if
    an earlier computation took more, the peak of this one is unknown.
    """

    def __init__(self, device: jax.Device):
        self._device = device
        gc.collect()
        if device.platform == "cpu":
            _return_freed_memory()
            self._known = _forget_peak()
            self._before = _status("VmRSS")
        else:
            stats = device.memory_stats() or {}
            self._before = stats.get("bytes_in_use")
            self._earlier = stats.get("peak_bytes_in_use")

    def bytes(self) -> int | None:
        """The peak above what was in use before; None if it is unknown."""
        if self._before is None:
            return None
        if self._device.platform == "cpu":
            peak = _status("VmHWM") if self._known else None
        else:
            peak = (self._device.memory_stats() or {}).get("peak_bytes_in_use")
            if peak is not None and peak <= self._earlier:
                return None
        return None if peak is None else peak - self._before


def _return_freed_memory() -> None:
    """Makes glibc return freed memory to the kernel, so that it is not counted."""
    if sys.platform == "linux":
        _libc_call(lambda libc: libc.malloc_trim(0))


def _libc_call(call: Callable[[ctypes.CDLL], object]) -> None:
    try:
        call(ctypes.CDLL("libc.so.6"))
    except (OSError, AttributeError):  # another libc
        return


def _forget_peak() -> bool:
    """Sets the peak of resident memory to what it is now; False where it cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status(field: str) -> int | None:
    """A field of /proc/self/status in bytes; None where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return None
