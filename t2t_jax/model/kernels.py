"""Attention in one kernel, whose weights never lie in memory: what libraries ship.

Each function is `attention.dense` (equation 1, softmax in float32) for what it `takes`.
Shape suffixes: b batch, t queries, s keys, h heads, k head width.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType

from t2t_jax.parallel import mesh as meshes

LANES = 128  # of a TPU: the kernel's blocks of positions
FEW = 16  # queries


def kernel_for(q_bthk: Array, kv, mask) -> Callable | None:
    """The backend's kernel, if it has one that takes these arrays."""
    if mask.only_bts is not None or not (mask.first is None or _is_zero(mask.first)):
        return None  # what these kernels are not told of
    if q_bthk.shape[1] < FEW:
        return None  # a step of decoding: no gain
    backend = jax.default_backend()
    if backend == "gpu" and _cudnn_takes(q_bthk, kv):
        return cudnn
    if backend == "tpu" and _flash_takes(q_bthk, kv):
        return flash
    return None


def _is_zero(first) -> bool:
    return isinstance(first, int) and first == 0


def _cudnn_takes(q_bthk: Array, kv) -> bool:
    """What the library says it takes; on cards of other makers nothing."""
    try:
        capable = float(jax.devices()[0].compute_capability) >= 8
    except (AttributeError, ValueError):
        return False
    t, _, k = q_bthk.shape[1:]
    even = t % 2 == 0 and kv.k_bshk.shape[1] % 2 == 0
    short = q_bthk.dtype in (jnp.bfloat16, jnp.float16)
    return capable and short and even and k % 8 == 0 and k <= 128


def cudnn(q_bthk: Array, kv, mask, implementation: str = "cudnn") -> Array:
    """NVIDIA's fused attention, through JAX."""
    return jax.nn.dot_product_attention(
        q_bthk, kv.k_bshk, kv.v_bshk, mask=mask.allowed(), implementation=implementation
    )


def _flash_takes(q_bthk: Array, kv) -> bool:
    t, _, k = q_bthk.shape[1:]
    return t % LANES == 0 and kv.k_bshk.shape[1] % LANES == 0 and k <= LANES


def flash(q_bthk: Array, kv, mask) -> Array:
    """The flash attention for TPUs that JAX ships (Dao et al. 2022), in Pallas."""
    from jax.experimental.pallas.ops.tpu import flash_attention as tpu

    def alone(q_bthk, k_bshk, v_bshk, query_segment_bt, key_segment_bs):
        segments = tpu.SegmentIds(query_segment_bt, key_segment_bs)
        y_bhtk = tpu.flash_attention(
            *(x.swapaxes(1, 2) for x in (q_bthk, k_bshk, v_bshk)),
            segment_ids=segments,
            causal=mask.first is not None,
            sm_scale=q_bthk.shape[-1] ** -0.5,
        )
        return y_bhtk.swapaxes(1, 2)

    arrays = q_bthk, *kv, mask.query_segment_bt, mask.key_segment_bs
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1 or AxisType.Manual in mesh.axis_types:
        return alone(*arrays)
    # XLA cannot divide a kernel: each device is told what it has, its rows and heads.
    heads, rows = (
        meshes.spec(axes)
        for axes in (("batch", "length", "heads", "head"), ("batch", "length"))
    )
    divided = jax.shard_map(
        alone,
        in_specs=(heads, heads, heads, rows, rows),
        out_specs=heads,
        check_vma=False,
    )
    return divided(*arrays)
