"""An encoder alone: predicts tokens at the places of the source, as BERT does.

Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding", without its transform before the output layer. Shape suffixes: b batch,
s source, d model width, v vocabulary.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.model.architecture import OF_DECODERS, OF_ENCODERS
from t2t_jax.model.attention import LayerTrace
from t2t_jax.model.decoder_cache import Memory
from t2t_jax.model.embedding import OneSidedEmbedding
from t2t_jax.model.layers import DropoutRng, constant, dropout, dropout_rngs, weight
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.transformer import DecoderStack, EncoderStack, checked_side, longest
from t2t_jax.parallel.mesh import constrain
from t2t_jax.sections import field


class EncoderOnly(EncoderStack):
    """A masked language model: an `Architecture`, see model/architecture.py."""

    packs = True
    generates = False
    has_source = True
    predicts = "source"
    cross_layers = 0
    unused = OF_DECODERS

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        rng: Array,
        source_vocab_size: int | None = None,
    ):
        self.config = config
        encoder = checked_side(config, "encoder")
        embedding_rng, *layer_rngs = jax.random.split(rng, 1 + encoder.layers)
        self.embedding = OneSidedEmbedding(
            config, source_vocab_size or vocab_size, vocab_size, embedding_rng
        )
        self.create_encoder(encoder, layer_rngs, jax.random.fold_in(rng, 1))

    @property
    def longest(self) -> int | None:
        """The number of positions that exist; None for no limit."""
        return longest(self.encoder_positions)

    def outputs(
        self,
        batch: dict[str, Array],
        rng: DropoutRng | None = None,
        trace: LayerTrace | None = None,
    ) -> Array:
        """Returns the encoder's output, [b, s, d]; arguments as for `Architecture`."""
        at = Tokens.of(batch, "source")
        return self.encoder_outputs(batch["source"], at, rng, trace)

    def output_layer(self) -> tuple[Array, Array | None]:
        """Returns the matrix [v, d] and the bias [v] that make logits of `outputs`."""
        return self.embedding.output_layer()


class DecoderOnly(DecoderStack):
    """A language model: an `Architecture`, see model/architecture.py.

    The tokens of the source are not read; their array may have no columns.
    """

    packs = True
    generates = True
    has_source = False
    cross_layers = 0
    unused = OF_ENCODERS

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        rng: Array,
        source_vocab_size: int | None = None,
    ):
        self.config = config
        decoder = checked_side(config, "decoder")
        embedding_rng, *layer_rngs = jax.random.split(rng, 1 + decoder.layers)
        self.embedding = OneSidedEmbedding(
            config, vocab_size, vocab_size, embedding_rng
        )
        position_rng = jax.random.fold_in(rng, 1)
        self.create_decoder(decoder, layer_rngs, position_rng, cross=False)

    @property
    def longest(self) -> int | None:
        """The number of positions that exist; None for no limit."""
        return longest(self.decoder_positions)

    def encode(
        self, source_bs: Array, at: Tokens, rng: DropoutRng | None = None
    ) -> Memory:
        """Returns a memory without keys, which keeps the rows of the batch."""
        return Memory([None for _ in self.decoder], at)

    def outputs(
        self,
        batch: dict[str, Array],
        rng: DropoutRng | None = None,
        trace: LayerTrace | None = None,
    ) -> Array:
        """Returns the decoder's output, [b, t, d]; arguments as for `Architecture`."""
        memory = self.encode(batch["source"], Tokens.of(batch, "source"))
        return self.decoder_outputs(batch, memory, rng, trace)

    def output_layer(self) -> tuple[Array, Array | None]:
        """Returns the matrix [v, d] and the bias [v] that make logits of `outputs`."""
        return self.embedding.output_layer()


