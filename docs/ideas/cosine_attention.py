"""Attention function: cosines as scores (Liu et al. 2022, Swin Transformer V2).

There, and in Henry et al. 2020, the temperature is learned; here it is an option.
"""

import dataclasses

import jax
import jax.numpy as jnp

from t2t_jax.model.attention import (
    ATTENTION,
    AttentionFunction,
    attention_weights,
    fused,
)
from t2t_jax.sections import field


@dataclasses.dataclass(frozen=True)
class CosineOptions:
    """`attention_temperature`: what the cosines, from -1 to 1, are divided by."""

    attention_temperature: float = field(0.1, low=0.01)


def unit(x_bthk):
    """Divides queries or keys by their norms, in float32."""
    x = x_bthk.astype(jnp.float32)
    x *= jax.lax.rsqrt(jnp.square(x).sum(-1, keepdims=True) + 1e-6)
    return x.astype(x_bthk.dtype)


def normalized(q_bthk, kv, options):
    """Returns queries and keys for which equation 1 computes cosines / temperature."""
    # Equation 1 divides by the root of the head width.
    scale = q_bthk.shape[-1] ** 0.5 / options.attention_temperature
    return unit(q_bthk) * scale, kv._replace(k_bshk=unit(kv.k_bshk))


def cosine(q_bthk, kv, mask, position, drop, options):
    """Attends by the cosine of query and key; fused where the device can."""
    return fused(*normalized(q_bthk, kv, options), mask, position, drop)


def cosine_weights(q_bthk, kv, mask, position, options):
    """The weights of `cosine`, for pictures and alignments."""
    return attention_weights(*normalized(q_bthk, kv, options), mask, position)


ATTENTION["cosine"] = AttentionFunction(cosine, cosine_weights, Options=CosineOptions)
