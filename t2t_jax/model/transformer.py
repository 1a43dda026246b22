"""The encoder-decoder Transformer (section 3, figure 1), from the whole to its parts.

    Transformer    the model, with both stacks: in training, and step by step
    EncoderLayer   the left block of figure 1: self-attention, feed-forward
    DecoderLayer   the right block: also attends to the encoder's output
    SubLayer       "Add & Norm" around each box in these blocks

The boxes have files of their own: attention (section 3.2) `model/attention.py`,
feed-forward (3.3) `model/feed_forward.py`, embeddings and the output layer (3.4)
`model/embedding.py`, positions (3.5) `model/positions.py`. The softmax of the output
probabilities belongs to the loss (`training/cross_entropy.py`) and the search
(`search/`).

By default everything is as in the paper. All dropout is that of section 5.4.

Shape suffixes: b batch, n hypotheses, s source, t target, d model width, h heads,
k head width, v vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model.architecture import Architecture
from t2t_jax.model.attention import KV, Attention, LayerTrace
from t2t_jax.model.decoder_cache import Cache, LayerCache, Memory
from t2t_jax.model.embedding import Embedding
from t2t_jax.model.layers import (
    DropoutRng,
    NoNorm,
    compute_dtype,
    dropout,
    dropout_rngs,
    named,
    rematerialized,
)
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.positions import Position, stack_positions


def teacher_forcing(batch: dict[str, Any], bos: int) -> dict[str, Any]:
    """Adds `target_input`: "outputs (shifted right)" in figure 1, after BOS.

    In training, the decoder reads the true target, not its own output. Shifted by one,
    and masked, a position sees only what comes before the token that it predicts
    (section 3.1). So one pass predicts all tokens of a sentence.

    Args:
      batch: NumPy or JAX arrays, with `target` and `target_position` [b, t]. Every
        sentence of a packed row gets its own BOS, at its position 0.
    """
    target_bt, position_bt = batch["target"], batch["target_position"]
    xp = target_bt.__array_namespace__()  # numpy or jax.numpy
    # The first token of a sentence is now its predecessor's last one, or the row's.
    # It is at position 0, so BOS replaces it.
    shifted_bt = xp.roll(target_bt, 1, axis=1)
    input_bt = xp.where(position_bt == 0, bos, shifted_bt).astype(target_bt.dtype)
    return batch | {"target_input": input_bt}


class Transformer(Architecture):
    """The paper's model. Models of one stack inherit it."""

    def __init__(self, config, vocab_size, rng, source_vocab_size=None):
        self.config = config
        encoder, decoder = (checked_side(config, s) for s in ("encoder", "decoder"))
        # One matrix embeds both sides and makes the logits (section 3.4).
        self.embedding = Embedding(
            config, vocab_size, named(rng, "embedding"), source_vocab_size
        )
        self.create_encoder(encoder, rng)
        self.create_decoder(decoder, rng)

    # These names are part of the checkpoint format, and the same in models of one
    # stack: so a model can start from another one's parts.
    def create_encoder(self, config: ModelConfig, rng: Array) -> None:
        """Creates the encoder's layers; `config` has the sizes of this side."""
        rngs = [named(rng, "encoder", i) for i in range(config.layers)]
        self.encoder = nnx.List([EncoderLayer(config, rng) for rng in rngs])
        position_rng = named(rng, "encoder_positions")
        self.encoder_positions = nnx.List(stack_positions(config, False, position_rng))
        self.encoder_norm = final_norm(config)

    def create_decoder(
        self, config: ModelConfig, rng: Array, cross: bool = True
    ) -> None:
        """Creates the decoder's layers; `config` has the sizes of this side."""
        rngs = [named(rng, "decoder", i) for i in range(config.layers)]
        self.decoder = nnx.List([DecoderLayer(config, rng, cross) for rng in rngs])
        position_rng = named(rng, "decoder_positions")
        self.decoder_positions = nnx.List(stack_positions(config, True, position_rng))
        self.decoder_norm = final_norm(config)

    @property
    def longest(self) -> int | None:
        """The number of positions that exist on every side; None for no limit."""
        sides = "encoder_positions", "decoder_positions"
        lengths = [getattr(self, s)[0].longest for s in sides if hasattr(self, s)]
        return min((n for n in lengths if n is not None), default=None)

    @property
    def cross_layers(self) -> int:
        """The number of layers with attention to the source."""
        return len(self.decoder)

    # ------------------------------------------------------- all positions at once

    def outputs(self, batch, rng=None, trace=None):
        """Returns the decoder's output, [b, t, d]; arguments as for `Architecture`."""
        source_rng, target_rng = dropout_rngs(rng, 2)
        source_at = Tokens.of(batch, "source")
        memory = self.encode(batch["source"], source_at, source_rng, trace)
        return self.decoder_outputs(batch, memory, target_rng, trace)

    def encode(self, source_bs, at, rng=None, trace=None) -> Memory:
        """Encodes the source into the keys and values of every decoder layer."""
        x_bsd = self.encoder_outputs(source_bs, at, rng, trace)
        # Computed once per sentence, not once per step and hypothesis.
        kvs = [layer.cross.keys_values(x_bsd) for layer in self.decoder]
        return Memory(jax.tree.map(lambda x: x.swapaxes(1, 2), kvs), at)

    def encoder_outputs(
        self,
        source_bs: Array,
        at: Tokens,
        rng: DropoutRng | None,
        trace: LayerTrace | None,
    ) -> Array:
        """Returns the encoder's output, [b, s, d] (section 3.1)."""
        embedding_rng, *rngs = dropout_rngs(rng, 1 + len(self.encoder))
        positions = self.encoder_positions
        x_bsd = self.embedding.source(source_bs, at, positions[0], embedding_rng)
        mask = Mask(at, at, aligned=True)  # each token attends to its whole sentence
        trace = trace if trace is not None and trace.layer is None else None
        layers = with_positions(self.encoder, positions)
        for layer, layer_rng in zip(layers, rngs, strict=True):
            layer = rematerialized(layer, self.config, layer_rng)
            x_bsd = layer(x_bsd, mask, layer_rng, trace)
        return self.encoder_norm(x_bsd)

    def decoder_outputs(
        self,
        batch: dict[str, Array],
        memory: Memory,
        rng: DropoutRng | None,
        trace: LayerTrace | None,
    ) -> Array:
        """Returns the decoder's output for given targets, [b, t, d] (section 3.1)."""
        at = Tokens.of(batch, "target")
        embedding_rng, *rngs = dropout_rngs(rng, 1 + len(self.decoder))
        positions = self.decoder_positions
        x_btd = self.embedding.target(
            batch["target_input"], at, positions[0], embedding_rng
        )
        mask = Mask(at, at, causal=True, aligned=True)  # only to itself and before
        source_mask = Mask(at, memory.at)  # to all of the same sentence's source
        layers = with_positions(self.decoder, positions)
        layer_inputs = zip(layers, memory.kvs, rngs, strict=True)
        for number, (layer, kv, layer_rng) in enumerate(layer_inputs):
            traced = trace is not None and trace.layer in (None, number)
            layer_trace = trace if traced else None
            # A checkpointed function cannot append to the lists of a trace.
            if not traced:
                layer = rematerialized(layer, self.config, layer_rng)
            x_btd, _ = layer(x_btd, None, mask, kv, source_mask, layer_rng, layer_trace)
            if traced:
                trace.add_output(self.decoder_norm(x_btd))
        return self.decoder_norm(x_btd)

    # ----------------------------------------------------------- one step at a time

    def initial_cache(self, memory, beams, room) -> Cache:
        """Returns a cache with room for `room` steps of `beams` hypotheses."""
        attention = self.decoder[0].attention
        batch = memory.at.segment.shape[0]

        def zeros(weight_dhk):
            heads, width = weight_dhk.shape[1:]
            shape = batch, heads, beams, room, width
            return jnp.zeros(shape, compute_dtype(self.config))

        kv = KV(zeros(attention.key), zeros(attention.value))
        row_bnt = jnp.broadcast_to(jnp.arange(beams)[:, None], (batch, beams, room))
        return Cache([kv for _ in self.decoder], row_bnt, jnp.zeros(batch, jnp.int32))

    def step(self, memory, cache, token_bn, position):
        """Runs one decoding step; arguments and results as for `Architecture`.

        The same layers as in training: the hypotheses of a sentence are the queries of
        one row, and all that the cache holds of the sentence are its keys.
        """
        b, n = token_bn.shape
        room = cache.row_bnt.shape[2]
        positions = self.decoder_positions
        # At this position, each hypothesis writes to the row that it is in now.
        row_bnt = jax.lax.dynamic_update_slice_in_dim(
            cache.row_bnt,
            jnp.broadcast_to(jnp.arange(n)[:, None], (b, n, 1)),
            position,
            2,
        )
        # True where row m stores position t of hypothesis n; later positions are empty.
        stored_bnmt = row_bnt[:, :, None] == jnp.arange(n)[:, None]
        stored_bnmt &= jnp.arange(room) <= position
        # All tokens are in segment 1; `only_bts` alone decides.
        ones_bs = jnp.ones((b, n * room), jnp.int32)
        position_bn = jnp.broadcast_to(cache.length_b[:, None], (b, n))
        at = Tokens(ones_bs[:, :n], position_bn)
        key_position_bs = jnp.broadcast_to(jnp.tile(jnp.arange(room), n), ones_bs.shape)
        mask = Mask(at, Tokens(ones_bs, key_position_bs), stored_bnmt.reshape(b, n, -1))
        source_mask = Mask(at, memory.at)
        x_bnd = self.embedding.target(token_bn, at, positions[0], None, limit=room)
        kvs = []
        layers = with_positions(self.decoder, positions)
        for layer, cached, kv in zip(layers, cache.kvs, memory.kvs, strict=True):
            layer_cache = LayerCache(cached, position)
            x_bnd, stored = layer(x_bnd, layer_cache, mask, kv, source_mask)
            kvs.append(stored)
        return self.decoder_norm(x_bnd), Cache(kvs, row_bnt, cache.length_b + 1)


