"""Multi-head attention (section 3.2.2), and the table of attention functions.

Shape suffixes: b batch, t queries, s keys, d model width, h heads, k head width.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model.chunked import ChunkedOptions, chunked
from t2t_jax.model.dense import KV, attention_weights, dense, scaled
from t2t_jax.model.kernels import kernel_for
from t2t_jax.model.layers import Dropout, DropoutRng, constant, weight
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.positions import Position
from t2t_jax.model.restricted import RestrictedOptions, restricted, restricted_weights
from t2t_jax.parallel.mesh import constrain


class LayerTrace(NamedTuple):
    """Lists that collect what the layers of a model compute.

    Attributes:
      encoder, decoder, cross: attention weights, an array [b, h, t, s] of each layer.
      outputs: for each decoder layer, what `Architecture.outputs` would return if it
        were the last one, [b, t, d]; None if they are not wanted. It stays empty for a
        model without such layers.
    """

    encoder: list[Array]
    decoder: list[Array]
    cross: list[Array]
    outputs: list[Array] | None = None

    def add_output(self, x_btd: Array) -> None:
        """Collects one decoder layer's output, if these are wanted."""
        if self.outputs is not None:
            self.outputs.append(x_btd)


class AttentionFunction(NamedTuple):
    """A way to compute attention.

    Attributes:
      attend: (q_bthk, kv, mask, position, drop) -> [b, t, h, width of values]; with
        `options=`, an instance of `Options`, if it has that class. `drop` is called
        on the weights.
      weights: (q_bthk, kv, mask, position) -> float32 [b, h, t, s], likewise: what it
        multiplies the values with, for pictures and alignments. None if it has no
        weights.
      cross: also for cross-attention, which is otherwise `fused`.
      Options: a frozen dataclass of hyperparameters, or None.
    """

    attend: Callable
    weights: Callable | None = None
    cross: bool = True
    Options: type | None = None


def fused(
    q_bthk: Array, kv: KV, mask: Mask, position: Position, drop: Dropout
) -> Array:
    """Computes `dense` in one kernel, if the device has one for these arguments."""
    kernel = kernel_for(q_bthk, kv, mask, position, drop)
    if kernel is None:
        return dense(q_bthk, kv, mask, position, drop)
    return kernel(q_bthk, kv, mask, position.scores(scaled(q_bthk), mask))


def unscaled(
    q_bthk: Array, kv: KV, mask: Mask, position: Position, drop: Dropout
) -> Array:
    """Attends by softmax(q k^T) v: equation 1 without the division by sqrt(d_k)."""
    return fused(_multiplied(q_bthk), kv, mask, position, drop)


def unscaled_weights(q_bthk: Array, kv: KV, mask: Mask, position: Position) -> Array:
    """The weights of `unscaled`, float32 [b, h, t, s]."""
    return attention_weights(_multiplied(q_bthk), kv, mask, position)


def _multiplied(q_bthk: Array) -> Array:
    """Multiplies queries by the root of the head width, so `scaled` undoes it."""
    return q_bthk * q_bthk.shape[-1] ** 0.5


# Add your attention function here.
ATTENTION = {
    "fused": AttentionFunction(fused, attention_weights),
    "dense": AttentionFunction(dense, attention_weights),
    "unscaled": AttentionFunction(unscaled, unscaled_weights),
    "restricted": AttentionFunction(
        restricted, restricted_weights, cross=False, Options=RestrictedOptions
    ),
    "chunked": AttentionFunction(
        chunked,
        lambda *arguments, options: attention_weights(*arguments),
        Options=ChunkedOptions,
    ),
}


class Attention(nnx.Module):
    """Multi-head attention (section 3.2.2).

    Args:
      config: with the sizes of the stack.
      cross: True if the keys are not the queries' own tokens.
    """

    def __init__(self, config: ModelConfig, rng: Array, cross: bool = False):
        chosen = config.variant("attention")
        if not isinstance(chosen, AttentionFunction):
            raise UserError(
                f"ATTENTION[{config.attention!r}] is {chosen!r}; want an "
                "AttentionFunction: its function, and its weights if it has any"
            )
        self.variant = config.attention if chosen.cross or not cross else "fused"
        self.options = config.own_options(ATTENTION[self.variant])
        self.rate = config.attention_dropout
        width = {"width": config.width}
        keys = {"heads": config.heads, "head": config.width_of_head}
        values = {"heads": config.heads, "head": config.width_of_value}
        q_rng, k_rng, v_rng, o_rng = jax.random.split(rng, 4)
        # These names are part of the checkpoint format.
        self.query = weight(q_rng, width, keys)
        self.key = weight(k_rng, width, keys)
        self.value = weight(v_rng, width, values)
        self.out = weight(o_rng, values, width)
        self.has_bias = config.attention_bias
        if config.attention_bias:
            self.query_bias = constant(0.0, keys)
            self.key_bias = constant(0.0, keys)
            self.value_bias = constant(0.0, values)
            self.out_bias = constant(0.0, width)

    def _project(self, x_btd: Array, name: str) -> Array:
        """Projects to the queries, keys or values of each head, [b, t, h, k]."""
        matrix_dhk = getattr(self, name)[...].astype(x_btd.dtype)
        y_bthk = jnp.einsum("btd,dhk->bthk", x_btd, matrix_dhk)
        if self.has_bias:
            y_bthk += getattr(self, f"{name}_bias")[...].astype(x_btd.dtype)
        return constrain(y_bthk, "batch", "length", "heads", "head")

    def keys_values(
        self, x_bsd: Array, at: Tokens | None = None, position: Position | None = None
    ) -> KV:
        """Projects `x_bsd` to keys and values; keys as the scheme turns them."""
        kv = KV(self._project(x_bsd, "key"), self._project(x_bsd, "value"))
        return kv._replace(k_bshk=position.rotate(kv.k_bshk, at)) if position else kv

    def __call__(
        self,
        x_btd: Array,
        kv: KV,
        mask: Mask,
        position: Position | None = None,
        rng: DropoutRng | None = None,
        trace: list | None = None,
    ) -> Array:
        """Attends from `x_btd` to `kv`.

        Args:
          position: the scheme of self-attention; None for cross-attention.
          trace: if given, the weights are appended to it.

        Raises:
          UserError: weights are asked of a function that has none.
        """
        function = ATTENTION[self.variant]
        options = {"options": self.options} if self.options else {}
        position = NO_POSITION if position is None else position
        q_bthk = position.rotate(self._project(x_btd, "query"), mask.query)
        if trace is not None:
            if function.weights is None:
                raise UserError(
                    f"config.model.attention={self.variant!r} has no attention weights "
                    "to show or to align words with"
                )
            # Computed a second time, since fused kernels do not return the weights.
            trace.append(function.weights(q_bthk, kv, mask, position, **options))
        drop = Dropout(self.rate, rng)
        y_bthk = function.attend(q_bthk, kv, mask, position, drop, **options)
        y_btd = jnp.einsum("bthk,hkd->btd", y_bthk, self.out[...].astype(x_btd.dtype))
        if self.has_bias:
            y_btd += self.out_bias[...].astype(x_btd.dtype)
        return constrain(y_btd, "batch", "length", "features")


NO_POSITION = Position(ModelConfig(), causal=False, rng=None)
