"""ByteNet (Kalchbrenner et al. 2016, "Neural Machine Translation in Linear Time").

Dilated convolutions on both sides, without attention: the decoder is stacked on the
encoder's output, column on column. The blocks are those with ReLUs, which the paper has
for translation; those with multiplicative units are for its language models.

Shape suffixes: b batch, n hypotheses, s source, c columns of the unfolded source,
t target, k taps of a kernel, d width, h half of it.
"""

import dataclasses
import math
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.extensions.model.parts import States, tokens_at_step, windows
from t2t_jax.model.architecture import POSITION_FIELDS, TRANSFORMER_FIELDS, Architecture
from t2t_jax.model.attention import NO_POSITION
from t2t_jax.model.embedding import Embedding
from t2t_jax.model.layers import (
    DropoutRng,
    constant,
    dropout,
    dropout_rngs,
    linear,
    named,
    rematerialized,
    weight,
)
from t2t_jax.model.mask import Tokens
from t2t_jax.model.products import product
from t2t_jax.parallel.mesh import constrain
from t2t_jax.sections import field


class Block(nnx.Module):
    """A residual block: convolves half as many features (figure 3, left)."""

    def __init__(self, config: ModelConfig, dilation: int, rng: Array):
        self.dilation, self.rate = dilation, config.dropout
        self.kernel = config.own_options(ByteNet).bytenet_kernel
        half = dataclasses.replace(config, width=config.width // 2)
        width, hidden = {"width": config.width}, {"hidden": half.width}
        taps = {"kernel": self.kernel, "width": half.width}
        norm = config.variant("norm_kind")
        self.norm1 = norm(config)
        self.inner = weight(named(rng, "inner"), width, hidden)
        self.inner_bias = constant(0.0, hidden)
        self.norm2 = norm(half)
        self.conv = weight(named(rng, "conv"), taps, hidden)
        self.conv_bias = constant(0.0, hidden)
        self.norm3 = norm(half)
        self.outer = weight(named(rng, "outer"), hidden, width)
        self.outer_bias = constant(0.0, width)

    def __call__(
        self, x_btd: Array, segment_bt: Array, rng: DropoutRng | None, *, last_tap: int
    ) -> Array:
        """Returns the block's outputs; the last tap is `last_tap` * dilation away."""
        first_tap = last_tap - (self.kernel - 1)
        offsets = [tap * self.dilation for tap in range(first_tap, last_tap + 1)]
        y_bth = self.convolved(x_btd)
        return self.outputs(x_btd, windows(y_bth, segment_bt, tuple(offsets)), rng)

    def convolved(self, x_btd: Array) -> Array:
        """Returns the input of the convolution."""
        x_btd = jax.nn.relu(self.norm1(x_btd))
        y_bth = linear(x_btd, self.inner, "hidden", self.inner_bias)
        return jax.nn.relu(self.norm2(y_bth))

    def outputs(self, x_btd: Array, y_btkh: Array, rng: DropoutRng | None) -> Array:
        """Convolves windows of `convolved`; adds the result to the block's input."""
        dtype = x_btd.dtype
        y_bth = product("btkh,khe->bte", y_btkh, self.conv)
        y_bth = constrain(y_bth, "batch", "length", "hidden")
        y_bth = jax.nn.relu(self.norm3(y_bth + self.conv_bias[...].astype(dtype)))
        y_btd = linear(y_bth, self.outer, bias=self.outer_bias)
        return x_btd + dropout(y_btd, self.rate, rng)


class ByteNet(Architecture):
    """Two stacks of dilated convolutions."""

    packs = False  # a target token reads the column of the source at its own place
    unused = TRANSFORMER_FIELDS | POSITION_FIELDS

    @dataclasses.dataclass(frozen=True)
    class Options:
        """The convolutions, and how far a source is unfolded."""

        # The taps of a convolution.
        bytenet_kernel: int = field(3, low=1)
        # Dilations are 1, 2, 4, ... in this many blocks, and then again from 1.
        bytenet_set: int = field(5, low=1)
        # A source of n tokens has ceil(unfold * n + extra) columns.
        bytenet_unfold: float = field(1.2, low=1)
        bytenet_extra: int = field(0, low=0)

    def __init__(self, config, vocab_size, rng, source_vocab_size=None):
        self.config, self.options = config, config.own_options(ByteNet)
        self.embedding = Embedding(
            config, vocab_size, named(rng, "embedding"), source_vocab_size
        )
        self.encoder = self._blocks("encoder", rng)
        self.decoder = self._blocks("decoder", rng)
        self.final_norm = config.variant("norm_kind")(config)
        width, hidden = {"width": config.width}, {"hidden": config.width}
        self.final = weight(named(rng, "final"), width, hidden)
        self.final_bias = constant(0.0, hidden)

    def _blocks(self, side: str, rng: Array) -> nnx.List:
        rngs = [named(rng, side, i) for i in range(self.config.side(side).layers)]
        dilations = [2 ** (i % self.options.bytenet_set) for i in range(len(rngs))]
        return nnx.List(map(partial(Block, self.config), dilations, rngs))

    def _stack(self, blocks, x_btd, segment_bt, rngs, last_tap, trace=None) -> Array:
        for block, rng in zip(blocks, rngs, strict=True):
            block = rematerialized(partial(block, last_tap=last_tap), self.config, rng)
            x_btd = block(x_btd, segment_bt, rng)
            if trace is not None:
                trace.add_output(self._final(x_btd))
        return x_btd

    def encode(self, source_bs, at, rng=None) -> Array:
        """Encodes the source into more columns than it has tokens.

        Returns:
          The encoder's output, [b, c, d], zero beyond the columns of each source.
        """
        embedding_rng, *rngs = dropout_rngs(rng, 1 + len(self.encoder))
        x_bsd = self.embedding.source(source_bs, at, NO_POSITION, embedding_rng)
        real_bs = at.segment > 0
        # For each length from 0. In decimals, since in binary 1.1 * 90 is above 99.
        unfold = Fraction(str(self.options.bytenet_unfold))
        extra, longest = self.options.bytenet_extra, source_bs.shape[1]
        columns = [math.ceil(unfold * n + extra) for n in range(longest + 1)]
        pad_widths = (0, 0), (0, columns[-1] - longest), (0, 0)
        x_bcd = jnp.pad(jnp.where(real_bs[..., None], x_bsd, 0.0), pad_widths)
        columns_b = jnp.asarray(np.array(columns, np.int32))[real_bs.sum(1)]
        inside_bc = jnp.arange(columns[-1]) < columns_b[:, None]
        # What is outside of a source is another segment, which it does not see.
        segment_bc = inside_bc.astype(jnp.int32)
        last_tap = self.options.bytenet_kernel // 2
        x_bcd = self._stack(self.encoder, x_bcd, segment_bc, rngs, last_tap)
        return jnp.where(inside_bc[..., None], x_bcd, 0.0)

    def outputs(self, batch, rng=None, trace=None):
        """Returns the decoder's output, [b, t, d]; arguments as for `Architecture`."""
        source_rng, embedding_rng, *rngs = dropout_rngs(rng, 2 + len(self.decoder))
        source_at, at = (Tokens.of(batch, side) for side in ("source", "target"))
        x_bcd = self.encode(batch["source"], source_at, source_rng)
        x_btd = self.embedding.target(
            batch["target_input"], at, NO_POSITION, embedding_rng
        )
        t = x_btd.shape[1]
        missing = max(0, t - x_bcd.shape[1])
        x_btd += jnp.pad(x_bcd[:, :t], ((0, 0), (0, missing), (0, 0)))
        x_btd = self._stack(self.decoder, x_btd, at.segment, rngs, 0, trace)
        return self._final(x_btd)

    def _final(self, x_btd: Array) -> Array:
        """The layers below the logits; the paper has a ReLU after the product, too."""
        x_btd = jax.nn.relu(self.final_norm(x_btd))
        return linear(x_btd, self.final, bias=self.final_bias)

    def initial_cache(self, memory, beams, room) -> States:
        """Returns no inputs of convolutions: zeros, as before a sentence."""
        b, half = memory.shape[0], self.config.width // 2
        recent = [(block.kernel - 1) * block.dilation for block in self.decoder]
        return States(
            [jnp.zeros((b, beams, size, half), memory.dtype) for size in recent]
        )

    def step(self, memory, cache, token_bn, position):
        """Runs one decoding step; arguments and results as for `Architecture`."""
        at = tokens_at_step(token_bn, position)
        x_bnd = self.embedding.target(token_bn, at, NO_POSITION, None)
        column_b1d = jax.lax.dynamic_slice_in_dim(memory, position, 1, axis=1)
        x_bnd += jnp.where(position < memory.shape[1], column_b1d, 0.0)
        states = []
        for block, recent_bnmh in zip(self.decoder, cache.arrays, strict=True):
            # The last inputs of the convolution; the oldest one leaves.
            newest_bn1h = block.convolved(x_bnd)[:, :, None]
            inputs_bnmh = jnp.concatenate([recent_bnmh, newest_bn1h], axis=2)
            x_bnd = block.outputs(x_bnd, inputs_bnmh[:, :, :: block.dilation], None)
            states.append(inputs_bnmh[:, :, 1:])
        return self._final(x_bnd), dataclasses.replace(cache, arrays=states)
