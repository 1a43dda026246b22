"""Starts a run from another workdir's parameters: `config.train.init_from`.

From all of them, from some parts (`config.train.init_parts`), or from those of another
vocabulary (`config.train.remap_vocabulary`).
"""

from collections.abc import Callable, Sequence

import jax
from flax.traverse_util import flatten_dict

from t2t_jax import config as fields
from t2t_jax.config import Config, DataConfig, ModelConfig
from t2t_jax.data.corpus import Corpus
from t2t_jax.data.tokenizers.training import SEPARATE, existing_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary, parse_symbols
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model, build
from t2t_jax.sections import at_address
from t2t_jax.tasks.task import Task
from t2t_jax.text.languages import same_language
from t2t_jax.training.averaging import choose_checkpoints, read_translating
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
        check_parts = at_address("extensions.run.init_parts.check_parts")
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

    None if `config.train.init_from` is empty: the parameters start random; or if an
    adapter of that model trains.
    """
    if not config.train.init_from or config.train.adapter != "none":
        return None

    # Called by process 0 alone, so nothing in it may wait for the others.
    def read() -> Parameters:
        source = Workdir(config.train.init_from)
        parent_config, parent_vocabulary = source.config(), source.vocabulary()
        parent_model = build(parent_config.model, *parent_vocabulary.sizes)
        checkpoint = config.train.init_checkpoint
        steps, parameters = read_translating(
            source, parent_config, parent_model, checkpoint
        )
        say(f"starting from {source}, steps {', '.join(f'{s:,}' for s in steps)}")
        parent_labels = parent_vocabulary
        if parts := parts_of(config):
            taken_over = at_address("extensions.run.init_parts.taken_over")
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
        return at_address("extensions.run.init_parts.completed")(parameters, random)

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
    if predicted(parent_config.model) == "label":
        vocabulary = vocabulary.source
    if vocabulary.joint or has_two_sides(config.model):
        return vocabulary
    if predicted(config.model) == "target":
        return Vocabulary(vocabulary.model, vocabulary.name)
    return vocabulary.source


def predicted(config: ModelConfig) -> str:
    return getattr(config.variant("kind"), "predicts", "target")


def has_two_sides(config: ModelConfig) -> bool:
    return config.variant("kind").has_source and predicted(config) == "target"
