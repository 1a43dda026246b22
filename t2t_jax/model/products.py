"""Products of activations with weights: every model's go through `product`.

A weight says by its type how it is multiplied: an array in the dtype of the
activations; `Rounded` with operands in bfloat16, if `config.model.products` says so
(`with_products`); `Int8` with operands in int8, in models that only decode. Types with
a method `multiply` may be anywhere, such as `LowRank` (`extensions/model/low_rank.py`).
"""

import dataclasses
import math
import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.parallel.mesh import target_device


class WeightLike:
    """A weight and more; its shape and type are those of `weight`."""

    weight: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.weight.shape

    @property
    def dtype(self) -> jnp.dtype:
        return self.weight.dtype


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rounded(WeightLike):
    """A weight whose products with float32 activations have operands in bfloat16.

    Sums are float32, and so is the gradient by the weight, which is that of a float32
    product: rounded terms would be lost in a sum over all tokens of a batch.
    """

    weight: Array  # float32, or already rounded

    def astype(self, dtype) -> "Rounded | Array":
        """Rounds the weight once, for several products with activations of `dtype`."""
        if dtype == jnp.float32:
            return Rounded(bfloat16(self.weight))
        return self.weight.astype(dtype)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Int8:
    """A weight of 8 bits, in the place of a float32 array; has no gradient.

    Code that does not know it multiplies by `astype(float32)`, the rounded weight.
    """

    values: Array  # int8, -127 to 127, of the weight's shape
    scale: Array  # float32, one for each output: the weight is about values * scale
    # The axes that products sum over.
    summed: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def multiply(self, equation: str, x: Array, dtype: Any) -> Array:
        """`product` with this weight."""
        x_axes, weight_axes, output_axes = re.split(",|->", equation)
        summed = [weight_axes[axis] for axis in self.summed]
        if not (
            x_axes.endswith("".join(summed)) and set(summed).isdisjoint(output_axes)
        ):
            raise ValueError(f"{equation} does not sum over the axes {self.summed}")
        # Each row by itself: what shares the batch does not change it.
        rows, scale = quantized_rows(x.astype(jnp.float32), len(summed))
        y = jnp.einsum(equation, rows, self.values, preferred_element_type=jnp.int32)
        scale = scale.reshape(*x.shape[: -len(summed)], *[1] * self.scale.ndim)
        return (y * scale * self.scale).astype(dtype or x.dtype)

    def astype(self, dtype) -> Array:
        """Returns the weight as an array."""
        scale = jnp.expand_dims(self.scale, self.summed)
        return (self.values * scale).astype(dtype)

    def __jax_array__(self) -> Array:
        return self.astype(jnp.float32)

    def __getitem__(self, rows) -> "Int8 | Array":
        """Returns rows of a table [v, d], float32; all of it, `[...]`, as it is."""
        if rows is ...:
            return self
        return self.values[rows] * self.scale[rows][..., None]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Transposed:
    """A weight stored with the axes that products sum over last.

    On a CPU the sum then has the same order for any number of rows, from two on. In the
    other order XLA's library divides it for fewer than 64 rows, which changes the last
    bits (docs/notes/cpu-speed.md).
    """

    values: Array
    # The axes of the weight that are last in `values`.
    summed: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        return self._original.shape

    @property
    def dtype(self) -> jnp.dtype:
        return self.values.dtype

    @property
    def _original(self) -> Array:
        axes = range(-len(self.summed), 0)
        return jnp.moveaxis(self.values, tuple(axes), self.summed)

    def multiply(self, equation: str, x: Array, dtype: Any) -> Array:
        """`product` with this weight."""
        x_axes, weight_axes, output_axes = re.split(",|->", equation)
        summed = [weight_axes[axis] for axis in self.summed]
        outputs = "".join(axis for axis in weight_axes if axis not in summed)
        stored = outputs + "".join(summed)
        n = len(summed)
        if x_axes[-n:] != stored[-n:] or x_axes[:-n] + outputs != output_axes:
            raise ValueError(f"{equation} does not sum over the axes {self.summed}")
        # Two matrices: with more axes XLA would choose another order.
        values = self.values.astype(x.dtype)
        matrix = values.reshape(-1, math.prod(values.shape[values.ndim - n :]))
        rows = x.reshape(-1, matrix.shape[1])
        y = jnp.einsum("rk,fk->rf", rows, matrix, preferred_element_type=dtype)
        return y.reshape(*x.shape[:-n], *values.shape[: values.ndim - n])

    def astype(self, dtype) -> "Transposed":
        return Transposed(self.values.astype(dtype), self.summed)

    def __jax_array__(self) -> Array:
        return self._original

    def __getitem__(self, rows) -> "Transposed | Array":
        return self if rows is ... else self._original[rows]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Converted(WeightLike):
    """A weight with a copy in the type of the activations, made once.

    In a loop XLA would convert the weight again in every step.
    """

    weight: Array  # float32
    copy: Array

    def astype(self, dtype) -> Array:
        matches = dtype == self.copy.dtype
        return self.copy if matches else self.weight.astype(dtype)

    def __jax_array__(self) -> Array:
        return self.weight

    def __getitem__(self, rows) -> "Converted | Array":
        return self if rows is ... else self.weight[rows]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Collected(WeightLike):
    """A table whose gradients are added up on each device before devices sum them.

    A use adds its gradient on each of the g devices that share the batch to that of
    `slot`; uses that do not know the slot add theirs, already summed, to the weight's.
    """

    weight: Array | Rounded
    slot: Array  # zeros [g, v, d]; only its gradient is used

    def __getitem__(self, all_rows) -> "Collected":
        return self


