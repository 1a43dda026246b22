"""Attention (section 3.2).

Shape suffixes: b batch, t queries, s keys, d model width, h heads, k head width.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.errors import UserError, nearest
from t2t_jax.model.kernels import kernel_for
from t2t_jax.model.layers import Key, weight
from t2t_jax.parallel.mesh import constrain


class KV(NamedTuple):
    """What attention remembers: keys and values, [batch, source, heads, head width]."""

    k_bshk: Array
    v_bshk: Array


class Seen(NamedTuple):
    """Where attention leaves its weights: an array [b, h, t, s] a layer."""

    encoder: list[Array]
    decoder: list[Array]
    cross: list[Array]


class Mask(NamedTuple):
    """Which key a query may see, said by structure and not by a [t, s] array.

    Attributes:
      query_segment_bt, key_segment_bs: int, a sentence's number in its row, 0 for
        padding; a query sees the keys of its own segment (padding sees padding).
      first: None, or for causal masks the index among the keys of the first query:
        query t sees the keys up to `first + t`.
      only_bts: None, or bool: of those keys, the ones that a query sees. Decoding has
        the pasts of all hypotheses of a sentence as its keys.
    """

    query_segment_bt: Array
    key_segment_bs: Array
    first: Array | int | None = None
    only_bts: Array | None = None

    def allowed(self) -> Array:
        """bool [b, 1, t, s]."""
        query_bt, key_bs = self.query_segment_bt, self.key_segment_bs
        allowed_bts = query_bt[:, :, None] == key_bs[:, None, :]
        if self.first is not None:
            t = jnp.arange(query_bt.shape[1])[:, None] + self.first
            allowed_bts &= jnp.arange(key_bs.shape[1]) <= t
        if self.only_bts is not None:
            allowed_bts &= self.only_bts
        return allowed_bts[:, None]

    def bias(self) -> Array:
        """float32 [b, 1, t, s]: what is added to the scores, 0 or -1e9.

        Finite, so that a query that may see nothing stays a number.
        """
        return jnp.where(self.allowed(), jnp.float32(0), jnp.float32(-1e9))


def attention_weights(q_bthk: Array, kv: KV, mask: Mask) -> Array:
    """softmax(q k^T / sqrt(head width)) in float32, [b, h, t, s] (equation 1)."""
    scale = q_bthk.shape[-1] ** -0.5
    scores_bhts = jnp.einsum("bthk,bshk->bhts", q_bthk * scale, kv.k_bshk)
    return jax.nn.softmax(scores_bhts.astype(jnp.float32) + mask.bias())


def dense(q_bthk: Array, kv: KV, mask: Mask, key: Key | None) -> Array:
    """Scaled dot-product attention (section 3.2.1, equation 1); softmax in float32.

    `key` is the dropout key, for variants that drop attention weights; the paper does
    not (section 5.4).
    """
    weights_bhts = attention_weights(q_bthk, kv, mask).astype(q_bthk.dtype)
    return jnp.einsum("bhts,bshk->bhtk", weights_bhts, kv.v_bshk).swapaxes(1, 2)


def fused(q_bthk: Array, kv: KV, mask: Mask, key: Key | None) -> Array:
    """`dense`, in one kernel where the backend has one for these shapes and types."""
    kernel = kernel_for(q_bthk, kv, mask)
    if kernel is None:
        return dense(q_bthk, kv, mask, key)
    return kernel(q_bthk, kv, mask)


# Add your variant here: same signature.
ATTENTION = {"fused": fused, "dense": dense}


class Attention(nnx.Module):
    """Multi-head attention (section 3.2.2), without biases."""

    def __init__(self, config: ModelConfig, key: Array):
        if config.attention not in ATTENTION:
            raise UserError(
                f"config.model.attention={config.attention!r}"
                + nearest(config.attention, ATTENTION)
            )
        self.variant = config.attention
        width = {"width": config.width}
        head_width = config.head_width or config.width // config.heads
        heads = {"heads": config.heads, "head": head_width}
        q, k, v, o = jax.random.split(key, 4)
        self.query = weight(q, width, heads)
        self.key = weight(k, width, heads)
        self.value = weight(v, width, heads)
        self.out = weight(o, heads, width)

    def ask(self, x_btd: Array) -> Array:
        """The queries, [b, t, h, k]."""
        q_bthk = jnp.einsum("btd,dhk->bthk", x_btd, self.query[...].astype(x_btd.dtype))
        return constrain(q_bthk, "batch", "length", "heads", "head")

    def remember(self, x_bsd: Array) -> KV:
        """The keys and values of what may be attended to."""
        dtype = x_bsd.dtype
        k_bshk = jnp.einsum("bsd,dhk->bshk", x_bsd, self.key[...].astype(dtype))
        v_bshk = jnp.einsum("bsd,dhk->bshk", x_bsd, self.value[...].astype(dtype))
        return KV(
            constrain(k_bshk, "batch", "length", "heads", "head"),
            constrain(v_bshk, "batch", "length", "heads", "head"),
        )

    def __call__(
        self, x_btd: Array, kv: KV, mask: Mask, key=None, seen: list | None = None
    ) -> Array:
        """Attends; leaves its weights in `seen`."""
        q_bthk = self.ask(x_btd)
        if seen is not None:
            seen.append(attention_weights(q_bthk, kv, mask))
        y_bthk = ATTENTION[self.variant](q_bthk, kv, mask, key)
        y_btd = jnp.einsum("bthk,hkd->btd", y_bthk, self.out[...].astype(x_btd.dtype))
        return constrain(y_btd, "batch", "length", "features")
