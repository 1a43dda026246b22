"""Finds and loads config files: presets by name, other files by path."""

import contextlib
import importlib.util
import inspect
import re
import sys
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import ml_collections
from absl import flags
from ml_collections import config_flags

import t2t_jax
from t2t_jax import config as fields
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.messages import say


def load_config(path: str | Path, **sections: dict) -> ml_collections.ConfigDict:
    """Loads a config and changes some of its fields, for Python and notebooks.

    Args:
      path: the name of a preset (`tiny`), a config file (`configs/mine.py`), or either
        with an argument for its `get_config` (`big:en-fr`).
      sections: changed fields by section, such as `train={"steps": 100}`.

    Raises:
      UserError: no such preset, file or field, or a value of the wrong type.
    """
    loaded = _load(str(resolve(str(path))))
    for section, values in sections.items():
        if not isinstance(values, Mapping):
            raise UserError(
                f"{section}={values!r}: want a dict of the section's fields, such as "
                "train={'steps': 100}"
            )
        known = loaded.get(section, {})
        for name in values.keys() & known.keys():
            if type(values[name]) is type(known[name]):  # else refused below
                known[name] = values[name]  # changes the fields that follow it, too
    changed = loaded.to_dict()
    for section, values in sections.items():
        changed[section] = {**changed.get(section, {}), **values}
    return fields.to_config_dict(fields.from_config_dict(changed))


def say_lines(path: str, function: str, *arguments) -> None:
    """Prints the lines that a function of a config file yields, if it has it."""
    file = Path(path.partition(":")[0])
    lines = getattr(import_file(file, "config_"), function, lambda *_: ())
    with _mistakes_in(file):
        for line in lines(*arguments):
            say(line)


def config_name(path: str) -> str:
    """Names a run after its config: `configs/big.py:en-fr` -> `big-en-fr`."""
    file, _, argument = path.partition(":")
    return "-".join([Path(file).stem, *([argument] if argument else [])])


def shipped_folder(name: str) -> Path:
    """The folder `configs` or `experiments`, in an installed package or in a clone."""
    package = Path(t2t_jax.__file__).parent
    installed = package / name
    return installed if installed.is_dir() else package.parent / name


def shipped_names(folder: str) -> list[str]:
    """Names of all presets in `configs`, or of all `experiments`, sorted."""
    files = shipped_folder(folder).glob("*.py")
    return sorted(f.stem for f in files if f.stem[0] != "_")


def resolve(spec: str) -> str:
    """Finds the file of a config; makes the package `configs` importable for it.

    A relative `configs/NAME.py` that does not exist stands for the preset NAME, so the
    commands of the README work from any folder.

    Args:
      spec: a preset or a file, optionally with `:ARGUMENT`.
    """
    place, colon, argument = spec.partition(":")
    file = importable(place, "configs", "preset", f"--config={spec}")
    _check_config(file, [argument] if colon else [])
    return f"{file}{colon}{argument}"


def _check_config(file: Path, arguments: Sequence[str]) -> None:
    """Calls `get_config` once, so that a mistake in a file is reported by its line.

    ml_collections, which reads the file again, would end with a traceback.

    Args:
      arguments: what follows a colon in --config.
    """
    # The name that ml_collections gives a config; it would find an earlier one.
    module = import_file(file, "config_config")
    del sys.modules["config_config"]
    get_config = getattr(module, "get_config", None)
    if not callable(get_config):
        raise UserError(
            f"{file} is not a config: it has no function get_config; want a "
            "get_config() as in configs/tiny.py"
        )
    try:
        inspect.signature(get_config).bind(*arguments)
    except TypeError as e:
        needs = f"needs an argument after a colon: {e}"
        hint = "takes no argument after a colon" if arguments else needs
        raise UserError(f"--config: {file}: this config {hint}") from None
    with _mistakes_in(file):
        try:
            config = get_config(*arguments)
        except ValueError as e:
            if not arguments:
                raise
            # It refuses its argument.
            raise UserError(f"--config: {e}") from e
    if not isinstance(config, ml_collections.ConfigDict):
        raise UserError(
            f"{file} is not a config: its get_config returns {config!r}, a "
            f"{type(config).__name__}; want a ConfigDict, such as that of "
            "t2t_jax.config.defaults()"
        )


