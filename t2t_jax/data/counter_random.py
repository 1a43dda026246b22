"""Random numbers as a pure function of integers, without a state.

A number that depends on (seed, epoch, pair, position) alone is the same in any batch,
in any process and after any restart.
"""

import numpy as np

# SplitMix64 (Steele, Lea and Flood 2014).
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)


def uniform(*keys: np.ndarray | int) -> np.ndarray:
    """Hashes integers to numbers that look drawn uniformly from [0, 1).

    Args:
      keys: integers, or arrays of them that broadcast; their order matters. Numbers
        with different keys are independent for all practical purposes.

    Returns:
      float64 of the broadcast shape.
    """
    state = np.uint64(0)
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is what is wanted
        for key in keys:
            state = _mixed((state ^ np.asarray(key).astype(np.uint64)) + _INCREMENT)
    # The upper 53 bits: as many as a float64 holds exactly.
    return (state >> np.uint64(11)) * 2.0**-53


def _mixed(z: np.ndarray) -> np.ndarray:
    """Maps 64 bits to 64 bits, one to one; each bit depends on all bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
