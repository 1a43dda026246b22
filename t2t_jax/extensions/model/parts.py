"""Parts of the models from before the Transformer.

Shape suffixes: b batch, n hypotheses, t length, k taps, s source, d model width.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.model.mask import Tokens
from t2t_jax.parallel.mesh import batch_shards, gather


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class States:
    """State of hypotheses that does not grow with their length; moving copies it."""

    arrays: Any  # a pytree, leaves [b, n, ...]

    def moved(self, parent_bn: Array) -> "States":
        """Moves hypotheses `parent_bn` to rows 0, 1, ..."""

        def move(x: Array) -> Array:
            index = parent_bn.reshape(*parent_bn.shape, *[1] * (x.ndim - 2))
            return jnp.take_along_axis(x, index, axis=1)

        return dataclasses.replace(self, arrays=jax.tree.map(move, self.arrays))

    def grown(self, room: int) -> "States":
        """Returns the state itself: its size does not depend on the steps."""
        return self


def tokens_at_step(token_bn: Array, position: Array | int) -> Tokens:
    """The newest tokens of hypotheses, each in segment 1 of its row."""
    return Tokens(jnp.ones_like(token_bn), jnp.full_like(token_bn, position))


def single_head(scores_bts: Array, values_bsd: Array) -> tuple[Array, Array]:
    """Attends with one head, as models before the Transformer do.

    Args:
      scores_bts: float32, with the mask's bias.

    Returns:
      The weighted sums [b, t, d], and the weights, float32 [b, t, s].
    """
    weights_bts = jax.nn.softmax(scores_bts)
    weights = weights_bts.astype(values_bsd.dtype)
    return jnp.einsum("bts,bsd->btd", weights, values_bsd), weights_bts


def gathered(module: nnx.Module) -> nnx.Module:
    """Returns a module with its weights gathered along `fsdp`, for a loop.

    A device then gathers them once, and not in every step. And XLA's partitioner
    computes wrong gradients of loops over weights that are divided along `fsdp`, if
    `data` and `tensor` have several devices, too (seen in JAX 0.10).
    """
    if batch_shards() == 1:
        return module
    definition, state = nnx.split(module)
    gathered_state = jax.tree.map(
        lambda weight: weight.replace(gather(weight[...], weight.get_metadata("axes"))),
        state,
        is_leaf=lambda x: isinstance(x, nnx.Variable),
    )
    return nnx.merge(definition, gathered_state)


def windows(x_btd: Array, segment_bt: Array, offsets: tuple[int, ...]) -> Array:
    """Returns the neighbours of each token, [b, t, k, d]: tap i is `offsets[i]` away.

    A neighbour outside the row or in another sentence is zeros, as if each sentence
    were padded with zeros.
    """
    t = x_btd.shape[1]
    pad_before, pad_after = max(0, -min(offsets)), max(0, max(offsets))
    x_btd = jnp.pad(x_btd, ((0, 0), (pad_before, pad_after), (0, 0)))
    # -1 differs from every segment, also from that of padding.
    around_bt = jnp.pad(
        segment_bt, ((0, 0), (pad_before, pad_after)), constant_values=-1
    )
    taps = []
    for offset in offsets:
        near = slice(pad_before + offset, pad_before + offset + t)
        same_bt = around_bt[:, near] == segment_bt
        taps.append(jnp.where(same_bt[..., None], x_btd[:, near], 0.0))
    return jnp.stack(taps, axis=2)
