"""Small random models, made once, for the tests of what is done with any model."""

import dataclasses
import functools

import jax

from t2t_jax.config import Config, DecodeConfig, ModelConfig
from t2t_jax.data import tokenizer
from t2t_jax.decoding.translator import Translator
from t2t_jax.model.model import build

TEXT = ["the cat sees the dog", "a dog sleeps", "die Katze sieht den Hund", "ein Hund"]
CONFIG = Config(
    model=ModelConfig(layers=1, width=16, heads=2, hidden=16),
    decode=DecodeConfig(beam=3, extra_length=5, max_source=64, batch_tokens=256),
)


@functools.cache
def vocabulary(size: int = 290) -> tokenizer.Vocabulary:
    return tokenizer.Vocabulary(tokenizer.train(TEXT * 20, size))


@functools.cache
def translator(seed: int = 1, pieces: int = 290, **model) -> Translator:
    """Sure of what it says, and wrong: `model` has fields of `config.model`."""
    config = dataclasses.replace(
        CONFIG, model=dataclasses.replace(CONFIG.model, **model)
    )
    built = build(config.model, pieces)
    parameters = jax.tree.map(lambda x: 4 * x, built.init(jax.random.key(seed)))
    return Translator(config, vocabulary(pieces), built, parameters, [7])
