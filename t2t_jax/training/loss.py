"""Label-smoothed cross-entropy (section 5.4), with its gradient written by hand.

Shape suffixes: b batch, t target, v vocabulary.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def cross_entropy(logits_btv: Array, target_bt: Array, smoothing: float):
    """Cross-entropy of each token with and without label smoothing, in nats.

    The smoothed target distribution gives 1 - smoothing to the true token and spreads
    smoothing evenly over the whole vocabulary (Szegedy et al. 2015, section 7). The
    gradient is written by hand, softmax minus target distribution in one pass, so that
    no second array of the size of the logits is kept, and no one-hot is ever made.

    Args:
      logits_btv: float32 [b, t, v].
      target_bt: int [b, t].
      smoothing: epsilon_ls, 0 <= smoothing < 1.

    Returns:
      Two float32 arrays [b, t]: the smoothed loss, and -log p(target).
    """
    return _forward(logits_btv, target_bt, smoothing)[0]


def _forward(logits_btv, target_bt, smoothing):
    normalizer_bt = jax.nn.logsumexp(logits_btv, axis=-1)
    true_bt = jnp.take_along_axis(logits_btv, target_bt[..., None], axis=-1)[..., 0]
    nll_bt = normalizer_bt - true_bt
    even_bt = normalizer_bt - logits_btv.mean(-1)
    loss_bt = (1 - smoothing) * nll_bt + smoothing * even_bt
    return (loss_bt, nll_bt), (logits_btv, target_bt, normalizer_bt)


def _backward(smoothing, saved, gradients):
    logits_btv, target_bt, normalizer_bt = saved
    loss_bt1, nll_bt1 = (g[..., None] for g in gradients)
    v = logits_btv.shape[-1]
    softmax_btv = jnp.exp(logits_btv - normalizer_bt[..., None])
    is_true_btv = jnp.arange(v) == target_bt[..., None]  # fused: never in memory
    gradient_btv = (loss_bt1 + nll_bt1) * softmax_btv - loss_bt1 * (smoothing / v)
    true_bt1 = loss_bt1 * (1 - smoothing) + nll_bt1
    return jnp.where(is_true_btv, gradient_btv - true_bt1, gradient_btv), None


cross_entropy.defvjp(_forward, _backward)
