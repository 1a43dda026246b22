"""Label-smoothed cross-entropy (section 5.4), and other losses by the logits.

Logits hold one number for every target token and vocabulary entry. Stored in full they
take most of the memory of training and, computed naively, a third of its time. Here
they are computed for a chunk of positions at a time, used for the sums and at once for
the gradients of outputs and table, and dropped:

- `cross_entropy` is the formula alone;
- `projected` sums it, with a gradient written by hand;
- `summed` sums any function of each token's logits, with JAX's gradient. The losses of
  `losses.py` choose between the two.

Shape suffixes: b batch, t target, c positions of a chunk, n those of all passes beside
each other, v vocabulary, d model width, g devices that share the batch, r tokens on one
of them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.model.layers import logits_dtype, project
from t2t_jax.model.products import Collected, Weight, product
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.mesh import constrain


class Statistics(NamedTuple):
    """What the loss of a token needs of all its logits, float32 [b, t] each."""

    normalizer_bt: Array  # the logarithm of the sum of exp(logits)
    mean_bt: Array


def cross_entropy(
    logits_btv: Array,
    target_bt: Array,
    smoothing: float,
    known: Statistics | None = None,
):
    """Cross-entropy of each token with and without label smoothing, in nats.

    The smoothed target distribution gives 1 - smoothing to the true token and spreads
    smoothing evenly over the whole vocabulary (Szegedy et al. 2015, section 7).

    Args:
      logits_btv: float32 [b, t, v].
      target_bt: int [b, t].
      smoothing: epsilon_ls, 0 <= smoothing < 1.
      known: the logits' `statistics`, if the caller has them.

    Returns:
      Two float32 arrays [b, t]: the smoothed loss, and -log p(target).
    """
    # With log p = logit - normalizer, the mean of -log p over the vocabulary is
    # normalizer - mean(logits): the smoothed loss needs no array of log p [b, t, v].
    normalizer_bt, mean_bt = known or statistics(logits_btv)
    true_bt = jnp.take_along_axis(logits_btv, target_bt[..., None], axis=-1)[..., 0]
    nll_bt = normalizer_bt - true_bt
    uniform_bt = normalizer_bt - mean_bt
    return (1 - smoothing) * nll_bt + smoothing * uniform_bt, nll_bt


def statistics(logits_btv: Array) -> Statistics:
    """What the losses of tokens need of all their logits."""
    if meshes.target_device().platform == "gpu":
        return Statistics(*_in_one_pass(logits_btv))
    return Statistics(jax.nn.logsumexp(logits_btv, axis=-1), logits_btv.mean(-1))


@jax.custom_jvp
def _in_one_pass(logits_btv: Array) -> tuple[Array, Array]:
    """`statistics`, reading the logits once from memory instead of three times.

    The maximum and the sum of exp(logit - maximum) of two sets of logits give those of
    their union (Milakov and Gimelshein 2018, section 3.1).
    """

    def union(left, right):
        (largest, sum_exp, total), (largest2, sum_exp2, total2) = left, right
        scale = jnp.exp(-jnp.abs(largest - largest2))
        sum_exp = jnp.where(
            largest > largest2, sum_exp + sum_exp2 * scale, sum_exp * scale + sum_exp2
        )
        return jnp.maximum(largest, largest2), sum_exp, total + total2

    lowest = jnp.finfo(jnp.float32).min  # -inf - -inf would be nan
    operands = logits_btv, jnp.ones_like(logits_btv), logits_btv
    initial = jnp.float32(lowest), jnp.float32(0), jnp.float32(0)
    largest_bt, sum_exp_bt, total_bt = jax.lax.reduce(operands, initial, union, [2])
    mean_bt = total_bt / logits_btv.shape[-1]
    return largest_bt + jnp.log(sum_exp_bt), mean_bt


@_in_one_pass.defjvp
def _in_one_pass_jvp(primals, tangents):
    (logits_btv,), (tangent_btv,) = primals, tangents
    normalizer_bt, mean_bt = _in_one_pass(logits_btv)
    softmax_btv = jnp.exp(logits_btv - normalizer_bt[..., None])
    along = (softmax_btv * tangent_btv).sum(-1), tangent_btv.mean(-1)
    return (normalizer_bt, mean_bt), along


def cross_entropy_gradient(
    logits_btv: Array,
    target_bt: Array,
    smoothing: float,
    known: Statistics | None = None,
):
    """Gradient of the smoothed loss by the logits: softmax - target distribution."""
    v = logits_btv.shape[-1]
    normalizer_bt, _ = known or statistics(logits_btv)
    gradient_btv = jnp.exp(logits_btv - normalizer_bt[..., None]) - smoothing / v
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


def projected(
    x_btd: Array,
    table_vd: Weight,
    target_bt: Array,
    real_bt: Array,
    smoothing: float,
    bias_v: Array | None = None,
    sparse: bool = False,
) -> tuple[Array, Array]:
    """Sums of `cross_entropy` over real tokens, for the logits x_btd table_vd^T + bias.

    Works on one chunk of positions at a time: computes its logits, uses them for the
    sums and, under differentiation, for the gradients of the factors, and drops them.

    Args:
      table_vd: float32, the embeddings; cast to the dtype of `x_btd` for the product.
      bias_v: float32; None if the output layer has none.
      sparse: most tokens are not real: skips chunks without real tokens. After
        `real_first`, these are the last ones.

    Returns:
      Two float32 scalars: the sum of the smoothed loss, and the sum of -log p(target).
      The second is for reporting only: its gradient is 0.
    """

    def token_losses(logits_btv, target_bt):
        return cross_entropy(logits_btv, target_bt, smoothing)

    def with_gradient(logits_btv, target_bt):
        logit_statistics = statistics(logits_btv)
        by_token = cross_entropy(logits_btv, target_bt, smoothing, logit_statistics)
        gradient_btv = cross_entropy_gradient(
            logits_btv, target_bt, smoothing, logit_statistics
        )
        return by_token, gradient_btv

    function = TokenFunction(token_losses, with_gradient)
    inputs = Inputs((x_btd,), table_vd, bias_v, real_bt, (target_bt,), ())
    return sums(function, sparse, inputs)


def summed(
    f: Callable[..., tuple[Array, ...]],
    outputs: Sequence[Array],
    table_vd: Weight,
    bias_v: Array | None,
    real_bt: Array,
    *token_arrays: Array,
    frozen: Sequence[tuple[Array, Weight, Array | None]] = (),
    sparse: bool = False,
) -> tuple[Array, ...]:
    """Sums of any function of each token's logits, without storing the logits.

    As `projected`, which has a gradient written by hand: each chunk of positions is
    turned into gradients at once, here by JAX, and its logits are computed once.

    Args:
      f: (logits of each output and each of `frozen`, then `token_arrays`) -> a tuple of
        arrays [b, c], one number a token: the loss, then what is only reported. Gets
        some positions at a time: float32 [b, c, v], and [b, c, ...] of `token_arrays`.
      outputs: of one or several passes of the model, [b, t, d].
      table_vd, bias_v: the output layer; logits are outputs table_vd^T + bias_v.
      real_bt: bool [b, t], False at tokens that do not count.
      *token_arrays: [b, t, ...], which `f` needs, such as targets.
      frozen: outputs, table and bias of models that are not trained. Their gradient
        is 0.
      sparse: as for `projected`.

    Returns:
      Of each array that `f` returns the sum over real tokens, a float32 scalar. Only
      the first has a gradient; that of the others is 0.
    """
    n = len(outputs)

    # The logits of all outputs are one array, side by side along the length.
    def token_values(logits_bnv, *token_arrays):
        return tuple(f(*jnp.split(logits_bnv, n, axis=1), *token_arrays))

    def with_gradient(logits_bnv, *token_arrays):
        def loss_and_reported(logits_bnv):
            by_token = token_values(logits_bnv, *token_arrays)
            return by_token[0], by_token

        loss_bt, pull, by_token = jax.vjp(loss_and_reported, logits_bnv, has_aux=True)
        return by_token, pull(jnp.ones_like(loss_bt))[0]

    function = TokenFunction(token_values, with_gradient)
    inputs = Inputs(
        tuple(outputs), table_vd, bias_v, real_bt, token_arrays, tuple(frozen)
    )
    return sums(function, sparse, inputs)


# -------------------------------------------------------------------- a chunk at a time

# Target tokens per device and chunk; at least twice the model width is used. Chunks
# of 2 d tokens need no more memory for logits [2 d, v] than two embedding tables
# [v, d], and computing the table's gradient hides the cost of adding it to the total:
# one chunk takes 316 ms where eight take 426 (model T of docs/notes/cpu-speed.md).
CHUNK_TOKENS = 512
# On a GPU, where each chunk reads the table and its gradient from memory.
GPU_CHUNK_TOKENS = 8192
# The least number of chunks if most tokens are not real. With 15% of them real, and
# those first in each row, about 2 of 8 chunks are computed.
SPARSE_CHUNKS = 8


class TokenFunction(NamedTuple):
    """A function of each token's logits."""

    # (logits of the outputs, of frozen models, *token_arrays) -> a tuple of [b, c].
    value: Callable[..., tuple[Array, ...]]
    # The same -> that tuple, and the gradient of the sum of its first array by the
    # logits of the outputs.
    with_gradient: Callable[..., tuple[tuple[Array, ...], Array]]


