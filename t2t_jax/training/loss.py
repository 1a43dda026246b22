"""Label-smoothed cross-entropy (section 5.4): the formula, and a fast fused version.

Logits hold one number for every target token and vocabulary entry. Stored in full they
take most of the memory of training and, computed naively, a third of its time.
`projected` computes them for a chunk of positions at a time and turns each chunk into
gradients at once, so that no chunk outlives its use. `cross_entropy` is the formula
alone.

Shape suffixes: b batch, t target, v vocabulary, d model width, g devices that share the
batch, r tokens on one of them.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.mesh import constrain

# Target tokens per device and chunk; at least twice the model width is used. Chunks
# of 2 d tokens need no more memory for logits [2 d, v] than two embedding tables
# [v, d], and computing the table's gradient hides the cost of adding it to the total:
# one chunk takes 316 ms where eight take 426 (model T of docs/performance.md).
CHUNK_TOKENS = 512


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


# A custom gradient: JAX's own would keep the logits of all chunks for the backward
# pass. Here the forward pass already computes the gradients.
@partial(jax.custom_vjp, nondiff_argnums=(4,))
def projected(
    x_btd: Array, table_vd: Array, target_bt: Array, real_bt: Array, smoothing: float
):
    """Sums of `cross_entropy` over real tokens, for the logits x_btd table_vd^T.

    Works on one chunk of positions at a time: computes its logits, uses them for the
    sums and, under differentiation, for the gradients of both factors, and drops them.

    Args:
      x_btd: the decoder's outputs, in the compute dtype.
      table_vd: float32, the embeddings; cast to the dtype of `x_btd` for the product.
      target_bt: int [b, t].
      real_bt: bool [b, t], False at padding.
      smoothing: epsilon_ls, 0 <= smoothing < 1.

    Returns:
      Two float32 scalars: the sum of the smoothed loss, and the sum of -log p(target).
      The second is for reporting only: its gradient is 0.
    """
    return _pass(x_btd, table_vd, target_bt, real_bt, smoothing, gradients=False)[0]


def _forward(*arguments):
    sums, gradients = _pass(*arguments, gradients=True)
    return sums, gradients


def _backward(smoothing, gradients, cotangents):
    # The gradients are those of the loss itself; the chain rule only scales them, by
    # the cotangent of the first output. Targets and mask are not differentiable.
    return *((cotangents[0] * x).astype(x.dtype) for x in gradients), None, None


projected.defvjp(_forward, _backward)


def _pass(x_btd, table_vd, target_bt, real_bt, smoothing, gradients: bool):
    """Returns the two sums, and their gradients by x and table or None."""
    shards = meshes.batch_shards()
    # Gather the model width, sharded under fsdp, before the loop over chunks.
    table_vd = constrain(table_vd, "vocab", "features")
    rounded_vd = table_vd.astype(x_btd.dtype)

    def add(total, chunk):
        x_btd, target_bt, real_bt = chunk
        # Even if the factors are bfloat16, the logits are float32: softmax needs it.
        logits_btv = jnp.einsum(
            "btd,vd->btv", x_btd, rounded_vd, preferred_element_type=jnp.float32
        )
        logits_btv = constrain(logits_btv, "batch", "length", "vocab")
        loss_bt, nll_bt = cross_entropy(logits_btv, target_bt, smoothing)
        sums = [jnp.sum(loss_bt, where=real_bt), jnp.sum(nll_bt, where=real_bt)]
        if not gradients:
            return jax.tree.map(jnp.add, total, sums), None
        grad_btv = cross_entropy_gradient(logits_btv, target_bt, smoothing)
        grad_btv = jnp.where(real_bt[..., None], grad_btv, 0).astype(x_btd.dtype)
        grad_x_btd = jnp.einsum("btv,vd->btd", grad_btv, rounded_vd)
        # The table's gradient sums over the batch. Keep one partial sum per device, so
        # that devices communicate once, after the last chunk, and not in every chunk.
        grad_grv, x_grd = (
            a.reshape(shards, -1, a.shape[-1]) for a in (grad_btv, x_btd)
        )
        grad_table_gvd = jnp.einsum(
            "grv,grd->gvd", grad_grv, x_grd, preferred_element_type=jnp.float32
        )
        sums.append(constrain(grad_table_gvd, "batch", "vocab", "features"))
        grad_x_btd = constrain(grad_x_btd, "batch", "length", "features")
        return jax.tree.map(jnp.add, total, sums), grad_x_btd

    zeros = [jnp.float32(0), jnp.float32(0)]
    if gradients:
        zeros_gvd = jnp.zeros((shards, *table_vd.shape), jnp.float32)
        zeros.append(constrain(zeros_gvd, "batch", "vocab", "features"))
    count = _chunks(x_btd.shape, shards)
    if count == 1:
        total, grad_x_btd = add(zeros, (x_btd, target_bt, real_bt))
    else:
        chunks = [_split(a, count) for a in (x_btd, target_bt, real_bt)]
        total, grad_x = jax.lax.scan(add, zeros, chunks)
        # [count, b, t / count, d] -> [b, t, d], the inverse of `_split`.
        grad_x_btd = (
            jnp.moveaxis(grad_x, 0, 1).reshape(x_btd.shape) if gradients else None
        )
    if not gradients:
        return tuple(total), None
    loss, nll, grad_table_gvd = total
    grad_table_vd = constrain(grad_table_gvd.sum(0), "vocab", "width")
    return (loss, nll), (grad_x_btd, grad_table_vd.astype(table_vd.dtype))


def _chunks(shape: tuple[int, ...], shards: int) -> int:
    """The smallest number of equal parts of the length that bounds a chunk's tokens."""
    b, t, d = shape
    most = shards * max(CHUNK_TOKENS, 2 * d)
    counts = (n for n in range(1, t + 1) if t % n == 0)
    # If even single positions have too many tokens (b > most), use single positions.
    return next((n for n in counts if b * t <= most * n), t)


def _split(a: Array, count: int) -> Array:
    """[b, t, ...] -> [count, b, t / count, ...].

    Splits the length, not the batch, so that every row stays on its device.
    """
    a = jnp.moveaxis(a.reshape(a.shape[0], count, -1, *a.shape[2:]), 1, 0)
    return constrain(a, "microbatch", "batch", "length", *["features"] * (a.ndim - 3))
