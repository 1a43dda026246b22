"""Starts parts of a model from another model's: `config.train.init_parts`.

A part is a name among the parameters with what belongs to it: `encoder` is also
`encoder_positions` and `encoder_norm`. The models may be of different kinds, such as a
translator and a classifier. A decoder with attention to a source and one without have
everything else in common.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from t2t_jax.config import Config, ModelConfig
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.messages import say
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.training.parameter_groups import in_part

Path = tuple[Any, ...]  # the keys of a parameter in the nested dict

_SIZES = ("layers", "heads", "hidden")
# Fields that have to agree for a stack of layers, besides the sizes of its side.
_OF_STACKS = (
    *("width", "head_width", "value_width", "positions", "norm", "norm_kind"),
    *("norm_epsilon", "residual", "attention_bias", "feed_forward"),
)
_OF_CROSS_ATTENTION = {"cross", "cross_sub"}


def parts_of(config: Config) -> list[str]:
    """The names in `config.train.init_parts`; empty: the whole model."""
    return [s for s in map(str.strip, config.train.init_parts.split(",")) if s]


def takes_embedding(config: Config) -> bool:
    """True if embeddings are taken over, which belong to the pieces of a tokenizer."""
    parts = parts_of(config)
    return not parts or "embedding" in parts


def text_vocabulary(vocabulary: Vocabulary, theirs: Config, ours: Config) -> Vocabulary:
    """The pieces of another model's text that are those of ours.

    Args:
      vocabulary: of the other model; its target may be labels.
    """
    if _predicts(theirs.model) == "label":
        vocabulary = vocabulary.source
    if vocabulary.joint or _has_two_sides(ours.model):
        return vocabulary
    if _predicts(ours.model) == "target":
        return Vocabulary(vocabulary.model, vocabulary.name)
    return vocabulary.source


def _predicts(config: ModelConfig) -> str:
    return getattr(config.variant("kind"), "predicts", "target")


def _has_two_sides(config: ModelConfig) -> bool:
    return config.variant("kind").has_source and _predicts(config) == "target"


def check_parts(
    config: Config, theirs: Config, their_model: Model, our_model: Model
) -> None:
    """Checks that the chosen parts of two models have the same form.

    Args:
      their_model, our_model: with vocabularies of the same size.

    Raises:
      UserError: one of them has no such part, or the parts differ.
    """
    source = f"config.train.init_from={config.train.init_from}"
    differences = {}
    for part in parts_of(config):
        for model, whose in (
            (our_model, f"config.model.kind={config.model.kind!r}"),
            (their_model, f"{source} (config.model.kind={theirs.model.kind!r})"),
        ):
            if not any(in_part(key, part) for key in model.shapes):
                raise UserError(
                    f"config.train.init_parts has {part!r}, but {whose} has no such "
                    f"part{did_you_mean(part, model.shapes)}"
                )
        differences |= _differing_fields(part, theirs.model, config.model)
    if takes_embedding(config) and _has_two_sides(config.model):
        # A model with one side has one vocabulary for its text.
        both = theirs.data.joint_vocabulary or not _has_two_sides(theirs.model)
        if both != config.data.joint_vocabulary:
            name = "--config.data.joint_vocabulary"
            differences[name] = both, config.data.joint_vocabulary
    if not differences:
        differences = _differing_arrays(parts_of(config), their_model, our_model)
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
    part: str, theirs: ModelConfig, ours: ModelConfig
) -> dict[str, tuple[Any, Any]]:
    """The fields that a part depends on, and the values of both models."""
    both = theirs, ours
    if part == "embedding":
        names = ["width", "embedding_scale"]
        if all(map(_has_two_sides, both)):
            names.append("tied")  # with one side, there is a table for it in any case
    elif part in ("encoder", "decoder"):
        names = [*_OF_STACKS, *(f"{part}_{size}" for size in _SIZES)]
    else:
        names = [*_OF_STACKS, *_SIZES]
    # A field that one of them does not read says nothing about its parameters.
    read = [name for name in names if all(c.reads(name) for c in both)]
    values = {f"--config.model.{n}": tuple(_value(c, n) for c in both) for n in read}
    if part != "embedding":
        values |= _options(theirs, ours)
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


def _value(config: ModelConfig, name: str) -> Any:
    """A field's value; of the sizes of a side, what they resolve to."""
    side, _, size = name.partition("_")
    if side in ("encoder", "decoder"):
        return getattr(config.side(side), size)
    return getattr(config, name)


