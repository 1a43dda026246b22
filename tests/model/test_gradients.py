"""Gradients written by hand of parts of a layer, against those that JAX makes."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.model import embedding, layers
from t2t_jax.model.feed_forward import relu
from t2t_jax.model.layers import normalize, normalized
from t2t_jax.model.products import Collected

B, T, D = 3, 5, 16
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("mean", [0.0, 30.0])
def test_a_gpus_norm_has_its_gradient(centred, mean, monkeypatch):
    gpu = types.SimpleNamespace(platform="gpu")
    monkeypatch.setattr(layers, "target_device", lambda: gpu)
    x = jnp.asarray(RNG.normal(mean, 1, (B, T, D)), jnp.bfloat16)
    scale, bias = jnp.asarray(RNG.normal(size=(2, D)), jnp.float32)
    tangent = jnp.asarray(RNG.normal(size=x.shape), jnp.bfloat16)
    bias = bias if centred else None

    def pulled(function, x):
        y, pull = jax.vjp(lambda *a: function(*a, centred, 1e-6), x, scale, bias)
        return y, pull(tangent.astype(y.dtype)), pull

    y, actual, pull = pulled(normalize, x)
    expected_y, expected, _ = pulled(normalized, x.astype(jnp.float32))
    np.testing.assert_array_equal(y, expected_y.astype(y.dtype))
    assert actual[0].dtype == x.dtype
    size = np.abs(expected[0]).max()
    np.testing.assert_allclose(
        actual[0].astype(jnp.float32), expected[0], atol=size / 128
    )
    for a, b in zip(actual[1:], expected[1:], strict=True):
        if b is not None:
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
    stored = [a for a in jax.tree.leaves(pull) if getattr(a, "size", 0) >= x.size]
    assert [a.dtype for a in stored] == [x.dtype]


def test_relu_has_the_gradient_of_relu():
    x = jnp.asarray([-2.0, -0.0, 0.0, 1e-30, 3.0])
    y, gradient = jax.vmap(jax.value_and_grad(relu))(x)
    expected = jax.vmap(jax.value_and_grad(jax.nn.relu))(x)
    np.testing.assert_array_equal(y, expected[0])
    np.testing.assert_array_equal(gradient, expected[1])


@pytest.mark.parametrize("several", [False, True], ids=["one device", "several"])
def test_a_gpus_table_gets_the_sum_of_each_tokens_gradients(several, monkeypatch):
    gpu = types.SimpleNamespace(platform="gpu")
    monkeypatch.setattr(layers, "target_device", lambda: gpu)
    table = jnp.asarray(RNG.normal(size=(11, D)), jnp.float32)
    tokens = jnp.asarray([[0, 0, 10, 3, 0], [3, 3, 9, 10, 1], [5, 5, 5, 5, 5]])
    gradient = RNG.normal(size=(*tokens.shape, D)).astype(np.float32)
    groups = 3 if several else 1
    slot = jnp.zeros((groups, *table.shape))

    def looked_up(table, slot):
        return embedding.look_up(Collected(table, slot) if several else table, tokens)

    y, pull = jax.vjp(looked_up, table, slot)
    np.testing.assert_array_equal(y, table[tokens])
    table_gradient, slot_gradient = pull(gradient)
    expected = np.zeros((groups, *table.shape))
    group = np.arange(groups)[:, None]
    rows = gradient.reshape(groups, -1, D)
    np.add.at(expected, (group, tokens.reshape(groups, -1)), rows)
    actual = slot_gradient if several else table_gradient[None]
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    text = jax.jit(lambda g: pull(g)).lower(gradient).as_text()
    assert "unique_indices = true" in text
    assert "unique_indices = false" not in text.split("stablehlo.scatter", 1)[1]
