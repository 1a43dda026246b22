"""Attention (section 3.2): by its formula, with several heads, and its variants.

    dense          scaled dot-product attention, as printed (section 3.2.1, equation 1)
    Attention      multi-head attention (section 3.2.2)
    fused          `dense` in one kernel, where the device has one: the default
    unscaled, restricted, chunked    other ways to attend
    ATTENTION      the table of them

Shape suffixes: b batch, t queries, s keys, c a block of tokens, d model width, h heads,
k head width, of values too.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import Dropout, DropoutRng, constant, named, times, weight
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.positions import Position
from t2t_jax.model.products import product
from t2t_jax.parallel.mesh import constrain
from t2t_jax.sections import at_address, field

# ------------------------------------------- scaled dot-product attention (3.2.1)


class KV(NamedTuple):
    """Keys and values of the tokens attended to, [batch, keys, heads, head width].

    The width of a value may differ from that of a key.
    """

    k_bshk: Array
    v_bshk: Array


def scaled(q_bthk: Array) -> Array:
    """Divides queries by the root of the head width (equation 1).

    A product of k terms of variance 1 has variance k; the softmax of such large numbers
    would have very small gradients (section 3.2.1).
    """
    return times(q_bthk, q_bthk.shape[-1] ** -0.5)


def scores(q_bthk: Array, kv: KV, mask: Mask, position: Position) -> Array:
    """q k^T / sqrt(head width) + scheme + mask, float32 [b, h, t, s]."""
    q_bthk = scaled(q_bthk)
    scores_bhts = jnp.einsum("bthk,bshk->bhts", q_bthk, kv.k_bshk).astype(jnp.float32)
    # None for the paper's sinusoids.
    position_scores_bhts = position.scores(q_bthk, mask)
    if position_scores_bhts is not None:
        scores_bhts += position_scores_bhts
    return scores_bhts + mask.bias()


def attention_weights(q_bthk: Array, kv: KV, mask: Mask, position: Position) -> Array:
    """The softmax of the scores, float32 [b, h, t, s] (equation 1)."""
    return jax.nn.softmax(scores(q_bthk, kv, mask, position))


def weighted_values(
    weights_bhts: Array, kv: KV, mask: Mask, position: Position
) -> Array:
    """The sums of the values, with the scheme's part, [b, t, h, k]."""
    y_bthk = jnp.einsum("bhts,bshk->bhtk", weights_bhts, kv.v_bshk).swapaxes(1, 2)
    position_values_bthk = position.values(weights_bhts, mask)
    return y_bthk if position_values_bthk is None else y_bthk + position_values_bthk


def dense(
    q_bthk: Array, kv: KV, mask: Mask, position: Position, drop: Dropout
) -> Array:
    """Scaled dot-product attention (section 3.2.1, equation 1); softmax in float32."""
    weights_bhts = drop(attention_weights(q_bthk, kv, mask, position))
    return weighted_values(weights_bhts.astype(q_bthk.dtype), kv, mask, position)


# ----------------------------------------------------- multi-head attention (3.2.2)


class LayerTrace(NamedTuple):
    """Lists that collect what the layers of a model compute.

    Attributes:
      encoder, decoder, cross: attention weights, an array [b, h, t, s] of each layer.
      outputs: for each decoder layer, what `Architecture.outputs` would return if it
        were the last one, [b, t, d]. It stays empty for a model without such layers.
      layer, heads: if given, only this layer of the decoder is traced, and of its
        attention to the source only so many heads, from the first one.

    A list is None if it is not wanted.
    """

    encoder: list[Array] | None
    decoder: list[Array] | None
    cross: list[Array]
    outputs: list[Array] | None = None
    layer: int | None = None
    heads: int | None = None

    def add_output(self, x_btd: Array) -> None:
        """Collects one decoder layer's output, if these are wanted."""
        if self.outputs is not None:
            self.outputs.append(x_btd)


def alignment_layer(layers: int) -> int:
    """Returns the decoder layer whose attention aligns words best, from 0.

    It is the last but one, as Garg et al. 2019 found for the base model; the last of
    one or two layers. docs/results/decoding.md has measurements.
    """
    return layers - 1 if layers <= 2 else layers - 2


# The scheme of attention to the source: source and target positions do not correspond.
NO_POSITION = Position(ModelConfig(), causal=False, rng=None)


