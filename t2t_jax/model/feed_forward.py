"""Feed-forward layers (section 3.3).

Shape suffixes: b batch, t length, d model width, f feed-forward width.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from t2t_jax.config import ModelConfig
from t2t_jax.model.layers import DropoutRng, constant, dropout, linear, named, weight


class FeedForward(nnx.Module):
    """max(0, xW1 + b1)W2 + b2 (equation 2), with any activation in place of max."""

    def __init__(self, activation: Callable, config: ModelConfig, rng: Array):
        width, hidden = {"width": config.width}, {"hidden": config.hidden}
        self.activation, self.rate = activation, config.activation_dropout
        self.inner = weight(named(rng, "inner"), width, hidden)
        self.inner_bias = constant(0.0, hidden)
        self.outer = weight(named(rng, "outer"), hidden, width)
        self.outer_bias = constant(0.0, width)

    def __call__(self, x_btd: Array, rng: DropoutRng | None = None) -> Array:
        x_btf = self.activation(linear(x_btd, self.inner, "hidden", self.inner_bias))
        x_btf = dropout(x_btf, self.rate, rng)  # none in the paper: the rate is 0
        return linear(x_btf, self.outer, bias=self.outer_bias)


class GatedFeedForward(nnx.Module):
    """(activation(xW) * xV)W2 without biases (Shazeer 2020, section 2)."""

    def __init__(self, activation: Callable, config: ModelConfig, rng: Array):
        width, hidden = {"width": config.width}, {"hidden": config.hidden}
        self.activation, self.rate = activation, config.activation_dropout
        self.gate = weight(named(rng, "gate"), width, hidden)
        self.inner = weight(named(rng, "inner"), width, hidden)
        self.outer = weight(named(rng, "outer"), hidden, width)

    def __call__(self, x_btd: Array, rng: DropoutRng | None = None) -> Array:
        gate_btf = self.activation(linear(x_btd, self.gate, "hidden"))
        x_btf = gate_btf * linear(x_btd, self.inner, "hidden")
        return linear(dropout(x_btf, self.rate, rng), self.outer)


@jax.custom_jvp
def relu(x: Array) -> Array:
    """max(0, x), with a gradient that needs only the result."""
    return jnp.maximum(x, 0)


@relu.defjvp
def _relu_jvp(primals, tangents):
    y = relu(*primals)
    # `jax.nn.relu` compares x with 0, so that a GPU stores x besides y; and XLA makes
    # that of y > 0.
    return y, jnp.where(y != 0, *tangents, 0)


gelu = partial(jax.nn.gelu, approximate=False)  # Hendrycks and Gimpel 2016, exactly

# A feed-forward layer is a module made from (config, rng), and a line here.
FEED_FORWARD = {
    "relu": partial(FeedForward, relu),
    "gelu": partial(FeedForward, gelu),
    "silu": partial(FeedForward, jax.nn.silu),
    "swiglu": partial(GatedFeedForward, jax.nn.silu),
    "geglu": partial(GatedFeedForward, gelu),
}
