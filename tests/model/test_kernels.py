"""Kernels that libraries ship against the plain attention, as far as a CPU shows it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu import flash_attention as library

from t2t_jax.config import MeshConfig
from t2t_jax.model.attention import KV, Mask, dense, fused
from t2t_jax.model.kernels import cudnn, flash, kernel_for
from t2t_jax.parallel import mesh as meshes

pytestmark = pytest.mark.usefixtures("eight_devices", "quick_compiler")


def drawn(t, s, first, b=2, h=2, k=8, seed=0):
    """Packed rows: two sentences and padding on both sides."""
    rng = np.random.default_rng(seed)
    q, key, value = (
        jnp.asarray(rng.normal(size=(b, length, h, k)), jnp.float32)
        for length in (t, s, s)
    )

    def segments(length):
        at = np.arange(length)
        row = 1 + (at >= length // 3) - 2 * (at >= length - length // 5)
        return jnp.asarray(np.broadcast_to(row, (b, length)), jnp.int32)

    return q, KV(key, value), Mask(segments(t), segments(s), causal=first is not None)


def assert_dense(kernel, q, kv, mask):
    real = (mask.query_segment_bt > 0)[..., None, None]

    def sums(attend):
        def of(q, kv):
            return jnp.sum(jnp.where(real, attend(q, kv, mask), 0) ** 2)

        return jax.jit(jax.value_and_grad(of, (0, 1)))

    got = sums(kernel)(q, kv)
    want = sums(lambda *arguments: dense(*arguments, None))(q, kv)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), got, want)


@pytest.mark.parametrize("first", [None, 0])
def test_what_cudnn_is_told_is_what_dense_computes(first):
    def told(q, kv, mask):
        return cudnn(q, kv, mask, implementation="xla")

    assert_dense(told, *drawn(24, 24 if first == 0 else 16, first))


@pytest.mark.slow
@pytest.mark.parametrize(("s", "first"), [(256, None), (128, 0)])
def test_flash_attention_is_dense(s, first):
    with pltpu.force_tpu_interpret_mode():
        assert_dense(flash, *drawn(128, s, first))


def test_each_device_has_its_rows_and_heads_in_flash_attention(monkeypatch):
    def plain(q_bhtk, k_bhsk, v_bhsk, *, segment_ids, causal, sm_scale):
        assert q_bhtk.shape == (1, 1, 16, 8)
        assert sm_scale == 8**-0.5
        q_bthk, *kv = (x.swapaxes(1, 2) for x in (q_bhtk, k_bhsk, v_bhsk))
        mask = Mask(segment_ids.q, segment_ids.kv, causal=causal)
        return dense(q_bthk, KV(*kv), mask, None).swapaxes(1, 2)

    monkeypatch.setattr(library, "flash_attention", plain)
    mesh = meshes.make_mesh(MeshConfig(data=2, tensor=2), jax.devices()[:4])
    arrays = jax.device_put(drawn(16, 16, 0), meshes.sharding(mesh, ("batch",)))
    with meshes.compiling_for(mesh):
        assert_dense(flash, *arrays)


def test_a_cpu_has_no_kernel_and_gets_the_plain_one():
    arguments = drawn(128, 128, 0)
    assert kernel_for(*arguments) is None
    np.testing.assert_array_equal(fused(*arguments, None), dense(*arguments, None))


@pytest.mark.parametrize(
    ("backend", "dtype", "t", "first", "wanted"),
    [
        ("gpu", "bfloat16", 128, 0, cudnn),
        ("gpu", "bfloat16", 128, None, cudnn),
        ("gpu", "bfloat16", 127, 0, None),
        ("gpu", "bfloat16", 4, None, None),  # a beam's attention to the source
        ("gpu", "float32", 128, 0, None),
        ("tpu", "bfloat16", 128, 0, flash),
        ("tpu", "bfloat16", 64, 0, None),
    ],
)
def test_the_backend_chooses(backend, dtype, t, first, wanted, monkeypatch):
    class Card:
        platform = backend
        compute_capability = "9.0"

    monkeypatch.setattr(meshes, "target_device", Card)
    q, kv, mask = drawn(t, 128, first)
    q, kv = jax.tree.map(lambda x: x.astype(dtype), (q, kv))
    assert kernel_for(q, kv, mask) is wanted
