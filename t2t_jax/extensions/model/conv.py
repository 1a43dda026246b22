"""ConvS2S, the convolutional encoder-decoder (Gehring et al. 2017, section 3).

A layer is a convolution, a gated linear unit and a residual sum; each layer of the
decoder attends to the encoder's output. All positions of a row are computed at once,
in training and in encoding. Gradients are not scaled as in section 3.4.

Shape suffixes: b batch, n hypotheses, s source, t target, d width, k taps.
"""

import dataclasses
import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.extensions.model.parts import States, single_head, tokens_at_step, windows
from t2t_jax.model.architecture import NORM_FIELDS, TRANSFORMER_FIELDS, Architecture
from t2t_jax.model.attention import LayerTrace
from t2t_jax.model.embedding import Embedding
from t2t_jax.model.layers import (
    DropoutRng,
    constant,
    dropout,
    dropout_rngs,
    named,
    rematerialized,
    times,
)
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.positions import Learned
from t2t_jax.parallel.mesh import constrain
from t2t_jax.sections import field


def _scaled_sum(x_btd: Array, y_btd: Array) -> Array:
    """The sum times sqrt(0.5): of two terms of variance 1, variance 1 (section 3.4)."""
    return times(x_btd + y_btd, 0.5**0.5)


class Linear(nnx.Module):
    """A weight-normalized linear layer (Salimans and Kingma 2016, equation 2).

    Weight decay acts on `direction`, whose length does not matter, and not on `norm`.

    Args:
      inputs, outputs: sizes of the weight's axes by name; there is one output axis.
      gain: the variance of an output for inputs of variance 1.
    """

    def __init__(self, rng: Array, inputs: dict, outputs: dict, gain: float = 1.0):
        deviation = math.sqrt(gain / math.prod(inputs.values()))  # section 3.5
        shape = *inputs.values(), *outputs.values()
        direction = deviation * jax.random.normal(rng, shape)
        # These names are part of the checkpoint format.
        self.direction = nnx.Param(direction, axes=(*inputs, *outputs))
        self.norm = nnx.Param(_norms(direction), axes=tuple(outputs))
        self.bias = constant(0.0, outputs)

    def __call__(self, x: Array) -> Array:
        """Maps the last axes of `x`, [b, t, *inputs], to [b, t, outputs]."""
        weight = self.direction[...] * (self.norm[...] / _norms(self.direction[...]))
        # One product for all taps of a kernel.
        weight = weight.reshape(-1, weight.shape[-1]).astype(x.dtype)
        y = x.reshape(*x.shape[:2], -1) @ weight + self.bias[...].astype(x.dtype)
        # Computed by the devices that have the columns of the weight; then gathered.
        y = constrain(y, "batch", "length", "hidden")
        return constrain(y, "batch", "length", "features")


def _norms(direction: Array) -> Array:
    """The length of the weight vector of each output."""
    inputs = tuple(range(direction.ndim - 1))
    return jnp.sqrt(jnp.sum(jnp.square(direction), axis=inputs))


def _square(config: ModelConfig, rng: Array, gain: float = 1.0) -> Linear:
    return Linear(rng, {"width": config.width}, {"hidden": config.width}, gain)


class Convolution(Linear):
    """A convolution with a gated linear unit (section 3.2; Dauphin et al. 2017)."""

    def __init__(self, config: ModelConfig, rng: Array):
        self.rate = config.dropout
        self.taps = config.own_options(ConvS2S).conv_kernel
        inputs = {"kernel": self.taps, "width": config.width}
        # Dropout raises the variance of the input; the gate divides it by 4.
        gain = 4 * (1 - config.dropout)
        super().__init__(rng, inputs, {"hidden": 2 * config.width}, gain)

    def __call__(self, window_btkd: Array) -> Array:
        """Returns the gated outputs for windows of the input, [b, t, d]."""
        value_btd, gate_btd = jnp.split(super().__call__(window_btkd), 2, axis=-1)
        return value_btd * jax.nn.sigmoid(gate_btd)

    def convolve_rows(
        self, x_btd: Array, segment_bt: Array, rng: DropoutRng | None, *, back: int
    ) -> Array:
        """Convolves whole rows, [b, t, d]; the first tap is `back` tokens before."""
        x_btd = dropout(x_btd, self.rate, rng)
        return self(windows(x_btd, segment_bt, tuple(range(-back, self.taps - back))))


class AttendedSource(NamedTuple):
    """The source as the decoder attends to it, in all layers alike (section 3.3)."""

    key_bsd: Array  # the encoder's output z
    value_bsd: Array  # the encoder's output plus the embeddings, z + e
    at: Tokens  # the source tokens


class DecoderLayer(nnx.Module):
    """A causal convolution and attention to the source (section 3.3)."""

    def __init__(self, config: ModelConfig, rng: Array):
        self.conv = Convolution(config, named(rng, "conv"))
        self.query = _square(config, named(rng, "query"))
        self.context = _square(config, named(rng, "context"))

    def __call__(
        self,
        x_btd: Array,
        g_btd: Array,
        source: AttendedSource,
        at: Tokens,
        rng: DropoutRng | None = None,
        trace: LayerTrace | None = None,
        window_btkd: Array | None = None,
    ) -> Array:
        """Computes all target positions at once, or one decoding step.

        Args:
          x_btd: the layer's input; decoding, axis t is the hypotheses of a sentence.
          g_btd: the embeddings of the target.
          at: the target tokens.
          trace: collects the attention weights.
          window_btkd: decoding, the last k inputs of each hypothesis.
        """
        if window_btkd is None:
            back = self.conv.taps - 1  # the last tap is the token itself
            h_btd = self.conv.convolve_rows(x_btd, at.segment, rng, back=back)
        else:
            h_btd = self.conv(window_btkd)
        mask = Mask(at, source.at)
        q_btd = self.query(h_btd) + g_btd
        # float32: unscaled scores may be large, and bfloat16 would round them.
        scores_bts = jnp.einsum(
            "btd,bsd->bts", q_btd, source.key_bsd, preferred_element_type=jnp.float32
        )
        scores_bts += mask.bias()[:, 0]
        c_btd, weights_bts = single_head(scores_bts, source.value_bsd)
        if trace is not None:
            trace.cross.append(weights_bts[:, None])
        # Even weights over m tokens divide the deviation by sqrt(m) (section 3.4).
        m_bt1 = mask.allowed()[:, 0].sum(-1, keepdims=True)
        c_btd *= jnp.sqrt(m_bt1).astype(x_btd.dtype)
        return _scaled_sum(x_btd, _scaled_sum(h_btd, self.context(c_btd)))


