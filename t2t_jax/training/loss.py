"""Losses by the logits, and a fast label-smoothed cross-entropy (section 5.4).

Logits hold one number for every target token and vocabulary entry. Stored in full they
take most of the memory of training and, computed naively, a third of its time. Here
they are computed for a chunk of positions at a time, and no chunk outlives its use:

- `projected`: cross-entropy, with a gradient written by hand;
- `summed`: any function of each token's logits, with JAX's gradient. The losses of
  `losses.py` choose between the two.

Both turn a chunk's logits into gradients at once (`logit_chunks.py`), and compute them
only once.
`cross_entropy` is the formula alone.

Shape suffixes: b batch, t target, c positions of a chunk, n those of all passes beside
each other, v vocabulary, d model width.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.parallel.mesh import constrain
from t2t_jax.training.logit_chunks import Inputs, TokenFunction, sums


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


def projected(
    x_btd: Array,
    table_vd: Array,
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

    def of_tokens(logits_btv, target_bt):
        return cross_entropy(logits_btv, target_bt, smoothing)

    def with_gradient(logits_btv, target_bt):
        gradient_btv = cross_entropy_gradient(logits_btv, target_bt, smoothing)
        return of_tokens(logits_btv, target_bt), gradient_btv

    function = TokenFunction(of_tokens, with_gradient)
    inputs = Inputs((x_btd,), table_vd, bias_v, real_bt, (target_bt,), ())
    return sums(function, sparse, inputs)


def summed(
    f: Callable[..., tuple[Array, ...]],
    outputs: Sequence[Array],
    table_vd: Array,
    bias_v: Array | None,
    real_bt: Array,
    *others: Array,
    frozen: Sequence[tuple[Array, Array, Array | None]] = (),
    sparse: bool = False,
) -> tuple[Array, ...]:
    """Sums of any function of each token's logits, without storing the logits.

    As `projected`, which has a gradient written by hand: each chunk of positions is
    turned into gradients at once, here by JAX, and its logits are computed once.

    Args:
      f: (logits of each output, logits of each of `frozen`, others) -> a tuple of
        arrays [b, c], one number a token: the loss, then what is only reported. Gets
        some positions at a time: float32 [b, c, v], and [b, c, ...] of `others`.
      outputs: of one or several passes of the model, [b, t, d].
      table_vd, bias_v: the output layer; logits are outputs table_vd^T + bias_v.
      real_bt: bool [b, t], False at tokens that do not count.
      *others: arrays [b, t, ...] that `f` needs, such as targets.
      frozen: outputs, table and bias of models that are not trained. Their gradient
        is 0.
      sparse: as for `projected`.

    Returns:
      Of each array that `f` returns the sum over real tokens, a float32 scalar. Only
      the first has a gradient; that of the others is 0.
    """
    n = len(outputs)

    # The logits of all outputs are one array, beside each other along the length.
    def of_tokens(logits_bnv, *others):
        return tuple(f(*jnp.split(logits_bnv, n, axis=1), *others))

    def with_gradient(logits_bnv, *others):
        def loss_and_reported(logits_bnv):
            by_token = of_tokens(logits_bnv, *others)
            return by_token[0], by_token

        loss_bt, pull, by_token = jax.vjp(loss_and_reported, logits_bnv, has_aux=True)
        return by_token, pull(jnp.ones_like(loss_bt))[0]

    function = TokenFunction(of_tokens, with_gradient)
    inputs = Inputs(tuple(outputs), table_vd, bias_v, real_bt, others, tuple(frozen))
    return sums(function, sparse, inputs)
