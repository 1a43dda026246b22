"""Times calls."""

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


def timed_steps(train: Callable, state: Any, *arguments: Any) -> Iterator[float]:
    """Yields the seconds of one training step after another, as `timed` does."""

    def step():
        nonlocal state
        state, metrics = train(state, *arguments)
        return state, metrics

    return timed(step)