class Inputs(NamedTuple):
    """The arrays that `summed` takes; the first three have a gradient."""

    outputs: tuple[Array, ...]
    table_vd: Weight
    bias_v: Array | None
    real_bt: Array
    token_arrays: tuple[Array, ...]
    frozen: tuple[tuple[Array, Weight, Array | None], ...]


# A custom gradient: JAX's own would keep the logits of all chunks for the backward
# pass. Here the forward pass already computes the gradients.
@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def sums(function: TokenFunction, sparse: bool, inputs: Inputs):
    return _pass(function, sparse, inputs, gradients=False)[0]


def _backward(function, sparse, gradients, cotangents):
    # The gradients are those of the loss itself; the chain rule only scales them, by
    # the cotangent of the first output. Nothing else is differentiated: None.
    scaled = jax.tree.map(lambda x: (cotangents[0] * x).astype(x.dtype), gradients)
    return (Inputs(*scaled, None, None, None),)


def _pass(function: TokenFunction, sparse: bool, inputs: Inputs, gradients: bool):
    """Returns the sums; the gradients by outputs, table and bias, or None."""
    outputs, table_vd, bias_v, real_bt, token_arrays, frozen = inputs
    shards = meshes.batch_shards()
    collected = isinstance(table_vd, Collected)
    if collected:
        table_vd = table_vd.weight
    # Gather the model width, sharded under fsdp, before the loop over chunks.
    table_vd = constrain(table_vd, "vocab", "features")
    rounded_vd = table_vd.astype(outputs[0].dtype)
    # Of each frozen model the outputs are cut into chunks, and the output layer is not.
    frozen_outputs = tuple(x_btd for x_btd, _, _ in frozen)
    frozen_layers = [
        (constrain(table, "vocab", "features").astype(x_btd.dtype), bias)
        for x_btd, table, bias in frozen
    ]

    b, t, d = outputs[0].shape
    # A chunk has the logits of all passes and frozen models.
    rows = b * (len(outputs) + len(frozen))
    count = _chunks((rows, t, d), shards, SPARSE_CHUNKS if sparse else 1)
    # Several chunks add up the table's gradient as [g, d, v]: on a CPU the product is
    # quicker (33 ms, not 42, for width 128). One chunk would only be transposed.
    table_axes = ("vocab", "features") if count == 1 else ("features", "vocab")
    table_axes = ("batch", *table_axes)

    def chunk_sums(chunk):
        """Returns what is added up over chunks, and the gradients by the outputs."""
        outputs, real_bt, token_arrays, frozen_outputs = chunk
        n = len(outputs)
        # Several passes lie side by side along the length: one product for all,
        # and every row stays on its device.
        x_btd = outputs[0] if n == 1 else jnp.concatenate(outputs, axis=1)
        logits = [project(x_btd, rounded_vd, bias_v)]
        for x_frozen, layer in zip(frozen_outputs, frozen_layers, strict=True):
            logits.append(project(x_frozen, *layer))
        if not gradients:
            return _real_sums(function.value(*logits, *token_arrays), real_bt), None
        by_token, grad_btv = function.with_gradient(*logits, *token_arrays)
        real_bnt = real_bt if n == 1 else jnp.tile(real_bt, (1, n))
        grad_btv = jnp.where(real_bnt[..., None], grad_btv, 0)
        grad_bias_gv = None
        if bias_v is not None:
            v = grad_btv.shape[-1]
            grad_bias_gv = grad_btv.reshape(shards, -1, v).sum(1)
            grad_bias_gv = constrain(grad_bias_gv, "batch", "vocab")
        grad_btv = grad_btv.astype(x_btd.dtype)
        grad_x_btd = product("btv,vd->btd", grad_btv, rounded_vd)
        # The table's gradient sums over the batch. Keep one partial sum per device, so
        # that devices communicate once, after the last chunk, and not in every chunk.
        grad_grv, x_grd = (
            a.reshape(shards, -1, a.shape[-1]) for a in (grad_btv, x_btd)
        )
        factors = (x_grd, grad_grv) if count > 1 else (grad_grv, x_grd)
        grad_table = jnp.einsum(
            "gri,grj->gij", *factors, preferred_element_type=logits_dtype(x_btd)
        )
        grad_table = constrain(grad_table, *table_axes)
        grad_x_btd = constrain(grad_x_btd, "batch", "length", "features")
        grad_outputs = (
            (grad_x_btd,) if n == 1 else tuple(jnp.split(grad_x_btd, n, axis=1))
        )
        added = _real_sums(by_token, real_bt), grad_table, grad_bias_gv
        return added, grad_outputs

    def add(total, chunk):
        added, grad_outputs = chunk_sums(chunk)
        return jax.tree.map(jnp.add, total, added), grad_outputs

    def add_if_real(total, chunk):
        def skip(total, chunk):
            return total, jax.tree.map(jnp.zeros_like, chunk[0]) if gradients else None

        return jax.lax.cond(chunk[1].any(), add, skip, total, chunk)

    arrays = outputs, real_bt, token_arrays, frozen_outputs
    if count == 1:
        total, grad_outputs = chunk_sums(arrays)
    else:
        chunks = jax.tree.map(lambda a: _split(a, count), arrays)
        first_chunk = jax.tree.map(lambda a: a[0], chunks)
        axes = {0: (), 2: ("batch", "vocab"), 3: table_axes}
        zeros = jax.tree.map(
            lambda x: constrain(jnp.zeros(x.shape, x.dtype), *axes[x.ndim]),
            jax.eval_shape(chunk_sums, first_chunk)[0],
        )
        loop = add_if_real if sparse else add
        total, grad_outputs = jax.lax.scan(loop, zeros, chunks)
        grad_outputs = jax.tree.map(_joined, grad_outputs)
    if not gradients:
        return total, None
    sums, grad_table, grad_bias_gv = total
    grad_bias_v = None if bias_v is None else grad_bias_gv.sum(0)
    if count > 1:
        grad_table = grad_table.swapaxes(1, 2)
    grad_table = grad_table.astype(table_vd.dtype)
    if collected:
        grad_table = constrain(grad_table, "batch", "vocab", "features")
        return sums, (grad_outputs, Collected(None, grad_table), grad_bias_v)
    grad_table_vd = constrain(grad_table.sum(0), "vocab", "width")
    # As `table_vd`, which may be a `Rounded`.
    grad_table = jax.tree.unflatten(jax.tree.structure(table_vd), [grad_table_vd])
    return sums, (grad_outputs, grad_table, grad_bias_v)


sums.defvjp(partial(_pass, gradients=True), _backward)


def _real_sums(by_token: tuple[Array, ...], real_bt: Array) -> tuple[Array, ...]:
    """The sum of each array [b, t] over real tokens."""
    return tuple(jnp.sum(x_bt, where=real_bt) for x_bt in by_token)


def _chunks(shape: tuple[int, ...], shards: int, minimum: int = 1) -> int:
    """The smallest number of equal parts of the length that bounds a chunk's tokens.

    At least `minimum` of them, if the length has so many positions.
    """
    b, t, d = shape
    gpu = meshes.target_device().platform == "gpu"
    limit = shards * max(GPU_CHUNK_TOKENS if gpu else CHUNK_TOKENS, 2 * d)
    counts = (n for n in range(min(minimum, t), t + 1) if t % n == 0)
    # If even single positions have too many tokens (b > limit), use single positions.
    return next((n for n in counts if b * t <= limit * n), t)


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
