"""Starts a run from another workdir's parameters: `config.train.init_from`.

From all of them, from some parts (`config.train.init_parts`), or from those of another
vocabulary (`config.train.remap_vocabulary`).
"""

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
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
from t2t_jax.tasks.task import Task
from t2t_jax.text.languages import same_language
from t2t_jax.training.averaging import average_checkpoints, choose_checkpoints
from t2t_jax.training.optimizers import in_part
from t2t_jax.training.step import initial_parameters
from t2t_jax.workdir import Workdir

# Fields of the model that may differ: they do not change the meaning of weights. Their
# shapes are compared besides.
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
    theirs = source.config()
    choose_checkpoints(source, theirs, config.train.init_checkpoint)
    pieces = config.data.vocab_size  # the vocabulary is theirs, so any size serves
    models = [build(c.model, pieces) for c in (theirs, config)]
    if parts_of(config):
        check_parts(config, theirs, *models)
        return
    shapes = [model.shapes for model in models]
    free = _FREE if shapes[0] == shapes[1] else _FREE - {"model.max_positions"}
    pairs = [(data.source, data.target) for data in (theirs.data, config.data)]
    if not all(map(same_language, *pairs)):
        directions = ["-".join(pair) for pair in pairs]
        say(f"{source} translates {directions[0]}, this run will {directions[1]}")
    changed = fields.differences(*map(_fixed, (theirs, config)))
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
    taken = config.train.init_from and takes_embedding(config)
    if taken and not config.train.remap_vocabulary:
        return task.vocabulary(training, vocabulary(config))
    return task.vocabulary(training)


def vocabulary(config: Config) -> Vocabulary:
    """Loads the other workdir's tokenizer, as its embeddings belong to those tokens.

    Not called with `config.train.remap_vocabulary` or without their embeddings.
    """
    source = config.train.init_from
    their_config, theirs = Workdir(source).config_and_vocabulary()
    if parts_of(config):
        theirs = text_vocabulary(theirs, their_config, config)
    for part, side in zip(SEPARATE, theirs.sides, strict=False):
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
    return theirs


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
        theirs, old = source.config(), source.vocabulary()
        choice = choose_checkpoints(source, theirs, config.train.init_checkpoint)
        their_model = build(theirs.model, *old.sizes)
        steps, parameters = average_checkpoints(choice, their_model.shapes)
        say(f"starting from {source}, steps {', '.join(f'{s:,}' for s in steps)}")
        their_labels = old
        if parts := parts_of(config):
            parameters = taken_over(parts, their_model, model, parameters)
            old = text_vocabulary(old, theirs, config)
        axes = flatten_dict(model.axes)
        if any(
            _of_labels(path, axes[path], model) for path in flatten_dict(parameters)
        ):
            _check_labels(config, their_labels, vocabulary)
        if config.train.remap_vocabulary:
            parameters = remap(parameters, model, old, vocabulary)
        if not parts:
            return parameters
        # Compiled, as it is in a run that starts random: the same bits.
        random = jax.jit(lambda: initial_parameters(model, config.train.seed))()
        return completed(parameters, random)

    return read


def _check_labels(config: Config, theirs: Vocabulary, ours: Vocabulary) -> None:
    """Raises UserError unless a classifier has the labels of another one, in order."""
    if ours.model == theirs.model:
        return
    listed = [", ".join(map(v.piece, range(len(v)))) for v in (theirs, ours)]
    raise UserError(
        f"config.train.init_from={config.train.init_from} tells apart the labels "
        f"{listed[0]}; this run has {listed[1]}. Start from its other parts, "
        "config.train.init_parts='encoder,embedding', or give this run the same labels "
        "in the same order, config.task.options.labels"
    )


# -------------------------------------------------------------------------------- parts
# A part is a name among the parameters with what belongs to it: `encoder` is also
# `encoder_positions` and `encoder_norm`. The models may be of different kinds, such as
# a translator and a classifier. A decoder with attention to a source and one without
# have everything else in common.

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
    """True if embeddings are taken over, which belong to the tokens of a tokenizer."""
    parts = parts_of(config)
    return not parts or "embedding" in parts


