"""Takes over some parts of another model: `config.train.init_parts`."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from t2t_jax.config import Config, ModelConfig
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.messages import say
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.run.initialization import (
    has_two_sides,
    parts_of,
    takes_embedding,
)
from t2t_jax.training.optimizers import in_part

Path = tuple[Any, ...]  # the keys of a parameter in the nested dict

_SIZES = ("layers", "heads", "hidden")
# Fields that have to agree for a stack of layers, and the sizes of its side.
_OF_STACKS = (
    *("width", "head_width", "value_width", "positions", "norm", "norm_kind"),
    *("norm_epsilon", "residual", "attention_bias", "feed_forward"),
)
_OF_CROSS_ATTENTION = {"cross", "cross_sub"}


def check_parts(
    config: Config, parent_config: Config, parent_model: Model, model: Model
) -> None:
    """Checks that the chosen parts of two models have the same form.

    The models have vocabularies of the same size.
    """
    source = f"config.train.init_from={config.train.init_from}"
    differences = {}
    for part in parts_of(config):
        for candidate, owner in (
            (model, f"config.model.kind={config.model.kind!r}"),
            (
                parent_model,
                f"{source} (config.model.kind={parent_config.model.kind!r})",
            ),
        ):
            if not any(in_part(key, part) for key in candidate.shapes):
                raise UserError(
                    f"config.train.init_parts has {part!r}, but {owner} has no such "
                    f"part{did_you_mean(part, candidate.shapes)}"
                )
        differences |= _differing_fields(part, parent_config.model, config.model)
    if takes_embedding(config) and has_two_sides(config.model):
        # A model with one side has one vocabulary for its text.
        parent_joint = parent_config.data.joint_vocabulary or not has_two_sides(
            parent_config.model
        )
        if parent_joint != config.data.joint_vocabulary:
            name = "--config.data.joint_vocabulary"
            differences[name] = parent_joint, config.data.joint_vocabulary
    if not differences:
        differences = _differing_arrays(parts_of(config), parent_model, model)
    if differences:
        listed = "".join(
            f"\n  {name}={old} there, {new} here"
            for name, (old, new) in differences.items()
        )
        raise UserError(
            f"{source} has different parts {config.train.init_parts!r}:{listed}\n"
            "Give this run the same values, or leave the part out of "
            "config.train.init_parts"
        )


def _differing_fields(
    part: str, parent: ModelConfig, child: ModelConfig
) -> dict[str, tuple[Any, Any]]:
    """The fields that a part depends on, and the values of both models."""
    configs = parent, child
    if part == "embedding":
        names = ["width", "embedding_scale"]
        if all(map(has_two_sides, configs)):
            names.append("tied")  # with one side, there is a table for it in any case
    elif part in ("encoder", "decoder"):
        names = [*_OF_STACKS, *(f"{part}_{size}" for size in _SIZES)]
    else:
        names = [*_OF_STACKS, *_SIZES]
    # A field that one of them does not read says nothing about its parameters.
    read = [name for name in names if all(c.reads(name) for c in configs)]
    values = {f"--config.model.{n}": tuple(_value(c, n) for c in configs) for n in read}
    if part != "embedding":
        values |= _options(parent, child)
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


def _value(config: ModelConfig, name: str) -> Any:
    """A field's value; of the sizes of a side, what they resolve to."""
    side, _, size = name.partition("_")
    if side in ("encoder", "decoder"):
        return getattr(config.side(side), size)
    return getattr(config, name)


def _options(parent: ModelConfig, child: ModelConfig) -> dict[str, tuple[Any, Any]]:
    """The options of the stacks' layers, and the values of both models."""
    # Layers of their own have only models that do not read `attention`.
    choosers = ["positions"] if child.reads("attention") else ["kind"]
    values = {}
    for chooser in choosers:
        if getattr(parent, chooser) != getattr(child, chooser):
            continue
        options = [c.own_options(c.variant(chooser)) for c in (parent, child)]
        for name in vars(options[0]) if options[0] else ():
            pair = tuple(getattr(o, name) for o in options)
            values[f"--config.model.options.{name}"] = pair
    return values


def _differing_arrays(
    parts: list[str], parent: Model, child: Model
) -> dict[str, tuple[Any, Any]]:
    """The shapes of arrays of the parts that only one model has, or another shape."""
    shapes = [
        {path: x.shape for path, x in flatten_dict(model.shapes).items()}
        for model in (parent, child)
    ]
    matched = matching(parts, parent, child)
    shape_pairs = {
        path: (shapes[0][parent_path], shapes[1][path])
        for path, parent_path in matched.items()
    }
    for path, _ in _in_parts(shapes[0] | shapes[1], parts):
        alone = path[0] != "embedding" and path not in matched
        if alone and _OF_CROSS_ATTENTION.isdisjoint(path):
            shape_pairs[path] = tuple(s.get(path, "no array") for s in shapes)
    different = {p: pair for p, pair in shape_pairs.items() if pair[0] != pair[1]}
    return {".".join(map(str, p)): different[p] for p in [*different][:5]}


def matching(parts: list[str], parent: Model, child: Model) -> dict[Path, Path]:
    """Maps the arrays of the child's parts to those of the parent they start from."""
    matched = {}
    parent_paths = flatten_dict(parent.shapes)
    tables = _tables(parent, child)
    for path, _ in _in_parts(flatten_dict(child.shapes), parts):
        parent_path = path
        if path[0] == "embedding":
            parent_path = ("embedding", tables.get(path[1]))
        if parent_path in parent_paths:
            matched[path] = parent_path
    return matched


def _tables(parent: Model, child: Model) -> dict[str, str]:
    """Maps the tables of the child's embedding to those of the parent."""
    uses = [_uses(model) for model in (parent, child)]
    shared = {uses[1][use]: uses[0][use] for use in uses[1] if use in uses[0]}
    # A language model and an encoder have each one table, of the same tokens.
    return shared or {"tokens": "tokens"}


def _uses(model: Model) -> dict[str, str]:
    """The tables of an embedding by what they are used for."""
    names = model.shapes["embedding"]
    uses = {}
    if model.has_source:
        uses["source"] = "source_tokens" if "source_tokens" in names else "tokens"
    if model.predicts == "target":
        uses["target"] = "tokens"
    uses |= {f"{n} of {model.predicts}": n for n in names if n.startswith("output")}
    return uses


def _in_parts(arrays: dict[Path, Any], parts: list[str]) -> Iterator[tuple[Path, Any]]:
    for path, x in arrays.items():
        if any(in_part(path[0], part) for part in parts):
            yield path, x


def taken_over(
    parts: list[str], parent: Model, child: Model, parameters: Parameters
) -> Parameters:
    """Returns the parent's arrays of the parts, under the child's names."""
    arrays, matched = flatten_dict(parameters), matching(parts, parent, child)
    return unflatten_dict({path: arrays[start] for path, start in matched.items()})


def completed(parameters: Parameters, random: Parameters) -> Parameters:
    """Adds random arrays to those taken over; says which parts are random."""
    if missing := sorted(random.keys() - parameters.keys()):
        say(f"random parameters: {', '.join(missing)}")
    arrays = flatten_dict(random) | flatten_dict(parameters)
    return jax.tree.map(np.asarray, unflatten_dict(arrays))