class EncoderLayer(nnx.Module):
    """Self-attention and feed-forward: the left block of figure 1 (section 3.1)."""

    def __init__(self, config: ModelConfig, rng: Array):
        self.attention = Attention(config, named(rng, "attention"))
        self.attention_sub = SubLayer(config)
        self.ff = config.variant("feed_forward")(config, named(rng, "ff"))
        self.ff_sub = SubLayer(config)

    def __call__(
        self,
        x_bsd: Array,
        mask: Mask,
        rng: DropoutRng | None,
        trace: LayerTrace | None = None,
        *,
        position: Position,
    ) -> Array:
        attention_rng, after_rng, ff_after_rng, ff_rng = dropout_rngs(rng, 4)
        y_bsd = self.attention_sub.before(x_bsd)
        # Queries, keys and values all come from the layer below (section 3.2.3).
        kv = self.attention.keys_values(y_bsd, mask.key, position)
        y_bsd = self.attention(
            y_bsd, kv, mask, position, attention_rng, trace and trace.encoder
        )
        x_bsd = self.attention_sub.after(x_bsd, y_bsd, after_rng)
        y_bsd = self.ff(self.ff_sub.before(x_bsd), ff_rng)
        return self.ff_sub.after(x_bsd, y_bsd, ff_after_rng)