class Attention(nnx.Module):
    """Multi-head attention (section 3.2.2).

    Args:
      config: with the sizes of the stack.
      cross: True if the keys are not the queries' own tokens.
    """

    def __init__(self, config: ModelConfig, rng: Array, cross: bool = False):
        entry = config.variant("attention")
        if not isinstance(entry, AttentionFunction):
            raise UserError(
                f"ATTENTION[{config.attention!r}] is {entry!r}; want an "
                "AttentionFunction: its function, and its weights if it has any"
            )
        self.variant = config.attention if entry.cross or not cross else "fused"
        # The entry itself: compiled programs are those of another one if the name has
        # another entry later, as when a notebook's cell is edited and run again.
        self.function = ATTENTION[self.variant]
        self.options = config.own_options(self.function)
        self.rate = config.attention_dropout
        width = {"width": config.width}
        # One matrix for all heads: W_1 ... W_h side by side. Without bias in the paper.
        keys = {"heads": config.heads, "head": config.width_of_head}
        values = {"heads": config.heads, "head": config.width_of_value}
        # These names are part of the checkpoint format.
        self.query = weight(named(rng, "query"), width, keys)
        self.key = weight(named(rng, "key"), width, keys)
        self.value = weight(named(rng, "value"), width, values)
        self.out = weight(named(rng, "out"), values, width)
        self.has_bias = config.attention_bias
        if config.attention_bias:
            self.query_bias = constant(0.0, keys)
            self.key_bias = constant(0.0, keys)
            self.value_bias = constant(0.0, values)
            self.out_bias = constant(0.0, width)

    def _project(self, x_btd: Array, name: str) -> Array:
        """Projects to the queries, keys or values of each head, [b, t, h, k]."""
        y_bthk = product("btd,dhk->bthk", x_btd, getattr(self, name))
        if self.has_bias:
            y_bthk += getattr(self, f"{name}_bias")[...].astype(x_btd.dtype)
        return constrain(y_bthk, "batch", "length", "heads", "head")

    def keys_values(
        self, x_bsd: Array, at: Tokens | None = None, position: Position | None = None
    ) -> KV:
        """Projects `x_bsd` to keys and values; keys as the scheme turns them."""
        kv = KV(self._project(x_bsd, "key"), self._project(x_bsd, "value"))
        return kv._replace(k_bshk=position.rotate(kv.k_bshk, at)) if position else kv

    def __call__(
        self,
        x_btd: Array,
        kv: KV,
        mask: Mask,
        position: Position | None = None,
        rng: DropoutRng | None = None,
        trace: list | None = None,
        heads: int | None = None,
    ) -> Array:
        """Attends from `x_btd` to `kv`.

        Args:
          position: the scheme of self-attention; None for cross-attention.
          trace: if given, the weights are appended to it.
          heads: if given, those of so many heads, from the first one.

        Raises:
          UserError: weights are asked of a function that has none.
        """
        function, options = self.function, {}
        if self.options:
            options["options"] = self.options
        position = NO_POSITION if position is None else position
        q_bthk = position.rotate(self._project(x_btd, "query"), mask.query)
        if trace is not None:
            if function.weights is None:
                raise UserError(
                    f"config.model.attention={self.variant!r} has no attention weights "
                    "to show or to align words with"
                )
            # Computed a second time, since fused kernels do not return the weights.
            q_kv = jax.tree.map(lambda x: x[:, :, :heads], (q_bthk, kv))
            trace.append(function.weights(*q_kv, mask, position, **options))
        drop = Dropout(self.rate, rng)
        y_bthk = function.attend(q_bthk, kv, mask, position, drop, **options)
        # Concat(head_1, ..., head_h) W^O, without storing the concatenation.
        y_btd = product("bthk,hkd->btd", y_bthk, self.out)
        if self.has_bias:
            y_btd += self.out_bias[...].astype(x_btd.dtype)
        return constrain(y_btd, "batch", "length", "features")


# --------------------------------------------------------------------- fused kernels


