"""Parts of every layer: weights with named axes, dropout, normalization, dtype.

Shape suffixes: b batch, t length, d model width, v vocabulary.
"""

import math
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.model.products import Weight, product
from t2t_jax.parallel.mesh import (
    constrain,
    has_bfloat16,
    target_device,
)

Parameters = dict[str, Any]  # nested; the leaves are float32 arrays


def named(rng: Array, *names: str | int) -> Array:
    """Derives the random key of a part from that of the whole, by its `names` in it."""
    # By number, keys meet: `split(rng)[1]` is `fold_in(rng, 1)`.
    path = "/".join(map(str, names))
    return jax.random.fold_in(rng, zlib.crc32(path.encode()))


def weight(rng: Array, inputs: dict[str, int], outputs: dict[str, int]) -> nnx.Param:
    """A Glorot-uniform weight; the dicts give its axes, by name, and their sizes.

    Products sum over its `inputs`: multiply by `product` (`model/products.py`).
    """
    names, shape = zip(*inputs.items(), *outputs.items(), strict=True)
    n = len(inputs)
    init = jax.nn.initializers.glorot_uniform(range(n), range(n, len(shape)))
    return nnx.Param(init(rng, shape, jnp.float32), axes=names, summed=(*range(n),))


def constant(value: float, axes: dict[str, int]) -> nnx.Param:
    """A parameter with one initial value everywhere: biases, LayerNorm."""
    shape = tuple(axes.values())
    return nnx.Param(jnp.full(shape, value, jnp.float32), axes=tuple(axes))


def linear(
    x_btd: Array,
    matrix: nnx.Param,
    axis: str = "features",
    bias: nnx.Param | None = None,
) -> Array:
    """The product with a weight of two axes, in the dtype of `x_btd`, plus a bias.

    Args:
      axis: the logical axis of the outputs, along which they are sharded.
    """
    y_btf = product("btd,df->btf", x_btd, matrix)
    y_btf = constrain(y_btf, "batch", "length", axis)
    return y_btf if bias is None else y_btf + bias[...].astype(x_btd.dtype)


class DropoutRng(NamedTuple):
    """The randomness of dropout.

    Attributes:
      key: a `jax.random` key.
      row_b: int32, the number of each row in the global batch, so that a row gets the
        same dropout in any microbatch and on any device.
    """

    key: Array
    row_b: Array


def dropout_rngs(rng: DropoutRng | None, count: int) -> list[DropoutRng | None]:
    """Returns `count` different rngs, derived from `rng`; None if `rng` is None."""
    if rng is None:
        return [None] * count
    # All at once: one kernel of a GPU, and not one for each.
    keys = jax.vmap(partial(jax.random.fold_in, rng.key))(jnp.arange(count))
    return [rng._replace(key=key) for key in keys]


def dropout(x: Array, rate: float, rng: DropoutRng | None) -> Array:
    """Zeroes a fraction `rate` of `x`, [b, ...], and rescales the rest.

    Without an `rng`, returns `x`. `rate` is rounded to a multiple of 2^-32, and the
    rescaling uses the rounded rate, so the expected value is exactly `x`.
    """
    if rng is None or rate == 0:
        return x
    threshold = min(round(rate * 2**32), 2**32 - 1)
    keep = random_bits(rng, x.shape[1:]) >= jnp.uint32(threshold)
    return jnp.where(keep, times(x, 2**32 / (2**32 - threshold)), 0)


def times(x: Array, factor: float) -> Array:
    """Multiplies by a Python number that bfloat16 would round by up to 0.2%."""
    x_float32 = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return (x_float32 * factor).astype(x.dtype)


def random_bits(rng: DropoutRng, shape: tuple[int, ...]) -> Array:
    """Returns 32 random bits for each element of an array [b, *shape].

    The bits are a hash of the element's index (the finaliser of MurmurHash3, keyed).
    This costs less than `jax.random.bits`, which is stronger than dropout needs. It is
    element-wise, so XLA fuses it into the operation that reads it, and each device
    computes only the bits of its own rows.
    """
    key0, key1 = jax.random.key_data(rng.key)[:2]
    size = math.prod(shape)
    rows = rng.row_b.astype(jnp.uint32).reshape(-1, *[1] * len(shape))
    # The index of each element in the global batch, modulo 2^32.
    x = jax.lax.iota(jnp.uint32, size).reshape(shape) + rows * jnp.uint32(size)
    x = (x + key0) * jnp.uint32(0x9E3779B9)  # 2^32 / the golden ratio
    x = (x ^ (x >> 16) ^ key1) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


