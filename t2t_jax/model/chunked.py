"""Attention in memory linear in the length: softmax over one block of keys at a time.

The online softmax of Milakov and Gimelshein 2018, for attention Rabe and Staats 2021.

Shape suffixes: b batch, t queries, s keys, h heads, k head width.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.model.dense import KV, dense, scores, weighted_values
from t2t_jax.model.layers import Dropout
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.positions import Position
from t2t_jax.sections import field


@dataclasses.dataclass(frozen=True)
class ChunkedOptions:
    """`chunk`: the number of queries, and of keys, whose scores exist at a time."""

    chunk: int = field(512, low=8)


def chunked(
    q_bthk: Array,
    kv: KV,
    mask: Mask,
    position: Position,
    drop: Dropout,
    options: ChunkedOptions,
) -> Array:
    """Computes `dense`; stores scores of one block of queries and keys at a time."""
    chunk = options.chunk
    t, s = q_bthk.shape[1], kv.k_bshk.shape[1]
    if max(t, s) <= chunk or mask.only_bts is not None:
        return dense(q_bthk, kv, mask, position, drop)
    # -1 and -2 are not segments of tokens, so that padding is not attended to.
    queries = _blocks((q_bthk, Tokens(*mask.query)), chunk, segment=-1)
    keys = _blocks((kv, Tokens(*mask.key)), chunk, segment=-2)
    numbers = jnp.arange(len(keys[1].segment))

    def attend(number, q_bthk: Array, query: Tokens) -> Array:
        """Attends from one block of queries to all keys."""
        b, c, h, _ = q_bthk.shape

        def add(total, block):
            key_number, kv, key = block
            in_block = dataclasses.replace(mask, query=query, key=key, aligned=False)

            def added(total):
                y_bthk, sum_bht, highest_bht = total
                scores_bhts = scores(q_bthk, kv, in_block, position)
                new_bht = jnp.maximum(highest_bht, scores_bhts.max(-1))
                weights_bhts = jnp.exp(scores_bhts - new_bht[..., None])
                # The earlier sums were relative to a lower maximum.
                rescale_bht = jnp.exp(highest_bht - new_bht)
                sum_bht = sum_bht * rescale_bht + weights_bhts.sum(-1)
                dropped = drop.block(number * len(numbers) + key_number)(weights_bhts)
                more_bthk = weighted_values(
                    dropped.astype(q_bthk.dtype), kv, in_block, position
                )
                scale_bth1 = rescale_bht.swapaxes(1, 2)[..., None]
                return y_bthk * scale_bth1 + more_bthk, sum_bht, new_bht

            if mask.causal and mask.aligned:  # later blocks of keys are never allowed
                return jax.lax.cond(key_number <= number, added, _same, total), None
            return added(total), None

        zeros = (
            jnp.zeros((b, c, h, kv.v_bshk.shape[-1]), jnp.float32),
            jnp.zeros((b, h, c), jnp.float32),
            jnp.full((b, h, c), -2e9, jnp.float32),  # below any score, and finite
        )
        total, _ = jax.lax.scan(add, zeros, (numbers, *keys))
        y_bthk, sum_bht, _ = total
        return (y_bthk / sum_bht.swapaxes(1, 2)[..., None]).astype(q_bthk.dtype)

    # The backward pass recomputes a block of queries: only its result is stored.
    def attend_block(block):
        return jax.checkpoint(attend)(*block)

    count = jnp.arange(len(queries[0]))
    y = jax.lax.map(attend_block, (count, *queries))
    y_bthk = jnp.moveaxis(y, 0, 1).reshape(q_bthk.shape[0], -1, *y.shape[3:])
    return y_bthk[:, :t]


def _same(total):
    return total


def _blocks(arrays, chunk: int, segment: int):
    """[b, length, ...] -> [blocks, b, chunk, ...], for (arrays, tokens)."""

    def split(x: Array, padding: int = 0) -> Array:
        more = [(0, 0)] * x.ndim
        more[1] = (0, -x.shape[1] % chunk)
        x = jnp.pad(x, more, constant_values=padding)
        return jnp.moveaxis(x.reshape(x.shape[0], -1, chunk, *x.shape[2:]), 1, 0)

    arrays, tokens = arrays
    tokens = Tokens(split(tokens.segment, segment), split(tokens.position))
    return jax.tree.map(split, arrays), tokens
