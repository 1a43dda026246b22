"""Costs of single layers against the length n and the width d (Table 1 of the paper).

A layer is one of the project's own, without feed-forward, normalization or residual
connection; its input is some sentences of n tokens, in float32.

Shape suffixes: b batch, t length, d width, h heads, k head width.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.extend import core

from experiments.measures.fits import power_laws
from t2t_jax import config as fields
from t2t_jax.config import ModelConfig
from t2t_jax.costs import flops
from t2t_jax.costs.timing import timed
from t2t_jax.extensions.model.bytenet import Block
from t2t_jax.extensions.model.conv import Convolution
from t2t_jax.extensions.model.lstm import LSTMLayer
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.model.attention import ATTENTION, KV, NO_POSITION, Attention
from t2t_jax.model.layers import Dropout, Parameters
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.tools.experiment.measures import MEASURES
from t2t_jax.tools.experiment.results import Context

HEAD_WIDTH = 64  # of the paper's base and big models


class Kind(NamedTuple):
    """A kind of layer; `at` are the positions of one unpadded sentence a row."""

    create: Callable  # (config, rng, dilation) -> the module
    call: Callable  # (module, config, x [b, t, d], at) -> [b, t, d]
    fields: Mapping[str, Any]  # those of `config.model` that choose it
    dilated: bool = False  # in a stack, the dilation doubles from layer to layer


def _attention(module: Attention, _, x_btd: Array, tokens: Tokens) -> Array:
    return module(x_btd, module.keys_values(x_btd), Mask(tokens, tokens, aligned=True))


def _attention_function(_, config: ModelConfig, x_btd: Array, tokens: Tokens) -> Array:
    """Scores and weighted values alone: the input is queries, keys and values."""
    function = ATTENTION[config.attention]
    options = {"options": config.own_options(function)} if function.Options else {}
    x_bthk = x_btd.reshape(*x_btd.shape[:2], config.heads, -1)
    mask, kv = Mask(tokens, tokens, aligned=True), KV(x_bthk, x_bthk)
    dropout = Dropout(0.0, None)
    y_bthk = function.attend(x_bthk, kv, mask, NO_POSITION, dropout, **options)
    return y_bthk.reshape(x_btd.shape)


def _convolution(module: Convolution, _, x_btd: Array, tokens: Tokens) -> Array:
    return module.convolve_rows(
        x_btd, tokens.segment, None, back=(module.taps - 1) // 2
    )


_DENSE = Kind(
    lambda config, rng, _: Attention(config, rng), _attention, {"attention": "dense"}
)
_DENSE_FUNCTION = _DENSE._replace(
    create=lambda *_: nnx.Module(), call=_attention_function
)
LAYERS: dict[str, Kind] = {
    "attention": _DENSE,
    "attention_function": _DENSE_FUNCTION,
    "restricted": _DENSE._replace(fields={"attention": "restricted"}),
    "restricted_function": _DENSE_FUNCTION._replace(fields={"attention": "restricted"}),
    "recurrence": Kind(
        lambda config, rng, _: LSTMLayer(config.width, config.width, rng),
        lambda module, _, x_btd, at: module(x_btd, at.segment).hidden,
        {"kind": "lstm"},
    ),
    "convolution": Kind(
        lambda config, rng, _: Convolution(config, rng), _convolution, {"kind": "conv"}
    ),
    "dilated_convolution": Kind(
        lambda config, rng, dilation: Block(config, dilation, rng),
        lambda module, _, x_btd, at: module(
            x_btd, at.segment, None, last_tap=module.kernel // 2
        ),
        {"kind": "bytenet"},
        dilated=True,
    ),
}


def build_layer(
    layer: str, width: int, options: Mapping[str, Any], dilation: int = 1
) -> tuple[Callable, Callable, Parameters]:
    """Builds a layer of `LAYERS`, without allocating arrays.

    Attention has a head for every 64 features of the width.

    Returns:
      (parameters, x [b, t, d]) -> [b, t, d]; () -> random parameters; their shapes.
    """
    if layer not in LAYERS:
        raise UserError(f"layer={layer!r}{did_you_mean(layer, LAYERS)}")
    kind = LAYERS[layer]
    sizes = {"width": width, "heads": max(1, width // HEAD_WIDTH), "dropout": 0.0}
    values = {**kind.fields, **sizes, "options": dict(options)}
    config = fields.from_config_dict({"model": values}).model

    def create() -> nnx.Module:
        return kind.create(config, jax.random.key(0), dilation)

    @jax.jit
    def init() -> Parameters:
        return nnx.to_pure_dict(nnx.split(create())[1])

    definition, state = nnx.split(nnx.eval_shape(create))

    def apply(parameters: Parameters, x_btd: Array) -> Array:
        position_bt = jnp.broadcast_to(jnp.arange(x_btd.shape[1]), x_btd.shape[:2])
        tokens = Tokens(jnp.ones_like(position_bt), position_bt)
        return kind.call(nnx.merge(definition, parameters), config, x_btd, tokens)

    return apply, init, nnx.to_pure_dict(state)


def layer_cost(
    layer: str,
    length: int,
    width: int,
    sentences: int = 2,
    seconds: float = 0.3,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Measures one layer at one size.

    Args:
      layer: a key of `LAYERS`.
      length, width: n and d.
      sentences: the rows of the batch.
      seconds: how long each median is measured, but for at least three calls.
      options: of `config.model.options`.

    Returns:
      `forward`: the median of the forward pass's seconds; `time`: with the gradients of
      the parameters and of the input. `memory`: bytes of temporary arrays and results
      with the gradients, as the compiler allocates them; without parameters and input,
      and without what its libraries allocate inside; None if it does not say. `flops`
      and `sequential`: matrix products and sequential operations of the forward pass.
    """
    apply, init, _ = build_layer(layer, width, options or {})
    parameters = init()
    x_btd = jax.random.normal(jax.random.key(1), (sentences, length, width))

    def loss(parameters, x_btd):
        return jnp.sum(jnp.square(apply(parameters, x_btd)))

    forward = jax.jit(apply).lower(parameters, x_btd).compile()
    gradient = jax.jit(jax.grad(loss, (0, 1))).lower(parameters, x_btd).compile()
    memory = gradient.memory_analysis()
    return {
        "length": length,
        "width": width,
        "forward": _median(lambda: forward(parameters, x_btd), seconds),
        "time": _median(lambda: gradient(parameters, x_btd), seconds),
        "memory": memory and memory.temp_size_in_bytes + memory.output_size_in_bytes,
        "flops": flops.count(apply, parameters, x_btd),
        "sequential": sequential_operations(apply, parameters, x_btd),
    }