Weight = Array | Rounded | Int8 | Transposed | Converted | Collected


def transposed(parameters: Any, summed: Any) -> Any:
    """Transposes the weights of products (`Transposed`); others stay as they are.

    Args:
      parameters: a tree of arrays.
      summed: of the `Model`.
    """

    def transpose(x: Array, axes: tuple[int, ...]):
        last_axes = tuple(range(x.ndim - len(axes), x.ndim))
        if not axes or axes == last_axes:
            return x
        # By NumPy: JAX would compile a program for each shape.
        values = np.moveaxis(np.asarray(x), axes, last_axes)
        return Transposed(np.ascontiguousarray(values), axes)

    return jax.tree.map(transpose, parameters, summed)


def converted(parameters: Any, summed: Any, dtype: jnp.dtype) -> Any:
    """Adds to the weights of products their copy in a type; others stay as they are.

    Arguments as for `transposed`.
    """
    return jax.tree.map(
        lambda x, axes: Converted(x, x.astype(dtype)) if axes else x, parameters, summed
    )


def quantized(parameters: Any, summed: Any) -> Any:
    """Rounds the weights of products to `Int8`, symmetrically; others stay as they are.

    Arguments as for `transposed`.
    """

    def quantize(x: np.ndarray, axes: tuple[int, ...]):
        if not axes:
            return x
        largest = np.abs(x := np.asarray(x, np.float32)).max(axes, keepdims=True)
        scale = np.where(largest > 0, largest / np.float32(127), np.float32(1))
        values = np.rint(x / scale).astype(np.int8)
        return Int8(values, scale.squeeze(axes), axes)

    return jax.tree.map(quantize, parameters, summed)


def factor(weight: "nnx.Param | Weight") -> Weight:
    """Returns a parameter's value as `product` multiplies it, also for its gradient."""
    if not isinstance(weight, nnx.Variable):
        return weight
    value = weight[...]
    rounds = weight.get_metadata("products", "") == "bfloat16"
    if not rounds or getattr(value, "is_factor", False):
        return value
    if isinstance(value, Collected):
        return Collected(Rounded(value.weight), value.slot)
    return Rounded(value)


def product(
    equation: str,
    x: Array,
    weight: "nnx.Param | Weight",
    dtype: jnp.dtype | None = None,
) -> Array:
    """The product of activations with a weight, summed over the weight's inputs.

    Args:
      equation: of `jnp.einsum`, such as "btd,df->btf".
      dtype: of the result; that of `x` by default.
    """
    weight = factor(weight)
    if isinstance(weight, Collected):
        weight = weight.weight
    if hasattr(weight, "multiply"):
        return weight.multiply(equation, x, dtype)
    if isinstance(weight, Rounded):
        if x.dtype == jnp.float32:
            return _rounded(equation, x, weight.weight)
        weight = weight.weight
    return _multiply(equation, x, weight.astype(x.dtype), dtype)


def _multiply(equation: str, x: Array, weight: Array, dtype: Any = None) -> Array:
    """`jnp.einsum`; on a CPU a product of two matrices, if the axes are in that order.

    If batch and length stay two axes, XLA stores for each gradient of a weight a
    transposed copy on a CPU, and computes what it copies anew.
    """
    x_axes, weight_axes, output_axes = re.split(",|->", equation)
    n = len({*x_axes} & {*weight_axes} - {*output_axes})
    if (
        target_device().platform != "cpu"
        or x_axes[-n:] != weight_axes[:n]
        or x_axes[:-n] + weight_axes[n:] != output_axes
    ):
        return jnp.einsum(equation, x, weight, preferred_element_type=dtype)
    matrix = weight.reshape(math.prod(weight.shape[:n]), math.prod(weight.shape[n:]))
    rows = x.reshape(math.prod(x.shape[:-n]), len(matrix))
    y = jnp.matmul(rows, matrix, preferred_element_type=dtype)
    return y.reshape(*x.shape[:-n], *weight.shape[n:])


def bfloat16(x: Array) -> Array:
    """Rounds to bfloat16."""
    # XLA may leave out a conversion there and back, in a program for a device without
    # bfloat16; `reduce_precision` it has to keep.
    return jax.lax.reduce_precision(x, 8, 7).astype(jnp.bfloat16)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rounded(equation: str, x: Array, weight: Array) -> Array:
    return _multiply(equation, bfloat16(x), bfloat16(weight), jnp.float32)


def _forward(equation, x, weight):
    return _rounded(equation, x, weight), (x, weight)


def _backward(equation, factors, grad):
    x, weight = factors
    x_axes, weight_axes, output_axes = re.split(",|->", equation)
    grad_x = _rounded(f"{output_axes},{weight_axes}->{x_axes}", grad, weight)
    transposed = jax.linear_transpose(lambda w: _multiply(equation, x, w), weight)
    return grad_x, *transposed(grad)


_rounded.defvjp(_forward, _backward)


def quantized_rows(x: Array, axes: int) -> tuple[Array, Array]:
    """Rounds each row, the last `axes` axes, to int8; returns it and its scale."""
    largest = jnp.abs(x).max(range(x.ndim - axes, x.ndim), keepdims=True)
    scale = jnp.where(largest > 0, largest / 127, 1)
    return jnp.round(x / scale).astype(jnp.int8), scale


def with_products(module: nnx.Module, config: ModelConfig) -> nnx.Module:
    """Returns the module, with the products of `config.products`."""
    if config.products == "bfloat16":
        for _, node in nnx.iter_graph(module):
            if isinstance(node, nnx.Param) and node.get_metadata("summed", ()):
                node.set_metadata(products="bfloat16")
    return module