def fused(
    q_bthk: Array, kv: KV, mask: Mask, position: Position, drop: Dropout
) -> Array:
    """Computes `dense` in one kernel, if the device has one for these arguments."""
    kernel_for = at_address("model.kernels.kernel_for")
    kernel = kernel_for(q_bthk, kv, mask, position, drop)
    if kernel is None:
        return dense(q_bthk, kv, mask, position, drop)
    return kernel(q_bthk, kv, mask, position.scores(scaled(q_bthk), mask))


# ---------------------------------------------------------------- without the scaling


def unscaled(
    q_bthk: Array, kv: KV, mask: Mask, position: Position, drop: Dropout
) -> Array:
    """Attends by softmax(q k^T) v: equation 1 without the division by sqrt(d_k)."""
    return fused(_multiplied(q_bthk), kv, mask, position, drop)


def unscaled_weights(q_bthk: Array, kv: KV, mask: Mask, position: Position) -> Array:
    """The weights of `unscaled`, float32 [b, h, t, s]."""
    return attention_weights(_multiplied(q_bthk), kv, mask, position)


def _multiplied(q_bthk: Array) -> Array:
    """Multiplies queries by the root of the head width, so `scaled` undoes it."""
    return times(q_bthk, q_bthk.shape[-1] ** 0.5)


