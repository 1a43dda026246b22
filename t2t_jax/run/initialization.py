"""Starts a run from another workdir's parameters: `config.train.init_from`.

From all of them, from some parts (`config.train.init_parts`), or from those of another
vocabulary (`config.train.remap_vocabulary`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from t2t_jax import config as fields
from t2t_jax.config import Config, DataConfig, ModelConfig
from t2t_jax.data.corpus import Corpus
from t2t_jax.data.tokenizers.training import SEPARATE, existing_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary, parse_symbols
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.messages import say
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model, build
from t2t_jax.sections import at_address
from t2t_jax.tasks.task import Task
from t2t_jax.text.languages import same_language
from t2t_jax.training.averaging import average_checkpoints, choose_checkpoints
from t2t_jax.training.optimizers import in_part
from t2t_jax.training.step import initial_parameters
from t2t_jax.workdir import Workdir

# Fields of the model that may differ: they do not change the meaning of weights. Their
# shapes are compared, too.
_FREE = {
    f"model.{name}"
    for name in (
        *("dropout", "attention_dropout", "activation_dropout"),
        *("dtype", "products", "attention", "remat", "max_positions"),
    )
}


def check_source(config: Config) -> None:
    """Checks that the other workdir's parameters fit this run's model.

    Called before anything is prepared. Prints a note if the languages differ.
    """
    source = Workdir(config.train.init_from)
    parent_config = source.config()
    choose_checkpoints(source, parent_config, config.train.init_checkpoint)
    pieces = config.data.vocab_size  # the vocabulary is the parent's: any size serves
    models = [build(c.model, pieces) for c in (parent_config, config)]
    if parts_of(config):
        check_parts(config, parent_config, *models)
        return
    shapes = [model.shapes for model in models]
    free = _FREE if shapes[0] == shapes[1] else _FREE - {"model.max_positions"}
    pairs = [(data.source, data.target) for data in (parent_config.data, config.data)]
    if not all(map(same_language, *pairs)):
        directions = ["-".join(pair) for pair in pairs]
        say(f"{source} translates {directions[0]}, this run will {directions[1]}")
    changed = fields.differences(*map(_fixed, (parent_config, config)))
    listed = "".join(
        f"\n  --config.{name}={old!r} there, {new!r} here"
        for name, (old, new, _) in changed.items()
        if name not in free
    )
    if listed:
        raise UserError(
            f"config.train.init_from={source} has a different model:{listed}\n"
            "Give this run the same values, or name the parts to start from it in "
            "config.train.init_parts, such as 'encoder,embedding'"
        )


def _fixed(config: Config) -> Config:
    """The fields that must be the same; the others at their defaults."""
    joint = DataConfig(joint_vocabulary=config.data.joint_vocabulary)
    return Config(model=config.model, data=joint)


def new_vocabulary(
    task: Task, training: Sequence[Corpus], config: Config
) -> Vocabulary:
    """The tokenizer of a new run: that of `init_from`, an existing one, or trained."""
    inherited = config.train.init_from and takes_embedding(config)
    if inherited and not config.train.remap_vocabulary:
        return task.vocabulary(training, vocabulary(config))
    return task.vocabulary(training)


def vocabulary(config: Config) -> Vocabulary:
    """Loads the other workdir's tokenizer, as its embeddings belong to those tokens.

    Not called with `config.train.remap_vocabulary` or without the parent's embeddings.
    """
    source = config.train.init_from
    parent_config, parent_vocabulary = Workdir(source).config_and_vocabulary()
    if parts_of(config):
        parent_vocabulary = text_vocabulary(parent_vocabulary, parent_config, config)
    for part, side in zip(SEPARATE, parent_vocabulary.sides, strict=False):
        field = part.tokenizer
        own_tokenizer = existing_tokenizer(config.data, field)
        if own_tokenizer and own_tokenizer.model != side.model:
            raise UserError(
                f"config.data.{field}={getattr(config.data, field)} differs from that "
                f"of config.train.init_from={source}, whose embeddings are only valid "
                f"for its own tokens; leave config.data.{field} out, or set "
                "config.train.remap_vocabulary=True"
            )
        side.check_symbols(
            parse_symbols(config.data.symbols),
            "leave it out, or start from a run that was trained with it",
        )
    say(f"using the tokenizer of {source}")
    return parent_vocabulary


def hook(
    config: Config, model: Model, vocabulary: Vocabulary
) -> Callable[[], Parameters] | None:
    """Returns a function that reads the other workdir's parameters.

    None if `config.train.init_from` is empty: the parameters start random.
    """
    if not config.train.init_from:
        return None

    # Called by process 0 alone, so nothing in it may wait for the others.
    def read() -> Parameters:
        source = Workdir(config.train.init_from)
        parent_config, parent_vocabulary = source.config(), source.vocabulary()
        choice = choose_checkpoints(source, parent_config, config.train.init_checkpoint)
        parent_model = build(parent_config.model, *parent_vocabulary.sizes)
        steps, parameters = average_checkpoints(choice, parent_model.shapes)
        say(f"starting from {source}, steps {', '.join(f'{s:,}' for s in steps)}")
        parent_labels = parent_vocabulary
        if parts := parts_of(config):
            parameters = taken_over(parts, parent_model, model, parameters)
            parent_vocabulary = text_vocabulary(
                parent_vocabulary, parent_config, config
            )
        axes = flatten_dict(model.axes)
        if any(
            holds_labels(path, axes[path], model) for path in flatten_dict(parameters)
        ):
            _check_labels(config, parent_labels, vocabulary)
        if config.train.remap_vocabulary:
            remap = at_address("extensions.run.another_vocabulary.remap")
            parameters = remap(parameters, model, parent_vocabulary, vocabulary)
        if not parts:
            return parameters
        # Compiled, as it is in a run that starts random: the same bits.
        random = jax.jit(lambda: initial_parameters(model, config.train.seed))()
        return completed(parameters, random)

    return read


def _check_labels(
    config: Config, parent_labels: Vocabulary, labels: Vocabulary
) -> None:
    """Raises UserError unless a classifier has the labels of another one, in order."""
    if labels.model == parent_labels.model:
        return
    listed = [", ".join(map(v.piece, range(len(v)))) for v in (parent_labels, labels)]
    raise UserError(
        f"config.train.init_from={config.train.init_from} tells apart the labels "
        f"{listed[0]}; this run has {listed[1]}. Start from its other parts, "
        "config.train.init_parts='encoder,embedding', or give this run the same labels "
        "in the same order, config.task.options.labels"
    )


def holds_labels(keys: tuple, axes: tuple[str, ...], model: Model) -> bool:
    """True for a table of labels, which is taken over only if these are the same."""
    if model.predicts != "label" or "vocab" not in axes:
        return False
    return not holds_source_tokens(keys, model)


def holds_source_tokens(keys: tuple, model: Model) -> bool:
    """True for a table of the source's tokens, by its place among the parameters."""
    # With two sides it has a name of its own; with one, `tokens` is what is read.
    alone = model.predicts != "target" and keys == ("embedding", "tokens")
    return alone or keys[-1].startswith("source")


