"""The Neural GPU: its convolutions are those of the paper, and its memory grows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t2t_jax.config import ModelConfig
from t2t_jax.model.architecture import logits, step_logits
from t2t_jax.model.mask import Tokens
from t2t_jax.model.model import build
from t2t_jax.model.neural_gpu import column_kernel, convolved

pytestmark = pytest.mark.usefixtures("quick_compiler")


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_product_column_kernel_is_the_convolution(rows):
    """Also in a row of a longer array."""
    x_bcrd, kernel = (
        jax.random.normal(jax.random.key(i), shape)
        for i, shape in enumerate([(2, 5, rows, 3), (3, 3, 3, 4)])
    )
    got_bcre = convolved(x_bcrd, column_kernel(kernel, rows))
    want_brce = jax.lax.conv_general_dilated(
        x_bcrd.swapaxes(1, 2),
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    np.testing.assert_allclose(got_bcre, want_brce.swapaxes(1, 2), atol=1e-5)
    longer_bcrd = jnp.pad(x_bcrd, ((0, 0), (0, 4), (0, 0), (0, 0)))
    longer_bcre = convolved(longer_bcrd, column_kernel(kernel, rows))
    # Another shape is another program: XLA may sum its products in another order.
    np.testing.assert_allclose(longer_bcre[:, :5], got_bcre, atol=1e-5)


def test_a_translation_longer_than_its_source_gets_columns():
    """The search's room grows past the columns of the source."""
    config = ModelConfig(kind="neural_gpu", layers=1, width=6, dtype="float32")
    model = build(config, 11)
    parameters = model.init(jax.random.key(0))
    source, target_input = np.array([[3, 4]]), np.array([[1, 5, 6, 7, 3, 8]])
    batch = {"source": source, "target": target_input, "target_input": target_input}
    for side in ("source", "target"):
        batch[f"{side}_segment"] = np.ones_like(batch[side])
        batch[f"{side}_position"] = np.arange(batch[side].shape[1])[None]
    module = nnx.merge(model.definition, parameters)
    forced = logits(module, batch)[0]
    at = Tokens(batch["source_segment"], batch["source_position"])
    memory = module.encode(source, at)
    cache = module.initial_cache(memory, 1, 2)
    for t, token in enumerate(target_input[0]):
        if t == 2:
            cache = cache.grown(6)
        token_bn = jnp.full((1, 1), token)
        found, cache = step_logits(module, memory, cache, token_bn, t)
        np.testing.assert_allclose(found[0, 0], forced[t], atol=1e-5)
