"""Adam and the paper's learning rate once more, in NumPy and float64."""

from typing import NamedTuple

import numpy as np


class Moments(NamedTuple):
    """What Adam remembers of one array of parameters."""

    first: np.ndarray
    second: np.ndarray


def learning_rate(step: int, width: int, warmup: int) -> float:
    """Equation 3: d^-0.5 min(step^-0.5, step warmup^-1.5); `step` is from 1."""
    return width**-0.5 * min(step**-0.5, step * warmup**-1.5)


def adam(
    parameter: np.ndarray,
    gradient: np.ndarray,
    moments: Moments | None,
    step: int,
    rate: float,
    b1: float = 0.9,
    b2: float = 0.98,
    epsilon: float = 1e-9,
) -> tuple[np.ndarray, Moments]:
    """One update of one array (Kingma and Ba 2015, algorithm 1).

    Args:
      moments: None before the first step.
      step: from 1.
      rate: the learning rate of this step.
      b1, b2, epsilon: by default those of section 5.3.
    """
    gradient = np.asarray(gradient, np.float64)
    first, second = moments or (np.zeros_like(gradient), np.zeros_like(gradient))
    first = b1 * first + (1 - b1) * gradient
    second = b2 * second + (1 - b2) * gradient**2
    unbiased_first = first / (1 - b1**step)
    unbiased_second = second / (1 - b2**step)
    parameter = np.asarray(parameter, np.float64) - rate * unbiased_first / (
        np.sqrt(unbiased_second) + epsilon
    )
    return parameter, Moments(first, second)
