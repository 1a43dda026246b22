"""Times calls."""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any


def timed(
    call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> Iterator[float]:
    """Yields the seconds of one call after another; the first one may compile.

    A call ends when its results are computed, wherever they are.
    """
    import jax

    while True:
        began = clock()
        jax.block_until_ready(call())
        yield clock() - began


def median_seconds(
    call: Callable[[], Any],
    times: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Median seconds of some calls after the first, which compiles."""
    return statistics.median(itertools.islice(timed(call, clock), 1, 1 + times))
