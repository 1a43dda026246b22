"""The loss and its hand-written gradient, against float64 formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.training.loss import cross_entropy

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(2, 5, 11)).astype(np.float32) * 3
TARGET = RNG.integers(0, 11, (2, 5))


def by_formula(logits, target, smoothing):
    """-sum q log p in float64, with q = (1 - e) one_hot + e / v written out."""
    logits = np.asarray(logits, np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    one_hot = np.eye(logits.shape[-1])[target]
    q = (1 - smoothing) * one_hot + smoothing / logits.shape[-1]
    return -(q * log_p).sum(-1), -(one_hot * log_p).sum(-1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_it_is_the_formula(smoothing):
    for got, wanted in zip(
        cross_entropy(LOGITS, TARGET, smoothing),
        by_formula(LOGITS, TARGET, smoothing),
        strict=True,
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("which", [(1.0, 0.0), (0.0, 1.0), (0.3, 0.7)])
def test_the_gradient_is_the_finite_difference(smoothing, which):
    weight = RNG.normal(size=TARGET.shape)

    def mean(losses):
        return sum(
            w * (weight * loss).sum() for w, loss in zip(which, losses, strict=True)
        )

    gradient = jax.grad(lambda x: mean(cross_entropy(x, TARGET, smoothing)))(LOGITS)
    for _ in range(5):
        direction, h = RNG.normal(size=LOGITS.shape), 1e-5
        ahead, behind = (
            mean(by_formula(LOGITS + s * h * direction, TARGET, smoothing))
            for s in (1, -1)
        )
        slope = float((np.asarray(gradient, np.float64) * direction).sum())
        assert slope == pytest.approx((ahead - behind) / (2 * h), rel=1e-4, abs=1e-5)


def test_large_logits_stay_finite():
    logits = jnp.array([[[1e4, -1e4, 0.0]]])
    loss, gradient = jax.value_and_grad(
        lambda x: cross_entropy(x, jnp.array([[1]]), 0.1)[0].sum()
    )(logits)
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()


def test_no_second_array_of_the_size_of_the_logits_is_kept():
    """What the backward pass keeps besides the logits is small."""
    v = 4_096
    shapes = [
        jax.ShapeDtypeStruct((4, 32, v), jnp.float32),
        jax.ShapeDtypeStruct((4, 32), jnp.int32),
    ]
    step = jax.jit(
        jax.grad(lambda x, y: cross_entropy(x, y, 0.1)[0].sum()), donate_argnums=0
    )
    memory = step.lower(*shapes).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 0.2 * 4 * 32 * v * 4