class DecoderLayer(nnx.Module):
    """Masked self-attention, attention to the source, feed-forward (section 3.1).

    The right block of figure 1.

    Args:
      cross: False leaves out the attention to the source, for a model without one.
    """

    def __init__(self, config: ModelConfig, rng: Array, cross: bool = True):
        self.attention = Attention(config, named(rng, "attention"))
        self.attention_sub = SubLayer(config)
        self.has_cross = cross
        if cross:
            self.cross = Attention(config, named(rng, "cross"), cross=True)
            self.cross_sub = SubLayer(config)
        self.ff = config.variant("feed_forward")(config, named(rng, "ff"))
        self.ff_sub = SubLayer(config)

    def __call__(
        self,
        x_btd: Array,
        cache: LayerCache | None,
        mask: Mask,
        source_kv: KV | None,
        source_mask: Mask,
        rng: DropoutRng | None = None,
        trace: LayerTrace | None = None,
        *,
        position: Position,
    ) -> tuple[Array, KV | None]:
        """Computes all target positions at once, or with a cache, one decoding step.

        Args:
          x_btd: with a cache, axis t is the hypotheses of a sentence at one position.
          cache: keys and values of earlier steps; None to compute all positions.
          mask: for self-attention; with a cache, it selects each hypothesis's keys.
          source_kv, source_mask: for cross-attention; read only if the layer has it.
          rng: for dropout; None turns it off.
          trace: collects the attention weights.
          position: the scheme of self-attention.

        Returns:
          The output, and the layer's cached KV with this step stored; None without a
          cache.
        """
        self_rng, self_after_rng, *cross_rngs, ff_after_rng, ff_rng = dropout_rngs(
            rng, 6
        )
        y_btd = self.attention_sub.before(x_btd)
        kv, stored = self.attention.keys_values(y_btd, mask.query, position), None
        if cache is not None:
            kv, stored = cache.append(kv)
        y_btd = self.attention(
            y_btd, kv, mask, position, self_rng, trace and trace.decoder
        )
        x_btd = self.attention_sub.after(x_btd, y_btd, self_after_rng)

        if self.has_cross:
            cross_rng, cross_after_rng = cross_rngs
            y_btd = self.cross_sub.before(x_btd)
            # Queries of the decoder, keys and values of the encoder (section 3.2.3).
            traced = (None, None) if trace is None else (trace.cross, trace.heads)
            y_btd = self.cross(y_btd, source_kv, source_mask, None, cross_rng, *traced)
            x_btd = self.cross_sub.after(x_btd, y_btd, cross_after_rng)

        y_btd = self.ff(self.ff_sub.before(x_btd), ff_rng)
        return self.ff_sub.after(x_btd, y_btd, ff_after_rng), stored


