"""Products with weights: what each type computes, and what a model does with it."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from t2t_jax.model.products import (
    Rounded,
    Transposed,
    converted,
    product,
    quantized,
    quantized_rows,
    transposed,
)
from tests.model import cases, laws
from tests.model.subject import Subject

EQUATIONS = {
    "btd,df->btf": ((3, 5, 32), (32, 16)),
    "btd,dhk->bthk": ((3, 5, 32), (32, 4, 6)),
    "bthk,hkd->btd": ((3, 5, 4, 6), (4, 6, 32)),
    "btd,vd->btv": ((3, 5, 32), (40, 32)),
}
for_equations = pytest.mark.parametrize("equation", EQUATIONS)


def drawn(equation):
    """Activations, a weight, and a gradient by their product."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in EQUATIONS[equation])
    y = np.einsum(equation, x, w)
    return x, w, rng.normal(size=y.shape).astype(np.float32)


def rounded(x):
    """bfloat16's values, in float64."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


@for_equations
def test_operands_are_rounded_and_the_sum_is_not(equation):
    x, w, dy = drawn(equation)

    @jax.jit  # with something before and after that XLA may fuse with it
    def product_and_gradient(x, w, dy):
        y, pull = jax.vjp(lambda x: product(equation, x, Rounded(w)), -x)
        return -y, pull(-dy)[0]

    y, dx = product_and_gradient(x, w, dy)
    inputs, out = equation.split("->")
    a, b = inputs.split(",")
    backward = f"{out},{b}->{a}"
    for actual, formula, factor in ((y, equation, x), (dx, backward, -dy)):
        expected = np.einsum(formula, rounded(factor), rounded(w))
        # Bounds the error of the float32 sums.
        terms = np.einsum(formula, np.abs(factor), np.abs(w))
        assert np.all(np.abs(actual - expected) <= 1e-6 * terms)
        assert np.any(np.abs(actual - np.einsum(formula, factor, w)) > 1e-4 * terms)


@for_equations
def test_a_transposed_weight_is_the_same_weight(equation):
    x, w, _ = drawn(equation)
    axes = {"btd,vd->btv": (1,), "bthk,hkd->btd": (0, 1)}.get(equation, (0,))
    transposed_w = transposed(jnp.asarray(w), axes)
    # A table is stored so.
    assert isinstance(transposed_w, Transposed) != (axes == (1,))
    assert transposed_w.shape == w.shape
    np.testing.assert_array_equal(jnp.asarray(transposed_w), w)
    np.testing.assert_array_equal(transposed_w[1:3], w[1:3])
    for dtype, error in ((jnp.float32, 1e-6), (jnp.bfloat16, 2e-2)):
        y = product(equation, jnp.asarray(x, dtype), transposed_w)
        assert y.dtype == dtype
        terms = np.einsum(equation, np.abs(x), np.abs(w))
        assert np.all(np.abs(y - np.einsum(equation, x, w)) <= error * terms)


@for_equations
def test_a_converted_weight_is_the_same_weight(equation):
    """To the bit: its copy for products, the weight itself for all else."""
    x, w, _ = drawn(equation)
    x = x.astype(ml_dtypes.bfloat16)
    converted_w = converted(jnp.asarray(w), (0,), jnp.bfloat16)
    for same_w in (converted_w, Rounded(jnp.asarray(w))):
        y = product(equation, x, same_w)
        np.testing.assert_array_equal(y, product(equation, x, w))
    x_float32 = x.astype(np.float32)
    np.testing.assert_array_equal(
        product(equation, x_float32, converted_w), product(equation, x_float32, w)
    )
    np.testing.assert_array_equal(converted_w[1:], w[1:])
    np.testing.assert_array_equal(jnp.tanh(converted_w), jnp.tanh(w))
    assert converted(w, (), jnp.bfloat16) is w


@for_equations
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
@pytest.mark.parametrize(
    "law",
    [
        # Rounding is within a device; the law of float32 has the rest.
        pytest.param(law, marks=pytest.mark.slow)
        if law is laws.sharded_is_one_device
        else law
        for law in BOUNDS
    ],
    ids=lambda law: law.__name__,
)
def test_laws_hold_with_rounded_products(subjects, law):
    assert law(subjects[1]) <= BOUNDS[law]


def test_the_model_and_its_gradient_are_near_those_of_float32(subjects):
    exact, near = ((s.forced(s.batch), *s.gradient) for s in subjects)
    for x, y in zip(exact, near, strict=True):
        assert 1e-4 < laws.worst_leaf(y, x) < 0.1


# -------------------------------------------------------------------------------- int8


def by_numpy(equation, x, w, summed):
    """Rows and weight in int8 with their scales, and the int32 product."""
    n = len(summed)
    largest = np.abs(w).max(summed, keepdims=True)
    scale_w = largest / np.float32(127)
    largest = np.abs(x).max((*range(x.ndim - n, x.ndim),), keepdims=True)
    scale_x = largest / np.float32(127)
    rows, columns = np.rint(x / scale_x), np.rint(w / scale_w)
    product = np.einsum(equation, rows.astype(np.int64), columns.astype(np.int64))
    scale_x = scale_x.reshape(*x.shape[:-n], *[1] * (w.ndim - n))
    return rows, columns, product, scale_x * scale_w.squeeze(summed)


SUMMED = {"bthk,hkd->btd": (0, 1), "btd,vd->btv": (1,)}


@for_equations
def test_int8_is_numpys_to_the_bit(equation):
    x, w, _ = drawn(equation)
    summed = SUMMED.get(equation, (0,))
    x[0, 1] = 1e4 * x[0, 1]  # a row's scale is its own
    int8 = quantized({"w": w}, {"w": summed})["w"]
    rows, columns, expected, scale = by_numpy(equation, x, w, summed)
    np.testing.assert_array_equal(int8.values, columns)
    actual_rows, _ = jax.jit(quantized_rows, static_argnums=1)(x, len(summed))
    np.testing.assert_array_equal(actual_rows, rows)
    actual = jnp.einsum(
        equation, actual_rows, int8.values, preferred_element_type=jnp.int32
    )
    np.testing.assert_array_equal(actual, expected)
    y = jax.jit(lambda x, w: product(equation, x, w))(x, int8)
    np.testing.assert_allclose(y, expected * scale, rtol=3e-7, atol=0)
    # A row's product does not depend on the others.
    alone = jax.jit(lambda x, w: product(equation, x, w))(x[1:2, 2:3], int8)
    np.testing.assert_array_equal(alone, y[1:2, 2:3])
    # Of a weight, half a step is lost; a row of zeros is zeros.
    assert np.all(np.abs(int8.astype(np.float32) - w) <= 0.501 / 127 * np.abs(w).max())
    np.testing.assert_array_equal(product(equation, 0 * x, int8), 0 * y)


def test_a_product_over_other_axes_is_an_error():
    table = quantized({"w": np.ones((40, 32))}, {"w": (1,)})["w"]
    with pytest.raises(ValueError, match="does not sum over"):
        product("btv,vd->btd", jnp.ones((1, 2, 40)), table)


@pytest.mark.parametrize(
    "case",
    [{"layers": 2}, {"feed_forward": "swiglu", "tied": "none"}, {"kind": "lstm"}],
    ids=str,
)
def test_a_model_in_int8_is_near_and_no_weight_of_products_is_float32(case):
    subject = Subject(cases.config_of(**case))
    parameters = quantized(subject.parameters, subject.model.summed)
    exact = subject.forced(subject.batch)
    near = np.asarray(subject.forced_and_trace(parameters, subject.batch)[0])
    assert 1e-4 < np.linalg.norm(near - exact) / np.linalg.norm(exact) < 0.1
    int8 = {x.shape for x in jax.tree.leaves(parameters) if x.dtype == np.int8}
    summed = jax.tree.leaves(
        jax.tree.map(
            lambda x, axes: x if axes else (),
            subject.model.shapes,
            subject.model.summed,
        )
    )
    assert int8 == {x.shape for x in summed}
    assert not any(
        x.dtype == np.float32 and x.shape in int8 for x in jax.tree.leaves(parameters)
    )
