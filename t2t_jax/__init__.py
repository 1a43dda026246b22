"""The Transformer of "Attention Is All You Need" in JAX, from text to BLEU.

    from t2t_jax import Translator, load_config, train

    train(load_config("tiny"), "runs/tiny")
    Translator.load("runs/tiny").translate(["The man sees the dog."])

Importing this package loads neither JAX nor TensorFlow: each name below is imported on
first use.
"""

import importlib
import importlib.abc
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

__version__ = "0.2.0"
__all__ = ["Translator", "UserError", "load_config", "train"]

# Public name -> the module that defines it.
_MODULES = {
    "Translator": "t2t_jax.decoding.translator",
    "UserError": "t2t_jax.io.errors",
    "load_config": "t2t_jax.commands.config_files",
    "train": "t2t_jax.run.train",
}

if TYPE_CHECKING:  # for editors and type checkers, which do not run __getattr__
    from t2t_jax.commands.config_files import load_config
    from t2t_jax.decoding.translator import Translator
    from t2t_jax.io.errors import UserError
    from t2t_jax.run.train import train


def __getattr__(name: str):
    """Imports a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 't2t_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__():
    return sorted([*globals(), *__all__])


class _MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of `t2t_jax.extensions` by their earlier addresses.

    `t2t_jax.grammar.corpus` is the same module as `t2t_jax.extensions.grammar.corpus`.
    """

    def find_spec(self, fullname, path, target=None):
        package, _, address = fullname.partition(".")
        if package != __name__ or not path or address.startswith("extensions"):
            return None
        here, name = Path(__file__).parent, address.replace(".", "/")
        for file in (f"{name}/__init__.py", f"{name}.py"):
            if (here / "extensions" / file).exists() and not (here / file).exists():
                return importlib.util.spec_from_loader(fullname, self)
        return None

    def exec_module(self, module):
        address = module.__name__.partition(".")[2]
        sys.modules[module.__name__] = importlib.import_module(
            f"{__name__}.extensions.{address}"
        )


sys.meta_path.insert(0, _MovedModules())
