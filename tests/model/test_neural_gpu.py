"""The Neural GPU's convolutions are those of the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.model.neural_gpu import convolved, of_columns

pytestmark = pytest.mark.usefixtures("quick_compiler")


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_product_of_columns_is_the_convolution(rows):
    """Also in a row of a longer array, bit for bit."""
    x_bcrd, kernel = (
        jax.random.normal(jax.random.key(i), shape)
        for i, shape in enumerate([(2, 5, rows, 3), (3, 3, 3, 4)])
    )
    got_bcre = convolved(x_bcrd, of_columns(kernel, rows))
    want_brce = jax.lax.conv_general_dilated(
        x_bcrd.swapaxes(1, 2),
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    np.testing.assert_allclose(got_bcre, want_brce.swapaxes(1, 2), atol=1e-5)
    longer_bcrd = jnp.pad(x_bcrd, ((0, 0), (0, 4), (0, 0), (0, 0)))
    longer_bcre = convolved(longer_bcrd, of_columns(kernel, rows))
    np.testing.assert_array_equal(longer_bcre[:, :5], got_bcre)
