"""Attention (section 3.2).

Shape suffixes: b batch, t queries, s keys, d model width, h heads, k head width.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.model.kernels import kernel_for
from t2t_jax.model.layers import DropoutRng, weight
from t2t_jax.parallel.mesh import constrain
from t2t_jax.terminal.errors import UserError, did_you_mean


class KV(NamedTuple):
    """Keys and values of the tokens attended to, [batch, keys, heads, head width]."""

    k_bshk: Array
    v_bshk: Array


class AttentionTrace(NamedTuple):
    """Lists that collect attention weights: an array [b, h, t, s] of each layer."""

    encoder: list[Array]
    decoder: list[Array]
    cross: list[Array]


# `causal` is static metadata: as an array leaf it would be traced by jax.checkpoint,
# and `kernel_for` could not see it.
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mask:
    """Which keys a query may attend to, described by structure and not by an array.

    Attributes:
      query_segment_bt, key_segment_bs: int, the number of a token's sentence in its
        row, 0 for padding. A query attends only to keys of its own segment (padding
        attends to padding).
      only_bts: None, or bool: further restricts the keys. Decoding needs it, since the
        keys of all hypotheses of a sentence are in one row.
      causal: query t attends to keys 0 to t only.
    """

    query_segment_bt: Array
    key_segment_bs: Array
    only_bts: Array | None = None
    causal: bool = dataclasses.field(default=False, metadata={"static": True})

    def allowed(self) -> Array:
        """Returns the mask as an array, bool [b, 1, t, s]; 1 is for the heads."""
        query_bt, key_bs = self.query_segment_bt, self.key_segment_bs
        allowed_bts = query_bt[:, :, None] == key_bs[:, None, :]
        if self.causal:
            t = jnp.arange(query_bt.shape[1])[:, None]
            allowed_bts &= jnp.arange(key_bs.shape[1]) <= t
        if self.only_bts is not None:
            allowed_bts &= self.only_bts
        return allowed_bts[:, None]

    def bias(self) -> Array:
        """Returns what is added to the scores, float32 [b, 1, t, s]: 0 or -1e9.

        -1e9 and not -inf, so that the softmax of a query without allowed keys is not
        NaN.
        """
        return jnp.where(self.allowed(), jnp.float32(0), jnp.float32(-1e9))


def attention_weights(q_bthk: Array, kv: KV, mask: Mask) -> Array:
    """softmax(q k^T / sqrt(head width)) in float32, [b, h, t, s] (equation 1)."""
    scale = q_bthk.shape[-1] ** -0.5
    scores_bhts = jnp.einsum("bthk,bshk->bhts", q_bthk * scale, kv.k_bshk)
    return jax.nn.softmax(scores_bhts.astype(jnp.float32) + mask.bias())


def dense(q_bthk: Array, kv: KV, mask: Mask, rng: DropoutRng | None) -> Array:
    """Scaled dot-product attention (section 3.2.1, equation 1); softmax in float32.

    `rng` is for variants that drop attention weights; the paper does not (section 5.4).
    """
    weights_bhts = attention_weights(q_bthk, kv, mask).astype(q_bthk.dtype)
    return jnp.einsum("bhts,bshk->bhtk", weights_bhts, kv.v_bshk).swapaxes(1, 2)


def fused(q_bthk: Array, kv: KV, mask: Mask, rng: DropoutRng | None) -> Array:
    """Computes `dense` in one kernel, if the device has one for these arrays."""
    kernel = kernel_for(q_bthk, kv, mask)
    if kernel is None:
        return dense(q_bthk, kv, mask, rng)
    return kernel(q_bthk, kv, mask)


# Add your variant here: same signature.
ATTENTION = {"fused": fused, "dense": dense}


class Attention(nnx.Module):
    """Multi-head attention (section 3.2.2), without biases."""

    def __init__(self, config: ModelConfig, rng: Array):
        if config.attention not in ATTENTION:
            raise UserError(
                f"config.model.attention={config.attention!r}"
                + did_you_mean(config.attention, ATTENTION)
            )
        self.variant = config.attention
        width = {"width": config.width}
        heads = {"heads": config.heads, "head": config.width_of_head}
        q_rng, k_rng, v_rng, o_rng = jax.random.split(rng, 4)
        # These names are part of the checkpoint format.
        self.query = weight(q_rng, width, heads)
        self.key = weight(k_rng, width, heads)
        self.value = weight(v_rng, width, heads)
        self.out = weight(o_rng, heads, width)

    def queries(self, x_btd: Array) -> Array:
        """Projects `x_btd` to the queries of each head, [b, t, h, k]."""
        q_bthk = jnp.einsum("btd,dhk->bthk", x_btd, self.query[...].astype(x_btd.dtype))
        return constrain(q_bthk, "batch", "length", "heads", "head")

    def keys_values(self, x_bsd: Array) -> KV:
        """Projects `x_bsd` to the keys and values of each head."""
        dtype = x_bsd.dtype
        k_bshk = jnp.einsum("bsd,dhk->bshk", x_bsd, self.key[...].astype(dtype))
        v_bshk = jnp.einsum("bsd,dhk->bshk", x_bsd, self.value[...].astype(dtype))
        return KV(
            constrain(k_bshk, "batch", "length", "heads", "head"),
            constrain(v_bshk, "batch", "length", "heads", "head"),
        )

    def __call__(
        self, x_btd: Array, kv: KV, mask: Mask, rng=None, trace: list | None = None
    ) -> Array:
        """Attends from `x_btd` to `kv`; appends the weights to `trace`, if given."""
        q_bthk = self.queries(x_btd)
        if trace is not None:
            # Computed a second time, since fused kernels do not return the weights.
            trace.append(attention_weights(q_bthk, kv, mask))
        y_bthk = ATTENTION[self.variant](q_bthk, kv, mask, rng)
        y_btd = jnp.einsum("bthk,hkd->btd", y_bthk, self.out[...].astype(x_btd.dtype))
        return constrain(y_btd, "batch", "length", "features")
