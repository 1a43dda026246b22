"""Kernels that libraries ship against the plain attention, as far as a CPU shows it."""

import dataclasses
import types
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu import flash_attention as library

from benchmarks import sentence_attention
from t2t_jax.config import MeshConfig, ModelConfig, from_config_dict
from t2t_jax.costs import chips
from t2t_jax.model import kernels
from t2t_jax.model.attention import KV, NO_POSITION, dense, scaled
from t2t_jax.model.kernels import cudnn, flash, kernel_for
from t2t_jax.model.layers import Dropout, DropoutRng, compute_dtype
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.model import build, describe_dtype
from t2t_jax.model.positions import POSITIONS, Position
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.machine import device_memory

pytestmark = pytest.mark.usefixtures("eight_devices")

NO_DROPOUT = Dropout(0.0, None)


def drawn(t, s, causal=False, b=2, h=2, k=8, value=None, seed=0):
    """Packed rows: two sentences and padding on both sides."""
    rng = np.random.default_rng(seed)
    q, key, value = (
        jnp.asarray(rng.normal(size=(b, length, h, width)), jnp.float32)
        for length, width in ((t, k), (s, k), (s, value or k))
    )

    def tokens(length):
        index = np.arange(length)
        second, padding = length // 3, length - length // 5
        segment = 1 + (index >= second) - 2 * (index >= padding)
        position = index - second * (segment == 2)
        rows = np.broadcast_to([segment, position], (b, 2, length)).swapaxes(0, 1)
        return Tokens(*jnp.asarray(rows, jnp.int32))

    return q, KV(key, value), Mask(tokens(t), tokens(s), causal=causal, aligned=t == s)


def scheme(name, causal=False):
    """A position scheme for the heads of `drawn`, with random weights."""
    fields = {"positions": name, "heads": 2, "width": 16}
    config = from_config_dict({"model": fields}).model
    return config.variant("positions")(config, causal, jax.random.key(0))


class Given(Position):
    """A scheme that adds these scores."""

    def __init__(self, scores):
        self.scores = lambda q_bthk, mask: scores


def assert_dense(kernel, q, kv, mask, position=NO_POSITION):
    """Results, and gradients of all arrays, are those of `dense`."""
    real = (mask.query.segment > 0)[..., None, None]

    def sums(attend):
        def loss(q, kv, scores):
            return jnp.sum(jnp.where(real, attend(q, kv, mask, scores), 0) ** 2)

        scores = position.scores(scaled(q), mask)
        return jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(q, kv, scores)

    actual = sums(kernel)
    expected = sums(lambda *arrays: dense(*arrays[:3], Given(arrays[3]), NO_DROPOUT))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), actual, expected
    )


@pytest.mark.parametrize(("causal", "positions"), [(False, "none"), (True, "alibi")])
def test_arguments_of_cudnn_compute_dense(causal, positions):
    def xla(*arguments):
        return cudnn(*arguments, implementation="xla")

    arrays = drawn(24, 24 if causal else 16, causal)
    assert_dense(xla, *arrays, scheme(positions, causal))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("s", "causal", "positions"),
    [(256, False, "none"), (128, True, "alibi"), (128, False, "t5")],
)
def test_flash_attention_is_dense(s, causal, positions):
    with pltpu.force_tpu_interpret_mode():
        assert_dense(flash, *drawn(128, s, causal), scheme(positions, causal))


@pytest.mark.parametrize("positions", ["none", "t5", "one_for_all_heads"])
def test_each_device_has_its_rows_and_heads_in_flash_attention(positions, monkeypatch):
    def plain(q_bhtk, k_bhsk, v_bhsk, scores=None, *, segment_ids, causal, sm_scale):
        assert q_bhtk.shape == (1, 1, 16, 8)
        assert scores is None or scores.shape == (1, 1, 16, 16)
        assert sm_scale == 8**-0.5
        q_bthk, *kv = (x.swapaxes(1, 2) for x in (q_bhtk, k_bhsk, v_bhsk))
        nowhere = jnp.zeros_like(segment_ids.q)
        query, key = (Tokens(x, nowhere) for x in (segment_ids.q, segment_ids.kv))
        mask = Mask(query, key, causal=causal, aligned=True)
        position = NO_POSITION if scores is None else Given(scores * sm_scale)
        y_bthk = dense(q_bthk, KV(*kv), mask, position, NO_DROPOUT)
        return y_bthk.swapaxes(1, 2)

    monkeypatch.setattr(library, "flash_attention", plain)
    mesh = meshes.make_mesh(MeshConfig(data=2, tensor=2), jax.devices()[:4])
    arrays = jax.device_put(drawn(16, 16, True), meshes.sharding(mesh, ("batch",)))
    shared = Given(jnp.sin(jnp.arange(256.0)).reshape(1, 1, 16, 16))
    with meshes.compiling_for(mesh):
        position_scheme = scheme(positions, True) if positions in POSITIONS else shared
        assert_dense(flash, *arrays, position_scheme)