def text_vocabulary(vocabulary: Vocabulary, theirs: Config, ours: Config) -> Vocabulary:
    """The tokens of another model's text that are those of ours.

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
    shapes = [
        {path: x.shape for path, x in flatten_dict(model.shapes).items()}
        for model in (theirs, ours)
    ]
    matched = matching(parts, theirs, ours)
    shape_pairs = {
        mine: (shapes[0][other], shapes[1][mine]) for mine, other in matched.items()
    }
    for path, _ in _in_parts(shapes[0] | shapes[1], parts):
        alone = path[0] != "embedding" and path not in matched
        if alone and _OF_CROSS_ATTENTION.isdisjoint(path):
            shape_pairs[path] = tuple(s.get(path, "no array") for s in shapes)
    different = {p: pair for p, pair in shape_pairs.items() if pair[0] != pair[1]}
    return {".".join(map(str, p)): different[p] for p in [*different][:5]}


def matching(parts: list[str], theirs: Model, ours: Model) -> dict[Path, Path]:
    """Which of their arrays each array of our parts starts from, if any."""
    matched = {}
    their_paths = flatten_dict(theirs.shapes)
    tables = _tables(theirs, ours)
    for path, _ in _in_parts(flatten_dict(ours.shapes), parts):
        other = ("embedding", tables.get(path[1])) if path[0] == "embedding" else path
        if other in their_paths:
            matched[path] = other
    return matched


def _tables(theirs: Model, ours: Model) -> dict[str, str]:
    """Which table of their embedding each of ours starts from."""
    uses = [_uses(model) for model in (theirs, ours)]
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
    parts: list[str], theirs: Model, ours: Model, parameters: Parameters
) -> Parameters:
    """Returns their arrays of the parts in our places: some of our parameters."""
    arrays, taken = flatten_dict(parameters), matching(parts, theirs, ours)
    return unflatten_dict({path: arrays[other] for path, other in taken.items()})


def completed(taken: Parameters, random: Parameters) -> Parameters:
    """Adds random arrays to those taken over; says which parts are random."""
    if left := sorted(random.keys() - taken.keys()):
        say(f"random parameters: {', '.join(left)}")
    arrays = flatten_dict(random) | flatten_dict(taken)
    return jax.tree.map(np.asarray, unflatten_dict(arrays))


# ------------------------------------------------------------------- another vocabulary
# A token that both vocabularies have keeps its embedding, its row of the output layer
# and its output bias. Any other starts from the mean of the tokens into which the old
# vocabulary splits its text. Shape suffixes: v new tokens, o old tokens, d features.

# The parts of a sentence, which have the same meaning whatever their tokens are called.
_ROLES = ("unknown", "pad", "bos", "eos")


def remap(
    parameters: Parameters, model: Model, old: Vocabulary, new: Vocabulary
) -> Parameters:
    """Returns the parameters of a model of another vocabulary; prints what was kept.

    Args:
      parameters: float32 NumPy arrays of a model of the vocabulary `old`, or some parts
        of them.
    """
    axes = flatten_dict(model.axes)

    @functools.cache
    def origins(of_source: bool) -> list[list[int]]:
        if of_source and not new.joint:
            return _origins(old.source, new.source, "the source")
        return _origins(old, new, "the vocabulary" if new.joint else "the target")

    arrays = flatten_dict(parameters)
    for path, x in arrays.items():
        names = axes[path]
        if "vocab" in names and not _of_labels(path, names, model):
            axis = names.index("vocab")
            means = _means(np.moveaxis(x, axis, 0), origins(_of_source(path, model)))
            arrays[path] = np.moveaxis(means, 0, axis)
    return unflatten_dict(arrays)


def _of_labels(keys: tuple, axes: tuple[str, ...], model: Model) -> bool:
    """True for a table of labels, which is taken over only if these are the same."""
    if model.predicts != "label" or "vocab" not in axes:
        return False
    return not _of_source(keys, model)


def _of_source(keys: tuple, model: Model) -> bool:
    """True for a table of the source's tokens, by its place among the parameters."""
    # With two sides it has a name of its own; with one, `tokens` is what is read.
    alone = model.predicts != "target" and keys == ("embedding", "tokens")
    return alone or keys[-1].startswith("source")


def _origins(old: Vocabulary, new: Vocabulary, name: str) -> list[list[int]]:
    """Returns the old tokens that each new one starts from; an empty list: all of them.

    Prints how many tokens are kept.
    """
    # Of tokens with the same text, the first.
    ids = {_key(old, i): i for i in reversed(range(len(old)))}
    kept = {i: ids[key] for i in range(len(new)) if (key := _key(new, i)) in ids}
    for role in _ROLES:
        both = getattr(new, role), getattr(old, role)
        if min(both) >= 0:  # -1: it has none
            kept[both[0]] = both[1]
    others = [i for i in range(len(new)) if i not in kept]
    rows = old.encode([_text(new, i) for i in others])
    begin = len(old.encode([""])[0])  # tokens before every line, such as its language
    split = {
        i: [token for token in row[begin:] if token != old.unknown]
        for i, row in zip(others, rows, strict=True)
    }
    means = sum(map(bool, split.values()))
    say(
        f"{name}: {len(kept):,} of {len(new):,} tokens keep their embeddings, "
        f"{means:,} start from the mean of the old tokens of their text, "
        f"{len(others) - means:,} from the mean of all"
    )
    return [[kept[i]] if i in kept else split[i] for i in range(len(new))]


def _key(vocabulary: Vocabulary, token: int) -> Hashable:
    """Returns what two tokens have in common that are the same: text, or their name."""
    return vocabulary.spelling(token) or ("name", vocabulary.piece(token))


def _text(vocabulary: Vocabulary, token: int) -> str:
    """Returns the text of a token as a line; empty for a part of a character."""
    spelling = vocabulary.spelling(token)
    return spelling.strip() if isinstance(spelling, str) else ""


def _means(table_od: np.ndarray, origins: list[list[int]]) -> np.ndarray:
    """Returns the mean of some rows for each new one; of all for an empty list."""
    mean_d = table_od.mean(axis=0)
    means = [table_od[ids].mean(axis=0) if ids else mean_d for ids in origins]
    return np.stack(means).astype(table_od.dtype)
