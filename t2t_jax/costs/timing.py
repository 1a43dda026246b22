"""Times calls."""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any


def timed(call: Callable[[], Any]) -> Iterator[float]:
    """Yields the seconds of one call after another; the first one may compile.

    A call ends when its results are computed, wherever they are.
    """
    import jax

    while True:
        began = time.perf_counter()
        jax.block_until_ready(call())
        yield time.perf_counter() - began


def median_seconds(call: Callable[[], Any], times: int) -> float:
    """Median seconds of some calls after the first, which compiles."""
    return statistics.median(itertools.islice(timed(call), 1, 1 + times))
