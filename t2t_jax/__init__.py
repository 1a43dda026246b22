# ruff: noqa: F401 - names that are imported on first use
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

# Public name -> the module that defines it.
_MODULES = {
    "Translator": "t2t_jax.decoding.translator",
    "UserError": "t2t_jax.io.errors",
    "batch_of": "t2t_jax.extensions.training.batch_loss",
    "compare": "t2t_jax.tools.compare.comparison",
    "corpus_scores": "t2t_jax.metrics.plain",
    "embeddings_of": "t2t_jax.extensions.training.batch_loss",
    "evaluate": "t2t_jax.extensions.evaluation.in_python",
    "explain": "t2t_jax.tools.explain.explain",
    "export": "t2t_jax.tools.bridges.exporting",
    "figure": "t2t_jax.tools.pages.run_plots",
    "import_model": "t2t_jax.tools.bridges.importing",
    "load_config": "t2t_jax.commands.config_files",
    "load_numpy": "t2t_jax.extensions.model.flat_parameters",
    "loss_function": "t2t_jax.extensions.training.batch_loss",
    "pipeline": "t2t_jax.extensions.decoding.pipeline",
    "to_numpy": "t2t_jax.extensions.model.flat_parameters",
    "train": "t2t_jax.run.train",
}
__all__ = [*_MODULES]

if TYPE_CHECKING:  # for editors and type checkers, which do not run __getattr__
    from t2t_jax.commands.config_files import load_config
    from t2t_jax.decoding.translator import Translator
    from t2t_jax.extensions.decoding.pipeline import pipeline
    from t2t_jax.extensions.evaluation.in_python import evaluate
    from t2t_jax.extensions.model.flat_parameters import load_numpy, to_numpy
    from t2t_jax.extensions.training.batch_loss import (
        batch_of,
        embeddings_of,
        loss_function,
    )
    from t2t_jax.io.errors import UserError
    from t2t_jax.metrics.plain import corpus_scores
    from t2t_jax.run.train import train
    from t2t_jax.tools.bridges.exporting import export
    from t2t_jax.tools.bridges.importing import import_model
    from t2t_jax.tools.compare.comparison import compare
    from t2t_jax.tools.explain.explain import explain
    from t2t_jax.tools.pages.run_plots import figure


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