class Dropout(NamedTuple):
    """Dropout with its rate and randomness; called on an array, it drops.

    Attributes:
      rate: 0 <= rate < 1.
      rng: None turns it off.
    """

    rate: float
    rng: DropoutRng | None

    @property
    def active(self) -> bool:
        """False if calling it returns its argument."""
        return self.rng is not None and self.rate > 0

    def __call__(self, x: Array) -> Array:
        return dropout(x, self.rate, self.rng)

    def block(self, number: Array | int) -> "Dropout":
        """Returns independent dropout for one of several blocks of an array."""
        if self.rng is None:
            return self
        key = jax.random.fold_in(self.rng.key, number)
        return self._replace(rng=self.rng._replace(key=key))


def normalized(
    x_btd: Array, scale_d: Array, bias_d: Array | None, centred: bool, epsilon: float
) -> Array:
    """Normalizes the last axis, in float32; in the dtype of `x_btd`."""
    # bfloat16 has 8 significant bits, too few for a mean and a variance.
    x = x_btd.astype(jnp.float32)
    if centred:
        x = x - x.mean(-1, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon)
    return (x * scale_d if bias_d is None else x * scale_d + bias_d).astype(x_btd.dtype)


# As JAX's gradient, but of a bfloat16 input no float32 array [b, t, d] is stored: the
# backward pass normalizes again.
_narrow = partial(jax.custom_vjp, nondiff_argnums=(3, 4))(normalized)


def _narrow_forward(x_btd, scale_d, bias_d, centred, epsilon):
    y_btd = normalized(x_btd, scale_d, bias_d, centred, epsilon)
    return y_btd, (x_btd, scale_d, bias_d)


def _narrow_backward(centred, epsilon, stored, tangent_btd):
    x_btd, scale_d, bias_d = stored
    inverse_width = 1 / x_btd.shape[-1]  # a product is cheaper than a quotient
    # Barriers, or XLA would store what the forward pass computed, and the product below
    # whose sum is the gradient of the scale.
    x = jax.lax.optimization_barrier(x_btd).astype(jnp.float32)
    # Mean and variance in one pass. bfloat16 tells numbers apart whose mean is at most
    # 2^8 times their deviation: of the 24 bits of float32, at most 16 cancel.
    sums = x.sum(-1, keepdims=True), jnp.square(x).sum(-1, keepdims=True)
    total_bt1, squares_bt1 = jax.lax.optimization_barrier(sums)
    mean_bt1 = total_bt1 * inverse_width if centred else jnp.zeros_like(total_bt1)
    variance_bt1 = squares_bt1 * inverse_width - jnp.square(mean_bt1)
    inverse_bt1 = jax.lax.rsqrt(variance_bt1 + epsilon)
    unit_btd = (x - mean_bt1) * inverse_bt1
    tangent_btd = tangent_btd.astype(jnp.float32)
    scaled_btd = tangent_btd * scale_d
    along_bt1 = (scaled_btd * unit_btd).sum(-1, keepdims=True) * inverse_width
    gradient_btd = scaled_btd - unit_btd * along_bt1
    if centred:
        gradient_btd -= scaled_btd.sum(-1, keepdims=True) * inverse_width
    gradient_btd = (gradient_btd * inverse_bt1).astype(x_btd.dtype)
    # One reduction, which a GPU also ends in one kernel.
    gradient_d, total_d = jax.lax.reduce(
        (tangent_btd * unit_btd, tangent_btd),
        (jnp.float32(0), jnp.float32(0)),
        lambda totals, terms: (totals[0] + terms[0], totals[1] + terms[1]),
        (0, 1),
    )
    return gradient_btd, gradient_d, None if bias_d is None else total_d


_narrow.defvjp(_narrow_forward, _narrow_backward)


def normalize(x: Array, *arguments) -> Array:
    """`normalized`; on a GPU with a gradient that stores less of a bfloat16 input."""
    narrow = x.dtype == jnp.bfloat16 and target_device().platform == "gpu"
    return (_narrow if narrow else normalized)(x, *arguments)


class LayerNorm(nnx.Module):
    """Normalizes the last axis (Ba et al. 2016), in float32."""

    def __init__(self, config: ModelConfig):
        self.epsilon = config.norm_epsilon
        self.scale = constant(1.0, {"norm": config.width})
        self.bias = constant(0.0, {"norm": config.width})

    def __call__(self, x_btd: Array) -> Array:
        return normalize(x_btd, self.scale[...], self.bias[...], True, self.epsilon)


