"""Our parameters and those of another system: one list of rules, read in two ways.

A `TensorRule` names an array of another system, our parameters in it, and their form.
`read` and `write` apply a list of rules, so that what one of them writes the other
reads back.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from t2t_jax.config import ModelConfig
from t2t_jax.extensions.model.flat_parameters import checked, flatten, nest
from t2t_jax.io.errors import UserError, listed
from t2t_jax.model.feed_forward import GatedFeedForward
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model, build
from t2t_jax.model.positions import sinusoids

Tensors = Mapping[str, np.ndarray]


class Form(NamedTuple):
    """How another system stores an array: reshaped, and perhaps then transposed."""

    reshaped: Callable[[tuple[int, ...]], tuple[int, ...]]
    transposed: bool = False

    def shape(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        """Our shape -> theirs."""
        return self.reshaped(axes)[::-1] if self.transposed else self.reshaped(axes)

    def stored(self, x: np.ndarray) -> np.ndarray:
        """Our array -> theirs."""
        x = x.reshape(self.reshaped(x.shape))
        return x.T if self.transposed else x

    def restored(self, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        """Their array -> that of our shape."""
        return (x.T if self.transposed else x).reshape(axes)


# The array itself, one axis, and [1, n], as Marian stores vectors.
SAME = Form(lambda axes: axes)
FLAT = Form(lambda axes: (math.prod(axes),))
ROW = Form(lambda axes: (1, math.prod(axes)))


def _matrix(inputs: int, transposed: bool) -> Form:
    """[inputs, outputs], with our `inputs` first axes merged, and all others."""
    return Form(
        lambda axes: (math.prod(axes[:inputs]), math.prod(axes[inputs:])), transposed
    )


class TensorRule(NamedTuple):
    """One array of another system."""

    name: str  # the other system's
    # Our parameters that it holds, such as `encoder.0.attention.query`; several are
    # stored one after another on the first axis.
    parameters: tuple[str, ...]
    form: Form  # of each of them


def write(rules: Sequence[TensorRule], parameters: Parameters) -> dict[str, np.ndarray]:
    """Stores our parameters as another system does, float32.

    Raises UserError for a parameter without a rule: the other system cannot hold it.
    """
    arrays = {
        name: np.asarray(x, np.float32) for name, x in flatten(parameters).items()
    }
    ruled = {name for rule in rules for name in rule.parameters}
    if unruled := sorted(arrays.keys() - ruled):
        raise UserError(f"the other system has no place for {listed(unruled)}")
    return {
        rule.name: np.ascontiguousarray(
            np.concatenate([rule.form.stored(arrays[name]) for name in rule.parameters])
        )
        for rule in rules
    }


def read(
    rules: Iterable[TensorRule], tensors: Tensors, model: Model, name: str
) -> Parameters:
    """Reads parameters of a model of ours as another system stored them, float32.

    Raises UserError for an array that is missing, unknown, of another shape, or not
    finite.
    """
    rules = list(rules)
    shapes = {name: leaf.shape for name, leaf in flatten(model.shapes).items()}
    names = [rule.name for rule in rules]
    if missing := [tensor for tensor in names if tensor not in tensors]:
        raise UserError(
            f"{name} lacks {listed(missing)}; is it another kind of model, or was it "
            "saved with other names?"
        )
    if unknown := sorted(set(tensors) - set(names)):
        raise UserError(
            f"{name} has {listed(unknown)}, which this import does not know; a model "
            "with more parts than the Transformer cannot be imported"
        )
    flat = {}
    for rule in rules:
        stored = np.asarray(tensors[rule.name], np.float32)
        parts = [rule.form.shape(shapes[parameter]) for parameter in rule.parameters]
        expected = (sum(part[0] for part in parts), *parts[0][1:])
        checked(stored, expected, f"{name}: {rule.name}", "its")
        ends = np.cumsum([part[0] for part in parts])[:-1]
        for parameter, part in zip(
            rule.parameters, np.split(stored, ends), strict=True
        ):
            array = rule.form.restored(part, shapes[parameter])
            flat[parameter] = np.ascontiguousarray(array)
    return nest(flat, model.shapes)


# Forms of matrices, of matrices whose inputs are [h, k], and of vectors: PyTorch's
# Linear is [outputs, inputs], Marian's matrices are [inputs, outputs].
PYTORCH = _matrix(1, transposed=True), _matrix(2, transposed=True), FLAT
MARIAN = _matrix(1, transposed=False), _matrix(2, transposed=False), ROW


class TableNames(NamedTuple):
    """A system's names of the arrays around the layers."""

    source: str  # embeddings
    target: str
    output: str  # the output layer's matrix, if it is not the target's embedding
    bias: str  # of the output layer
    positions: Mapping[str, str]  # the learned tables of `encoder` and `decoder`
    shared: str = ""  # the embedding of both, if it is not named like the target's