class ConvS2S(Architecture):
    """The model of Gehring et al."""

    packs = True  # windows and attention do not cross segments
    unused = TRANSFORMER_FIELDS | NORM_FIELDS | {"positions", "embedding_scale"}

    @dataclasses.dataclass(frozen=True)
    class Options:
        """`conv_kernel`: k, the tokens that a convolution reads at once."""

        conv_kernel: int = field(3, low=1)

    def __init__(self, config, vocab_size, rng, source_vocab_size=None):
        # Scaled embeddings would saturate the softmax of its unscaled scores.
        self.config = config = dataclasses.replace(config, embedding_scale=False)
        encoder, decoder = (config.side(side).layers for side in ("encoder", "decoder"))
        self.embedding = Embedding(
            config, vocab_size, named(rng, "embedding"), source_vocab_size
        )
        self.encoder_positions = Learned(config, False, named(rng, "encoder_positions"))
        self.decoder_positions = Learned(config, True, named(rng, "decoder_positions"))
        keep_rate = 1 - config.dropout  # of the embeddings
        self.encoder_in = _square(config, named(rng, "encoder_in"), keep_rate)
        self.encoder = nnx.List(
            [Convolution(config, named(rng, "encoder", i)) for i in range(encoder)]
        )
        self.encoder_out = _square(config, named(rng, "encoder_out"))
        self.decoder_in = _square(config, named(rng, "decoder_in"), keep_rate)
        self.decoder = nnx.List(
            [DecoderLayer(config, named(rng, "decoder", i)) for i in range(decoder)]
        )
        self.decoder_out = _square(config, named(rng, "decoder_out"))

    @property
    def longest(self) -> int:
        """The number of positions that exist on each side."""
        return self.encoder_positions.longest

    @property
    def cross_layers(self) -> int:
        """The number of layers with attention to the source."""
        return len(self.decoder)

    def encode(self, source_bs, at, rng=None) -> AttendedSource:
        """Returns what the decoder attends to."""
        embedding_rng, *rngs = dropout_rngs(rng, 1 + len(self.encoder))
        position = self.encoder_positions
        e_bsd = self.embedding.source(source_bs, at, position, embedding_rng)
        x_bsd = self.encoder_in(e_bsd)
        for conv, layer_rng in zip(self.encoder, rngs, strict=True):
            # Centred; an even kernel has one tap more after the token.
            layer = partial(conv.convolve_rows, back=(conv.taps - 1) // 2)
            layer = rematerialized(layer, self.config, layer_rng)
            x_bsd = _scaled_sum(x_bsd, layer(x_bsd, at.segment, layer_rng))
        z_bsd = self.encoder_out(x_bsd)
        return AttendedSource(z_bsd, z_bsd + e_bsd, at)

    def outputs(self, batch, rng=None, trace=None):
        """Returns the decoder's output, [b, t, d]; arguments as for `Architecture`."""
        layers = len(self.decoder)
        source_rng, embedding_rng, out_rng, *rngs = dropout_rngs(rng, 3 + layers)
        source_at = Tokens.of(batch, "source")
        source = self.encode(batch["source"], source_at, source_rng)
        at = Tokens.of(batch, "target")
        g_btd = self.embedding.target(
            batch["target_input"], at, self.decoder_positions, embedding_rng
        )
        x_btd = self.decoder_in(g_btd)
        for layer, layer_rng in zip(self.decoder, rngs, strict=True):
            layer = rematerialized(layer, self.config, layer_rng)
            x_btd = layer(x_btd, g_btd, source, at, layer_rng, trace)
            if trace is not None:
                trace.add_output(self.decoder_out(x_btd))
        return dropout(self.decoder_out(x_btd), self.config.dropout, out_rng)

    def initial_cache(self, memory, beams, room) -> States:
        """Returns zeros as the last k - 1 inputs of each layer's convolution."""
        b, _, d = memory.key_bsd.shape
        shape = b, beams, self.decoder[0].conv.taps - 1, d
        zeros = jnp.zeros(shape, memory.key_bsd.dtype)
        return States([zeros for _ in self.decoder])

    def step(self, memory, cache, token_bn, position):
        """Runs one decoding step; hypotheses take the place of target positions."""
        at = tokens_at_step(token_bn, position)
        g_bnd = self.embedding.target(
            token_bn, at, self.decoder_positions, None, limit=self.longest
        )
        x_bnd, inputs = self.decoder_in(g_bnd), []
        for layer, last_bnkd in zip(self.decoder, cache.arrays, strict=True):
            window_bnkd = jnp.concatenate([last_bnkd, x_bnd[:, :, None]], axis=2)
            inputs.append(window_bnkd[:, :, 1:])
            x_bnd = layer(x_bnd, g_bnd, memory, at, window_btkd=window_bnkd)
        return self.decoder_out(x_bnd), dataclasses.replace(cache, arrays=inputs)
