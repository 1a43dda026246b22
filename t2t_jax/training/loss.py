"""Losses by the logits, and a fast label-smoothed cross-entropy (section 5.4).

Logits hold one number for every target token and vocabulary entry. Stored in full they
take most of the memory of training and, computed naively, a third of its time. Here
they are computed for a chunk of positions at a time, and no chunk outlives its use:

- `projected`: cross-entropy, which turns each chunk into gradients at once;
- `chunked`: any function of each token's logits, with JAX's gradient, which computes
  each chunk a second time. The losses of `losses.py` choose between the two.

`cross_entropy` is the formula alone.

Shape suffixes: b batch, t target, v vocabulary, d model width, g devices that share the
batch, r tokens on one of them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.model.layers import logits_dtype, project
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.mesh import constrain

# Target tokens per device and chunk; at least twice the model width is used. Chunks
# of 2 d tokens need no more memory for logits [2 d, v] than two embedding tables
# [v, d], and computing the table's gradient hides the cost of adding it to the total:
# one chunk takes 316 ms where eight take 426 (model T of docs/performance.md).
CHUNK_TOKENS = 512
# The least number of chunks if most tokens are not real. With 15% of them real, and
# those first in each row, about 2 of 8 chunks are computed.
SPARSE_CHUNKS = 8


def cross_entropy(logits_btv: Array, target_bt: Array, smoothing: float):
    """Cross-entropy of each token with and without label smoothing, in nats.

    The smoothed target distribution gives 1 - smoothing to the true token and spreads
    smoothing evenly over the whole vocabulary (Szegedy et al. 2015, section 7).

    Args:
      logits_btv: float32 [b, t, v].
      target_bt: int [b, t].
      smoothing: epsilon_ls, 0 <= smoothing < 1.

    Returns:
      Two float32 arrays [b, t]: the smoothed loss, and -log p(target).
    """
    # With log p = logit - normalizer, the mean of -log p over the vocabulary is
    # normalizer - mean(logits): the smoothed loss needs no array of log p [b, t, v].
    normalizer_bt = jax.nn.logsumexp(logits_btv, axis=-1)
    true_bt = jnp.take_along_axis(logits_btv, target_bt[..., None], axis=-1)[..., 0]
    nll_bt = normalizer_bt - true_bt
    uniform_bt = normalizer_bt - logits_btv.mean(-1)
    return (1 - smoothing) * nll_bt + smoothing * uniform_bt, nll_bt


def cross_entropy_gradient(logits_btv: Array, target_bt: Array, smoothing: float):
    """Gradient of the smoothed loss by the logits: softmax - target distribution."""
    v = logits_btv.shape[-1]
    gradient_btv = jax.nn.softmax(logits_btv) - smoothing / v
    # A comparison that XLA fuses: the one-hot array is never stored.
    is_true_btv = jnp.arange(v) == target_bt[..., None]
    return jnp.where(is_true_btv, gradient_btv - (1 - smoothing), gradient_btv)


def real_first(x_btd: Array, target_bt: Array, real_bt: Array):
    """Moves the real tokens of each row to its beginning, for `projected(sparse=True)`.

    Returns:
      The three arrays, with the positions of each row in another order.
    """
    order_bt = jnp.argsort(~real_bt, axis=1, stable=True)
    x_btd = jnp.take_along_axis(x_btd, order_bt[..., None], axis=1)
    x_btd = constrain(x_btd, "batch", "length", "features")
    moved = (jnp.take_along_axis(a, order_bt, axis=1) for a in (target_bt, real_bt))
    return x_btd, *moved


# A custom gradient: JAX's own would keep the logits of all chunks for the backward
# pass. Here the forward pass already computes the gradients.
@partial(jax.custom_vjp, nondiff_argnums=(4, 6))
def projected(
    x_btd: Array,
    table_vd: Array,
    target_bt: Array,
    real_bt: Array,
    smoothing: float,
    bias_v: Array | None = None,
    sparse: bool = False,
):
    """Sums of `cross_entropy` over real tokens, for the logits x_btd table_vd^T + bias.

    Works on one chunk of positions at a time: computes its logits, uses them for the
    sums and, under differentiation, for the gradients of the factors, and drops them.

    Args:
      x_btd: the decoder's outputs, in the compute dtype.
      table_vd: float32, the embeddings; cast to the dtype of `x_btd` for the product.
      target_bt: int [b, t].
      real_bt: bool [b, t], False at padding.
      smoothing: epsilon_ls, 0 <= smoothing < 1.
      bias_v: float32; None if the output layer has none.
      sparse: most tokens are not real: skips chunks without real tokens. After
        `real_first`, these are the last ones.

    Returns:
      Two float32 scalars: the sum of the smoothed loss, and the sum of -log p(target).
      The second is for reporting only: its gradient is 0.
    """
    arguments = x_btd, table_vd, target_bt, real_bt, smoothing, bias_v, sparse
    return _pass(*arguments, gradients=False)[0]


def _forward(*arguments):
    sums, gradients = _pass(*arguments, gradients=True)
    return sums, gradients


def _backward(smoothing, sparse, gradients, cotangents):
    # The gradients are those of the loss itself; the chain rule only scales them, by
    # the cotangent of the first output. Targets and mask are not differentiable.
    x, table, bias = jax.tree.map(
        lambda x: (cotangents[0] * x).astype(x.dtype), gradients
    )
    return x, table, None, None, bias


projected.defvjp(_forward, _backward)


def _pass(
    x_btd, table_vd, target_bt, real_bt, smoothing, bias_v, sparse, gradients: bool
):
    """Returns the two sums, and their gradients by x, table and bias, or None."""
    shards = meshes.batch_shards()
    # Gather the model width, sharded under fsdp, before the loop over chunks.
    table_vd = constrain(table_vd, "vocab", "features")
    rounded_vd = table_vd.astype(x_btd.dtype)

    def add(total, chunk):
        x_btd, target_bt, real_bt = chunk
        logits_btv = project(x_btd, rounded_vd, bias_v)
        loss_bt, nll_bt = cross_entropy(logits_btv, target_bt, smoothing)
        sums = [jnp.sum(loss_bt, where=real_bt), jnp.sum(nll_bt, where=real_bt)]
        if not gradients:
            return jax.tree.map(jnp.add, total, sums), None
        grad_btv = cross_entropy_gradient(logits_btv, target_bt, smoothing)
        grad_btv = jnp.where(real_bt[..., None], grad_btv, 0)
        grad_bias_gv = None
        if bias_v is not None:
            v = grad_btv.shape[-1]
            grad_bias_gv = grad_btv.reshape(shards, -1, v).sum(1)
            grad_bias_gv = constrain(grad_bias_gv, "batch", "vocab")
        grad_btv = grad_btv.astype(x_btd.dtype)
        grad_x_btd = jnp.einsum("btv,vd->btd", grad_btv, rounded_vd)
        # The table's gradient sums over the batch. Keep one partial sum per device, so
        # that devices communicate once, after the last chunk, and not in every chunk.
        grad_grv, x_grd = (
            a.reshape(shards, -1, a.shape[-1]) for a in (grad_btv, x_btd)
        )
        grad_table_gvd = jnp.einsum(
            "grv,grd->gvd", grad_grv, x_grd, preferred_element_type=logits_dtype(x_btd)
        )
        grad_table_gvd = constrain(grad_table_gvd, "batch", "vocab", "features")
        sums += [grad_table_gvd, grad_bias_gv]
        grad_x_btd = constrain(grad_x_btd, "batch", "length", "features")
        return jax.tree.map(jnp.add, total, sums), grad_x_btd

    def add_if_real(total, chunk):
        def skip(total, chunk):
            return total, jnp.zeros_like(chunk[0]) if gradients else None

        return jax.lax.cond(chunk[2].any(), add, skip, total, chunk)

    zeros = [jnp.zeros((), logits_dtype(x_btd))] * 2
    if gradients:
        zeros_gvd = jnp.zeros((shards, *table_vd.shape), logits_dtype(x_btd))
        zeros.append(constrain(zeros_gvd, "batch", "vocab", "features"))
        zeros.append(None if bias_v is None else jnp.zeros_like(zeros_gvd[..., 0]))
    count = _chunks(x_btd.shape, shards, SPARSE_CHUNKS if sparse else 1)
    if count == 1:
        total, grad_x_btd = add(zeros, (x_btd, target_bt, real_bt))
    else:
        chunks = [_split(a, count) for a in (x_btd, target_bt, real_bt)]
        total, grad_x = jax.lax.scan(add_if_real if sparse else add, zeros, chunks)
        grad_x_btd = _joined(grad_x) if gradients else None
    if not gradients:
        return tuple(total), None
    loss, nll, grad_table_gvd, grad_bias_gv = total
    grad_table_vd = constrain(grad_table_gvd.sum(0), "vocab", "width")
    grad_bias_v = None if bias_v is None else grad_bias_gv.sum(0)
    return (loss, nll), (grad_x_btd, grad_table_vd.astype(table_vd.dtype), grad_bias_v)


def chunked(
    f: Callable[..., Any],
    outputs: Sequence[Array],
    table_vd: Array,
    bias_v: Array | None,
    *others: Array,
):
    """Applies a function of each token's logits, without storing the logits.

    The gradient is JAX's. The backward pass computes the logits again, one chunk of
    positions at a time, so it takes a third more products than `projected`.

    Args:
      f: (logits of each output, others) -> a tree of arrays, one number a token. Gets
        some positions at a time: float32 [b, c, v], and [b, c, ...] of `others`.
      outputs: of one or several passes of the model, [b, t, d].
      table_vd, bias_v: the output layer; logits are outputs table_vd^T + bias_v.
      *others: arrays [b, t, ...] that `f` needs, such as targets.

    Returns:
      What `f` returns, of all positions [b, t].
    """
    shards = meshes.batch_shards()
    b, t, d = outputs[0].shape
    table_vd = constrain(table_vd, "vocab", "features")
    # A copy for each device that shares the batch, which costs none of them memory. So
    # the backward pass keeps partial sums of the table's gradient, as `_pass` does, and
    # devices communicate once, after the last chunk.
    table_gvd = jnp.broadcast_to(table_vd, (shards, *table_vd.shape))
    table_gvd = constrain(table_gvd, "batch", "vocab", "features")

    def logits(x_bcd):
        x_gbcd = x_bcd.reshape(shards, -1, *x_bcd.shape[1:])
        # Cast here, and not before the loop: float32 gradients of the chunks add up.
        logits_gbcv = jnp.einsum(
            "gbcd,gvd->gbcv",
            x_gbcd,
            table_gvd.astype(x_bcd.dtype),
            preferred_element_type=logits_dtype(x_bcd),
        )
        logits_bcv = logits_gbcv.reshape(*x_bcd.shape[:2], -1)
        logits_bcv = constrain(logits_bcv, "batch", "length", "vocab")
        return logits_bcv if bias_v is None else logits_bcv + bias_v

    # Within a scan XLA cannot merge the two computations, so nothing has to prevent it.
    @partial(jax.checkpoint, prevent_cse=False)
    def of_chunk(outputs, others):
        return f(*map(logits, outputs), *others)

    count = _chunks((b * len(outputs), t, d), shards)
    chunks = jax.tree.map(lambda a: _split(a, count), (tuple(outputs), others))
    _, parts = jax.lax.scan(lambda _, chunk: (None, of_chunk(*chunk)), None, chunks)
    return jax.tree.map(_joined, parts)


def _chunks(shape: tuple[int, ...], shards: int, least: int = 1) -> int:
    """The smallest number of equal parts of the length that bounds a chunk's tokens.

    At least `least` of them, if the length has so many positions.
    """
    b, t, d = shape
    most = shards * max(CHUNK_TOKENS, 2 * d)
    counts = (n for n in range(min(least, t), t + 1) if t % n == 0)
    # If even single positions have too many tokens (b > most), use single positions.
    return next((n for n in counts if b * t <= most * n), t)


def _split(a: Array, count: int) -> Array:
    """[b, t, ...] -> [count, b, t / count, ...].

    Splits the length, not the batch, so that every row stays on its device.
    """
    a = jnp.moveaxis(a.reshape(a.shape[0], count, -1, *a.shape[2:]), 1, 0)
    return constrain(a, "microbatch", "batch", "length", *["features"] * (a.ndim - 3))


def _joined(a: Array) -> Array:
    """[count, b, t / count, ...] -> [b, t, ...], the inverse of `_split`."""
    a = jnp.moveaxis(a, 0, 1)
    return a.reshape(a.shape[0], -1, *a.shape[3:])
