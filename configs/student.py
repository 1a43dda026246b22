"""A student of a trained teacher: its model with other sizes, its tokenizer and recipe.

    python -m t2t_jax distill --teacher=TEACHER --input=PREFIX --workdir=DIR \\
        --config=configs/student.py:TEACHER,6+2

After the teacher's workdir come words that change the model, separated by commas:

    6+2     6 encoder and 2 decoder layers; a decoder's layers cost the time of a search
    narrow  half the width, the heads and the hidden units
    tied    one matrix for all embeddings, if the teacher has several

Everything else is the teacher's: languages, tokenizer, dev and test sets, batches,
optimizer, schedule, label smoothing, search. The loss is cross-entropy from random
parameters. If the teacher itself started from another model, its recipe is one of
fine-tuning, and the student's is the paper's. With `t2t_jax.main`, the student trains
on the teacher's own training text.
"""

import dataclasses
import re

from t2t_jax import config as fields
from t2t_jax.data.tokenizers.vocabulary import TOKENIZER_FILES
from t2t_jax.io.locations import is_local
from t2t_jax.sections import Section
from t2t_jax.workdir import Workdir

LAYERS = re.compile(r"([1-9]\d*)\+([1-9]\d*)", re.ASCII)


def get_config(argument=""):
    teacher, *words = (word.strip() for word in argument.split(","))
    if not teacher or LAYERS.fullmatch(teacher):
        raise ValueError(
            "name the teacher's workdir first: --config=student:TEACHER,6+2"
        )
    theirs = fields.to_config_dict(Workdir(teacher).config())
    config = fields.defaults()
    for section in ("task", "model", "data", "decode"):
        config[section] = theirs[section]
    if not theirs.train.init_from:
        config.train = theirs.train
        _start_anew(config.train)
    names = "tokenizer", "source_tokenizer"
    sides = 1 if config.data.joint_vocabulary else 2
    for name, file in zip(names[:sides], TOKENIZER_FILES, strict=False):
        config.data[name] = _path(teacher, file)
    if sides == 2:
        config.data.source_vocab_size = 0  # its tokenizer has a size of its own
    for word in words:
        _change(config, word)
    return config


def _start_anew(train):
    """Clears what a recipe says about another model, and about its loss."""
    from t2t_jax.training.losses import LOSSES  # loads JAX
    from t2t_jax.training.step import ADAPTERS

    fresh = fields.defaults().train
    for entry in (LOSSES[train.loss], ADAPTERS[train.adapter]):
        for option in dataclasses.fields(getattr(entry, "Options", None) or Section):
            train.options[option.name] = fresh.options[option.name]
    for name in ("loss", "freeze", "layer_decay", "adapter"):
        train[name] = fresh[name]


def _path(teacher, file):
    if not is_local(teacher):
        raise ValueError(
            f"{teacher}: a student reads its teacher's tokenizer from disk; copy the "
            "workdir here first"
        )
    # Relative paths would start at `config.data.dir`.
    return str((Workdir(teacher) / file).absolute())


def _change(config, word):
    """Applies a word after the teacher's name to the config."""
    model = config.model
    if layers := LAYERS.fullmatch(word):
        reads_sizes(config, "encoder_layers", "decoder_layers")
        model.encoder_layers, model.decoder_layers = map(int, layers.groups())
        model.layers = max(map(int, layers.groups()))  # where one number is asked for
    elif word == "narrow":
        narrow(model)
    elif word == "tied":
        if not config.data.joint_vocabulary:
            raise ValueError("tied: the teacher has a vocabulary for each side")
        reads_sizes(config, "tied")
        model.tied = "all"
    else:
        raise ValueError(
            f"{word!r} is not a change of the student; want ENCODER+DECODER layers "
            "such as 6+2, narrow or tied"
        )


def narrow(model):
    """Halves the width, keeping that of a head if the numbers of heads are even."""
    heads = ("heads", "encoder_heads", "decoder_heads")
    sizes = ["width", "hidden", "encoder_hidden", "decoder_hidden"]
    if all(model[name] % 2 == 0 for name in heads):
        sizes += heads
    if model.width % 4 or any(model[name] % 2 for name in sizes):
        raise ValueError(
            f"narrow: config.model.width={model.width} and hidden={model.hidden} "
            "cannot be halved; set the sizes by --config.model.width and hidden"
        )
    for name in sizes:
        model[name] //= 2


def reads_sizes(config, *names):
    """Raises ValueError if the teacher's kind of model does not read these fields."""
    model = fields.from_config_dict(config).model
    if unread := [name for name in names if not model.reads(name)]:
        raise ValueError(
            f"config.model.kind={model.kind!r} has no {unread[0]}; change its sizes by "
            "--config.model.layers and the like"
        )