# ------------------------------------------------- restricted to a neighbourhood (4)

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
    """Attends to the tokens at most `neighbourhood` / 2 positions away (section 4).

    Training and encoding cost O(n r) for n tokens and neighbourhoods of r. A cached
    step masks: it computes the scores of all earlier tokens, as `dense` does.
    """
    reach = options.neighbourhood // 2
    near = dataclasses.replace(mask, within=reach)
    b, length = q_bthk.shape[:2]
    size = max(reach, SMALLEST_BLOCK)
    if not mask.aligned or length <= 2 * size:
        return dense(q_bthk, kv, near, position, drop)
    # Each block of queries sees its own block of keys and the next on each side: all
    # within reach, since positions of a sentence are consecutive.
    sides = (-1, 0) if mask.causal else (-1, 0, 1)
    count = -(-length // size)

    def as_rows(x: Array) -> Array:
        """[b, count, ...] -> [b count, ...]: each block becomes a row of its own."""
        return x.reshape(-1, *x.shape[2:])

    def nearby(x: Array, padding: int = 0) -> Array:
        """[b, length, ...] -> [b count, keys, ...]: the blocks around each block."""
        x = blocks(x, size, padding)
        pad_widths = [(0, 0)] * x.ndim
        pad_widths[1] = (1, 1)
        padded = jnp.pad(x, pad_widths, constant_values=padding)
        shifted = [padded[:, 1 + side : 1 + side + count] for side in sides]
        return as_rows(jnp.concatenate(shifted, axis=2))

    query = Tokens(*(as_rows(blocks(x, size)) for x in mask.query))
    # No token has the segment -1, so the padding of keys is attended to by none.
    key = Tokens(nearby(mask.key.segment, -1), nearby(mask.key.position))
    in_block = dataclasses.replace(near, query=query, key=key, aligned=False)
    if drop.rng is not None:
        row_b = drop.rng.row_b[:, None] * count + jnp.arange(count)
        drop = drop._replace(rng=drop.rng._replace(row_b=row_b.reshape(-1)))
    kv = KV(*(nearby(x) for x in kv))
    y_bthk = dense(as_rows(blocks(q_bthk, size)), kv, in_block, position, drop)
    return y_bthk.reshape(b, count * size, *y_bthk.shape[2:])[:, :length]


def restricted_weights(
    q_bthk: Array, kv: KV, mask: Mask, position: Position, options: RestrictedOptions
) -> Array:
    """The weights of `restricted`, float32 [b, h, t, s], in O(t s)."""
    near = dataclasses.replace(mask, within=options.neighbourhood // 2)
    return attention_weights(q_bthk, kv, near, position)


def blocks(x: Array, size: int, padding: int = 0) -> Array:
    """Splits [b, length, ...] into [b, blocks, size, ...], padding the last block."""
    pad_widths = [(0, 0)] * x.ndim
    pad_widths[1] = (0, -x.shape[1] % size)
    x = jnp.pad(x, pad_widths, constant_values=padding)
    return x.reshape(x.shape[0], -1, size, *x.shape[2:])


# ------------------------------------------------------ in memory linear in the length


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
    """Computes `dense`; stores scores of one block of queries and keys at a time.

    The softmax is a running one over blocks of keys: the online softmax of Milakov and
    Gimelshein 2018, for attention Rabe and Staats 2021.
    """
    size = options.chunk
    t, s = q_bthk.shape[1], kv.k_bshk.shape[1]
    if max(t, s) <= size or mask.only_bts is not None:
        return dense(q_bthk, kv, mask, position, drop)

    def split(x: Array, padding: int = 0) -> Array:
        """[b, length, ...] -> [blocks, b, size, ...]: the axis to scan over first."""
        return jnp.moveaxis(blocks(x, size, padding), 1, 0)

    def split_tokens(tokens: Tokens, segment: int) -> Tokens:
        return Tokens(split(tokens.segment, segment), split(tokens.position))

    # -1 and -2 are not segments of tokens, so that padding is not attended to.
    queries = split(q_bthk), split_tokens(mask.query, -1)
    keys = jax.tree.map(split, kv), split_tokens(mask.key, -2)
    count = len(keys[1].segment)

    def attend(number, q_bthk: Array, query: Tokens) -> Array:
        """Attends from one block of queries to all keys."""
        b, c, h, _ = q_bthk.shape

        def add_block(total, block):
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
                dropped = drop.block(number * count + key_number)(weights_bhts)
                more_bthk = weighted_values(
                    dropped.astype(q_bthk.dtype), kv, in_block, position
                )
                scale_bth1 = rescale_bht.swapaxes(1, 2)[..., None]
                return y_bthk * scale_bth1 + more_bthk, sum_bht, new_bht

            if mask.causal and mask.aligned:  # later blocks of keys are never allowed
                total = jax.lax.cond(
                    key_number <= number, added, lambda total: total, total
                )
            else:
                total = added(total)
            return total, None

        zeros = (
            jnp.zeros((b, c, h, kv.v_bshk.shape[-1]), jnp.float32),
            jnp.zeros((b, h, c), jnp.float32),
            jnp.full((b, h, c), -2e9, jnp.float32),  # below any score, and finite
        )
        total, _ = jax.lax.scan(add_block, zeros, (jnp.arange(count), *keys))
        y_bthk, sum_bht, _ = total
        return (y_bthk / sum_bht.swapaxes(1, 2)[..., None]).astype(q_bthk.dtype)

    # The backward pass recomputes a block of queries: only its result is stored.
    def attend_block(block):
        return jax.checkpoint(attend)(*block)

    y = jax.lax.map(attend_block, (jnp.arange(len(queries[0])), *queries))
    y_bthk = jnp.moveaxis(y, 0, 1).reshape(q_bthk.shape[0], -1, *y.shape[3:])
    return y_bthk[:, :t]


def chunked_weights(
    q_bthk: Array, kv: KV, mask: Mask, position: Position, options: ChunkedOptions
) -> Array:
    """The weights of `chunked`, float32 [b, h, t, s]: all at a time."""
    return attention_weights(q_bthk, kv, mask, position)


# ------------------------------------------------------------------------- the table


class AttentionFunction(NamedTuple):
    """A way to compute attention.

    Attributes:
      attend: (q_bthk, kv, mask, position, drop) -> [b, t, h, width of values]; with
        `options=`, an instance of `Options`, if it has that class. `drop` is called
        on the weights.
      weights: (q_bthk, kv, mask, position) -> float32 [b, h, t, s], likewise: what it
        multiplies the values with, for pictures and alignments. None if it has no
        weights.
      cross: also for cross-attention, which is otherwise `fused`.
      Options: a frozen dataclass of hyperparameters, or None.
      normalized: the weights of a query sum to 1. Sigmoid attention sets it to False;
        the tests then do not expect it.
    """

    attend: Callable
    weights: Callable | None = None
    cross: bool = True
    Options: type | None = None
    normalized: bool = True


# Add your attention function here.
ATTENTION = {
    "fused": AttentionFunction(fused, attention_weights),
    "dense": AttentionFunction(dense, attention_weights),
    "unscaled": AttentionFunction(unscaled, unscaled_weights),
    "restricted": AttentionFunction(
        restricted, restricted_weights, cross=False, Options=RestrictedOptions
    ),
    "chunked": AttentionFunction(chunked, chunked_weights, Options=ChunkedOptions),
}
