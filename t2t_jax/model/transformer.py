"""The encoder-decoder Transformer (section 3, figure 1).

A model is a pair: a definition (what a module is, without arrays) and parameters (a
plain dict of arrays). `build` makes the first and a function for the second; inside
`jax.jit`, `nnx.merge(definition, parameters)` gives the module back, free of charge.

Shape suffixes: b batch, n beams, s source, t target, d model width, v vocabulary,
h heads, k head width.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.errors import UserError
from t2t_jax.model import positions
from t2t_jax.model.attention import KV, Attention, Mask, Seen
from t2t_jax.model.layers import FeedForward, Key, LayerNorm, SubLayer, dropout, keys
from t2t_jax.parallel.mesh import constrain

Parameters = dict[str, Any]


class Embedding(nnx.Module):
    """One matrix for source, target and output (section 3.4), and the positions."""

    def __init__(self, config: ModelConfig, vocab_size: int, key: Array):
        token_key, position_key = jax.random.split(key)
        self.config = config
        std = config.width**-0.5
        table_vd = std * jax.random.normal(token_key, (vocab_size, config.width))
        self.tokens = nnx.Param(table_vd, axes=("vocab", "width"))
        if config.positions == "learned":  # Table 3, row (E)
            shape = (config.max_positions, config.width)
            table_pd = std * jax.random.normal(position_key, shape)
            self.positions = nnx.Param(table_pd, axes=("positions", "width"))

    def __call__(self, tokens_bt: Array, position_bt: Array, limit: int, key) -> Array:
        """Embeds tokens at positions < `limit` (static)."""
        config = self.config
        # Whole rows on a device, or what is looked up would be divided as they are.
        table_vd = constrain(self.tokens[...], "vocab", "features")
        x_btd = table_vd[tokens_bt] * config.width**0.5
        x_btd += self.position_table(limit)[position_bt]
        x_btd = constrain(x_btd, "batch", "length", "features")
        return dropout(x_btd.astype(compute_dtype(config)), config.dropout, key)

    def position_table(self, limit: int) -> Array:
        """float32 [at least limit, d]."""
        if self.config.positions == "sinusoid":
            return jnp.asarray(positions.sinusoids(limit, self.config.width))
        if limit > self.config.max_positions:
            raise UserError(
                f"a row of {limit} tokens, but config.model.max_positions="
                f"{self.config.max_positions}; learned positions end there: shorten "
                "the rows, raise it, or use config.model.positions='sinusoid'"
            )
        return self.positions[...]

    def logits(self, x_btd: Array) -> Array:
        """float32 [b, t, v]: the pre-softmax linear transformation (section 3.4)."""
        table_vd = self.tokens[...].astype(x_btd.dtype)
        logits_btv = jnp.einsum(
            "btd,vd->btv", x_btd, table_vd, preferred_element_type=jnp.float32
        )
        return constrain(logits_btv, "batch", "length", "vocab")


class EncoderLayer(nnx.Module):
    """Self-attention, feed-forward (section 3.1)."""

    def __init__(self, config: ModelConfig, key: Array):
        attention_key, ff_key = jax.random.split(key)
        self.attention = Attention(config, attention_key)
        self.attention_sub = SubLayer(config)
        self.ff = FeedForward(config, ff_key)
        self.ff_sub = SubLayer(config)

    def __call__(
        self, x_bsd: Array, mask: Mask, key: Key | None, seen: Seen | None = None
    ) -> Array:
        key = keys(key)
        y_bsd = self.attention_sub.enter(x_bsd)
        kv = self.attention.remember(y_bsd)
        y_bsd = self.attention(y_bsd, kv, mask, next(key), seen and seen.encoder)
        x_bsd = self.attention_sub.leave(x_bsd, y_bsd, next(key))
        y_bsd = self.ff(self.ff_sub.enter(x_bsd))
        return self.ff_sub.leave(x_bsd, y_bsd, next(key))


class DecoderLayer(nnx.Module):
    """Masked self-attention, attention to the source, feed-forward (section 3.1)."""

    def __init__(self, config: ModelConfig, key: Array):
        self_key, cross_key, ff_key = jax.random.split(key, 3)
        self.attention = Attention(config, self_key)
        self.attention_sub = SubLayer(config)
        self.cross = Attention(config, cross_key)
        self.cross_sub = SubLayer(config)
        self.ff = FeedForward(config, ff_key)
        self.ff_sub = SubLayer(config)

    def __call__(
        self,
        x_btd: Array,
        past: "Past | None",
        mask: Mask,
        source_kv: KV,
        source_mask: Mask,
        key: Key | None = None,
        seen: Seen | None = None,
    ):
        """Returns the output, and the past with what this step adds to it.

        `past`: what earlier steps remembered, with room for this one; None when all
        target positions are here at once. With a past, the hypotheses of a sentence
        take the place of the positions of a row, and `mask` says whose past is whose.
        """
        key = keys(key)
        y_btd = self.attention_sub.enter(x_btd)
        kv, kept = self.attention.remember(y_btd), None
        if past is not None:
            kv, kept = past.with_new(kv)
        y_btd = self.attention(y_btd, kv, mask, next(key), seen and seen.decoder)
        x_btd = self.attention_sub.leave(x_btd, y_btd, next(key))

        y_btd = self.cross_sub.enter(x_btd)
        seen_cross = seen and seen.cross
        y_btd = self.cross(y_btd, source_kv, source_mask, next(key), seen_cross)
        x_btd = self.cross_sub.leave(x_btd, y_btd, next(key))

        y_btd = self.ff(self.ff_sub.enter(x_btd))
        return self.ff_sub.leave(x_btd, y_btd, next(key)), kept


class Cache(NamedTuple):
    """What decoding remembers of the hypotheses of each sentence.

    Attributes:
      kvs: of each decoder layer, [b, h, n, room, k]: in this order they are read as
        they lie. Keys and values stay in the row that made them;
      row_bnt: int32, for each hypothesis the row that its past at each position is in.
        So a hypothesis moves to another row without a copy of its past.
    """

    kvs: list[KV]
    row_bnt: Array

    def moved(self, parent_bn: Array) -> "Cache":
        """With the hypotheses of rows `parent_bn` in the rows 0, 1, ..."""
        moved_bnt = jnp.take_along_axis(self.row_bnt, parent_bn[:, :, None], axis=1)
        return self._replace(row_bnt=moved_bnt)

    def grown(self, room: int) -> "Cache":
        """With room for as many positions, at least those there were."""

        def grow(x: Array, axis: int) -> Array:
            more = [(0, 0)] * x.ndim
            more[axis] = (0, room - x.shape[axis])
            return jnp.pad(x, more)

        kvs = jax.tree.map(lambda x: grow(x, 3), self.kvs)
        return Cache(kvs, grow(self.row_bnt, 2))


class Past(NamedTuple):
    """A layer's keys and values of earlier steps, and the index where new ones go."""

    kv: KV
    at: Array | int

    def with_new(self, new: KV) -> tuple[KV, KV]:
        """Those of all steps, [b, n room, h, k] to be attended to, and as they lie."""

        def put(old_bhntk, new_bnhk):
            new_bhntk = new_bnhk.swapaxes(1, 2)[:, :, :, None]
            return jax.lax.dynamic_update_slice_in_dim(
                old_bhntk, new_bhntk, self.at, axis=3
            )

        lying = jax.tree.map(put, self.kv, new)
        b, h, n, t, k = lying.k_bshk.shape
        seen = jax.tree.map(lambda x: x.reshape(b, h, n * t, k).swapaxes(1, 2), lying)
        return seen, lying


