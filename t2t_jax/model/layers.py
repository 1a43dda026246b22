"""The small parts: weights with named axes, dropout, LayerNorm, feed-forward.

Shape suffixes: b batch, t length, d model width, f feed-forward width.
"""

import itertools
from collections.abc import Iterator

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


def keys(key: Array | None) -> Iterator[Array | None]:
    """As many dropout keys as are asked for; no key gives no keys."""
    for i in itertools.count():
        yield None if key is None else jax.random.fold_in(key, i)


def dropout(x: Array, rate: float, key: Array | None) -> Array:
    """Zeroes a fraction of `x` and rescales the rest; no key, no dropout.

    16 random bits decide an element, half of what a float would take: `rate` is rounded
    to 1/65536, and the rescaling uses the rounded rate, so the mean stays exactly `x`.
    """
    if key is None or rate == 0:
        return x
    threshold = min(round(rate * 65536), 65535)
    kept = jax.random.bits(key, x.shape, jnp.uint16) >= jnp.uint16(threshold)
    return jnp.where(kept, x * (65536 / (65536 - threshold)), 0).astype(x.dtype)


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

    def leave(self, x_btd: Array, y_btd: Array, key: Array | None) -> Array:
        x_btd = x_btd + dropout(y_btd, self.rate, key)
        return x_btd if self.pre_norm else self.norm(x_btd)
