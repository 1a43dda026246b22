"""An encoder alone: predicts tokens at the places of the source, as BERT does.

Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding", without its transform before the output layer. Shape suffixes: b batch,
s source, d model width, v vocabulary.
"""

import jax
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.model.architecture import OF_DECODERS
from t2t_jax.model.attention import LayerTrace
from t2t_jax.model.embedding import OneSidedEmbedding
from t2t_jax.model.layers import DropoutRng
from t2t_jax.model.mask import Tokens
from t2t_jax.model.stacks import EncoderStack, checked_side, longest


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
