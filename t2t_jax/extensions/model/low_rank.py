"""A weight with a low-rank change (LoRA, Hu et al. 2021), which is not added to it."""

import dataclasses
import re
from typing import Any

import jax
from jax import Array

from t2t_jax.model.products import Weight, WeightLike, product

RANK = "R"  # its axis in equations, which have small letters


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LowRank(WeightLike):
    """A weight W that counts as W + down up.

    The product with W is computed as without the change, so an array W, `Transposed` or
    `Int8` keeps its bits, and may be shared by several changes.
    """

    weight: Weight  # [inputs..., outputs...]
    down: Array  # float32 [inputs..., rank]
    up: Array  # float32 [rank, outputs...]

    is_factor = True  # `product` adds nothing to it

    def __getitem__(self, everything) -> "LowRank":
        return self

    def multiply(self, equation: str, x: Array, dtype: Any) -> Array:
        """`product` with this weight."""
        x_axes, weight_axes, output_axes = re.split(",|->", equation)
        n = self.down.ndim - 1
        inputs, outputs = weight_axes[:n], weight_axes[n:]
        kept = "".join(axis for axis in x_axes if axis not in inputs)
        y = product(equation, x, self.weight, dtype)
        low = product(f"{x_axes},{inputs}{RANK}->{kept}{RANK}", x, self.down)
        last = f"{kept}{RANK},{RANK}{outputs}->{output_axes}"
        return y + product(last, low, self.up, dtype)