@pytest.fixture
def kernel_on(monkeypatch):
    """The kernel for bfloat16 arrays on a device of some platform."""

    def choose(
        backend, arrays, position=NO_POSITION, drop=NO_DROPOUT, dtype="bfloat16"
    ):
        class Card:
            platform = backend
            compute_capability = "9.0" if backend == "gpu" else ""

        monkeypatch.setattr(meshes, "target_device", Card)
        q, kv, mask = arrays
        q, kv = jax.tree.map(lambda x: x.astype(dtype), (q, kv))
        return kernel_for(q, kv, mask, position, drop)

    return choose


# Kind, platform, compute capability as JAX says it; its dtype and its kernel.
CARDS = [
    ("NVIDIA H100 80GB HBM3", "gpu", "9.0", "bfloat16", cudnn),
    ("NVIDIA A100-SXM4-80GB", "gpu", "8.0", "bfloat16", cudnn),
    ("Tesla T4", "gpu", "7.5", "float32", None),
    ("AMD Instinct MI250X", "gpu", "gfx90a", "bfloat16", None),
    ("AMD Instinct MI300X", "gpu", "gfx942", "bfloat16", None),
    ("AMD Radeon VII", "gpu", "gfx906", "float32", None),
    ("TPU v5 lite", "tpu", None, "bfloat16", flash),
    ("cpu", "cpu", None, "float32", None),
    ("Metal", "METAL", None, "float32", None),
    ("Größe 1", "xpu", "", "float32", None),
]


@pytest.mark.parametrize(
    ("device_kind", "platform", "capability", "dtype", "kernel"), CARDS
)
def test_every_device_has_a_dtype_and_a_kernel_or_none(
    device_kind, platform, capability, dtype, kernel, monkeypatch
):
    card = types.SimpleNamespace(
        device_kind=device_kind, platform=platform, memory_stats=lambda: None
    )
    if capability is not None:  # other devices lack the attribute
        card.compute_capability = capability
    monkeypatch.setattr(jax, "devices", lambda *_: [card])
    config = ModelConfig()
    assert compute_dtype(config) == dtype
    assert describe_dtype(config).startswith(dtype)
    q, kv, mask = drawn(128, 128, True)
    half = jax.tree.map(lambda x: x.astype("bfloat16"), (q, kv))
    assert kernel_for(*half, mask, NO_POSITION, NO_DROPOUT) is kernel
    assert device_memory(card) > 0
    peak = chips.peak(device_kind, dtype)
    assert (peak is None) == (device_kind not in chips.DEVICES)


@pytest.mark.parametrize(
    ("backend", "dtype", "t", "causal", "expected"),
    [
        ("gpu", "bfloat16", 126, False, cudnn),
        ("gpu", "bfloat16", 127, False, None),
        ("gpu", "bfloat16", 4, False, None),  # a beam's attention to the source
        ("gpu", "float32", 128, True, None),
        ("tpu", "bfloat16", 64, False, None),
    ],
)
def test_the_backend_chooses(backend, dtype, t, causal, expected, kernel_on):
    assert kernel_on(backend, drawn(t, 128, causal), dtype=dtype) is expected


@pytest.mark.parametrize("keys", [32, 64, 96, 128, 192, 256])
def test_cudnn_is_not_used_for_keys_whose_gradients_are_nan(keys, kernel_on):
    expected = None if keys % 128 == 64 else cudnn
    assert kernel_on("gpu", drawn(128, keys)) is expected


KERNELS = {"gpu": cudnn, "tpu": flash}


@pytest.mark.parametrize("backend", KERNELS)
def test_kernels_step_aside_for_what_they_do_not_compute(backend, kernel_on):
    arrays, rng = drawn(128, 128, True), DropoutRng(jax.random.key(0), jnp.arange(2))
    assert kernel_on(backend, arrays) is KERNELS[backend]
    with kernels.disabled():
        assert kernel_on(backend, arrays) is None
    assert kernel_on(backend, arrays, drop=Dropout(0.0, rng)) is KERNELS[backend]
    assert kernel_on(backend, arrays, drop=Dropout(0.1, None)) is KERNELS[backend]
    assert kernel_on(backend, arrays, drop=Dropout(0.1, rng)) is None
    assert kernel_on(backend, drawn(128, 128, True, value=16)) is None
    q, kv, mask = arrays
    for changes in (
        {"aligned": False},  # and causal
        {"within": 4},
        {"only_bts": jnp.ones((2, 128, 128), bool)},
    ):
        assert kernel_on(backend, (q, kv, dataclasses.replace(mask, **changes))) is None
    # cuDNN has no gradient of what T5 adds to scores; `relative` adds to the values.
    for positions, has in (
        ("alibi", True),
        ("t5", backend == "tpu"),
        ("relative", False),
    ):
        kernel = kernel_on(backend, arrays, scheme(positions))
        assert kernel is (KERNELS[backend] if has else None)


