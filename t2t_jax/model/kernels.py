"""Fused attention kernels of libraries: the weights are never stored in memory.

Each kernel computes `attention.dense` (equation 1, softmax in float32) for the arrays
that `kernel_for` gives it.
Shape suffixes: b batch, t queries, s keys, h heads, k head width.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType

from t2t_jax.parallel import mesh as meshes

LANES = 128  # lanes of a TPU; the kernel works on blocks of this many positions
MIN_QUERIES = 16  # decoding steps have fewer and gain nothing from a kernel

_enabled = contextvars.ContextVar("enabled", default=True)


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Keeps a function that is traced inside from using kernels."""
    token = _enabled.set(False)
    try:
        yield
    finally:
        _enabled.reset(token)


def kernel_for(q_bthk: Array, kv, mask, position, drop) -> Callable | None:
    """Returns the kernel of the target device if it computes this, else None.

    A kernel is called as `kernel(q_bthk, kv, mask, scores)`; `scores` are those of the
    position scheme, [b or 1, h or 1, t, s], or None.
    """
    if not _enabled.get():
        return None
    if mask.only_bts is not None or mask.within is not None:
        return None  # kernels support segments and causality only
    if mask.causal and not mask.aligned:
        return None  # their causality goes by the index
    if drop.active or position.overrides("values"):
        return None
    if q_bthk.shape[1] < MIN_QUERIES or kv.v_bshk.shape[-1] != q_bthk.shape[-1]:
        return None
    device = meshes.target_device()
    if meshes.cuda_capability(device) >= 8 and _cudnn_supports(q_bthk, kv):
        # With a batch, cuDNN returns zeros for the gradient of what is added.
        fixed = position.constant_scores or not position.overrides("scores")
        return cudnn if fixed else None
    if device.platform == "tpu" and _flash_supports(q_bthk, kv):
        return flash
    return None


def _cudnn_supports(q_bthk: Array, kv) -> bool:
    """Checks the library's own limits, besides a GPU of Ampere or newer."""
    t, _, k = q_bthk.shape[1:]
    even = t % 2 == 0 and kv.k_bshk.shape[1] % 2 == 0
    # cuDNN 9's gradients are NaN where the second half of the last block of 128 keys is
    # empty and all scores of a query are below -88, as those of padding without a key
    # are (pytorch/pytorch#196678; seen on an H200).
    filled = kv.k_bshk.shape[1] % 128 != 64
    half_precision = q_bthk.dtype in (jnp.bfloat16, jnp.float16)
    return half_precision and even and filled and k % 8 == 0 and k <= 128


def cudnn(q_bthk: Array, kv, mask, scores=None, implementation: str = "cudnn") -> Array:
    """NVIDIA's fused attention, through JAX."""
    return jax.nn.dot_product_attention(
        q_bthk,
        kv.k_bshk,
        kv.v_bshk,
        bias=None if scores is None else scores.astype(q_bthk.dtype),
        mask=mask.allowed(),
        implementation=implementation,
    )


def _flash_supports(q_bthk: Array, kv) -> bool:
    """Checks that the arrays divide into the kernel's blocks."""
    t, _, k = q_bthk.shape[1:]
    return t % LANES == 0 and kv.k_bshk.shape[1] % LANES == 0 and k <= LANES


def flash(q_bthk: Array, kv, mask, scores=None) -> Array:
    """Flash attention for TPUs (Dao et al. 2022), the Pallas kernel that JAX ships."""
    from jax.experimental.pallas.ops.tpu import flash_attention as tpu

    def on_one_device(q_bthk, k_bshk, v_bshk, query_bt, key_bs, *scores_bhts):
        y_bhtk = tpu.flash_attention(
            *(x.swapaxes(1, 2) for x in (q_bthk, k_bshk, v_bshk)),
            *scores_bhts,
            segment_ids=tpu.SegmentIds(query_bt, key_bs),
            causal=mask.causal,
            sm_scale=q_bthk.shape[-1] ** -0.5,
        )
        return y_bhtk.swapaxes(1, 2)

    arrays = [q_bthk, *kv, mask.query.segment, mask.key.segment]
    axes = [("batch", "length", "heads", "head")] * 3 + [("batch", "length")] * 2
    if scores is not None:
        # The kernel wants those of all rows and heads; it scales them as it does q k^T.
        b, _, h, _ = q_bthk.shape
        scores = jnp.broadcast_to(scores, (b, h, *scores.shape[2:]))
        arrays.append(scores * q_bthk.shape[-1] ** 0.5)
        axes.append(("batch", "heads", "length", "length"))
    # Manual axes: this is already inside a `shard_map`.
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1 or AxisType.Manual in mesh.axis_types:
        return on_one_device(*arrays)
    # XLA cannot partition a kernel; `shard_map` gives each device its rows and heads.
    specs = tuple(meshes.spec(names) for names in axes)
    sharded = jax.shard_map(
        on_one_device, in_specs=specs, out_specs=specs[0], check_vma=False
    )
    return sharded(*arrays)
