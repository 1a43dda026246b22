"""Runs a function in a process of its own, to measure memory from a clean start."""

import concurrent.futures
import multiprocessing
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


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