class Head(nnx.Module):
    """tanh(x W + b) and dropout (Devlin et al. 2019), then one logit for each label."""

    def __init__(self, config: ModelConfig, labels: int, rng: Array):
        dense_rng, label_rng = jax.random.split(rng)
        width, hidden = {"width": config.width}, {"hidden": config.width}
        self.rate = config.dropout
        self.dense = weight(dense_rng, width, hidden)
        self.dense_bias = constant(0.0, hidden)
        table_vd = jax.random.normal(label_rng, (labels, config.width))
        self.labels = nnx.Param(config.width**-0.5 * table_vd, axes=("vocab", "width"))
        self.labels_bias = constant(0.0, {"vocab": labels})

    def __call__(self, x_btd: Array, rng: DropoutRng | None) -> Array:
        y_btd = jnp.einsum("btd,de->bte", x_btd, self.dense[...].astype(x_btd.dtype))
        y_btd = constrain(y_btd, "batch", "length", "hidden")
        y_btd = jnp.tanh(y_btd + self.dense_bias[...].astype(x_btd.dtype))
        y_btd = constrain(y_btd, "batch", "length", "features")
        return dropout(y_btd, self.rate, rng)


class Classifier(EncoderStack):
    """Predicts a label for each sentence: an `Architecture`, see model/architecture.py.

    The target of a sentence is its label. The vocabulary of the target are the labels,
    that of the source are the pieces, which have a matrix of their own.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """`pooling`: the mean or the maximum of a sentence's tokens, or its first."""

        pooling: str = field("mean", ("mean", "max", "first"))

    packs = True  # pooling does not cross segments
    generates = False
    has_source = True
    predicts = "label"
    cross_layers = 0
    unused = OF_DECODERS | {"tied", "output_bias"}

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        rng: Array,
        source_vocab_size: int | None = None,
    ):
        self.config = config
        self.pooling = config.own_options(Classifier).pooling
        encoder = checked_side(config, "encoder")
        embedding_rng, head_rng, *layer_rngs = jax.random.split(rng, 2 + encoder.layers)
        pieces = source_vocab_size or vocab_size
        self.embedding = OneSidedEmbedding(config, pieces, None, embedding_rng)
        self.create_encoder(encoder, layer_rngs, jax.random.fold_in(rng, 1))
        self.head = Head(config, vocab_size, head_rng)

    @property
    def longest(self) -> int | None:
        """The number of positions that exist; None for no limit."""
        return longest(self.encoder_positions)

    def outputs(
        self,
        batch: dict[str, Array],
        rng: DropoutRng | None = None,
        trace: LayerTrace | None = None,
    ) -> Array:
        """Returns the head's output for each label, [b, t, d], see `Architecture`."""
        encoder_rng, head_rng = dropout_rngs(rng, 2)
        source, target = (Tokens.of(batch, side) for side in ("source", "target"))
        x_bsd = self.encoder_outputs(batch["source"], source, encoder_rng, trace)
        pooled_btd = pool(x_bsd, source, target, self.pooling)
        return self.head(pooled_btd, head_rng)

    def output_layer(self) -> tuple[Array, Array | None]:
        """Returns the matrix [v, d] and the bias [v] that make logits of `outputs`."""
        return self.head.labels[...], self.head.labels_bias[...]


def pool(x_bsd: Array, source: Tokens, target: Tokens, pooling: str) -> Array:
    """Returns one vector for each target token, of its segment's source, [b, t, d].

    Zeros if the segment has no source token.
    """
    mine_bts = Mask(target, source).allowed()[:, 0]
    if pooling == "max":
        lowest = jnp.finfo(x_bsd.dtype).min
        all_btsd = jnp.where(mine_bts[..., None], x_bsd[:, None], lowest)
        pooled_btd = jnp.where(mine_bts.any(-1)[..., None], all_btsd.max(2), 0)
    else:
        if pooling == "first":
            mine_bts &= source.position[:, None] == 0
        # Sums and means in float32: a long sentence has more tokens than bfloat16 has
        # numbers between 128 and 256.
        sum_btd = jnp.einsum(
            "bts,bsd->btd",
            mine_bts.astype(x_bsd.dtype),
            x_bsd,
            preferred_element_type=jnp.promote_types(x_bsd.dtype, jnp.float32),
        )
        count_bt1 = jnp.maximum(mine_bts.sum(-1, keepdims=True), 1)
        pooled_btd = (sum_btd / count_bt1).astype(x_bsd.dtype)
    return constrain(pooled_btd, "batch", "length", "features")