class LayerNames(NamedTuple):
    """A system's names of the arrays in the layers.

    `{side}` becomes encoder or decoder, `{number}` counts from 0 and `{nth}` from 1,
    and `{}` becomes the word of `linear` or `norm` for the array.
    """

    layer: str  # what the names of a layer begin with
    linears: Mapping[str, str]  # our matrices; those of the same name are stored as one
    norms: Mapping[str, str]  # of our sub-layers, which `{nth}` counts
    final_norm: str  # after all layers
    forms: tuple[Form, Form, Form] = PYTORCH
    linear: tuple[str, str] = ("weight", "bias")
    norm: tuple[str, str] = ("weight", "bias")
    prefix: str = ""  # of all names, as it is


# fairseq's names, which Hugging Face's ports of its models keep.
FAIRSEQ = LayerNames(
    layer="{side}.layers.{number}.",
    linears={
        "attention.query": "self_attn.q_proj.{}",
        "attention.key": "self_attn.k_proj.{}",
        "attention.value": "self_attn.v_proj.{}",
        "attention.out": "self_attn.out_proj.{}",
        "cross.query": "encoder_attn.q_proj.{}",
        "cross.key": "encoder_attn.k_proj.{}",
        "cross.value": "encoder_attn.v_proj.{}",
        "cross.out": "encoder_attn.out_proj.{}",
        "ff.inner": "fc1.{}",
        "ff.outer": "fc2.{}",
    },
    norms={
        "attention": "self_attn_layer_norm.{}",
        "cross": "encoder_attn_layer_norm.{}",
        "ff": "final_layer_norm.{}",
    },
    final_norm="{side}.layer_norm.{}",
)


def table_rules(
    config: ModelConfig, tables: TableNames, bias: Form = FLAT
) -> Iterator[TensorRule]:
    """Yields the rules of embeddings, output layer and learned positions."""
    if config.tied == "all":
        yield TensorRule(tables.shared or tables.target, ("embedding.tokens",), SAME)
    else:
        yield TensorRule(tables.source, ("embedding.source_tokens",), SAME)
        yield TensorRule(tables.target, ("embedding.tokens",), SAME)
    if config.tied == "none":
        yield TensorRule(tables.output, ("embedding.output",), SAME)
    if config.output_bias:
        yield TensorRule(tables.bias, ("embedding.output_bias",), bias)
    if config.positions == "learned":
        for side, table in tables.positions.items():
            yield TensorRule(table, (f"{side}_positions.0.table",), SAME)


def merge_copies(
    tensors: dict[str, np.ndarray], tables: TableNames, tied: str, name: str, hint: str
) -> None:
    """Keeps one of the copies of a tied table, under the name of its rule."""
    names = {
        "all": (
            tables.shared or tables.target,
            tables.source,
            tables.target,
            tables.output,
        ),
        "target": (tables.target, tables.output),
        "none": (),
    }[tied]
    stored = [copy for copy in dict.fromkeys(names) if copy in tensors]
    copies = [tensors.pop(copy) for copy in stored]
    for copy, array in zip(stored[1:], copies[1:], strict=True):
        if not np.array_equal(copies[0], array):
            raise UserError(
                f"{name}: {stored[0]} and {copy} differ, but its config says that they "
                f"are one table; {hint}"
            )
    if copies:
        tensors[names[0]] = copies[0]


def is_sinusoids(table: np.ndarray, layout: str, spacing: str, start: int = 0) -> bool:
    """True if the rows of a table from `start` on are our sinusoids."""
    expected = sinusoids(*table.shape, layout, spacing)
    # Theirs may be bfloat16 (2^-9), or computed in float32 with exponents that are off
    # by 1e-4 at far positions; other frequencies are off by 1.
    table = np.asarray(table, np.float32)
    return np.allclose(table[start:], expected[start:], rtol=0, atol=0.01)


