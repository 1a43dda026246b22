"""Starts a run from another workdir's parameters: `config.train.init_from`."""

from collections.abc import Callable

import jax

from t2t_jax import config as fields
from t2t_jax.config import Config, DataConfig
from t2t_jax.data.tokenizers.training import SEPARATE, existing_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary, parse_symbols
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model, build
from t2t_jax.run.partial_initialization import (
    check_parts,
    completed,
    parts_of,
    taken_over,
    text_vocabulary,
)
from t2t_jax.run.vocabulary_remapping import remap, takes_labels
from t2t_jax.training.averaging import average_checkpoints, choose_checkpoints
from t2t_jax.training.step import initial_parameters
from t2t_jax.workdir import Workdir

# Fields of the model that may differ: they do not change the meaning of weights. Their
# shapes are compared besides.
_FREE = {
    f"model.{name}"
    for name in (
        *("dropout", "attention_dropout", "activation_dropout"),
        *("dtype", "attention", "remat", "max_positions"),
    )
}


def check_source(config: Config) -> None:
    """Checks that the other workdir's parameters fit this run's model.

    Called before anything is prepared. Prints a note if the languages differ.

    Raises:
      UserError: a field of the model differs, or the other workdir has no such
        checkpoint.
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
    directions = [f"{data.source}-{data.target}" for data in (theirs.data, config.data)]
    if directions[0] != directions[1]:
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


def vocabulary(config: Config) -> Vocabulary:
    """Loads the other workdir's tokenizer, as its embeddings belong to those pieces.

    Not called with `config.train.remap_vocabulary` or without their embeddings.

    Raises:
      UserError: the config names a different tokenizer, or symbols that it lacks.
    """
    source = config.train.init_from
    their_config, theirs = Workdir(source).config_and_vocabulary()
    if parts_of(config):
        theirs = text_vocabulary(theirs, their_config, config)
    for part, side in zip(SEPARATE, theirs.sides, strict=False):
        field = part.tokenizer
        given = existing_tokenizer(config.data, field)
        if given and given.model != side.model:
            raise UserError(
                f"config.data.{field}={getattr(config.data, field)} differs from that "
                f"of config.train.init_from={source}, whose embeddings are only valid "
                f"for its own pieces; leave config.data.{field} out, or set "
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
        if takes_labels(parameters, model):
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
