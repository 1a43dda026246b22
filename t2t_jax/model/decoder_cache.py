"""State kept between decoding steps, of hypotheses and of the source.

Shape suffixes: b batch, n beams, s source, t target, h heads, k head width.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.model.attention import KV
from t2t_jax.model.mask import Tokens
from t2t_jax.parallel.mesh import target_device


class Cache(NamedTuple):
    """Keys and values of the tokens of all hypotheses of each sentence."""

    # Of each decoder layer, [b, h, n, room, k], the order in which attention reads
    # them. Keys and values stay in the beam row that computed them.
    kvs: list[KV]
    # int32, the beam row that stores each position of each hypothesis. A hypothesis
    # changes rows by changing these indices, not by copying keys and values.
    row_bnt: Array
    # int32, the number of tokens of each sentence's hypotheses: equal for all that are
    # searched together. An array, so that XLA computes what depends on it, such as
    # rotary angles, once for a sentence and not for each feature of each head.
    length_b: Array

    def moved(self, parent_bn: Array) -> "Cache":
        """Moves hypotheses `parent_bn` to rows 0, 1, ..."""
        moved_bnt = jnp.take_along_axis(self.row_bnt, parent_bn[:, :, None], axis=1)
        return self._replace(row_bnt=moved_bnt)

    def grown(self, room: int) -> "Cache":
        """Returns the cache with room for `room` positions."""

        def grow(x: Array, axis: int) -> Array:
            pad_widths = [(0, 0)] * x.ndim
            pad_widths[axis] = (0, room - x.shape[axis])
            return jnp.pad(x, pad_widths)

        kvs = jax.tree.map(lambda x: grow(x, 3), self.kvs)
        return self._replace(kvs=kvs, row_bnt=grow(self.row_bnt, 2))


class LayerCache(NamedTuple):
    """One layer's keys and values, and the position of the next ones."""

    kv: KV
    position: Array | int

    def append(self, new: KV) -> tuple[KV, KV]:
        """Stores the keys and values of one step, [b, n, h, k], at `position`.

        Returns:
          Keys and values of all steps: in attention order, [b, n room, h, k], and in
          storage order, [b, h, n, room, k].
        """

        def write(old_bhntk, new_bnhk):
            new_bhntk = new_bnhk.swapaxes(1, 2)[:, :, :, None]
            return jax.lax.dynamic_update_slice_in_dim(
                old_bhntk, new_bhntk, self.position, axis=3
            )

        def write_all():
            return jax.tree.map(write, self.kv, new)

        if target_device().platform == "cpu":
            # Always true, but XLA does not know. Without the condition it would update
            # a second array, in the reader's layout, and copy all values three times.
            # On a GPU it would do so with the condition, and wait for the host.
            stored = jax.lax.cond(self.position >= 0, write_all, lambda: self.kv)
        else:
            stored = write_all()
        # For attention, the rows of all hypotheses are one row of n * room keys. `Mask`
        # selects those of each hypothesis.

        def in_one_row(x_bhntk):
            b, h, n, t, k = x_bhntk.shape
            return x_bhntk.reshape(b, h, n * t, k).swapaxes(1, 2)

        return jax.tree.map(in_one_row, stored), stored


class Memory(NamedTuple):
    """The source as decoding needs it, computed once per sentence."""

    # Of each decoder layer, a KV of [b, h, s, k], the order in which every step reads
    # them.
    stored: list[KV]
    at: Tokens  # the source tokens

    @property
    def kvs(self) -> list[KV]:
        """The keys and values in attention order, [b, s, h, k]: a view, not a copy."""
        return jax.tree.map(lambda x: x.swapaxes(1, 2), self.stored)