def _median(call: Callable[[], Any], seconds: float) -> float:
    times = []
    for spent in itertools.islice(timed(call), 1, 100):
        times.append(spent)
        if len(times) >= 3 and sum(times) >= seconds:
            break
    return statistics.median(times)


def sequential_operations(function: Callable, *shapes: Any) -> float:
    """Counts the iterations of loops that have to follow each other.

    The longest chain of loops in the function's jaxpr that need each other's results;
    1 without loops, since all products are then at once. It is that of the
    implementation: `chunked` attention loops although it need not.

    Returns:
      Infinity if it depends on values: a `while` loop.
    """
    return max(1, _chain(jax.make_jaxpr(function)(*shapes).jaxpr))


def _chain(jaxpr: core.Jaxpr) -> float:
    """The iterations in the longest chain; 0 without loops."""
    depth: dict[core.Var, float] = {}  # the iterations that a variable waits for
    for equation in jaxpr.eqns:
        inputs = [x for x in equation.invars if not isinstance(x, core.Literal)]
        inside = max(map(_chain, flops.nested(equation.params)), default=0)
        if equation.primitive.name == "scan":
            inside = equation.params["length"] * max(1, inside)
        elif equation.primitive.name == "while":
            inside = math.inf
        depth_after = max([depth.get(x, 0) for x in inputs], default=0) + inside
        depth |= dict.fromkeys(equation.outvars, depth_after)
    return max([0, *depth.values()])


QUANTITIES = "forward", "time", "memory", "flops"  # of `layer_cost`


