"""Work in threads, and the number of cores that this process may use."""

import collections
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from t2t_jax.io.interruption import check

T, Made = TypeVar("T"), TypeVar("Made")


def core_count() -> int:
    """The number of cores that this process may use."""
    # The affinity mask knows of taskset and Slurm; `cpu_count` counts all cores.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_order(
    make: Callable[[T], Made],
    items: Iterable[T],
    threads: int = 0,
    ahead: int = 0,
    name: str = "encoder",
) -> Iterator[Made]:
    """Maps `make` over items in threads; yields the results in order.

    Threads suffice if `make` is mostly SentencePiece or NumPy, which release the
    interpreter's lock. The caller's thread draws the items.

    Args:
      make: A function of one item.
      items: The items, consumed lazily.
      threads: By default as many as there are cores.
      ahead: The most items that are drawn ahead of the results; 0: two a thread.
      name: That of the threads.
    """
    threads = threads or core_count()
    pending = collections.deque()
    with ThreadPoolExecutor(threads, name) as pool:
        try:
            for item in items:
                check()
                pending.append(pool.submit(make, item))
                if len(pending) > (ahead or 2 * threads):  # bounds memory
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            # After an error or an early end, nobody will read what is not begun yet.
            for future in pending:
                future.cancel()


def merged(streams: Sequence[Iterable[T]], name: str = "worker") -> Iterator[T]:
    """Draws from each iterable in a thread of its own; yields items as they come.

    After an error, which is raised here, or an early end, the other threads stop at
    their next item.
    """
    if len(streams) < 2:
        for stream in streams:
            for item in stream:
                check()
                yield item
        return
    results, stopped = queue.SimpleQueue(), threading.Event()

    def draw(stream: Iterable[T]) -> None:
        try:
            for item in stream:
                results.put([item])
                if stopped.is_set():
                    return
        except BaseException:
            stopped.set()
            raise
        finally:
            results.put([])

    with ThreadPoolExecutor(len(streams), name) as pool:
        drawing = [pool.submit(draw, stream) for stream in streams]
        try:
            while drawing:
                check()
                if item := results.get():
                    yield item[0]
                    continue
                # A thread has ended, or is about to: its last item says so.
                ended = next(iter(as_completed(drawing)))
                drawing.remove(ended)
                ended.result()
        finally:
            stopped.set()
