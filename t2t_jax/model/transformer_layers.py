"""Layers of the Transformer's encoder and decoder (section 3.1).

Shape suffixes: b batch, s source, t target, d model width.
"""

import jax
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.model.attention import KV, Attention, LayerTrace
from t2t_jax.model.decoder_cache import LayerCache
from t2t_jax.model.layers import DropoutRng, SubLayer, dropout_rngs
from t2t_jax.model.mask import Mask
from t2t_jax.model.positions import Position


class EncoderLayer(nnx.Module):
    """Self-attention and feed-forward (section 3.1)."""

    def __init__(self, config: ModelConfig, rng: Array):
        attention_rng, ff_rng = jax.random.split(rng)
        self.attention = Attention(config, attention_rng)
        self.attention_sub = SubLayer(config)
        self.ff = config.variant("feed_forward")(config, ff_rng)
        self.ff_sub = SubLayer(config)

    def __call__(
        self,
        x_bsd: Array,
        mask: Mask,
        rng: DropoutRng | None,
        trace: LayerTrace | None = None,
        *,
        position: Position,
    ) -> Array:
        attention_rng, after_rng, ff_after_rng, ff_rng = dropout_rngs(rng, 4)
        y_bsd = self.attention_sub.before(x_bsd)
        kv = self.attention.keys_values(y_bsd, mask.key, position)
        y_bsd = self.attention(
            y_bsd, kv, mask, position, attention_rng, trace and trace.encoder
        )
        x_bsd = self.attention_sub.after(x_bsd, y_bsd, after_rng)
        y_bsd = self.ff(self.ff_sub.before(x_bsd), ff_rng)
        return self.ff_sub.after(x_bsd, y_bsd, ff_after_rng)


class DecoderLayer(nnx.Module):
    """Masked self-attention, cross-attention and feed-forward (section 3.1).

    Args:
      cross: False leaves out cross-attention, for a model without a source.
    """

    def __init__(self, config: ModelConfig, rng: Array, cross: bool = True):
        # The same draws with and without cross-attention.
        self_rng, cross_rng, ff_rng = jax.random.split(rng, 3)
        self.attention = Attention(config, self_rng)
        self.attention_sub = SubLayer(config)
        self.has_cross = cross
        if cross:
            self.cross = Attention(config, cross_rng, cross=True)
            self.cross_sub = SubLayer(config)
        self.ff = config.variant("feed_forward")(config, ff_rng)
        self.ff_sub = SubLayer(config)

    def __call__(
        self,
        x_btd: Array,
        cache: LayerCache | None,
        mask: Mask,
        source_kv: KV | None,
        source_mask: Mask,
        rng: DropoutRng | None = None,
        trace: LayerTrace | None = None,
        *,
        position: Position,
    ):
        """Computes all target positions at once, or with a cache, one decoding step.

        Args:
          x_btd: with a cache, axis t is the hypotheses of a sentence at one position.
          cache: keys and values of earlier steps; None to compute all positions.
          mask: for self-attention; with a cache, it selects each hypothesis's keys.
          source_kv, source_mask: for cross-attention; read only if the layer has it.
          rng: for dropout; None turns it off.
          trace: collects the attention weights.
          position: the scheme of self-attention.

        Returns:
          The output, and the layer's cached KV with this step stored; None without a
          cache.
        """
        rngs = dropout_rngs(rng, 6)
        y_btd = self.attention_sub.before(x_btd)
        kv, stored = self.attention.keys_values(y_btd, mask.query, position), None
        if cache is not None:
            kv, stored = cache.append(kv)
        y_btd = self.attention(
            y_btd, kv, mask, position, rngs[0], trace and trace.decoder
        )
        x_btd = self.attention_sub.after(x_btd, y_btd, rngs[1])

        if self.has_cross:
            y_btd = self.cross_sub.before(x_btd)
            y_btd = self.cross(
                y_btd, source_kv, source_mask, None, rngs[2], trace and trace.cross
            )
            x_btd = self.cross_sub.after(x_btd, y_btd, rngs[3])

        y_btd = self.ff(self.ff_sub.before(x_btd), rngs[5])
        return self.ff_sub.after(x_btd, y_btd, rngs[4]), stored
