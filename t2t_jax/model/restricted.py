"""Self-attention restricted to a neighbourhood (section 4).

Training and encoding cost O(n r) for n tokens and neighbourhoods of r. A cached step
masks: it computes the scores of all earlier tokens, as `dense` does.

Shape suffixes: b batch, t queries, s keys, c tokens of a block, h heads, k head width.
"""

import dataclasses

import jax.numpy as jnp
from jax import Array

from t2t_jax.model.dense import KV, attention_weights, dense
from t2t_jax.model.layers import Dropout
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.positions import Position
from t2t_jax.sections import field

SMALLEST_BLOCK = 32  # queries computed together; smaller products are slower


@dataclasses.dataclass(frozen=True)
class RestrictedOptions:
    """`neighbourhood`: r; a token attends to r / 2 tokens on each side, and itself."""

    neighbourhood: int = field(32, low=2)


def restricted(
    q_bthk: Array,
    kv: KV,
    mask: Mask,
    position: Position,
    drop: Dropout,
    options: RestrictedOptions,
) -> Array:
    """Attends to the tokens at most `neighbourhood` / 2 positions away."""
    reach = options.neighbourhood // 2
    near = dataclasses.replace(mask, within=reach)
    b, length = q_bthk.shape[:2]
    block = max(reach, SMALLEST_BLOCK)
    if not mask.aligned or length <= 2 * block:
        return dense(q_bthk, kv, near, position, drop)
    # Each block of queries sees its own block of keys and the next on each side: all
    # within reach, since positions of a sentence are consecutive.
    sides = (-1, 0) if mask.causal else (-1, 0, 1)
    count = -(-length // block)

    def blocks(x: Array, padding: int = 0) -> Array:
        """[b, length, ...] -> [b, count, block, ...]."""
        more = [(0, 0)] * x.ndim
        more[1] = (0, count * block - length)
        x = jnp.pad(x, more, constant_values=padding)
        return x.reshape(b, count, block, *x.shape[2:])

    def nearby(x: Array, padding: int = 0) -> Array:
        """[b, length, ...] -> [b count, keys, ...]: the blocks around each block."""
        x = blocks(x, padding)
        more = [(0, 0)] * x.ndim
        more[1] = (1, 1)
        padded = jnp.pad(x, more, constant_values=padding)
        shifted = [padded[:, 1 + side : 1 + side + count] for side in sides]
        return _merged(jnp.concatenate(shifted, axis=2))

    segments, positions = mask.query
    # No token has the segment -1, so the padding of keys is attended to by none.
    query = Tokens(_merged(blocks(segments)), _merged(blocks(positions)))
    key = Tokens(nearby(mask.key.segment, -1), nearby(mask.key.position))
    in_block = dataclasses.replace(near, query=query, key=key, aligned=False)
    if drop.rng is not None:  # each block is a row of its own
        row_b = drop.rng.row_b[:, None] * count + jnp.arange(count)
        drop = drop._replace(rng=drop.rng._replace(row_b=row_b.reshape(-1)))
    kv = KV(*(nearby(x) for x in kv))
    y_bthk = dense(_merged(blocks(q_bthk)), kv, in_block, position, drop)
    return y_bthk.reshape(b, count * block, *y_bthk.shape[2:])[:, :length]


def restricted_weights(
    q_bthk: Array, kv: KV, mask: Mask, position: Position, options: RestrictedOptions
) -> Array:
    """The weights of `restricted`, float32 [b, h, t, s], in O(t s)."""
    near = dataclasses.replace(mask, within=options.neighbourhood // 2)
    return attention_weights(q_bthk, kv, near, position)


def _merged(x: Array) -> Array:
    """[b, count, ...] -> [b count, ...]."""
    return x.reshape(-1, *x.shape[2:])