def test_layers_that_are_recomputed_know_that_their_mask_is_causal(monkeypatch):
    """As a traced array it would hide the decoder's kernel."""
    kernel_for = mock.Mock(return_value=None)
    monkeypatch.setattr("t2t_jax.model.kernels.kernel_for", kernel_for)
    model = build(ModelConfig(layers=1, width=8, heads=2, hidden=8, remat="full"), 20)
    batch = {
        side + part: jnp.ones((2, 4), jnp.int32)
        for side in ("source", "target")
        for part in ("", "_input", "_segment", "_position")
    }

    def loss(parameters):
        rng = DropoutRng(jax.random.key(0), jnp.arange(2))
        return nnx.merge(model.definition, parameters).outputs(batch, rng).sum()

    jax.eval_shape(jax.grad(loss), model.shapes)
    causal = [call.args[2].causal for call in kernel_for.call_args_list]
    assert {*causal} == {False, True}
    assert all(isinstance(flag, bool) for flag in causal)


def cudnn_stand_in(q_bthk, k_bshk, v_bshk, causal, **sentences):
    """A stand-in for cuDNN, which leaves what is of no sentence as it was in memory."""

    def places(length_bm, offset_bm, size):
        """The sentence of each token, int [b, size]; 0 is none."""
        index = np.arange(size)
        within = (offset_bm[:, :-1, None] <= index) & (
            index < (offset_bm[:, :-1] + length_bm)[..., None]
        )
        within &= (length_bm > 0)[..., None]
        return jnp.where(within.any(1), 1 + within.argmax(1), 0)

    query = places(sentences["q_seqlen"], sentences["q_offsets"], q_bthk.shape[1])
    key = places(sentences["kv_seqlen"], sentences["kv_offsets"], k_bshk.shape[1])

    @jax.custom_vjp
    def unwritten(x, place):
        return x

    def garbage(place, x):
        return jnp.where(place[..., None, None] > 0, x, jnp.nan), None

    unwritten.defvjp(lambda x, place: (x, place), garbage)
    kv = KV(unwritten(k_bshk, key), unwritten(v_bshk, key))
    tokens = [Tokens(place, jnp.zeros_like(place)) for place in (query, key)]
    mask = Mask(*tokens, causal=causal, aligned=q_bthk.shape[1] == k_bshk.shape[1])
    q_bthk = unwritten(q_bthk, query)
    y_bthk = dense(q_bthk, kv, mask, NO_POSITION, NO_DROPOUT)
    return jnp.where(query[..., None, None] > 0, y_bthk, jnp.nan)


@pytest.mark.parametrize(
    ("t", "s", "causal"), [(30, 30, False), (30, 30, True), (20, 30, False)]
)
def test_sentences_are_attended_to_one_by_one(t, s, causal, monkeypatch):
    monkeypatch.setattr(sentence_attention, "library_call", cudnn_stand_in)
    q, kv, mask = drawn(t, s, causal)
    assert_dense(
        lambda q, kv, mask, _: sentence_attention.by_sentence(q, kv, mask, 4),
        q,
        kv,
        mask,
    )
    y = np.asarray(sentence_attention.by_sentence(q, kv, mask, 1))
    segment = np.asarray(mask.query.segment)
    assert (y[segment == 0] == 0).all()
    assert np.isfinite(y[segment == 1]).all()
    assert np.isnan(y[segment == 2]).all()  # more sentences than were said


@pytest.mark.parametrize(
    ("capability", "scheme_name", "used"),
    [("9.0", "sinusoid", True), ("8.0", "sinusoid", False), ("9.0", "alibi", False)],
)
def test_sentences_are_told_apart_by_hopper_alone(
    capability, scheme_name, used, monkeypatch
):
    gpu = types.SimpleNamespace(platform="gpu", compute_capability=capability)
    monkeypatch.setattr(meshes, "target_device", lambda: gpu)
    calls = []
    monkeypatch.setattr(kernels, "cudnn", lambda q, *_: calls.append("cudnn"))
    monkeypatch.setattr(
        sentence_attention, "by_sentence", lambda *a: calls.append(a[-1])
    )
    q, kv, mask = jax.tree.map(
        lambda x: x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x, drawn(30, 30)
    )
    options = sentence_attention.Options(sentences=5)
    sentence_attention.attend(q, kv, mask, scheme(scheme_name), NO_DROPOUT, options)
    assert calls == [5 if used else "cudnn"]
