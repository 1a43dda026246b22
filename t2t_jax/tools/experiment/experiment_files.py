"""Finds and loads experiment files: shipped ones by name, other files by path."""

import ast
import importlib.util
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from t2t_jax.commands.config_files import (
    find_shipped,
    make_importable,
    missing,
    shipped_folder,
    shipped_names,
)
from t2t_jax.io.errors import UserError
from t2t_jax.tools.experiment import Experiment

FOLDER = "experiments"


def load(given: str) -> ModuleType:
    """Imports an experiment's file.

    Args:
      given: a name (`table3`) or a path (`experiments/mine.py`).

    Raises:
      UserError: no such file, or one without `get_experiment`.
    """
    file = find_shipped(given, FOLDER)
    if not file.is_file():
        raise UserError(f"{given}: {missing(given, FOLDER, 'experiment')}")
    make_importable(file, FOLDER)
    name = f"{FOLDER}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "get_experiment", None)):
        raise UserError(
            f"{file} is not an experiment: it has no function get_experiment, which "
            "returns a t2t_jax.tools.experiment.Experiment"
        )
    return module


def overview() -> str:
    """Lists the shipped experiments with the first lines of their docstrings."""
    names = shipped_names(FOLDER)
    width = max(map(len, names))
    lines = []
    for name in names:
        source = (shipped_folder(FOLDER) / f"{name}.py").read_text(encoding="utf-8")
        first, _, _ = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
        lines.append(f"  {name:{width}}  {first}")
    return "\n".join(lines)


def parameters(module: ModuleType) -> dict[str, Any]:
    """The parameters of an experiment, which the command takes as flags.

    Returns:
      Defaults by name.

    Raises:
      UserError: a parameter without a default, or of a type that no flag has.
    """
    defaults = {}
    for name, known in inspect.signature(module.get_experiment).parameters.items():
        if not isinstance(known.default, bool | int | float | str):
            raise UserError(
                f"{module.__file__}: the parameter {name!r} of get_experiment needs a "
                "default that is a number, a text or True or False, as it becomes the "
                f"flag --{name}"
            )
        defaults[name] = known.default
    return defaults


def meanings(module: ModuleType) -> dict[str, str]:
    """Reads the meaning of parameters in the docstring of `get_experiment`."""
    text = inspect.getdoc(module.get_experiment) or ""
    _, _, arguments = text.partition("\nArgs:\n")
    arguments, _, _ = arguments.partition("\n\n")
    # A parameter is indented by two or four columns, and its further lines by more.
    found = re.findall(r"^( +)(\w+): ((?:.|\n\1 )+)", arguments, re.M)
    return {name: " ".join(meaning.split()) for _, name, meaning in found}


def define(module: ModuleType, arguments: Mapping[str, Any]) -> Experiment:
    """Calls the experiment's `get_experiment`.

    Args:
      arguments: by name; those that it does not have (any more) are left out.

    Raises:
      UserError: it refuses a value by a ValueError, or returns something else.
    """
    known = parameters(module)
    given = {name: value for name, value in arguments.items() if name in known}
    try:
        experiment = module.get_experiment(**given)
    except ValueError as e:
        raise UserError(f"{Path(module.__file__).stem}: {e}") from e
    if not isinstance(experiment, Experiment):
        raise UserError(
            f"get_experiment of {module.__file__} returns {experiment!r}; want an "
            "Experiment"
        )
    return experiment