class Memory(NamedTuple):
    """What decoding needs of the source.

    Attributes:
      lying: of each decoder layer, a KV of [b, h, s, k]: as they are read, again and
        again.
      segment_bs: as in the batch.
    """

    lying: list[KV]
    segment_bs: Array

    @property
    def kvs(self) -> list[KV]:
        """[b, s, h, k], as attention takes them: another view of the same memory."""
        return jax.tree.map(lambda x: x.swapaxes(1, 2), self.lying)


# config.model.remat: which activations of a layer are kept for the gradient; the others
# are made again. `dots`: the products with weights. `full`: none but its input.
REMAT = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


def trained(layer: Callable, config: ModelConfig, key: Key | None) -> Callable:
    """The layer, in training with fewer activations kept if the config says so."""
    if key is None or config.remat == "none":
        return layer
    return jax.checkpoint(layer, policy=REMAT[config.remat])


class Transformer(nnx.Module):
    """The paper's model: called for training; `remember` and `step` for decoding."""

    def __init__(self, config: ModelConfig, vocab_size: int, key: Array):
        self.config = config
        embedding_key, *layer_keys = jax.random.split(key, 1 + 2 * config.layers)
        encoder_keys, decoder_keys = layer_keys[::2], layer_keys[1::2]
        self.embedding = Embedding(config, vocab_size, embedding_key)
        self.encoder = nnx.List([EncoderLayer(config, k) for k in encoder_keys])
        self.decoder = nnx.List([DecoderLayer(config, k) for k in decoder_keys])
        if config.norm == "pre":  # its last sub-layer would leave unnormalised
            self.encoder_norm = LayerNorm(config.width)
            self.decoder_norm = LayerNorm(config.width)

    def encode(self, source_bs, segment_bs, position_bs, key=None, seen=None) -> Array:
        """The encoder's output, [b, s, d]."""
        key = keys(key)
        limit = source_bs.shape[1]
        x_bsd = self.embedding(source_bs, position_bs, limit, next(key))
        mask = Mask(segment_bs, segment_bs)
        for layer in self.encoder:
            layer = trained(layer, self.config, layer_key := next(key))
            x_bsd = layer(x_bsd, mask, layer_key, seen)
        return self.encoder_norm(x_bsd) if self.config.norm == "pre" else x_bsd

    def remember(
        self, source_bs, segment_bs, position_bs, key=None, seen=None
    ) -> Memory:
        """Encodes the source and makes every decoder layer's keys and values of it."""
        x_bsd = self.encode(source_bs, segment_bs, position_bs, key, seen)
        kvs = [layer.cross.remember(x_bsd) for layer in self.decoder]
        return Memory(jax.tree.map(lambda x: x.swapaxes(1, 2), kvs), segment_bs)

    def __call__(
        self,
        batch: dict[str, Array],
        key: Key | None = None,
        seen: Seen | None = None,
    ) -> Array:
        """Teacher-forced logits, float32 [b, t, v]; arguments as for `outputs`."""
        return self.embedding.logits(self.outputs(batch, key, seen))

    def outputs(
        self,
        batch: dict[str, Array],
        key: Key | None = None,
        seen: Seen | None = None,
    ) -> Array:
        """What logits are made of, [b, t, d], of a batch of `data/batching.py`.

        Args:
          batch: int32 arrays `source`, `source_segment`, `source_position` [b, s] and
            `target_input`, `target_segment`, `target_position` [b, t].
          key: for dropout; None turns it off.
          seen: gets the attention weights of every layer.
        """
        source_key, target_key = None, None
        if key is not None:
            source_key, target_key = (
                key._replace(key=half) for half in jax.random.split(key.key)
            )
        memory = self.remember(
            batch["source"],
            batch["source_segment"],
            batch["source_position"],
            source_key,
            seen,
        )
        key = keys(target_key)
        tokens_bt, segment_bt = batch["target_input"], batch["target_segment"]
        x_btd = self.embedding(
            tokens_bt, batch["target_position"], tokens_bt.shape[1], next(key)
        )
        mask = Mask(segment_bt, segment_bt, first=0)
        source_mask = Mask(segment_bt, memory.segment_bs)
        for layer, kv in zip(self.decoder, memory.kvs, strict=True):
            layer = trained(layer, self.config, layer_key := next(key))
            x_btd, _ = layer(x_btd, None, mask, kv, source_mask, layer_key, seen)
        return self.decoder_norm(x_btd) if self.config.norm == "pre" else x_btd

    def empty_cache(self, batch: int, beams: int, length: int) -> Cache:
        """Room for `length` steps."""
        heads, width = self.decoder[0].attention.key.shape[1:]
        shape = batch, heads, beams, length, width
        zeros = jnp.zeros(shape, compute_dtype(self.config))
        row_bnt = jnp.broadcast_to(jnp.arange(beams)[:, None], (batch, beams, length))
        return Cache([KV(zeros, zeros) for _ in self.decoder], row_bnt)

    def step(self, memory: Memory, cache: Cache, token_bn: Array, position):
        """One decoding step of n hypotheses for each of b sentences.

        Args:
          memory: of `remember`, for the b sentences.
          cache: of `empty_cache`, or the one that the last step returned.
          token_bn: the token before `position` (BOS at 0).
          position: int scalar, the same for all.

        Returns:
          float32 logits [b, n, v] of the token at `position`, and the cache with it.
        """
        b, n = token_bn.shape
        length = cache.row_bnt.shape[2]
        position_bn = jnp.full((b, n), position)
        x_bnd = self.embedding(token_bn, position_bn, length, None)
        # What a row writes now is of the hypothesis that is there.
        row_bnt = jax.lax.dynamic_update_slice_in_dim(
            cache.row_bnt,
            jnp.broadcast_to(jnp.arange(n)[:, None], (b, n, 1)),
            position,
            2,
        )
        mine_bnmt = row_bnt[:, :, None] == jnp.arange(n)[:, None]
        mine_bnmt &= jnp.arange(length) <= position
        ones_bs = jnp.ones((b, n * length), jnp.int32)
        mask = Mask(ones_bs[:, :n], ones_bs, only_bts=mine_bnmt.reshape(b, n, -1))
        source_mask = Mask(ones_bs[:, :n], memory.segment_bs)
        kvs = []
        for layer, past, kv in zip(self.decoder, cache.kvs, memory.kvs, strict=True):
            x_bnd, kept = layer(x_bnd, Past(past, position), mask, kv, source_mask)
            kvs.append(kept)
        if self.config.norm == "pre":
            x_bnd = self.decoder_norm(x_bnd)
        return self.embedding.logits(x_bnd), Cache(kvs, row_bnt)


