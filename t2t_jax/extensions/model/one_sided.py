"""Models of one of the Transformer's stacks: BERT's kind, GPT's kind, a classifier.

Shape suffixes: b batch, s source, t target or labels, d model width, v vocabulary or
number of labels.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model.architecture import DECODER_FIELDS, ENCODER_FIELDS
from t2t_jax.model.decoder_cache import Memory
from t2t_jax.model.embedding import Embedding
from t2t_jax.model.layers import (
    DropoutRng,
    constant,
    dropout,
    dropout_rngs,
    linear,
    named,
    weight,
)
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.products import factor
from t2t_jax.model.transformer import Transformer, checked_side
from t2t_jax.parallel.mesh import constrain
from t2t_jax.sections import field


class EncoderOnly(Transformer):
    """A masked language model: the encoder predicts tokens at the source's places.

    Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for
    Language Understanding", without its transform before the output layer.
    """

    predicts = "source"
    generates = False
    cross_layers = 0
    unused = DECODER_FIELDS

    def __init__(self, config, vocab_size, rng, source_vocab_size=None):
        self.config = config
        encoder = checked_side(config, "encoder")
        self.embedding = OneSidedEmbedding(
            config, source_vocab_size or vocab_size, vocab_size, named(rng, "embedding")
        )
        self.create_encoder(encoder, rng)

    def outputs(self, batch, rng=None, trace=None):
        """Returns the encoder's output, [b, s, d]; arguments as for `Architecture`."""
        at = Tokens.of(batch, "source")
        return self.encoder_outputs(batch["source"], at, rng, trace)


class DecoderOnly(Transformer):
    """A language model: the decoder without attention to a source.

    Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", section
    4.2.3. The tokens of the source are not read; their array may have no columns.
    """

    has_source = False
    cross_layers = 0
    unused = ENCODER_FIELDS

    def __init__(self, config, vocab_size, rng, source_vocab_size=None):
        self.config = config
        decoder = checked_side(config, "decoder")
        self.embedding = OneSidedEmbedding(
            config, vocab_size, vocab_size, named(rng, "embedding")
        )
        self.create_decoder(decoder, rng, cross=False)

    def encode(self, source_bs, at, rng=None, trace=None) -> Memory:
        """Returns a memory without keys, which keeps the rows of the batch."""
        return Memory([None for _ in self.decoder], at)

    def outputs(self, batch, rng=None, trace=None):
        """Returns the decoder's output, [b, t, d]; arguments as for `Architecture`."""
        memory = self.encode(batch["source"], Tokens.of(batch, "source"))
        return self.decoder_outputs(batch, memory, rng, trace)


class Classifier(EncoderOnly):
    """Predicts a label for each sentence: the encoder, pooling and a head.

    The target of a sentence is its label. The vocabulary of the target are the labels,
    that of the source are the tokens, which have a matrix of their own.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """`pooling`: the mean or the maximum of a sentence's tokens, or its first."""

        pooling: str = field("mean", ("mean", "max", "first"))

    predicts = "label"
    unused = DECODER_FIELDS | {"tied", "output_bias"}

    def __init__(self, config, vocab_size, rng, source_vocab_size=None):
        self.config = config
        self.pooling = config.own_options(Classifier).pooling
        encoder = checked_side(config, "encoder")
        tokens = source_vocab_size or vocab_size
        self.embedding = OneSidedEmbedding(
            config, tokens, None, named(rng, "embedding")
        )
        self.create_encoder(encoder, rng)
        self.head = Head(config, vocab_size, named(rng, "head"))

    def outputs(self, batch, rng=None, trace=None):
        """Returns the head's output for each label, [b, t, d], see `Architecture`."""
        encoder_rng, head_rng = dropout_rngs(rng, 2)
        source, target = (Tokens.of(batch, side) for side in ("source", "target"))
        x_bsd = self.encoder_outputs(batch["source"], source, encoder_rng, trace)
        # Pooling does not cross segments, so rows may be packed.
        pooled_btd = pool(x_bsd, source, target, self.pooling)
        return self.head(pooled_btd, head_rng)

    def output_layer(self):
        """Returns the head's matrix [v, d] and bias [v]; v labels."""
        return factor(self.head.labels), self.head.labels_bias[...]


class Head(nnx.Module):
    """tanh(x W + b) and dropout (Devlin et al. 2019), then one logit for each label."""

    def __init__(self, config: ModelConfig, labels: int, rng: Array):
        width, hidden = {"width": config.width}, {"hidden": config.width}
        self.rate = config.dropout
        self.dense = weight(named(rng, "dense"), width, hidden)
        self.dense_bias = constant(0.0, hidden)
        table_vd = jax.random.normal(named(rng, "labels"), (labels, config.width))
        self.labels = nnx.Param(
            config.width**-0.5 * table_vd, axes=("vocab", "width"), summed=(1,)
        )
        self.labels_bias = constant(0.0, {"vocab": labels})

    def __call__(self, x_btd: Array, rng: DropoutRng | None) -> Array:
        y_btd = jnp.tanh(linear(x_btd, self.dense, "hidden", self.dense_bias))
        y_btd = constrain(y_btd, "batch", "length", "features")
        return dropout(y_btd, self.rate, rng)


def pool(x_bsd: Array, source: Tokens, target: Tokens, pooling: str) -> Array:
    """Returns one vector for each target token, of its segment's source, [b, t, d].

    Zeros if the segment has no source token.
    """
    members_bts = Mask(target, source).allowed()[:, 0]
    if pooling == "max":
        lowest = jnp.finfo(x_bsd.dtype).min
        candidates_btsd = jnp.where(members_bts[..., None], x_bsd[:, None], lowest)
        pooled_btd = jnp.where(
            members_bts.any(-1)[..., None], candidates_btsd.max(2), 0
        )
    else:
        if pooling == "first":
            members_bts &= source.position[:, None] == 0
        # Sums and means in float32: a long sentence has more tokens than bfloat16 has
        # numbers between 128 and 256.
        sum_btd = jnp.einsum(
            "bts,bsd->btd",
            members_bts.astype(x_bsd.dtype),
            x_bsd,
            preferred_element_type=jnp.promote_types(x_bsd.dtype, jnp.float32),
        )
        count_bt1 = jnp.maximum(members_bts.sum(-1, keepdims=True), 1)
        pooled_btd = (sum_btd / count_bt1).astype(x_bsd.dtype)
    return constrain(pooled_btd, "batch", "length", "features")


class OneSidedEmbedding(Embedding):
    """The matrices of a model with one side; `tokens` embeds what it reads.

    The output layer has the same matrix, or with `config.tied="none"` its own.
    """

    def __init__(
        self, config: ModelConfig, inputs: int, outputs: int | None, rng: Array
    ):
        """Creates the matrices.

        Args:
          inputs, outputs: the sizes of the vocabularies; without `outputs`, there is
            no output layer.
        """
        if outputs not in (None, inputs) and config.tied != "none":
            raise UserError(
                f"the vocabularies have {inputs} tokens to read and {outputs} to "
                "predict, which cannot share one matrix; choose "
                "config.model.tied='none', or config.data.joint_vocabulary=True"
            )
        self.config = config
        self.tokens = self._matrix(inputs, named(rng, "tokens"))
        if outputs is not None and config.tied == "none":
            self.output = self._matrix(outputs, named(rng, "output"))
        if outputs is not None and config.output_bias:
            self.output_bias = constant(0.0, {"vocab": outputs})