def import_file(file: Path, name: str) -> types.ModuleType:
    """Imports a file as a module of this name.

    Raises:
      UserError: importing it raises an error; the message has the file and the line.
    """
    spec = importlib.util.spec_from_file_location(name, file)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with _mistakes_in(file):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _mistakes_in(file: Path) -> Iterator[None]:
    """Turns errors of a user's file into messages with the file and the line."""
    try:
        yield
    except UserError:
        raise
    except SyntaxError as e:
        raise UserError(
            f"{e.filename or file}, line {e.lineno}: {type(e).__name__}: {e.msg}"
        ) from None
    except Exception as e:
        frames = traceback.extract_tb(e.__traceback__)
        absolute = file.absolute()  # as Python's import system writes it
        lines = [f.lineno for f in frames if Path(f.filename).absolute() == absolute]
        line = f", line {lines[-1]}" if lines else ""
        raise UserError(f"{file}{line}: {type(e).__name__}: {e}") from e


def importable(name: str, folder: str, kind: str, label: str) -> Path:
    """Finds a file by name or path; makes the package `folder` importable for it.

    Args:
      label: names the file in the UserError if it does not exist.
    """
    file = Path(name)
    if not file.is_file() and (file.name == name or file.parent == Path(folder)):
        file = shipped_folder(folder) / f"{file.stem}.py"
    if not file.is_file():
        raise UserError(f"{label}: {missing(name, folder, kind)}")
    make_importable(file, folder)
    return file


def missing(name: str, folder: str, kind: str) -> str:
    """The message for a missing file, with the most similar one that exists."""
    file = Path(name)
    if file.suffix != ".py" and file.name == name:
        names = shipped_names(folder)
        hint, listed = did_you_mean(name, names), ", ".join(names)
        # Without a similar name, the hint lists them all.
        names = "" if hint.endswith(listed) else f"{kind}s: {listed}; "
        return f"no such {kind}{hint} ({names}a file ends in .py)"
    nearby = sorted(str(f) for f in file.parent.glob("*.py"))
    hint = did_you_mean(name, nearby) if nearby else ""
    return f"{file} does not exist{hint or f'; {file.parent} has no {folder}'}"


def make_importable(file: Path, name: str) -> None:
    """Lets a file say `from configs import base`, wherever the program starts.

    The package `name`, such as `configs`, looks in the folder of the file, if that has
    this name, and then among the shipped files.
    """
    folder = file.resolve().parent
    shipped = shipped_folder(name).resolve()
    package = types.ModuleType(name)
    package.__path__ = [str(shipped)]
    if folder.name == name and folder != shipped:
        package.__path__.insert(0, str(folder))
    for module in [n for n in sys.modules if re.match(rf"{name}(\.|$)", n)]:
        del sys.modules[module]  # imported by an earlier file, maybe from elsewhere
    sys.modules[name] = package
    if folder != shipped and str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))


def _load(path: str) -> ml_collections.ConfigDict:
    """Loads a file as the --config flag does, so that both accept the same files."""
    holder = flags.FlagValues()
    flag = config_flags.DEFINE_config_file("config", flag_values=holder)
    try:
        holder(["", f"--config={path}"])
        return flag.value
    except flags.Error as e:
        raise UserError(explain(e)) from None


def given_fields(argv: Sequence[str]) -> list[str]:
    """The full names of the fields that a command line sets: `['model.layers']`."""
    matches = [re.match(r"-+(?:no)?config\.([^=]+)", word) for word in argv]
    return [match[1] for match in matches if match]


def explain(error: flags.Error) -> str:
    """Turns absl's error about a flag into a message.

    It adds the type that the flag takes, and the default of a field of the config.
    """
    text = str(error).strip()
    missing = re.search(r"Flag --(\w+) must have a value other than None", text)
    if missing:
        return f"--{missing[1]} is missing; give it as --{missing[1]}=VALUE"
    if field := re.match(r"flag --config\.(\w+\.[\w.]+)=", text):
        default = fields.default_of(field[1])
        return f"{text}; want {type(default).__name__}, such as {default!r}"
    # In the words of Python, or of absl.
    reason = r": (?:invalid literal for (int)|could not.* to (float)|\('Non-(bool)ean)"
    wrong = re.search(reason, text)
    return f"{text[: wrong.start()]}; want {wrong[wrong.lastindex]}" if wrong else text
