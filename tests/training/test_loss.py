"""The loss and its hand-written gradient, against float64 formulas and JAX's own."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.config import MeshConfig
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training import cross_entropy as chunked
from t2t_jax.training.cross_entropy import (
    cross_entropy,
    cross_entropy_gradient,
    projected,
    real_first,
    statistics,
    summed,
)

pytestmark = pytest.mark.usefixtures("eight_devices")

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


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_it_is_the_formula(smoothing):
    actual, expected = (
        function(LOGITS, TARGET, smoothing) for function in (cross_entropy, by_formula)
    )
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    large, target = jnp.array([[[1e4, -1e4, 0.0]]]), jnp.array([[1]])
    for function in (cross_entropy, cross_entropy_gradient):
        assert all(np.isfinite(x).all() for x in function(large, target, smoothing))


def plain(x_btd, table_vd, target_bt, real_bt, smoothing, bias_v=None):
    """`projected`, with the gradients that JAX makes of the formula."""
    logits_btv = jnp.einsum("btd,vd->btv", x_btd, table_vd)
    logits_btv += 0 if bias_v is None else bias_v
    losses = cross_entropy(logits_btv, target_bt, smoothing)
    return tuple(jnp.sum(x_bt, where=real_bt) for x_bt in losses)


def in_chunks(x_btd, table_vd, target_bt, real_bt, smoothing, bias_v=None):
    """`projected` by means of `summed`."""

    def token_losses(logits_btv, target_bt):
        return cross_entropy(logits_btv, target_bt, smoothing)

    return summed(token_losses, [x_btd], table_vd, bias_v, real_bt, target_bt)


def sparsely(x_btd, table_vd, target_bt, real_bt, smoothing, bias_v=None):
    """`projected`, without the chunks that have no real token."""
    x_btd, *token_arrays = real_first(x_btd, target_bt, real_bt)
    return projected(x_btd, table_vd, *token_arrays, smoothing, bias_v, True)


def drawn(b, t, d=6, v=13, seed=0):
    rng = np.random.default_rng(seed)
    x_btd, table_vd = (
        jnp.asarray(rng.normal(size=shape), jnp.float32)
        for shape in ((b, t, d), (v, d))
    )
    target_bt = jnp.asarray(rng.integers(0, v, (b, t)))
    return x_btd, table_vd, target_bt, jnp.asarray(rng.random((b, t)) < 0.7)


def assert_equal_to_plain(function, arguments, smoothing, biased=False):
    x_btd, table_vd, *token_arrays = arguments
    bias_v = 3 * jnp.sin(jnp.arange(len(table_vd))) if biased else None

    def half(function):  # a factor, as the mean over tokens is one
        def scaled(x_btd, table_vd, bias_v):
            loss, nll = function(x_btd, table_vd, *token_arrays, smoothing, bias_v)
            return 0.5 * loss, (loss, nll)

        argnums = (0, 1, 2) if biased else (0, 1)
        return jax.jit(jax.value_and_grad(scaled, argnums, has_aux=True))

    (_, got), got_by = half(function)(x_btd, table_vd, bias_v)
    (_, want), want_by = half(plain)(x_btd, table_vd, bias_v)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)
    # Without a gradient the way is another, the sums are the same.
    sums = jax.jit(function, static_argnums=4)(*arguments, smoothing, bias_v)
    np.testing.assert_allclose(sums, want, rtol=2e-5, atol=1e-5)
    for actual, expected in zip(got_by, want_by, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("b", "t", "at_once", "smoothing", "biased"),
    [(3, 12, 7, 0.1, True), (2, 7, 1, 0.0, False)],
)
@pytest.mark.parametrize("function", [projected, in_chunks, sparsely])
def test_in_chunks_it_is_the_plain_loss(
    function, b, t, at_once, smoothing, biased, monkeypatch
):
    monkeypatch.setattr(chunked, "CHUNK_TOKENS", at_once)
    assert_equal_to_plain(function, drawn(b, t), smoothing, biased)


def test_chunks_are_larger_on_a_gpu(monkeypatch):
    base = 192, 128, 512
    assert chunked._chunks(base, shards=1) == 32
    gpu = types.SimpleNamespace(platform="gpu")
    monkeypatch.setattr(meshes, "target_device", lambda: gpu)
    assert chunked._chunks(base, shards=1) == 4
    assert chunked._chunks(base, shards=8) == 1


def test_chunks_without_real_tokens_are_skipped():
    x_btd, table_vd, target_bt, _ = drawn(2, 16)
    real_bt = jnp.arange(16) % 8 == jnp.array([[2], [5]])  # 2 in each row
    x_btd, target_bt, real_bt = real_first(x_btd, target_bt, real_bt)
    spoilt_btd = x_btd.at[:, 2:].set(jnp.nan)  # a skipped chunk reads nothing
    arguments = target_bt, real_bt, 0.1, None

    def by_table(x_btd, sparse):
        gradient = jax.grad(
            lambda table_vd: projected(x_btd, table_vd, *arguments, sparse)[0]
        )
        return gradient(table_vd)

    assert jnp.isfinite(by_table(spoilt_btd, True)).all()
    assert not jnp.isfinite(by_table(spoilt_btd, False)).all()


@pytest.mark.parametrize("function", [projected, in_chunks, sparsely])
def test_divided_among_devices_it_is_the_plain_loss(function, monkeypatch):
    monkeypatch.setattr(chunked, "CHUNK_TOKENS", 3)
    mesh = meshes.make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    # Placed on the mesh, or all would be compiled for one device.
    arguments = jax.device_put(drawn(8, 4, v=14), meshes.sharding(mesh, ()))
    with meshes.compiling_for(mesh):
        assert_equal_to_plain(function, arguments, 0.1, biased=True)


@pytest.mark.parametrize("function", [projected, in_chunks])
def test_logits_are_not_kept_and_only_of_so_many_tokens(function, monkeypatch):
    b, t, d, v, at_once = 4, 32, 8, 4_096, 16
    monkeypatch.setattr(chunked, "CHUNK_TOKENS", at_once)
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((b, t, d), (v, d))]
    _, _, *token_arrays = drawn(b, t)
    step = jax.jit(jax.grad(lambda x, w: function(x, w, *token_arrays, 0.1)[0], (0, 1)))
    memory = step.lower(*shapes).compile().memory_analysis()
    # Softmax and its gradient: JAX's own keeps three such arrays of all tokens.
    assert memory.temp_size_in_bytes < 2.3 * 4 * at_once * v + 4 * v * d * 4


def test_a_gpu_reads_the_logits_once(monkeypatch):
    logits = jnp.concatenate([LOGITS, 1e4 * LOGITS, jnp.full((2, 5, 3), -jnp.inf)], 2)
    weights = jnp.asarray(RNG.normal(size=(2, 2, 5)), jnp.float32)

    def weighted(finite):
        return sum(map(jnp.vdot, weights, statistics(finite)))

    def results():
        finite = logits[..., :-3]
        return statistics(finite), statistics(logits), jax.grad(weighted)(finite)

    expected = results()
    gpu = types.SimpleNamespace(platform="gpu")
    monkeypatch.setattr(chunked.meshes, "target_device", lambda: gpu)
    for a, b in zip(*map(jax.tree.leaves, (results(), expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    read = str(jax.make_jaxpr(statistics)(logits))
    assert read.count("reduce") == 1
