"""Fits power laws: exponents with confidence intervals."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.95  # of the intervals


class PowerLaw(NamedTuple):
    """The law y = coefficient * x^exponent."""

    coefficient: float
    exponent: float
    low: float  # the 95% confidence interval of the exponent
    high: float


def power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw:
    """Fits a power law by least squares of the logarithms.

    Raises:
      ValueError: fewer than 3 points, a value that is not positive, or all x equal.
    """
    return power_laws({"x": x}, y)["x"]


def power_laws(
    factors: Mapping[str, Sequence[float]], y: Sequence[float]
) -> dict[str, PowerLaw]:
    """Fits log y = log coefficient + the sum of exponent * log x over the factors.

    The intervals are those of Student's t for independent errors of log y of one
    variance. They do not cover that the law itself may be wrong.

    Returns:
      By factor, its exponent; the coefficient is that of all of them.

    Raises:
      ValueError: too few points, a value that is not positive, or factors whose
        exponents the points do not determine.
    """
    from scipy import stats  # slow to import

    values = {**factors, "y": y}
    for name, column in values.items():
        if len(column) != len(y):
            raise ValueError(f"{len(column)} values of {name}, but {len(y)} of y")
        if not all(value > 0 for value in column):
            raise ValueError(f"{name} has a value that is not positive: {column}")
    unknowns = 1 + len(factors)
    if len(y) <= unknowns:
        raise ValueError(f"{len(y)} points; want {unknowns + 1} or more")
    logs = [np.log(np.asarray(column, float)) for column in factors.values()]
    design = np.stack([np.ones(len(y)), *logs], axis=1)
    if np.linalg.matrix_rank(design) < unknowns:
        raise ValueError(
            f"the points do not determine the exponents of {', '.join(factors)}: vary "
            "each factor by itself"
        )
    target = np.log(np.asarray(y, float))
    inverse = np.linalg.pinv(design)
    solution = inverse @ target
    freedom = len(y) - unknowns
    variance = np.sum(np.square(target - design @ solution)) / freedom
    # The covariance of the solution is variance * inverse @ inverse.T.
    errors = np.sqrt(variance * np.sum(np.square(inverse), axis=1))
    reach = stats.t.ppf((1 + LEVEL) / 2, freedom) * errors
    exponents = np.stack([solution, solution - reach, solution + reach], axis=1)[1:]
    coefficient = float(np.exp(solution[0]))
    return {
        name: PowerLaw(coefficient, *row)
        for name, row in zip(factors, exponents.tolist(), strict=True)
    }


def crossing(
    x: Sequence[float], rising: Sequence[float], reference: Sequence[float]
) -> float | None:
    """Returns the x above which `rising` exceeds `reference`, in ascending x.

    Interpolates the logarithms linearly; None if `rising` is above everywhere, or not
    at the greatest x.
    """
    ratio = np.log(np.asarray(rising, float)) - np.log(np.asarray(reference, float))
    below = np.flatnonzero(ratio <= 0)
    if not len(below) or below[-1] == len(ratio) - 1:
        return None
    below_index = below[-1]
    pair = slice(below_index, below_index + 2)
    return float(np.exp(np.interp(0, ratio[pair], np.log(x[pair]))))
