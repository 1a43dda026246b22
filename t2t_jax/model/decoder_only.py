"""A decoder alone: a language model.

Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", section 4.2.3:
the Transformer without its encoder and without attention to it. Shape suffixes: b
batch, s source, t target, d model width, v vocabulary.
"""

import jax
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.model.architecture import OF_ENCODERS
from t2t_jax.model.attention import LayerTrace
from t2t_jax.model.decoder_cache import Memory
from t2t_jax.model.embedding import OneSidedEmbedding
from t2t_jax.model.layers import DropoutRng
from t2t_jax.model.mask import Tokens
from t2t_jax.model.stacks import DecoderStack, checked_side, longest


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