# -------------------------------------------------------------------------------- parts
# A part is a name among the parameters with what belongs to it: `encoder` is also
# `encoder_positions` and `encoder_norm`. The models may be of different kinds, such as
# a translator and a classifier. A decoder with attention to a source and one without
# have everything else in common.

Path = tuple[Any, ...]  # the keys of a parameter in the nested dict

_SIZES = ("layers", "heads", "hidden")
# Fields that have to agree for a stack of layers, and the sizes of its side.
_OF_STACKS = (
    *("width", "head_width", "value_width", "positions", "norm", "norm_kind"),
    *("norm_epsilon", "residual", "attention_bias", "feed_forward"),
)
_OF_CROSS_ATTENTION = {"cross", "cross_sub"}


def parts_of(config: Config) -> list[str]:
    """The names in `config.train.init_parts`; empty: the whole model."""
    return [s for s in map(str.strip, config.train.init_parts.split(",")) if s]


def takes_embedding(config: Config) -> bool:
    """True if embeddings are taken over, which belong to the tokens of a tokenizer."""
    parts = parts_of(config)
    return not parts or "embedding" in parts


def text_vocabulary(
    vocabulary: Vocabulary, parent_config: Config, config: Config
) -> Vocabulary:
    """The vocabulary of the parent's text that this run takes over.

    Args:
      vocabulary: of the parent; its target may be labels.
    """
    if _predicts(parent_config.model) == "label":
        vocabulary = vocabulary.source
    if vocabulary.joint or _has_two_sides(config.model):
        return vocabulary
    if _predicts(config.model) == "target":
        return Vocabulary(vocabulary.model, vocabulary.name)
    return vocabulary.source


def _predicts(config: ModelConfig) -> str:
    return getattr(config.variant("kind"), "predicts", "target")


def _has_two_sides(config: ModelConfig) -> bool:
    return config.variant("kind").has_source and _predicts(config) == "target"


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
    if takes_embedding(config) and _has_two_sides(config.model):
        # A model with one side has one vocabulary for its text.
        parent_joint = parent_config.data.joint_vocabulary or not _has_two_sides(
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
        if all(map(_has_two_sides, configs)):
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
