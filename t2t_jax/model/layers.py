"""The small parts: weights with named axes, dropout, LayerNorm, feed-forward.

Shape suffixes: b batch, t length, d model width, f feed-forward width.
"""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.parallel.mesh import constrain


def weight(key: Array, inputs: dict[str, int], outputs: dict[str, int]) -> nnx.Param:
    """A Glorot-uniform weight whose dicts give both its shape and its axis names."""
    names, shape = zip(*inputs.items(), *outputs.items(), strict=True)
    n = len(inputs)
    init = jax.nn.initializers.glorot_uniform(range(n), range(n, len(shape)))
    return nnx.Param(init(key, shape, jnp.float32), axes=names)


def constant(value: float, axes: dict[str, int]) -> nnx.Param:
    """A parameter that starts at one value everywhere: biases, LayerNorm."""
    shape = tuple(axes.values())
    return nnx.Param(jnp.full(shape, value, jnp.float32), axes=tuple(axes))


class Key(NamedTuple):
    """What dropout draws from: a `jax.random` key, and which rows these are.

    `row_b` numbers the rows in the whole batch, int32 [b], so that a row is dropped out
    alike in whatever part of the batch, and on whatever device, it is computed.
    """

    key: Array
    row_b: Array


def keys(key: Key | None) -> Iterator[Key | None]:
    """As many dropout keys as are asked for; no key gives no keys."""
    for i in itertools.count():
        yield key and key._replace(key=jax.random.fold_in(key.key, i))


def dropout(x: Array, rate: float, key: Key | None) -> Array:
    """Zeroes a fraction of `x`, [b, ...], and rescales the rest; no key, no dropout.

    `rate` is rounded to 2^-32, and the rescaling uses the rounded rate, so the mean
    stays exactly `x`.
    """
    if key is None or rate == 0:
        return x
    threshold = min(round(rate * 2**32), 2**32 - 1)
    kept = noise(key, x.shape[1:]) >= jnp.uint32(threshold)
    return jnp.where(kept, x * (2**32 / (2**32 - threshold)), 0).astype(x.dtype)


def noise(key: Key, shape: tuple[int, ...]) -> Array:
    """32 random bits for each element of an array [b, *shape].

    A hash of the element's place (the finaliser of MurmurHash3, keyed): less work than
    `jax.random.bits`, which is made for more than dropout needs, and nothing but
    element-wise integers, so that it is fused into what reads it and each device makes
    the bits of its own rows.
    """
    first, second = jax.random.key_data(key.key)[:2]
    size = math.prod(shape)
    rows = key.row_b.astype(jnp.uint32).reshape(-1, *[1] * len(shape))
    x = jax.lax.iota(jnp.uint32, size).reshape(shape) + rows * jnp.uint32(size)
    x = (x + first) * jnp.uint32(0x9E3779B9)
    x = (x ^ (x >> 16) ^ second) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


class LayerNorm(nnx.Module):
    """Normalises the last axis (Ba et al. 2016), in float32; epsilon 1e-6."""

    def __init__(self, width: int):
        self.scale = constant(1.0, {"norm": width})
        self.bias = constant(0.0, {"norm": width})

    def __call__(self, x_btd: Array) -> Array:
        x = x_btd.astype(jnp.float32)
        x = x - x.mean(-1, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)
        return (x * self.scale[...] + self.bias[...]).astype(x_btd.dtype)


class FeedForward(nnx.Module):
    """max(0, xW1 + b1)W2 + b2 (section 3.3, equation 2)."""

    def __init__(self, config: ModelConfig, key: Array):
        width, hidden = {"width": config.width}, {"hidden": config.hidden}
        first, second = jax.random.split(key)
        self.inner = weight(first, width, hidden)
        self.inner_bias = constant(0.0, hidden)
        self.outer = weight(second, hidden, width)
        self.outer_bias = constant(0.0, width)

    def __call__(self, x_btd: Array) -> Array:
        dtype = x_btd.dtype
        x_btf = jnp.einsum("btd,df->btf", x_btd, self.inner[...].astype(dtype))
        x_btf = constrain(x_btf, "batch", "length", "hidden")
        x_btf = jax.nn.relu(x_btf + self.inner_bias[...].astype(dtype))
        y_btd = jnp.einsum("btf,fd->btd", x_btf, self.outer[...].astype(dtype))
        y_btd = constrain(y_btd, "batch", "length", "features")
        return y_btd + self.outer_bias[...].astype(dtype)


class SubLayer(nnx.Module):
    """The residual connection around attention or feed-forward (section 3.1, 5.4).

    The paper: LayerNorm(x + Dropout(Sublayer(x))), called `post`. Pre-norm:
    x + Dropout(Sublayer(LayerNorm(x))). A layer calls `enter` for the sub-layer's
    input and `leave` with its output.
    """

    def __init__(self, config: ModelConfig):
        self.norm = LayerNorm(config.width)
        self.pre_norm = config.norm == "pre"
        self.rate = config.dropout

    def enter(self, x_btd: Array) -> Array:
        return self.norm(x_btd) if self.pre_norm else x_btd

    def leave(self, x_btd: Array, y_btd: Array, key: Key | None) -> Array:
        x_btd = x_btd + dropout(y_btd, self.rate, key)
        return x_btd if self.pre_norm else self.norm(x_btd)