def _options(theirs: ModelConfig, ours: ModelConfig) -> dict[str, tuple[Any, Any]]:
    """The options of the stacks' layers, and the values of both models."""
    # Layers of their own have only models that do not read `attention`.
    choosers = ["positions"] if ours.reads("attention") else ["kind"]
    values = {}
    for chooser in choosers:
        if getattr(theirs, chooser) != getattr(ours, chooser):
            continue
        options = [c.own_options(c.variant(chooser)) for c in (theirs, ours)]
        for name in vars(options[0]) if options[0] else ():
            pair = tuple(getattr(o, name) for o in options)
            values[f"--config.model.options.{name}"] = pair
    return values


def _differing_arrays(
    parts: list[str], theirs: Model, ours: Model
) -> dict[str, tuple[Any, Any]]:
    """The shapes of arrays of the parts that only one model has, or another shape."""
    found = {}
    matched = matching(parts, theirs, ours)
    shapes = [flat(model.shapes) for model in (theirs, ours)]
    for mine, other in matched.items():
        found[mine] = shapes[0][other].shape, shapes[1][mine].shape
    for number, model_shapes in enumerate(shapes):
        for path, x in _in_parts(model_shapes, parts):
            if path[0] == "embedding" or path in matched:
                continue
            if _OF_CROSS_ATTENTION.isdisjoint(path):
                pair = ["no array"] * 2
                pair[number] = x.shape
                found[path] = tuple(pair)
    different = {p: pair for p, pair in found.items() if pair[0] != pair[1]}
    return {".".join(map(str, p)): different[p] for p in [*different][:5]}


def matching(parts: list[str], theirs: Model, ours: Model) -> dict[Path, Path]:
    """Which of their arrays each array of our parts starts from, if any."""
    matched = {}
    their_paths = flat(theirs.shapes)
    tables = _tables(theirs, ours)
    for path, _ in _in_parts(flat(ours.shapes), parts):
        other = ("embedding", tables.get(path[1])) if path[0] == "embedding" else path
        if other in their_paths:
            matched[path] = other
    return matched


def _tables(theirs: Model, ours: Model) -> dict[str, str]:
    """Which table of their embedding each of ours starts from."""
    uses = [_uses(model) for model in (theirs, ours)]
    shared = {uses[1][use]: uses[0][use] for use in uses[1] if use in uses[0]}
    # A language model and an encoder have each one table, of the same pieces.
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


def flat(parameters: Parameters) -> dict[Path, Any]:
    """The arrays of a nested dict by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(
        parameters, is_leaf=lambda x: not isinstance(x, Mapping)
    )
    return {tuple(step.key for step in path): x for path, x in leaves}


def _in_parts(arrays: dict[Path, Any], parts: list[str]) -> Iterator[tuple[Path, Any]]:
    for path, x in arrays.items():
        if any(in_part(path[0], part) for part in parts):
            yield path, x


def taken_over(
    parts: list[str], theirs: Model, ours: Model, parameters: Parameters
) -> Parameters:
    """Returns their arrays of the parts in our places: some of our parameters."""
    arrays, taken = flat(parameters), {}
    for path, other in matching(parts, theirs, ours).items():
        inner = taken
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = arrays[other]
    return taken


def completed(taken: Parameters, random: Parameters) -> Parameters:
    """Adds random arrays to those taken over; says which parts are random."""
    found = flat(taken)
    left = sorted({path[0] for path in flat(random)} - {path[0] for path in found})
    if left:
        say(f"random parameters: {', '.join(left)}")

    def choose(path: tuple, x: Any) -> np.ndarray:
        return np.asarray(found.get(tuple(step.key for step in path), x))

    return jax.tree.map_with_path(choose, random)
