"""Parts of every layer: weights with named axes, dropout, LayerNorm, feed-forward.

Shape suffixes: b batch, t length, d model width, f feed-forward width.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.parallel.mesh import constrain

Parameters = dict[str, Any]  # nested; the leaves are float32 arrays

EPSILON = 1e-6  # of LayerNorm: tensor2tensor's value, as the paper gives none


def weight(rng: Array, inputs: dict[str, int], outputs: dict[str, int]) -> nnx.Param:
    """A Glorot-uniform weight whose dicts give both its shape and its axis names."""
    names, shape = zip(*inputs.items(), *outputs.items(), strict=True)
    n = len(inputs)
    init = jax.nn.initializers.glorot_uniform(range(n), range(n, len(shape)))
    return nnx.Param(init(rng, shape, jnp.float32), axes=names)


def constant(value: float, axes: dict[str, int]) -> nnx.Param:
    """A parameter with one initial value everywhere: biases, LayerNorm."""
    shape = tuple(axes.values())
    return nnx.Param(jnp.full(shape, value, jnp.float32), axes=tuple(axes))


class DropoutRng(NamedTuple):
    """The randomness of dropout.

    Attributes:
      key: a `jax.random` key.
      row_b: int32, the number of each row in the global batch, so that a row gets the
        same dropout in any microbatch and on any device.
    """

    key: Array
    row_b: Array


def dropout_rngs(rng: DropoutRng | None) -> Iterator[DropoutRng | None]:
    """Yields different rngs without end, derived from `rng`; None if `rng` is None."""
    for i in itertools.count():
        yield rng and rng._replace(key=jax.random.fold_in(rng.key, i))


def dropout(x: Array, rate: float, rng: DropoutRng | None) -> Array:
    """Zeroes a fraction `rate` of `x`, [b, ...], and rescales the rest.

    Without an `rng`, returns `x`. `rate` is rounded to a multiple of 2^-32, and the
    rescaling uses the rounded rate, so the expected value is exactly `x`.
    """
    if rng is None or rate == 0:
        return x
    threshold = min(round(rate * 2**32), 2**32 - 1)
    kept = random_bits(rng, x.shape[1:]) >= jnp.uint32(threshold)
    return jnp.where(kept, x * (2**32 / (2**32 - threshold)), 0).astype(x.dtype)


def random_bits(rng: DropoutRng, shape: tuple[int, ...]) -> Array:
    """Returns 32 random bits for each element of an array [b, *shape].

    The bits are a hash of the element's index (the finaliser of MurmurHash3, keyed).
    This costs less than `jax.random.bits`, which is stronger than dropout needs. It is
    element-wise, so XLA fuses it into the operation that reads it, and each device
    computes only the bits of its own rows.
    """
    first, second = jax.random.key_data(rng.key)[:2]
    size = math.prod(shape)
    rows = rng.row_b.astype(jnp.uint32).reshape(-1, *[1] * len(shape))
    # The index of each element in the global batch, modulo 2^32.
    x = jax.lax.iota(jnp.uint32, size).reshape(shape) + rows * jnp.uint32(size)
    x = (x + first) * jnp.uint32(0x9E3779B9)  # 2^32 / the golden ratio
    x = (x ^ (x >> 16) ^ second) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


class LayerNorm(nnx.Module):
    """Normalises the last axis (Ba et al. 2016), in float32."""

    def __init__(self, width: int):
        self.scale = constant(1.0, {"norm": width})
        self.bias = constant(0.0, {"norm": width})

    def __call__(self, x_btd: Array) -> Array:
        # bfloat16 has 8 significant bits, too few for a mean and a variance.
        x = x_btd.astype(jnp.float32)
        x = x - x.mean(-1, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + EPSILON)
        return (x * self.scale[...] + self.bias[...]).astype(x_btd.dtype)


class FeedForward(nnx.Module):
    """max(0, xW1 + b1)W2 + b2 (section 3.3, equation 2)."""

    def __init__(self, config: ModelConfig, rng: Array):
        width, hidden = {"width": config.width}, {"hidden": config.hidden}
        inner_rng, outer_rng = jax.random.split(rng)
        self.inner = weight(inner_rng, width, hidden)
        self.inner_bias = constant(0.0, hidden)
        self.outer = weight(outer_rng, hidden, width)
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
    """The residual connection around attention or feed-forward (sections 3.1, 5.4).

    The paper's `post`: LayerNorm(x + Dropout(Sublayer(x))). Pre-norm:
    x + Dropout(Sublayer(LayerNorm(x))). A layer calls `before` for the input of the
    sub-layer and `after` with its output.
    """

    def __init__(self, config: ModelConfig):
        self.norm = LayerNorm(config.width)
        self.pre_norm = config.norm == "pre"
        self.rate = config.dropout

    def before(self, x_btd: Array) -> Array:
        return self.norm(x_btd) if self.pre_norm else x_btd

    def after(self, x_btd: Array, y_btd: Array, rng: DropoutRng | None) -> Array:
        x_btd = x_btd + dropout(y_btd, self.rate, rng)
        return x_btd if self.pre_norm else self.norm(x_btd)


def compute_dtype(config: ModelConfig) -> jnp.dtype:
    """Returns the dtype of activations; `auto` is bfloat16 if the device has it."""
    if config.dtype != "auto":
        return jnp.dtype(config.dtype)
    device = jax.devices()[0]
    native = device.platform == "tpu" or (
        device.platform == "gpu"
        and float(getattr(device, "compute_capability", 0)) >= 8  # Ampere or newer
    )
    return jnp.dtype(jnp.bfloat16 if native else jnp.float32)


NORMS = {"layer": LayerNorm}
