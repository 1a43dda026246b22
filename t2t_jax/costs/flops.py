"""FLOPs of the matrix products in a function, counted in its jaxpr.

Element-wise work is not counted: a chip's peak is quoted for matrix products.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend import core


def count(function: Callable, *shapes: Any, taken: float = 1.0) -> float:
    """Counts the FLOPs of a function's matrix products; computes nothing.

    A multiplication and an addition are 2 FLOPs. All rounds of a scan and all shards
    `shard_map` count, and of a `cond` the branch with the most FLOPs, or as many as
    `taken` says.

    A primitive without a jaxpr inside, such as cuDNN's attention, counts as 0. To count
    attention, trace it without such kernels: `model.kernels.disabled`.

    Args:
      shapes: the arguments, pytrees of arrays or `jax.ShapeDtypeStruct`s.
      taken: how often, of 1, a `cond` computes the branch with the most FLOPs and not
        the one with the least.

    Returns:
      A whole number if `taken` is 1; nan if it depends on values: products in a
      `while` loop (a `fori_loop` whose bounds are Python numbers is a scan) or in a
      Pallas kernel whose grid is computed.
    """
    return _jaxpr_flops(jax.make_jaxpr(function)(*shapes).jaxpr, taken)


def _jaxpr_flops(jaxpr: core.Jaxpr, taken: float) -> float:
    return math.fsum(_equation_flops(equation, taken) for equation in jaxpr.eqns)


def _equation_flops(equation: core.JaxprEqn, taken: float) -> float:
    name, params = equation.primitive.name, equation.params
    if name in PRODUCTS:
        return 2.0 * PRODUCTS[name](equation, params)
    inside = [_jaxpr_flops(jaxpr, taken) for jaxpr in nested(params)]
    if not any(inside):
        return 0.0  # also of an unknown number of rounds
    if name == "cond":
        return taken * max(inside) + (1 - taken) * min(inside)
    return _repetitions(name, params) * math.fsum(inside)


def nested(params: dict[str, Any]) -> Iterator[core.Jaxpr]:
    """Yields the jaxprs among an equation's parameters."""
    for value in params.values():
        for item in value if isinstance(value, tuple) else (value,):
            item = getattr(item, "jaxpr", item)  # of a ClosedJaxpr
            if isinstance(item, core.Jaxpr):
                yield item


def _repetitions(name: str, params: dict[str, Any]) -> float:
    """The number of times that an equation computes the jaxprs inside it."""
    if name == "scan":
        return params["length"]
    if name == "while":
        return math.nan
    if name == "shard_map":  # its arrays are those of one shard
        # Named `manual_axes` by older versions of JAX.
        axes = params.get("newly_manual_axes", params.get("manual_axes"))
        return math.prod(params["mesh"].shape[axis] for axis in axes)
    if name == "pallas_call":  # its arrays are one block; a computed size is no int
        sizes = params["grid_mapping"].grid
        return math.prod(size if isinstance(size, int) else math.nan for size in sizes)
    return 1


def _dot(equation: core.JaxprEqn, params: dict[str, Any]) -> int:
    """Multiplications of `dot_general`: left [batch, m, k], right [batch, k, n]."""
    return _pairs(equation, *(right for _, right in params["dimension_numbers"]))


def _ragged_dot(equation: core.JaxprEqn, params: dict[str, Any]) -> int:
    """Multiplications of `ragged_dot_general`, in which a row meets one group."""
    numbers = params["ragged_dot_dimension_numbers"]
    (_, contracted), (_, batch) = numbers.dot_dimension_numbers
    return _pairs(equation, contracted, batch, numbers.rhs_group_dimensions)


def _pairs(equation: core.JaxprEqn, *not_n: tuple[int, ...]) -> int:
    """batch * m * k * n, where n are the right operand's axes not in `not_n`."""
    left, right = (x.aval.shape for x in equation.invars[:2])
    excluded = {axis for axes in not_n for axis in axes}
    n = math.prod(size for axis, size in enumerate(right) if axis not in excluded)
    return math.prod(left) * n


def _convolution(equation: core.JaxprEqn, params: dict[str, Any]) -> int:
    """Multiplications of a convolution: the kernel once for each output position.

    Products with padding count, and so do the zeros of a dilated input.
    """
    kernel = equation.invars[1].aval.shape
    (output,) = equation.outvars
    features = kernel[params["dimension_numbers"].rhs_spec[0]]
    # Each output feature sums over a kernel's window and its group's input features.
    return math.prod(output.aval.shape) * (math.prod(kernel) // features)


PRODUCTS = {
    "dot_general": _dot,
    "ragged_dot_general": _ragged_dot,
    "conv_general_dilated": _convolution,
}
