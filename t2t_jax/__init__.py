"""The Transformer of "Attention Is All You Need" in JAX, from text to BLEU.

    from t2t_jax import Translator, load_config, train

    train(load_config("configs/tiny.py"), "runs/tiny")
    Translator.load("runs/tiny").translate(["The man sees the dog."])

Importing this loads neither JAX nor TensorFlow: each name is imported when it is used.
"""

import importlib
from typing import TYPE_CHECKING

from t2t_jax import huge_pages

huge_pages.start_again("t2t_jax")  # only where a command is being started

__version__ = "0.2.0"
__all__ = ["Translator", "UserError", "load_config", "train"]

_HOMES = {
    "Translator": "t2t_jax.decoding.translator",
    "UserError": "t2t_jax.errors",
    "load_config": "t2t_jax.command",
    "train": "t2t_jax.main",
}

if TYPE_CHECKING:
    from t2t_jax.command import load_config
    from t2t_jax.decoding.translator import Translator
    from t2t_jax.errors import UserError
    from t2t_jax.main import train


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 't2t_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__():
    return sorted([*globals(), *__all__])