class SubLayer(nnx.Module):
    """The residual connection around attention or feed-forward (sections 3.1, 5.4).

    The paper's `post`: LayerNorm(x + Dropout(Sublayer(x))). Pre-norm:
    x + Dropout(Sublayer(LayerNorm(x))). A layer calls `before` for the input of the
    sub-layer and `after` with its output. Without `config.residual`, x is not added.
    """

    def __init__(self, config: ModelConfig):
        self.norm = config.variant("norm_kind")(config)
        self.pre_norm = config.norm == "pre"
        self.residual = config.residual
        self.rate = config.dropout

    def before(self, x_btd: Array) -> Array:
        """Returns the sub-layer's input."""
        return self.norm(x_btd) if self.pre_norm else x_btd

    def after(self, x_btd: Array, y_btd: Array, rng: DropoutRng | None) -> Array:
        """Adds the sub-layer's output `y_btd` to what it was computed from."""
        y_btd = dropout(y_btd, self.rate, rng)
        x_btd = x_btd + y_btd if self.residual else y_btd
        return x_btd if self.pre_norm else self.norm(x_btd)


def final_norm(config: ModelConfig) -> nnx.Module:
    """Creates the normalization after a stack, which the paper does not have.

    Pre-norm layers need it: what they add up is not normalized otherwise.
    """
    normalizes = config.norm in ("pre", "post_final")
    return config.variant("norm_kind")(config) if normalizes else NoNorm(config)


def with_positions(layers: nnx.List, positions: nnx.List) -> list[Callable]:
    """Binds each layer to its position scheme: its own, or the one that all share."""
    return [
        partial(layer, position=positions[i % len(positions)])
        for i, layer in enumerate(layers)
    ]


def checked_side(config: ModelConfig, name: str) -> ModelConfig:
    """The config of one side; raises UserError if its heads do not divide the width."""
    side = config.side(name)
    if not side.head_width and side.width % side.heads:
        field = f"{name}_heads" if getattr(config, f"{name}_heads") else "heads"
        raise UserError(
            f"config.model.width={side.width} does not divide into config.model."
            f"{field}={side.heads}; choose a multiple, or set config.model.head_width"
        )
    return side
