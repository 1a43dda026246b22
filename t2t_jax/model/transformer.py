"""The encoder-decoder Transformer (section 3, figure 1)."""

import jax
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.model.attention import LayerTrace
from t2t_jax.model.decoder_cache import Memory
from t2t_jax.model.embedding import Embedding
from t2t_jax.model.layers import DropoutRng
from t2t_jax.model.mask import Tokens
from t2t_jax.model.stacks import DecoderStack, EncoderStack, checked_side, longest


class Transformer(EncoderStack, DecoderStack):
    """The paper's model: an `Architecture`, see model/architecture.py."""

    packs = True  # attention does not cross segments
    generates = True
    has_source = True

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        rng: Array,
        source_vocab_size: int | None = None,
    ):
        self.config = config
        encoder, decoder = (checked_side(config, s) for s in ("encoder", "decoder"))
        # Alternating, so that the sides' weights do not depend on each other's depth.
        deepest = max(encoder.layers, decoder.layers)
        embedding_rng, *layer_rngs = jax.random.split(rng, 1 + 2 * deepest)
        encoder_rngs = layer_rngs[::2][: encoder.layers]
        decoder_rngs = layer_rngs[1::2][: decoder.layers]
        self.embedding = Embedding(config, vocab_size, embedding_rng, source_vocab_size)
        source_rng, target_rng = jax.random.split(jax.random.fold_in(rng, 1))
        self.create_encoder(encoder, encoder_rngs, source_rng)
        self.create_decoder(decoder, decoder_rngs, target_rng)

    @property
    def longest(self) -> int | None:
        """The number of positions that exist on each side; None for no limit."""
        return longest(self.encoder_positions, self.decoder_positions)

    @property
    def cross_layers(self) -> int:
        """The number of layers with attention to the source."""
        return len(self.decoder)

    def encode(
        self,
        source_bs: Array,
        at: Tokens,
        rng: DropoutRng | None = None,
        trace: LayerTrace | None = None,
    ) -> Memory:
        """Encodes the source into the keys and values of every decoder layer."""
        # Computed once per sentence, not once per step and hypothesis.
        x_bsd = self.encoder_outputs(source_bs, at, rng, trace)
        kvs = [layer.cross.keys_values(x_bsd) for layer in self.decoder]
        return Memory(jax.tree.map(lambda x: x.swapaxes(1, 2), kvs), at)

    def outputs(
        self,
        batch: dict[str, Array],
        rng: DropoutRng | None = None,
        trace: LayerTrace | None = None,
    ) -> Array:
        """Returns the decoder's output, [b, t, d]; arguments as for `Architecture`."""
        source_rng, target_rng = None, None
        if rng is not None:
            source_rng, target_rng = (
                rng._replace(key=half) for half in jax.random.split(rng.key)
            )
        source_at = Tokens.of(batch, "source")
        memory = self.encode(batch["source"], source_at, source_rng, trace)
        return self.decoder_outputs(batch, memory, target_rng, trace)

    def output_layer(self) -> tuple[Array, Array | None]:
        """Returns the matrix [v, d] and the bias [v] that make logits of `outputs`."""
        return self.embedding.output_layer()
