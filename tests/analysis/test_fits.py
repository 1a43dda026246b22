"""Power laws: exact exponents, intervals that cover, and what is refused."""

import numpy as np
import pytest

from t2t_jax.tools.experiment import fits


def test_exact_exponents_are_found():
    x = [1, 2, 5, 10]
    law = fits.power_law(x, [3 * v**2 for v in x])
    np.testing.assert_allclose(law, (3, 2, 2, 2), rtol=1e-9)


def test_each_factor_has_its_exponent():
    n, d = np.array([1, 2, 4, 8, 4, 4]), np.array([3, 3, 3, 3, 9, 27])
    laws = fits.power_laws({"n": n, "d": d}, 5 * n**2.0 * d**0.5)
    np.testing.assert_allclose(laws["n"], (5, 2, 2, 2), rtol=1e-9)
    np.testing.assert_allclose(laws["d"], (5, 0.5, 0.5, 0.5), rtol=1e-9)


def test_intervals_cover_the_exponent_as_often_as_they_say():
    rng = np.random.default_rng(0)
    x = np.array([1.0, 2, 4, 8])  # of 4 points: 2 degrees of freedom, where t matters
    draws = 1000
    covered = 0
    for _ in range(draws):
        law = fits.power_law(x, x**1.5 * np.exp(0.1 * rng.normal(size=len(x))))
        covered += law.low <= 1.5 <= law.high
    assert abs(covered / draws - 0.95) < 3 * (0.95 * 0.05 / draws) ** 0.5


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 2], [1, 2], "2 points; want 3"),
        ([1, 2, 3], [1, 0, 2], "y has a value that is not positive"),
        ([-1, 2, 3], [1, 1, 2], "x has a value that is not positive"),
        ([2, 2, 2], [1, 1, 2], "do not determine"),
        ([1, 2, 3, 4], [1, 1, 2], "4 values of x, but 3 of y"),
    ],
)
def test_points_that_give_no_law_are_refused(x, y, message):
    with pytest.raises(ValueError, match=message):
        fits.power_law(x, y)


def test_curves_cross_where_the_first_exceeds_the_second():
    x = [1, 2, 8, 16]
    constant, square = [10] * 4, [v**2 for v in x]
    assert fits.crossing(x, square, constant) == pytest.approx(10**0.5)
    assert fits.crossing(x, constant, square) is None  # above before, not after
    assert fits.crossing(x, constant, [20] * 4) is None
