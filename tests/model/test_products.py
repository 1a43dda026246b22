"""Products with weights: what each type computes, and what a model does with it."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from t2t_jax.model.products import Rounded, product
from tests.model import cases, laws
from tests.model.subject import Subject

EQUATIONS = {
    "btd,df->btf": ((3, 5, 32), (32, 16)),
    "btd,dhk->bthk": ((3, 5, 32), (32, 4, 6)),
    "bthk,hkd->btd": ((3, 5, 4, 6), (4, 6, 32)),
    "btd,vd->btv": ((3, 5, 32), (40, 32)),
}
of_equations = pytest.mark.parametrize("equation", EQUATIONS)


def drawn(equation):
    """Activations, a weight, and a gradient by their product."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in EQUATIONS[equation])
    y = np.einsum(equation, x, w)
    return x, w, rng.normal(size=y.shape).astype(np.float32)


def rounded(x):
    """bfloat16's values, in float64."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


@of_equations
def test_operands_are_rounded_and_the_sum_is_not(equation):
    x, w, dy = drawn(equation)

    @jax.jit  # with something before and after that XLA may fuse with it
    def both(x, w, dy):
        y, pull = jax.vjp(lambda x: product(equation, x, Rounded(w)), -x)
        return -y, pull(-dy)[0]

    y, dx = both(x, w, dy)
    inputs, out = equation.split("->")
    a, b = inputs.split(",")
    backward = f"{out},{b}->{a}"
    for got, of, left in ((y, equation, x), (dx, backward, -dy)):
        want = np.einsum(of, rounded(left), rounded(w))
        terms = np.einsum(of, np.abs(left), np.abs(w))  # bounds the float32 sums' error
        assert np.all(np.abs(got - want) <= 1e-6 * terms)
        assert np.any(np.abs(got - np.einsum(of, left, w)) > 1e-4 * terms)


@of_equations
def test_the_gradient_of_a_weight_is_that_of_a_float32_product(equation):
    x, w, dy = drawn(equation)
    plain, grad = (
        jax.jit(
            lambda w, dy, k=kind: jax.vjp(lambda w: product(equation, x, k(w)), w)[1](
                dy
            )
        )(w, dy)
        for kind in (jnp.asarray, Rounded)
    )
    np.testing.assert_array_equal(*plain, *grad)


@pytest.fixture(scope="module")
def subjects():
    """The model of the paper, small, with products of each type."""
    return [
        Subject(cases.config_of(layers=2, products=products))
        for products in ("float32", "bfloat16")
    ]


# Rounded products amplify the last bits of float32, where these laws have them.
BOUNDS = {
    laws.future_is_unseen: 0.0,
    laws.padding_is_inert: 0.0,
    laws.restored_is_saved: 0.0,
    laws.packed_is_alone: 0.03,
    laws.cached_is_forced: 0.03,
    laws.rematerialized_is_stored: 0.03,
    laws.sharded_is_one_device: 0.03,
}


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.parametrize("law", BOUNDS, ids=lambda law: law.__name__)
def test_laws_hold_with_rounded_products(subjects, law):
    assert law(subjects[1]) <= BOUNDS[law]


def test_the_model_and_its_gradient_are_near_those_of_float32(subjects):
    exact, near = ((s.forced(s.batch), *s.gradient) for s in subjects)
    for x, y in zip(exact, near, strict=True):
        assert 1e-4 < laws.worst_leaf(y, x) < 0.1


def test_what_has_bfloat16_activations_is_not_changed(subjects):
    equation = "btd,df->btf"
    x, w, _ = drawn(equation)
    x = x.astype(jnp.bfloat16)
    got = product(equation, x, Rounded(jnp.asarray(w)))
    np.testing.assert_array_equal(got, product(equation, x, jnp.asarray(w)))
