"""Our parameters and those of another system: one list of rules, read in two ways.

A `Rule` says under which name another system stores which of our parameters, and in
which form. `read` and `write` apply a list of rules, so that what one of them writes
the other reads back.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model, build

Tensors = Mapping[str, np.ndarray]


class Form(NamedTuple):
    """The storage layout of an array in another system, and the way there and back.

    Attributes:
      there: our array -> theirs.
      back: (their array, our shape) -> our array.
      shape: our shape -> theirs.
    """

    there: Callable[[np.ndarray], np.ndarray]
    back: Callable[[np.ndarray, tuple[int, ...]], np.ndarray]
    shape: Callable[[tuple[int, ...]], tuple[int, ...]]


def _merged(shape: tuple[int, ...], inputs: int) -> tuple[int, int]:
    """The shape of a matrix [inputs, outputs] whose first axes are the inputs."""
    return int(np.prod(shape[:inputs])), int(np.prod(shape[inputs:]))


def _matrix(inputs: int, turned: bool) -> Form:
    """A matrix, with our `inputs` first axes merged; [outputs, inputs] if turned."""

    def shape(ours):
        return _merged(ours, inputs)[::-1] if turned else _merged(ours, inputs)

    def there(x):
        matrix = x.reshape(_merged(x.shape, inputs))
        return matrix.T if turned else matrix

    return Form(there, lambda x, ours: (x.T if turned else x).reshape(ours), shape)


# The array itself; embeddings and norms.
SAME = Form(lambda x: x, lambda x, ours: x.reshape(ours), lambda ours: ours)
# One axis: biases of attention, which keep heads apart here.
FLAT = Form(
    lambda x: x.reshape(-1),
    lambda x, ours: x.reshape(ours),
    lambda ours: (int(np.prod(ours)),),
)
# [1, n], as Marian stores vectors.
ROW = Form(
    lambda x: x.reshape(1, -1),
    lambda x, ours: x.reshape(ours),
    lambda ours: (1, int(np.prod(ours))),
)
# PyTorch's Linear, [outputs, inputs]: of [d, h, k] and of [h, k, d].
LINEAR, LINEAR_OUT = _matrix(1, turned=True), _matrix(2, turned=True)
# [inputs, outputs], as Marian stores matrices.
MATRIX, MATRIX_OUT = _matrix(1, turned=False), _matrix(2, turned=False)


class Rule(NamedTuple):
    """One array of another system.

    Attributes:
      theirs: its name.
      ours: our parameters that it holds, such as `encoder.0.attention.query`; several
        are stored one after another on the first axis.
      form: how each of them is stored.
    """

    theirs: str
    ours: tuple[str, ...]
    form: Form


def flatten(parameters: Parameters) -> dict[str, Any]:
    """Nested parameters as a flat dict: `encoder.0.attention.query` -> array."""
    return {
        ".".join(str(part.key) for part in path): leaf
        for path, leaf in jax.tree.leaves_with_path(parameters)
    }


def nest(flat: Mapping[str, Any], like: Parameters) -> Parameters:
    """Undoes `flatten`; `like` has the structure, such as `model.shapes`."""
    return jax.tree.map_with_path(
        lambda path, _: flat[".".join(str(part.key) for part in path)], like
    )


def write(rules: Sequence[Rule], parameters: Parameters) -> dict[str, np.ndarray]:
    """Stores our parameters as another system does, float32.

    Raises:
      UserError: a parameter has no rule, so the other system cannot hold it.
    """
    ours = {name: np.asarray(x, np.float32) for name, x in flatten(parameters).items()}
    ruled = {name for rule in rules for name in rule.ours}
    if left := sorted(ours.keys() - ruled):
        raise UserError(f"the other system has no place for {listed(left)}")
    return {
        rule.theirs: np.ascontiguousarray(
            np.concatenate([rule.form.there(ours[name]) for name in rule.ours])
        )
        for rule in rules
    }


def read(
    rules: Iterable[Rule], tensors: Tensors, model: Model, name: str
) -> Parameters:
    """Reads parameters as another system stored them, float32.

    Args:
      tensors: its arrays; all of them must have a rule.
      model: ours; gives names and shapes.
      name: the file, for error messages.

    Raises:
      UserError: an array is missing, has another shape or values that are not finite,
        or no rule is for it.
    """
    rules = list(rules)
    shapes = {ours: leaf.shape for ours, leaf in flatten(model.shapes).items()}
    names = [rule.theirs for rule in rules]
    if missing := [theirs for theirs in names if theirs not in tensors]:
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
        whole = np.asarray(tensors[rule.theirs], np.float32)
        parts = [rule.form.shape(shapes[ours]) for ours in rule.ours]
        wanted = (sum(part[0] for part in parts), *parts[0][1:])
        if whole.shape != wanted:
            raise UserError(
                f"{name}: {rule.theirs} has the shape {list(whole.shape)}; its config "
                f"says {list(wanted)}"
            )
        if not np.isfinite(whole).all():
            raise UserError(f"{name}: {rule.theirs} has values that are not finite")
        ends = np.cumsum([part[0] for part in parts])[:-1]
        for ours, part in zip(rule.ours, np.split(whole, ends), strict=True):
            flat[ours] = np.ascontiguousarray(rule.form.back(part, shapes[ours]))
    return nest(flat, model.shapes)


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names for an error message: the first ones, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class LayerNames(NamedTuple):
    """The names that a system gives to the parts of a Transformer layer.

    Attributes:
      attention: its names of our self-attention and cross-attention.
      norms: of our norms: `attention`, `cross` and `ff`.
      projections: of our `query`, `key`, `value` and `out`; or None for `packed`.
      feed_forward: of our `inner` and `outer`.
    """

    attention: dict[str, str]
    norms: dict[str, str]
    projections: dict[str, str]
    feed_forward: dict[str, str]


# fairseq's names, which Hugging Face's ports of its models keep.
FAIRSEQ_NAMES = LayerNames(
    attention={"attention": "self_attn", "cross": "encoder_attn"},
    norms={
        "attention": "self_attn_layer_norm",
        "cross": "encoder_attn_layer_norm",
        "ff": "final_layer_norm",
    },
    projections={
        "query": "q_proj",
        "key": "k_proj",
        "value": "v_proj",
        "out": "out_proj",
    },
    feed_forward={"inner": "fc1", "outer": "fc2"},
)


def layer_rules(
    config: ModelConfig, names: LayerNames, prefix: str = "", packed: str = ""
) -> Iterator[Rule]:
    """Yields the rules of all encoder and decoder layers, in PyTorch's forms.

    Args:
      config: with `attention_bias`, as PyTorch's layers have them.
      prefix: of all names, such as `model.`; a layer is `{prefix}encoder.layers.0.`.
      packed: the name of query, key and value as one matrix, such as `in_proj_`; empty
        if they are apart.
    """
    for side, parts in (
        ("encoder", ("attention",)),
        ("decoder", ("attention", "cross")),
    ):
        for number in range(config.side(side).layers):
            ours, theirs = f"{side}.{number}", f"{prefix}{side}.layers.{number}"
            for part in parts:
                at, there = f"{ours}.{part}", f"{theirs}.{names.attention[part]}"
                projections = dict(names.projections)
                if packed:
                    three = ("query", "key", "value")
                    for suffix, ending, form in (
                        ("weight", "", LINEAR),
                        ("bias", "_bias", FLAT),
                    ):
                        yield Rule(
                            f"{there}.{packed}{suffix}",
                            tuple(f"{at}.{p}{ending}" for p in three),
                            form,
                        )
                    projections = {"out": projections["out"]}
                for mine, other in projections.items():
                    form = LINEAR_OUT if mine == "out" else LINEAR
                    yield Rule(f"{there}.{other}.weight", (f"{at}.{mine}",), form)
                    yield Rule(f"{there}.{other}.bias", (f"{at}.{mine}_bias",), FLAT)
            for mine, other in names.feed_forward.items():
                yield Rule(f"{theirs}.{other}.weight", (f"{ours}.ff.{mine}",), LINEAR)
                yield Rule(f"{theirs}.{other}.bias", (f"{ours}.ff.{mine}_bias",), SAME)
            for part in (*parts, "ff"):
                norm = f"{theirs}.{names.norms[part]}"
                yield from norm_rules(norm, f"{ours}.{part}_sub.norm")


def norm_rules(theirs: str, ours: str) -> list[Rule]:
    """The rules of one LayerNorm."""
    return [
        Rule(f"{theirs}.weight", (f"{ours}.scale",), SAME),
        Rule(f"{theirs}.bias", (f"{ours}.bias",), SAME),
    ]


def with_attention_biases(
    config: ModelConfig, parameters: Parameters
) -> tuple[ModelConfig, Parameters]:
    """The same function with biases of 0 in attention, for systems that have them."""
    if config.attention_bias:
        return config, parameters
    return _adding(config, parameters, attention_bias=True)


def with_output_bias(
    config: ModelConfig, parameters: Parameters
) -> tuple[ModelConfig, Parameters]:
    """The same function with a bias of 0 of the logits."""
    if config.output_bias:
        return config, parameters
    return _adding(config, parameters, output_bias=True)


def _adding(
    config: ModelConfig, parameters: Parameters, **changed: bool
) -> tuple[ModelConfig, Parameters]:
    """Adds the parameters that a changed config has besides, as zeros."""
    config = dataclasses.replace(config, **changed)
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
