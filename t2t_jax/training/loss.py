"""Label-smoothed cross-entropy (section 5.4): the formula, and the fast way to it.

Training takes most of its memory, and without care a third of its time, for logits: of
each target token one number for every piece of the vocabulary. `projected` makes them
for some of the positions at a time and turns them into gradients at once, so that none
outlives its use. `cross_entropy` is the formula alone.

Shape suffixes: b batch, t target, v vocabulary, d model width, g devices that have a
part of the batch, r rows of one of them.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.mesh import constrain

# So many target tokens a device are taken at a time, and at least twice the width: then
# logits take no more memory than two tables of embeddings, and the gradient of the
# table is not added up more often than is hidden by making it. docs/performance.md
AT_ONCE = 512


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
    normalizer_bt = jax.nn.logsumexp(logits_btv, axis=-1)
    true_bt = jnp.take_along_axis(logits_btv, target_bt[..., None], axis=-1)[..., 0]
    nll_bt = normalizer_bt - true_bt
    even_bt = normalizer_bt - logits_btv.mean(-1)
    return (1 - smoothing) * nll_bt + smoothing * even_bt, nll_bt


def cross_entropy_gradient(logits_btv: Array, target_bt: Array, smoothing: float):
    """Of the smoothed loss, by the logits: softmax minus target distribution."""
    v = logits_btv.shape[-1]
    gradient_btv = jax.nn.softmax(logits_btv) - smoothing / v
    is_true_btv = jnp.arange(v) == target_bt[..., None]  # fused: never in memory
    return jnp.where(is_true_btv, gradient_btv - (1 - smoothing), gradient_btv)


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def projected(
    x_btd: Array, table_vd: Array, target_bt: Array, real_bt: Array, smoothing: float
):
    """The sums of `cross_entropy` over real tokens, for logits x table^T.

    The logits of some tokens are made at a time, used for the gradients of both factors
    (without a gradient for the sums alone), and forgotten.

    Args:
      x_btd: what the decoder puts out, in the type of the products.
      table_vd: float32, the embeddings; `x_btd`'s type is what they are multiplied in.
      target_bt: int [b, t].
      real_bt: bool [b, t], what counts.
      smoothing: epsilon_ls, 0 <= smoothing < 1.

    Returns:
      float32: the sum of the smoothed loss, and of -log p(target), which is told and
      not trained for: its gradient is 0.
    """
    return _pass(x_btd, table_vd, target_bt, real_bt, smoothing, gradients=False)[0]


def _forward(*arguments):
    sums, gradients = _pass(*arguments, gradients=True)
    return sums, gradients


def _backward(smoothing, gradients, of_sums):
    return *((of_sums[0] * x).astype(x.dtype) for x in gradients), None, None


projected.defvjp(_forward, _backward)


def _pass(x_btd, table_vd, target_bt, real_bt, smoothing, gradients: bool):
    """The sums, and their gradients by x and the table if asked for."""
    parts = meshes.batch_shards()
    table_vd = constrain(table_vd, "vocab", "features")
    rounded_vd = table_vd.astype(x_btd.dtype)

    def add(total, chunk):
        x_btd, target_bt, real_bt = chunk
        logits_btv = jnp.einsum(
            "btd,vd->btv", x_btd, rounded_vd, preferred_element_type=jnp.float32
        )
        logits_btv = constrain(logits_btv, "batch", "length", "vocab")
        loss_bt, nll_bt = cross_entropy(logits_btv, target_bt, smoothing)
        found = [jnp.sum(loss_bt, where=real_bt), jnp.sum(nll_bt, where=real_bt)]
        if not gradients:
            return jax.tree.map(jnp.add, total, found), None
        by_btv = cross_entropy_gradient(logits_btv, target_bt, smoothing)
        by_btv = jnp.where(real_bt[..., None], by_btv, 0).astype(x_btd.dtype)
        by_x_btd = jnp.einsum("btv,vd->btd", by_btv, rounded_vd)
        # Each device adds up its own rows'; they meet once, at the end.
        by_grv, x_grd = (a.reshape(parts, -1, a.shape[-1]) for a in (by_btv, x_btd))
        by_table_gvd = jnp.einsum(
            "grv,grd->gvd", by_grv, x_grd, preferred_element_type=jnp.float32
        )
        found.append(constrain(by_table_gvd, "batch", "vocab", "features"))
        by_x_btd = constrain(by_x_btd, "batch", "length", "features")
        return jax.tree.map(jnp.add, total, found), by_x_btd

    zeros = [jnp.float32(0), jnp.float32(0)]
    if gradients:
        nothing_gvd = jnp.zeros((parts, *table_vd.shape), jnp.float32)
        zeros.append(constrain(nothing_gvd, "batch", "vocab", "features"))
    count = _chunks(x_btd.shape, parts)
    if count == 1:
        total, by_x_btd = add(zeros, (x_btd, target_bt, real_bt))
    else:
        split = [_split(a, count) for a in (x_btd, target_bt, real_bt)]
        total, by_x = jax.lax.scan(add, zeros, split)
        by_x_btd = jnp.moveaxis(by_x, 0, 1).reshape(x_btd.shape) if gradients else None
    if not gradients:
        return tuple(total), None
    loss, nll, by_table_gvd = total
    by_table_vd = constrain(by_table_gvd.sum(0), "vocab", "width")
    return (loss, nll), (by_x_btd, by_table_vd.astype(table_vd.dtype))


def _chunks(shape: tuple[int, ...], parts: int) -> int:
    """In how many parts of equal length the positions are taken: few, but small."""
    b, t, d = shape
    tokens = parts * max(AT_ONCE, 2 * d)
    counts = (n for n in range(1, t + 1) if t % n == 0)
    return next((n for n in counts if b * t <= tokens * n), t)


def _split(a: Array, count: int) -> Array:
    """[b, t, ...] -> [count, b, t / count, ...]: rows stay where they are."""
    a = jnp.moveaxis(a.reshape(a.shape[0], count, -1, *a.shape[2:]), 1, 0)
    return constrain(a, "microbatch", "batch", "length", *["features"] * (a.ndim - 3))
