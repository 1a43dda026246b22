"""Attention masks, from the sentence and the position of each token (section 3.2.3).

Shape suffixes: b batch, t queries, s keys.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Tokens(NamedTuple):
    """The sentence and the position of each token of an array.

    Attributes:
      segment: int [b, t], the number of a token's sentence in its row; 0 is padding.
      position: int [b, t], from 0 in each sentence. In a decoder's cache, the position
        within the room of a hypothesis.
    """

    segment: Array
    position: Array

    @classmethod
    def of(cls, batch: Mapping[str, Array], side: str) -> "Tokens":
        """The tokens of a batch on the `source` or `target` side."""
        return cls(batch[f"{side}_segment"], batch[f"{side}_position"])


# `causal`, `aligned` and `within` are static metadata: as array leaves they would be
# traced by jax.checkpoint, and `kernel_for` could not see them.
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mask:
    """The keys that a query may attend to, described by structure, not by an array.

    A query attends only to keys of its own segment (padding attends to padding). Any
    block of the queries and keys of a `Mask` is a `Mask`, with `aligned` False.

    Attributes:
      query, key: the tokens that attend, and those attended to.
      only_bts: None, or bool: further restricts the keys. Decoding needs it, since the
        keys of all hypotheses of a sentence are in one row.
      causal: a query attends only to keys at its own position and before.
      aligned: query i and key i are the same token, and a sentence's tokens are
        consecutive. Fused kernels and blocks of neighbours need this.
      within: None, or the largest distance of a key from its query.
    """

    query: Tokens
    key: Tokens
    only_bts: Array | None = None
    causal: bool = dataclasses.field(default=False, metadata={"static": True})
    aligned: bool = dataclasses.field(default=False, metadata={"static": True})
    within: int | None = dataclasses.field(default=None, metadata={"static": True})

    def distance(self) -> Array:
        """Returns the position of each key minus that of the query, int [b or 1, t, s].

        It has a meaning only for keys of the query's own segment.
        """
        if self.aligned:
            # A sentence's tokens are consecutive, so that the difference of indices is
            # that of positions: one constant for all rows.
            index_t = jnp.arange(self.query.segment.shape[1])
            return (index_t - index_t[:, None])[None]
        return self.key.position[:, None, :] - self.query.position[:, :, None]

    def allowed(self) -> Array:
        """Returns the mask as an array, bool [b, 1, t, s]; 1 is for the heads."""
        query_bt, key_bs = self.query.segment, self.key.segment
        allowed_bts = query_bt[:, :, None] == key_bs[:, None, :]
        if self.causal and self.aligned:
            # The same as below for tokens of one segment, and a constant for XLA.
            t = jnp.arange(query_bt.shape[1])[:, None]
            allowed_bts &= jnp.arange(key_bs.shape[1]) <= t
        elif self.causal:
            allowed_bts &= self.distance() <= 0
        if self.within is not None:
            allowed_bts &= jnp.abs(self.distance()) <= self.within
        if self.only_bts is not None:
            allowed_bts &= self.only_bts
        return allowed_bts[:, None]

    def bias(self) -> Array:
        """Returns what is added to the scores, float32 [b, 1, t, s]: 0 or -1e9.

        -1e9 and not -inf, so that the softmax of a query without allowed keys is not
        NaN.
        """
        return jnp.where(self.allowed(), jnp.float32(0), jnp.float32(-1e9))
