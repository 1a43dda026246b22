"""Products of activations with weights: every model's go through `product`.

A weight says by its type how it is multiplied: an array in the dtype of the
activations, `Rounded` with operands in bfloat16. `config.model.products` decides
(`of_config`).
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rounded:
    """A weight whose products with float32 activations have operands in bfloat16.

    Sums are float32, and so is the gradient by the weight, which is that of a float32
    product: rounded terms would be lost in a sum over all tokens of a batch.
    """

    weight: Array  # float32, or already rounded

    @property
    def shape(self) -> tuple[int, ...]:
        return self.weight.shape

    @property
    def dtype(self) -> jnp.dtype:
        return self.weight.dtype

    def astype(self, dtype) -> "Rounded | Array":
        """Rounds the weight once, for several products with activations of `dtype`."""
        if dtype == jnp.float32:
            return Rounded(bfloat16(self.weight))
        return self.weight.astype(dtype)


Weight = Array | Rounded


def factor(weight: "nnx.Param | Weight") -> Weight:
    """Returns a parameter's value as `product` multiplies it, also for its gradient."""
    if not isinstance(weight, nnx.Variable):
        return weight
    value = weight[...]
    is_rounded = weight.get_metadata("products", "") == "bfloat16"
    return Rounded(value) if is_rounded else value


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
    if isinstance(weight, Rounded):
        if x.dtype == jnp.float32:
            return _rounded(equation, x, weight.weight)
        weight = weight.weight
    return jnp.einsum(equation, x, weight.astype(x.dtype), preferred_element_type=dtype)


def bfloat16(x: Array) -> Array:
    """Rounds to bfloat16."""
    # XLA may leave out a conversion there and back, in a program for a device without
    # bfloat16; `reduce_precision` it has to keep.
    return jax.lax.reduce_precision(x, 8, 7).astype(jnp.bfloat16)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rounded(equation: str, x: Array, weight: Array) -> Array:
    return jnp.einsum(
        equation, bfloat16(x), bfloat16(weight), preferred_element_type=jnp.float32
    )


def _forward(equation, x, weight):
    return _rounded(equation, x, weight), (x, weight)


def _backward(equation, factors, grad):
    x, weight = factors
    inputs, output = equation.split("->")
    of_x, of_weight = inputs.split(",")
    grad_x = _rounded(f"{output},{of_weight}->{of_x}", grad, weight)
    transposed = jax.linear_transpose(lambda w: jnp.einsum(equation, x, w), weight)
    return grad_x, *transposed(grad)


_rounded.defvjp(_forward, _backward)


def of_config(module: nnx.Module, config: ModelConfig) -> nnx.Module:
    """Returns the module, with the products of `config.products`."""
    if config.products == "bfloat16":
        for _, node in nnx.iter_graph(module):
            if isinstance(node, nnx.Param) and node.get_metadata("summed", ()):
                node.set_metadata(products="bfloat16")
    return module
