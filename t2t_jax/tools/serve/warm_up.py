"""What a server compiles, one after another, while it answers what it can already."""

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

NICE = 15  # of compiling, next to searches
FIRST = 5.0  # seconds that a job is guessed to take, before one has


class Job(NamedTuple):
    """Something to compile.

    Attributes:
      key: of what needs it; several jobs may have the same.
    """

    key: tuple
    name: str
    work: Callable[[], None]


class WarmUp:
    """Does jobs in their order; what a client waits for comes first.

    One at a time: a compilation fills the cores by itself, and searches go on.
    """

    def __init__(self, jobs: Sequence[Job], report: Callable[[str], None]):
        self._jobs, self._report, self._count = [*jobs], report, len(jobs)
        self._lock, self._began = threading.Lock(), time.monotonic()
        self._seconds = [FIRST]  # of jobs that took some
        report(f"compiled 0 of {self._count} programs")

    def run(self, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Does the jobs that are left, until it is enough."""
        while self._jobs and not is_enough():
            job, began = self._jobs[0], time.monotonic()
            job.work()
            now = time.monotonic()
            with self._lock:
                self._jobs.remove(job)
            if (seconds := now - began) > 0.2:
                self._seconds.append(seconds)
                return_freed_memory()
            done = f"compiled {self._count - len(self._jobs)} of {self._count} programs"
            self._report(f"{done} ({now - self._began:.0f} s): {job.name}")

    def left(self) -> list[str]:
        """Names of the jobs that are not done."""
        with self._lock:
            return [job.name for job in self._jobs]

    def hurry(self, key: tuple) -> tuple[str, float]:
        """Puts jobs next; returns the name of the first, and seconds to its end."""
        with self._lock:
            if not self._jobs:  # the last one has just been done
                return "all", self._seconds[0]
            now, *later = self._jobs
            later.sort(key=lambda job: job.key != key)  # stable
            self._jobs = [now, *later]
            job = next((job for job in self._jobs if job.key == key), now)
            each = sum(self._seconds) / len(self._seconds)
            return job.name, each * (1 + (job is not now))


def return_freed_memory() -> None:
    """Gives back what compiling took; `keep_freed_memory` keeps it for steps."""
    with contextlib.suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def let_searches_go_first() -> None:
    """Lowers the priority of the threads in which XLA compiles, on Linux.

    Not of Python's threads: one that waits for a core may hold the interpreter's lock.
    Those that share the work of a search are named after Eigen, the others all alike.
    """
    ours = {str(thread.native_id) for thread in threading.enumerate()}
    for thread in Path("/proc/self/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended
            if thread.name not in ours and "Eigen" not in (thread / "comm").read_text():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), NICE)