def layer_costs(
    context: Context,
    layer: str,
    lengths: Sequence[int],
    widths: Sequence[int],
    length: int,
    width: int,
    **arguments: Any,
) -> dict[str, Any]:
    """Measures one layer at several lengths, and at several widths.

    Args:
      layer: a key of `LAYERS`.
      lengths: n, at the width `width`.
      widths: d, at the length `length`.
      arguments: see `layer_cost`.

    Returns:
      `lengths` and `widths`: lists of the results of `layer_cost`. For each of the
      `QUANTITIES`, NAME_n and NAME_d: its exponents, fitted to the larger half of both
      lists, and their intervals NAME_n_low, NAME_n_high and so on. `sequential`: that
      of the greatest length. `device`: its name.
    """
    by_length = [layer_cost(layer, n, width, **arguments) for n in sorted(lengths)]
    by_width = [layer_cost(layer, length, d, **arguments) for d in sorted(widths)]
    result = {
        "device": jax.devices()[0].device_kind,
        "lengths": by_length,
        "widths": by_width,
        "sequential": by_length[-1]["sequential"],
    }
    points = larger_half(by_length) + larger_half(by_width)
    factors = {"n": [p["length"] for p in points], "d": [p["width"] for p in points]}
    for quantity in QUANTITIES:
        values = [point[quantity] for point in points]
        if None in values:
            continue
        for factor, law in power_laws(factors, values).items():
            ends = {"": law.exponent, "_low": law.low, "_high": law.high}
            result |= {f"{quantity}_{factor}{end}": v for end, v in ends.items()}
    return result


def larger_half(points: Sequence) -> list:
    """The larger half of some ascending sizes: overheads matter less there."""
    return list(points[len(points) // 2 :])


def path_lengths(
    context: Context,
    layer: str,
    lengths: Sequence[int],
    width: int = 64,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Measures the maximum path length (section 4): that between a row's two ends.

    Args:
      layer: a key of `LAYERS`.
      lengths: n; at most 128 for the recurrence, whose gradients vanish in float32.
      width: d, which does not matter.
      options: of `config.model.options`.

    Returns:
      Lists over the lengths: `lengths`; `layers` of a stack, which the gradient of the
      last output needs to reach the first input; `paths`, these times the sequential
      operations inside a layer. `longest`: the last of them.
    """
    apply, _, shapes = build_layer(layer, width, options or {})
    layers, paths = [], []
    for n in lengths:
        layers.append(_layers_between_ends(layer, n, width, options or {}))
        x_btd = jax.ShapeDtypeStruct((1, n, width), jnp.float32)
        paths.append(layers[-1] * sequential_operations(apply, shapes, x_btd))
    lists = {"lengths": list(lengths), "layers": layers, "paths": paths}
    return {**lists, "longest": paths[-1]}


def _layers_between_ends(
    layer: str, length: int, width: int, options: Mapping[str, Any]
) -> int:
    """The layers of a stack until its last output depends on its first input.

    The gradient of each layer is taken by itself, for random gradients of those of its
    outputs that the next layer depends on. So it cannot become too small to be seen.
    """
    x_btd = jax.random.normal(jax.random.key(1), (1, length, width))
    noise_btd = jax.random.normal(jax.random.key(2), x_btd.shape)

    @functools.cache
    def backward(dilation: int):
        apply, init, _ = build_layer(layer, width, options, dilation)

        @jax.jit
        def depended_on(parameters, reached_t):
            _, pull = jax.vjp(functools.partial(apply, parameters), x_btd)
            (gradient_btd,) = pull(noise_btd * reached_t[:, None])
            return jnp.any(gradient_btd != 0, axis=(0, 2))

        return functools.partial(depended_on, init())

    dilated, depth = LAYERS[layer].dilated, 0
    reached_t = jnp.arange(length) == length - 1
    while not reached_t[0]:
        reached_before_t = reached_t
        reached_t = backward(2**depth if dilated else 1)(reached_t)
        depth += 1
        if reached_t.sum() <= reached_before_t.sum():
            raise UserError(
                f"no stack of layer={layer!r} connects the ends of {length} tokens"
            )
    return depth


MEASURES |= {"layer_costs": layer_costs, "path_lengths": path_lengths}