class RMSNorm(nnx.Module):
    """Divides the last axis by its root mean square (Zhang and Sennrich 2019)."""

    def __init__(self, config: ModelConfig):
        self.epsilon = config.norm_epsilon
        self.scale = constant(1.0, {"norm": config.width})

    def __call__(self, x_btd: Array) -> Array:
        return normalize(x_btd, self.scale[...], None, False, self.epsilon)


class NoNorm(nnx.Module):
    """Leaves its input as it is, for ablations."""

    def __init__(self, config: ModelConfig):
        pass

    def __call__(self, x_btd: Array) -> Array:
        return x_btd


# A normalization is a module made from the config, and a line here.
NORMS = {"layer": LayerNorm, "rms": RMSNorm, "none": NoNorm}


def rows(table_vd: Array, index_bt: Array) -> Array:
    """Rows of a table, [b, t, d]; on a GPU with the gradient of `add_rows`."""
    gpu = target_device().platform == "gpu"
    return _rows(table_vd, index_bt) if gpu else table_vd[index_bt]


@jax.custom_vjp
def _rows(table_vd: Array, index_bt: Array) -> Array:
    return table_vd[index_bt]


def _add_to_zeros(saved, x_btd: Array) -> tuple[Array, None]:
    table_vd, index_bt = saved
    x_rd = x_btd.reshape(-1, x_btd.shape[-1]).astype(table_vd.dtype)
    return add_rows(jnp.zeros_like(table_vd), index_bt.reshape(-1), x_rd), None


_rows.defvjp(
    lambda table_vd, index_bt: (table_vd[index_bt], (table_vd, index_bt)),
    _add_to_zeros,
)


def add_rows(sum_vd: Array, index_r: Array, x_rd: Array) -> Array:
    """Adds a row x_rd[r] to row index_r[r] of a table, equal bits each time.

    A GPU adds the rows of an index in any order. Here they are sorted, and a scan adds
    those of each index, so that the table gets one row of each.
    """
    if target_device().platform != "gpu":
        return sum_vd.at[index_r].add(x_rd)
    order_r = jnp.argsort(index_r)
    index_r = index_r[order_r]
    begins_r = jnp.append(True, index_r[1:] != index_r[:-1])

    def add(left, right):
        begins_r, x_rd = right
        x_rd = jnp.where(begins_r[:, None], x_rd, left[1] + x_rd)
        return left[0] | begins_r, x_rd

    _, x_rd = jax.lax.associative_scan(add, (begins_r, x_rd[order_r]))
    # The sum of an index is at its last row; the other rows are put beyond the table.
    beyond_r = len(sum_vd) + jnp.arange(len(index_r))
    place_r = jnp.where(jnp.append(begins_r[1:], True), index_r, beyond_r)
    return sum_vd.at[place_r].add(x_rd, mode="drop", unique_indices=True)


# config.model.remat: the activations of a layer that are stored for the gradient; the
# others are recomputed. `dots` stores products with weights, `full` only the input.
REMAT = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


def rematerialized(
    layer: Callable, config: ModelConfig, rng: DropoutRng | None
) -> Callable:
    """Returns the layer, in training wrapped in `jax.checkpoint` per `config.remat`."""
    if rng is None or config.remat == "none":
        return layer
    return jax.checkpoint(layer, policy=REMAT[config.remat])


def project(x_btd: Array, table_vd: Weight, bias_v: Array | None) -> Array:
    """Returns logits, float32 [b, t, v]: the output layer of every model (section 3.4).

    Args:
      x_btd: the model's `outputs`, in the compute dtype.
      table_vd, bias_v: its `output_layer()`, float32.
    """
    logits_btv = product("btd,vd->btv", x_btd, table_vd, logits_dtype(x_btd))
    logits_btv = constrain(logits_btv, "batch", "length", "vocab")
    return logits_btv if bias_v is None else logits_btv + bias_v


def logits_dtype(x: Array) -> jnp.dtype:
    """float32 even for bfloat16 outputs, as softmax needs it; float64 in tests."""
    return jnp.promote_types(x.dtype, jnp.float32)


def compute_dtype(config: ModelConfig) -> jnp.dtype:
    """Returns the dtype of activations; `auto` is bfloat16 if the device has it."""
    if config.dtype != "auto":
        return jnp.dtype(config.dtype)
    native = has_bfloat16(jax.devices()[0])
    return jnp.dtype(jnp.bfloat16 if native else jnp.float32)
