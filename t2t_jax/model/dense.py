"""Scaled dot-product attention as the formula says it (section 3.2.1).

Shape suffixes: b batch, t queries, s keys, h heads, k head width, of values too.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.model.layers import Dropout
from t2t_jax.model.mask import Mask
from t2t_jax.model.positions import Position


class KV(NamedTuple):
    """Keys and values of the tokens attended to, [batch, keys, heads, head width].

    The width of a value may differ from that of a key.
    """

    k_bshk: Array
    v_bshk: Array


def scaled(q_bthk: Array) -> Array:
    """Divides queries by the root of the head width (equation 1)."""
    return q_bthk * q_bthk.shape[-1] ** -0.5


def scores(q_bthk: Array, kv: KV, mask: Mask, position: Position) -> Array:
    """q k^T / sqrt(head width) + scheme + mask, float32 [b, h, t, s]."""
    q_bthk = scaled(q_bthk)
    scores_bhts = jnp.einsum("bthk,bshk->bhts", q_bthk, kv.k_bshk).astype(jnp.float32)
    of_positions = position.scores(q_bthk, mask)
    if of_positions is not None:
        scores_bhts += of_positions
    return scores_bhts + mask.bias()


def attention_weights(q_bthk: Array, kv: KV, mask: Mask, position: Position) -> Array:
    """The softmax of the scores, float32 [b, h, t, s] (equation 1)."""
    return jax.nn.softmax(scores(q_bthk, kv, mask, position))


def weighted_values(
    weights_bhts: Array, kv: KV, mask: Mask, position: Position
) -> Array:
    """The sums of the values, with the scheme's part, [b, t, h, k]."""
    y_bthk = jnp.einsum("bhts,bshk->bhtk", weights_bhts, kv.v_bshk).swapaxes(1, 2)
    of_positions = position.values(weights_bhts, mask)
    return y_bthk if of_positions is None else y_bthk + of_positions


def dense(
    q_bthk: Array, kv: KV, mask: Mask, position: Position, drop: Dropout
) -> Array:
    """Scaled dot-product attention (section 3.2.1, equation 1); softmax in float32."""
    weights_bhts = drop(attention_weights(q_bthk, kv, mask, position))
    return weighted_values(weights_bhts.astype(q_bthk.dtype), kv, mask, position)


def of_one_head(scores_bts: Array, values_bsd: Array) -> tuple[Array, Array]:
    """Attends with one head, from scores with the mask's bias, float32.

    Returns:
      The weighted sums [b, t, d], and the weights, float32 [b, t, s].
    """
    weights_bts = jax.nn.softmax(scores_bts)
    weights = weights_bts.astype(values_bsd.dtype)
    return jnp.einsum("bts,bsd->btd", weights, values_bsd), weights_bts