def shorten_positions(tensors: dict[str, np.ndarray], tables: TableNames) -> int:
    """Cuts learned tables to the shorter one, as ours are; returns its rows."""
    rows = min(len(tensors[table]) for table in tables.positions.values())
    for table in tables.positions.values():
        tensors[table] = tensors[table][:rows]
    return rows


def is_gated(config: ModelConfig) -> bool:
    """True for a feed-forward layer with three matrices, which have no biases."""
    return config.variant("feed_forward").func is GatedFeedForward


def layer_rules(config: ModelConfig, names: LayerNames) -> Iterator[TensorRule]:
    """Yields the rules of all layers, and of the norms after them."""
    sides = {"encoder": ("attention", "ff"), "decoder": ("attention", "cross", "ff")}
    gated = is_gated(config)
    groups: dict[str, list[str]] = {}  # of the matrices that are stored as one
    for parameter, name in names.linears.items():
        groups.setdefault(name, []).append(parameter)
    matrix, out, vector = names.forms

    def norm_rules(name: str, parameter: str) -> Iterator[TensorRule]:
        scale, bias = (name.replace("{}", word) for word in names.norm)
        yield TensorRule(scale, (f"{parameter}.scale",), vector)
        if config.norm_kind == "layer":
            yield TensorRule(bias, (f"{parameter}.bias",), vector)

    for side, parts in sides.items():
        for number in range(config.side(side).layers):
            start = names.layer.format(side=side, number=number, nth=number + 1)
            start = names.prefix + start
            for name, group in groups.items():
                part, projection = group[0].split(".")
                if part not in parts:
                    continue
                parameters = tuple(f"{side}.{number}.{linear}" for linear in group)
                weight, bias = (start + name.format(word) for word in names.linear)
                yield TensorRule(
                    weight, parameters, out if projection == "out" else matrix
                )
                has_bias = not gated if part == "ff" else config.attention_bias
                if has_bias:
                    biases = tuple(f"{parameter}_bias" for parameter in parameters)
                    yield TensorRule(bias, biases, vector)
            for nth, part in enumerate(parts, 1):
                name = start + names.norms[part].replace("{nth}", str(nth))
                yield from norm_rules(name, f"{side}.{number}.{part}_sub.norm")
    if config.norm != "post":
        for side in sides:
            name = names.prefix + names.final_norm.replace("{side}", side)
            yield from norm_rules(name, f"{side}_norm")


def with_biases(
    config: ModelConfig, parameters: Parameters, *fields: str
) -> tuple[ModelConfig, Parameters]:
    """The same function with biases of 0 in `attention_bias` or `output_bias`."""
    config = dataclasses.replace(config, **dict.fromkeys(fields, True))
    shapes = _model(config, parameters).shapes
    zeros = {name: np.zeros(x.shape, np.float32) for name, x in flatten(shapes).items()}
    return config, nest(zeros | flatten(parameters), shapes)


def sines_first(config: ModelConfig, parameters: Parameters) -> Parameters:
    """Reorders the model width for sinusoids with all sines before all cosines.

    The paper's table has sin at 2i and cos at 2i+1 (section 3.5). No layer depends on
    the order of its features, so the reordered parameters with the reordered table
    compute the same logits. Parameters that already have that order stay.
    """
    layout = dict(config.options).get("sinusoid_layout", "interleaved")
    if config.positions != "sinusoid" or layout == "half":
        return parameters
    order = np.r_[0 : config.width : 2, 1 : config.width : 2]

    def reorder(x, names: tuple[str, ...]) -> np.ndarray:
        x = np.asarray(x)
        for axis, name in enumerate(names):
            if name in ("width", "norm"):  # heads and the hidden layer stay
                x = x.take(order, axis)
        return x

    return jax.tree.map(reorder, parameters, _model(config, parameters).axes)


def _model(config: ModelConfig, parameters: Parameters) -> Model:
    """The model of a config, with the vocabulary sizes of some parameters."""
    tables = parameters["embedding"]
    names = ("tokens", *(["source_tokens"] if "source_tokens" in tables else []))
    return build(config, *(len(tables[name]) for name in names))
