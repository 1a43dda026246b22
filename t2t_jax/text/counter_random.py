"""Random numbers as a pure function of integers, without a state.

A number that depends on (seed, epoch, pair, position) alone is the same in any batch,
in any process and after any restart.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")

# SplitMix64 (Steele, Lea and Flood 2014).
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def uniform(*keys: np.ndarray | int) -> np.ndarray:
    """Hashes integers to numbers that look drawn uniformly from [0, 1).

    Args:
      keys: integers, or arrays of them that broadcast; their order matters. Numbers
        with different keys are independent for all practical purposes.

    Returns:
      float64 of the broadcast shape.
    """
    # The upper 53 bits: as many as a float64 holds exactly.
    return (hashed(*keys) >> np.uint64(11)) * 2.0**-53


def hashed(*keys: np.ndarray | int) -> np.ndarray:
    """Hashes integers to 64 bits each; arguments as for `uniform`.

    Returns:
      uint64 of the broadcast shape.
    """
    state = np.uint64(0)
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is what is wanted
        for key in keys:
            state = mixed((state ^ np.asarray(key).astype(np.uint64)) + _INCREMENT)
    return state


class Stream:
    """A sequence of random numbers that is a pure function of one integer.

    For code that draws a varying number of times, such as changes to a line of text.
    NumPy's overhead for one number is larger than that of arithmetic on Python's.

    Args:
      start: 64 bits, from `hashed`. Streams of different starts are independent.
    """

    def __init__(self, start: int):
        self._state = int(start)

    def uniform(self) -> float:
        """Draws a number from [0, 1)."""
        self._state = z = (self._state + int(_INCREMENT)) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53

    def below(self, n: int) -> int:
        """Draws an integer from 0 to n - 1."""
        return int(self.uniform() * n)

    def choice(self, options: Sequence[T]) -> T:
        """Draws one of some options, which are equally likely."""
        return options[self.below(len(options))]


def mixed(z: np.ndarray) -> np.ndarray:
    """Maps 64 bits to 64 bits (uint64), one to one; each bit depends on all bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