def compute_dtype(config: ModelConfig) -> jnp.dtype:
    """Of activations: bfloat16 where the hardware multiplies it natively."""
    if config.dtype != "auto":
        return jnp.dtype(config.dtype)
    device = jax.devices()[0]
    native = device.platform == "tpu" or (
        device.platform == "gpu"
        and float(getattr(device, "compute_capability", 0)) >= 8
    )
    return jnp.dtype(jnp.bfloat16 if native else jnp.float32)


def told_dtype(config: ModelConfig) -> str:
    """`compute_dtype`, and why where that is not plain."""
    dtype, device = compute_dtype(config).name, jax.devices()[0].device_kind
    native = compute_dtype(dataclasses.replace(config, dtype="auto")) == jnp.bfloat16
    if native or config.dtype == "float32":
        return dtype
    if dtype == "bfloat16":
        return f"bfloat16 (which this {device} has to imitate)"
    return f"float32 (this {device} has no native bfloat16)"


class Model(NamedTuple):
    """A model without its numbers.

    Attributes:
      definition: for `nnx.merge(definition, parameters)`.
      init: key -> parameters, a plain nested dict of float32 arrays.
      shapes: the parameters as `jax.ShapeDtypeStruct`s.
      axes: the logical axis names of each parameter, in the same dict.
    """

    definition: nnx.GraphDef
    init: Callable[[Array], Parameters]
    shapes: Parameters
    axes: Parameters

    def count(self) -> int:
        """The number of parameters."""
        return sum(x.size for x in jax.tree.leaves(self.shapes))


def build(config: ModelConfig, vocab_size: int) -> Model:
    """The model of a config, without allocating anything."""

    def make(key):
        return Transformer(config, vocab_size, key)

    def init(key):
        return nnx.to_pure_dict(nnx.split(make(key))[1])

    abstract = nnx.eval_shape(make, jax.random.key(0))
    definition, state = nnx.split(abstract)
    axes = jax.tree.map(
        lambda variable: variable.get_metadata()["axes"],
        state,
        is_leaf=lambda x: isinstance(x, nnx.Variable),
    )
    return Model(definition, init, nnx.to_pure_dict(state), nnx.to_pure_dict(axes))
