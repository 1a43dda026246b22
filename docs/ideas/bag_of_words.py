"""Model: averages instead of attention.

The decoder averages the tokens so far, as the average attention network does (Zhang et
al. 2018); the source is a bag of words (Iyyer et al. 2015). It uses `width`, `hidden`,
`dropout` and the fields of embeddings; it has no layers, heads or positions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.model.architecture import Architecture
from t2t_jax.model.attention import NO_POSITION
from t2t_jax.model.embedding import Embedding
from t2t_jax.model.layers import dropout, dropout_rngs, named, weight
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.model import MODELS
from t2t_jax.parallel.mesh import constrain


class Source(NamedTuple):
    """The embedded source, for `step`."""

    x_bsd: Array
    at: Tokens


class Cache(NamedTuple):
    """The sum of a hypothesis's embeddings: its size does not grow."""

    sum_bnd: Array

    def moved(self, parent_bn):
        return Cache(jnp.take_along_axis(self.sum_bnd, parent_bn[..., None], axis=1))

    def grown(self, room):
        return self


def mean(x_bsd, mask):
    """The mean of the tokens that each query may attend to, float32 [b, t, d]."""
    allowed_bts = mask.allowed()[:, 0].astype(jnp.float32)
    weights_bts = allowed_bts / jnp.maximum(1, allowed_bts.sum(-1, keepdims=True))
    return jnp.einsum("bts,bsd->btd", weights_bts, x_bsd.astype(jnp.float32))


class BagOfWords(Architecture):
    """Predicts a token from the last one and the means of source and target so far."""

    packs = True  # `mean` does not cross segments

    def __init__(self, config, vocab_size, rng, source_vocab_size=None):
        self.rate = config.dropout
        self.embedding = Embedding(
            config, vocab_size, named(rng, "embedding"), source_vocab_size
        )
        hidden, width = {"hidden": config.hidden}, {"width": config.width}
        self.inner = weight(named(rng, "inner"), {"positions": 3} | width, hidden)
        self.outer = weight(named(rng, "outer"), hidden, width)

    def encode(self, source_bs, at, rng=None):
        return Source(self.embedding.source(source_bs, at, NO_POSITION, rng), at)

    def predict(self, x_btd, target_btd, source_btd, rng=None):
        """Returns the outputs, from the last tokens and the two means."""
        x_cbtd = jnp.stack([x_btd.astype(jnp.float32), target_btd, source_btd])
        x_btf = jnp.einsum("cbtd,cdf->btf", x_cbtd, self.inner[...])
        x_btf = constrain(jax.nn.relu(x_btf), "batch", "length", "hidden")
        y_btd = jnp.einsum("btf,fd->btd", dropout(x_btf, self.rate, rng), self.outer)
        return constrain(y_btd.astype(x_btd.dtype), "batch", "length", "features")

    def outputs(self, batch, rng=None, trace=None):
        source_rng, target_rng, hidden_rng = dropout_rngs(rng, 3)
        source_at, at = (
            Tokens(batch[f"{side}_segment"], batch[f"{side}_position"])
            for side in ("source", "target")
        )
        source = self.encode(batch["source"], source_at, source_rng)
        x_btd = self.embedding.target(
            batch["target_input"], at, NO_POSITION, target_rng
        )
        target_btd = mean(x_btd, Mask(at, at, causal=True, aligned=True))
        source_btd = mean(source.x_bsd, Mask(at, source_at))
        return self.predict(x_btd, target_btd, source_btd, hidden_rng)

    def initial_cache(self, memory, beams, room):
        batch, _, width = memory.x_bsd.shape
        return Cache(jnp.zeros((batch, beams, width), jnp.float32))

    def step(self, memory, cache, token_bn, position):
        at = Tokens(jnp.ones_like(token_bn), jnp.full_like(token_bn, position))
        x_bnd = self.embedding.target(token_bn, at, NO_POSITION, None)
        sum_bnd = cache.sum_bnd + x_bnd
        source_bnd = mean(memory.x_bsd, Mask(at, memory.at))
        return self.predict(x_bnd, sum_bnd / (position + 1), source_bnd), Cache(sum_bnd)


MODELS["bag_of_words"] = BagOfWords
