"""The encoder-decoder Transformer (section 3, figure 1).

Shape suffixes: b batch, n beams, s source, t target, d model width, v vocabulary,
h heads, k head width.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.model import positions
from t2t_jax.model.attention import KV, Attention, AttentionTrace, Mask
from t2t_jax.model.decoder_cache import Cache, LayerCache, Memory
from t2t_jax.model.layers import (
    DropoutRng,
    FeedForward,
    LayerNorm,
    SubLayer,
    compute_dtype,
    dropout,
    dropout_rngs,
)
from t2t_jax.parallel.mesh import constrain
from t2t_jax.terminal.errors import UserError


class Embedding(nnx.Module):
    """One matrix for source, target and output (section 3.4), and the positions."""

    def __init__(self, config: ModelConfig, vocab_size: int, rng: Array):
        token_rng, position_rng = jax.random.split(rng)
        self.config = config
        std = config.width**-0.5
        table_vd = std * jax.random.normal(token_rng, (vocab_size, config.width))
        self.tokens = nnx.Param(table_vd, axes=("vocab", "width"))
        if config.positions == "learned":  # Table 3, row (E)
            shape = (config.max_positions, config.width)
            table_pd = std * jax.random.normal(position_rng, shape)
            self.positions = nnx.Param(table_pd, axes=("positions", "width"))

    def __call__(self, tokens_bt: Array, position_bt: Array, limit: int, rng) -> Array:
        """Embeds tokens at positions < `limit` (static), [b, t, d]."""
        config = self.config
        # FSDP divides the rows of the table along d. They are gathered here, since XLA
        # could otherwise divide the embeddings along d as well.
        table_vd = constrain(self.tokens[...], "vocab", "features")
        x_btd = table_vd[tokens_bt] * config.width**0.5  # section 3.4
        x_btd += self.position_table(limit)[position_bt]
        x_btd = constrain(x_btd, "batch", "length", "features")
        return dropout(x_btd.astype(compute_dtype(config)), config.dropout, rng)

    def position_table(self, limit: int) -> Array:
        """Returns the vectors of positions 0, 1, ..., float32 [at least limit, d].

        Raises:
          UserError: learned positions end before `limit`.
        """
        if self.config.positions == "sinusoid":
            return jnp.asarray(positions.sinusoids(limit, self.config.width))
        if limit > self.config.max_positions:
            raise UserError(
                f"a row of {limit} tokens, but config.model.max_positions="
                f"{self.config.max_positions}; there are no learned positions beyond "
                "it: shorten the rows, raise it, or use "
                "config.model.positions='sinusoid'"
            )
        return self.positions[...]

    def logits(self, x_btd: Array) -> Array:
        """Returns logits, float32 [b, t, v]: the output matrix of section 3.4."""
        table_vd = self.tokens[...].astype(x_btd.dtype)
        logits_btv = jnp.einsum(
            "btd,vd->btv", x_btd, table_vd, preferred_element_type=jnp.float32
        )
        return constrain(logits_btv, "batch", "length", "vocab")


class EncoderLayer(nnx.Module):
    """Self-attention and feed-forward (section 3.1)."""

    def __init__(self, config: ModelConfig, rng: Array):
        attention_rng, ff_rng = jax.random.split(rng)
        self.attention = Attention(config, attention_rng)
        self.attention_sub = SubLayer(config)
        self.ff = FeedForward(config, ff_rng)
        self.ff_sub = SubLayer(config)

    def __call__(
        self,
        x_bsd: Array,
        mask: Mask,
        rng: DropoutRng | None,
        trace: AttentionTrace | None = None,
    ) -> Array:
        rngs = dropout_rngs(rng)
        y_bsd = self.attention_sub.before(x_bsd)
        kv = self.attention.keys_values(y_bsd)
        y_bsd = self.attention(y_bsd, kv, mask, next(rngs), trace and trace.encoder)
        x_bsd = self.attention_sub.after(x_bsd, y_bsd, next(rngs))
        y_bsd = self.ff(self.ff_sub.before(x_bsd))
        return self.ff_sub.after(x_bsd, y_bsd, next(rngs))


class DecoderLayer(nnx.Module):
    """Masked self-attention, cross-attention and feed-forward (section 3.1)."""

    def __init__(self, config: ModelConfig, rng: Array):
        self_rng, cross_rng, ff_rng = jax.random.split(rng, 3)
        self.attention = Attention(config, self_rng)
        self.attention_sub = SubLayer(config)
        self.cross = Attention(config, cross_rng)
        self.cross_sub = SubLayer(config)
        self.ff = FeedForward(config, ff_rng)
        self.ff_sub = SubLayer(config)

    def __call__(
        self,
        x_btd: Array,
        cache: LayerCache | None,
        mask: Mask,
        source_kv: KV,
        source_mask: Mask,
        rng: DropoutRng | None = None,
        trace: AttentionTrace | None = None,
    ):
        """Computes all target positions at once, or with a cache, one decoding step.

        Args:
          x_btd: with a cache, axis t is the hypotheses of a sentence at one position.
          cache: keys and values of earlier steps; None to compute all positions.
          mask: for self-attention; with a cache, it selects each hypothesis's keys.
          source_kv, source_mask: for cross-attention.
          rng: for dropout; None turns it off.
          trace: collects the attention weights.

        Returns:
          The output, and the layer's cached KV with this step stored; None without a
          cache.
        """
        rngs = dropout_rngs(rng)
        y_btd = self.attention_sub.before(x_btd)
        kv, stored = self.attention.keys_values(y_btd), None
        if cache is not None:
            kv, stored = cache.append(kv)
        y_btd = self.attention(y_btd, kv, mask, next(rngs), trace and trace.decoder)
        x_btd = self.attention_sub.after(x_btd, y_btd, next(rngs))

        y_btd = self.cross_sub.before(x_btd)
        cross_trace = trace and trace.cross
        y_btd = self.cross(y_btd, source_kv, source_mask, next(rngs), cross_trace)
        x_btd = self.cross_sub.after(x_btd, y_btd, next(rngs))

        y_btd = self.ff(self.ff_sub.before(x_btd))
        return self.ff_sub.after(x_btd, y_btd, next(rngs)), stored


# config.model.remat: the activations of a layer that are stored for the gradient; the
# others are recomputed. `dots` stores products with weights, `full` only the input.
REMAT = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


def rematerialized(
    layer: Callable, config: ModelConfig, rng: DropoutRng | None
) -> Callable:
    """Returns the layer, in training wrapped in `jax.checkpoint` per `config.remat`."""
    if rng is None or config.remat == "none":
        return layer
    return jax.checkpoint(layer, policy=REMAT[config.remat])


class Transformer(nnx.Module):
    """The paper's model: `outputs` trains; `encode_memory` and `step` decode."""

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        rng: Array,
        source_vocab_size: int | None = None,
    ):
        self.config = config
        embedding_rng, *layer_rngs = jax.random.split(rng, 1 + 2 * config.layers)
        encoder_rngs, decoder_rngs = layer_rngs[::2], layer_rngs[1::2]
        self.embedding = Embedding(config, vocab_size, embedding_rng)
        if source_vocab_size:
            source_rng = jax.random.fold_in(embedding_rng, 1)
            self.source_embedding = Embedding(config, source_vocab_size, source_rng)
        self.encoder = nnx.List([EncoderLayer(config, k) for k in encoder_rngs])
        self.decoder = nnx.List([DecoderLayer(config, k) for k in decoder_rngs])
        # Post-norm layers end in a LayerNorm; pre-norm ones need one after the last.
        if config.norm == "pre":
            self.encoder_norm = LayerNorm(config.width)
            self.decoder_norm = LayerNorm(config.width)

    def encode(self, source_bs, segment_bs, position_bs, rng=None, trace=None) -> Array:
        """Returns the encoder's output, [b, s, d]."""
        rngs = dropout_rngs(rng)
        limit = source_bs.shape[1]
        embedding = getattr(self, "source_embedding", self.embedding)
        x_bsd = embedding(source_bs, position_bs, limit, next(rngs))
        mask = Mask(segment_bs, segment_bs)
        for layer in self.encoder:
            layer = rematerialized(layer, self.config, layer_rng := next(rngs))
            x_bsd = layer(x_bsd, mask, layer_rng, trace)
        return self.encoder_norm(x_bsd) if self.config.norm == "pre" else x_bsd

    def encode_memory(
        self, source_bs, segment_bs, position_bs, rng=None, trace=None
    ) -> Memory:
        """Encodes the source into the keys and values of every decoder layer."""
        x_bsd = self.encode(source_bs, segment_bs, position_bs, rng, trace)
        # Computed once per sentence, not once per step and hypothesis.
        kvs = [layer.cross.keys_values(x_bsd) for layer in self.decoder]
        return Memory(jax.tree.map(lambda x: x.swapaxes(1, 2), kvs), segment_bs)

    def __call__(
        self,
        batch: dict[str, Array],
        rng: DropoutRng | None = None,
        trace: AttentionTrace | None = None,
    ) -> Array:
        """Returns teacher-forced logits, float32 [b, t, v]; arguments as `outputs`."""
        return self.embedding.logits(self.outputs(batch, rng, trace))

    def outputs(
        self,
        batch: dict[str, Array],
        rng: DropoutRng | None = None,
        trace: AttentionTrace | None = None,
    ) -> Array:
        """Returns the decoder's output, [b, t, d], which `Embedding.logits` projects.

        Args:
          batch: of `data/batching.py` and `teacher_forcing`; int32 arrays `source`,
            `source_segment`, `source_position` [b, s] and `target_input`,
            `target_segment`, `target_position` [b, t].
          rng: for dropout; None turns it off.
          trace: collects the attention weights of every layer.
        """
        source_rng, target_rng = None, None
        if rng is not None:
            source_rng, target_rng = (
                rng._replace(key=half) for half in jax.random.split(rng.key)
            )
        memory = self.encode_memory(
            batch["source"],
            batch["source_segment"],
            batch["source_position"],
            source_rng,
            trace,
        )
        rngs = dropout_rngs(target_rng)
        tokens_bt, segment_bt = batch["target_input"], batch["target_segment"]
        x_btd = self.embedding(
            tokens_bt, batch["target_position"], tokens_bt.shape[1], next(rngs)
        )
        mask = Mask(segment_bt, segment_bt, causal=True)
        source_mask = Mask(segment_bt, memory.segment_bs)
        for layer, kv in zip(self.decoder, memory.kvs, strict=True):
            layer = rematerialized(layer, self.config, layer_rng := next(rngs))
            x_btd, _ = layer(x_btd, None, mask, kv, source_mask, layer_rng, trace)
        return self.decoder_norm(x_btd) if self.config.norm == "pre" else x_btd

    def empty_cache(self, batch: int, beams: int, length: int) -> Cache:
        """Returns a cache with room for `length` steps of `beams` hypotheses."""
        heads, width = self.decoder[0].attention.key.shape[1:]
        shape = batch, heads, beams, length, width
        zeros = jnp.zeros(shape, compute_dtype(self.config))
        row_bnt = jnp.broadcast_to(jnp.arange(beams)[:, None], (batch, beams, length))
        return Cache([KV(zeros, zeros) for _ in self.decoder], row_bnt)

    def step(self, memory: Memory, cache: Cache, token_bn: Array, position):
        """Runs one decoding step of n hypotheses for each of b sentences.

        Args:
          memory: of the b sentences, from `encode_memory`.
          cache: from `empty_cache` or the previous step.
          token_bn: the tokens before `position` (BOS at 0).
          position: int scalar, the same for all hypotheses.

        Returns:
          float32 logits [b, n, v] of the tokens at `position`, and the new cache.
        """
        b, n = token_bn.shape
        length = cache.row_bnt.shape[2]
        position_bn = jnp.full((b, n), position)
        x_bnd = self.embedding(token_bn, position_bn, length, None)
        # At this position, each hypothesis writes to the row that it is in now.
        row_bnt = jax.lax.dynamic_update_slice_in_dim(
            cache.row_bnt,
            jnp.broadcast_to(jnp.arange(n)[:, None], (b, n, 1)),
            position,
            2,
        )
        # True where row m stores position t of hypothesis n; later positions are empty.
        mine_bnmt = row_bnt[:, :, None] == jnp.arange(n)[:, None]
        mine_bnmt &= jnp.arange(length) <= position
        # All keys are in segment 1; `only_bts` alone decides.
        ones_bs = jnp.ones((b, n * length), jnp.int32)
        mask = Mask(ones_bs[:, :n], ones_bs, only_bts=mine_bnmt.reshape(b, n, -1))
        source_mask = Mask(ones_bs[:, :n], memory.segment_bs)
        kvs = []
        for layer, layer_cache, kv in zip(
            self.decoder, cache.kvs, memory.kvs, strict=True
        ):
            x_bnd, stored = layer(
                x_bnd, LayerCache(layer_cache, position), mask, kv, source_mask
            )
            kvs.append(stored)
        if self.config.norm == "pre":
            x_bnd = self.decoder_norm(x_bnd)
        return self.embedding.logits(x_bnd), Cache(kvs, row_bnt)
