"""Small random models, made once, for the tests of what is done with any model."""

import dataclasses
import functools
from unittest import mock

import jax
import sentencepiece

from t2t_jax.config import Config, DecodeConfig, ModelConfig
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.model.model import build

TEXT = ["the cat sees the dog", "a dog sleeps", "die Katze sieht den Hund", "ein Hund"]
CONFIG = Config(
    model=ModelConfig(layers=1, width=16, heads=2, hidden=16),
    decode=DecodeConfig(beam=3, extra_length=5, max_source=64, batch_tokens=256),
)


@functools.cache
def vocabulary(size: int = 290) -> Vocabulary:
    return Vocabulary(train_tokenizer(TEXT * 20, size))


def translator(seed: int = 1, pieces: int = 290, **model) -> Translator:
    """Sure of what it says, and wrong: `model` has fields of `config.model`."""
    # Files of tests differ in the devices that they see.
    return _translator(len(jax.devices()), seed, pieces, **model)


@functools.cache
def _translator(devices: int, seed: int, pieces: int, **model) -> Translator:
    del devices
    config = dataclasses.replace(
        CONFIG, model=dataclasses.replace(CONFIG.model, **model)
    )
    built = build(config.model, pieces)
    parameters = jax.tree.map(lambda x: 4 * x, built.init(jax.random.key(seed)))
    return Translator(config, vocabulary(pieces), built, parameters, [7])


def renumbered(pieces: int = 290) -> Vocabulary:
    """The pieces of `vocabulary` and a symbol, with other ids."""
    trainer = sentencepiece.SentencePieceTrainer
    ids = {"pad_id": 3, "bos_id": 2, "eos_id": 0, "unk_id": 1}
    renumbering = functools.partial(_with, trainer.train, ids)
    with mock.patch.object(trainer, "train", renumbering):
        model = train_tokenizer(TEXT * 20, pieces + 1, ["<symbol>"])
    return Vocabulary(model, "source")


def _with(train, ids, **options):
    train(**options | ids)


def with_own_source(joint: Translator) -> Translator:
    """The same function of text, with a vocabulary and a table of the source."""
    file_text = joint.vocabulary
    separate = Vocabulary(file_text.model, file_text.name, renumbered(len(file_text)))
    config = dataclasses.replace(
        joint.config,
        model=dataclasses.replace(joint.config.model, tied="target"),
        data=dataclasses.replace(joint.config.data, joint_vocabulary=False),
    )
    built = build(config.model, *separate.sizes)
    ids = {file_text.piece(i): i for i in range(len(file_text))}
    renumbering = map(separate.source.piece, range(len(separate.source)))
    place_v = [ids.get(piece, 0) for piece in renumbering]
    assert all(place != i for i, place in enumerate(place_v))
    table_vd = joint.parameters["embedding"]["tokens"]
    source_tokens_vd = table_vd[jax.numpy.array(place_v)]
    embedding = {"tokens": table_vd, "source_tokens": source_tokens_vd}
    parameters = joint.parameters | {"embedding": embedding}
    return Translator(config, separate, built, parameters, joint.steps)
