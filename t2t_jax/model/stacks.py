"""Stacks of layers: the encoder and the decoder of Transformers (section 3.1).

`EncoderStack` and `DecoderStack` are the parts that models have in common. A model
inherits one or both; their parameters have the same names in each of them, so that a
model can start from another one's parts.

Shape suffixes: b batch, n beams, s source, t target, d model width, h heads, k head
width.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model.attention import KV, LayerTrace
from t2t_jax.model.decoder_cache import Cache, LayerCache, Memory
from t2t_jax.model.layers import (
    DropoutRng,
    compute_dtype,
    dropout_rngs,
    rematerialized,
)
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.positions import stack_positions
from t2t_jax.model.transformer_layers import DecoderLayer, EncoderLayer


def with_schemes(layers: nnx.List, positions: nnx.List) -> list[Callable]:
    """Binds each layer to its position scheme: its own, or the one that all share."""
    return [
        partial(layer, position=positions[i % len(positions)])
        for i, layer in enumerate(layers)
    ]


class EncoderStack(nnx.Module):
    """The encoder; the model that inherits it has `config` and `embedding`."""

    def create_encoder(
        self, config: ModelConfig, layer_rngs: Sequence[Array], position_rng: Array
    ) -> None:
        """Creates the layers, one for each random key.

        Args:
          config: of this side, from `checked_side`.
        """
        self.encoder = nnx.List([EncoderLayer(config, rng) for rng in layer_rngs])
        self.encoder_positions = nnx.List(stack_positions(config, False, position_rng))
        if _ends_in_norm(config):
            self.encoder_norm = config.variant("norm_kind")(config)

    def encoder_outputs(
        self,
        source_bs: Array,
        at: Tokens,
        rng: DropoutRng | None,
        trace: LayerTrace | None,
    ) -> Array:
        """Returns the encoder's output, [b, s, d]."""
        embedding_rng, *rngs = dropout_rngs(rng, 1 + len(self.encoder))
        positions = self.encoder_positions
        x_bsd = self.embedding.source(source_bs, at, positions[0], embedding_rng)
        mask = Mask(at, at, aligned=True)
        layers = with_schemes(self.encoder, positions)
        for layer, layer_rng in zip(layers, rngs, strict=True):
            layer = rematerialized(layer, self.config, layer_rng)
            x_bsd = layer(x_bsd, mask, layer_rng, trace)
        return self.encoder_norm(x_bsd) if _ends_in_norm(self.config) else x_bsd


class DecoderStack(nnx.Module):
    """The decoder; the model that inherits it has `config` and `embedding`.

    Without cross-attention, the source's keys and values of each layer are None.
    """

    def create_decoder(
        self,
        config: ModelConfig,
        layer_rngs: Sequence[Array],
        position_rng: Array,
        cross: bool = True,
    ) -> None:
        """Creates the layers, one for each random key.

        Args:
          config: of this side, from `checked_side`.
          cross: False for a model without a source.
        """
        self.decoder = nnx.List(
            [DecoderLayer(config, rng, cross) for rng in layer_rngs]
        )
        self.decoder_positions = nnx.List(stack_positions(config, True, position_rng))
        if _ends_in_norm(config):
            self.decoder_norm = config.variant("norm_kind")(config)

    def decoder_outputs(
        self,
        batch: dict[str, Array],
        memory: Memory,
        rng: DropoutRng | None,
        trace: LayerTrace | None,
    ) -> Array:
        """Returns the decoder's output for given targets, [b, t, d]."""
        at = Tokens.of(batch, "target")
        embedding_rng, *rngs = dropout_rngs(rng, 1 + len(self.decoder))
        positions = self.decoder_positions
        x_btd = self.embedding.target(
            batch["target_input"], at, positions[0], embedding_rng
        )
        mask = Mask(at, at, causal=True, aligned=True)
        source_mask = Mask(at, memory.at)
        layers = with_schemes(self.decoder, positions)
        for layer, kv, layer_rng in zip(layers, memory.kvs, rngs, strict=True):
            layer = rematerialized(layer, self.config, layer_rng)
            x_btd, _ = layer(x_btd, None, mask, kv, source_mask, layer_rng, trace)
            if trace is not None:
                trace.add_output(self._final(x_btd))
        return self._final(x_btd)

    def _final(self, x_btd: Array) -> Array:
        """Normalizes the decoder's output, if the stack ends in a normalization."""
        return self.decoder_norm(x_btd) if _ends_in_norm(self.config) else x_btd

    def initial_cache(self, memory: Memory, beams: int, room: int) -> Cache:
        """Returns a cache with room for `room` steps of `beams` hypotheses."""
        attention = self.decoder[0].attention
        batch = memory.at.segment.shape[0]

        def zeros(weight_dhk):
            heads, width = weight_dhk.shape[1:]
            shape = batch, heads, beams, room, width
            return jnp.zeros(shape, compute_dtype(self.config))

        kv = KV(zeros(attention.key), zeros(attention.value))
        row_bnt = jnp.broadcast_to(jnp.arange(beams)[:, None], (batch, beams, room))
        return Cache([kv for _ in self.decoder], row_bnt)

    def step(self, memory: Memory, cache: Cache, token_bn: Array, position):
        """Runs one decoding step of n hypotheses for each of b sentences.

        Args:
          memory: of the b sentences, from `encode`.
          cache: from `initial_cache` or the previous step.
          token_bn: the tokens before `position` (BOS at 0).
          position: int scalar, the same for all hypotheses.

        Returns:
          The outputs [b, n, d] that predict the tokens at `position`, and the new
          cache.
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
        mine_bnmt = row_bnt[:, :, None] == jnp.arange(n)[:, None]
        mine_bnmt &= jnp.arange(room) <= position
        # All tokens are in segment 1; `only_bts` alone decides.
        ones_bs = jnp.ones((b, n * room), jnp.int32)
        at = Tokens(ones_bs[:, :n], jnp.full((b, n), position))
        place_bs = jnp.broadcast_to(jnp.tile(jnp.arange(room), n), ones_bs.shape)
        mask = Mask(at, Tokens(ones_bs, place_bs), mine_bnmt.reshape(b, n, -1))
        source_mask = Mask(at, memory.at)
        x_bnd = self.embedding.target(token_bn, at, positions[0], None, limit=room)
        kvs = []
        layers = with_schemes(self.decoder, positions)
        for layer, cached, kv in zip(layers, cache.kvs, memory.kvs, strict=True):
            layer_cache = LayerCache(cached, position)
            x_bnd, stored = layer(x_bnd, layer_cache, mask, kv, source_mask)
            kvs.append(stored)
        return self._final(x_bnd), Cache(kvs, row_bnt)


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


def _ends_in_norm(config: ModelConfig) -> bool:
    """Pre-norm layers do not end in a normalization: the stack does."""
    return config.norm in ("pre", "post_final")


def longest(*positions: nnx.List) -> int | None:
    """The number of positions that exist in every stack; None for no limit."""
    lengths = (schemes[0].longest for schemes in positions)
    return min((n for n in lengths if n is not None), default=None)
