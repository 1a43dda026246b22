"""Finds and loads config files: presets by name, other files by path."""

import re
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

import ml_collections
from absl import flags
from ml_collections import config_flags

import t2t_jax
from t2t_jax import config as fields
from t2t_jax.io.errors import UserError, did_you_mean


def load_config(path: str | Path, **sections: dict) -> ml_collections.ConfigDict:
    """Loads a config and changes some of its fields, for Python and notebooks.

    Args:
      path: the name of a preset (`tiny`), a config file (`configs/mine.py`), or either
        with an argument for its `get_config` (`big:en-fr`).
      sections: changed fields by section, such as `train={"steps": 100}`.

    Raises:
      UserError: no such preset, file or field, or a value of the wrong type.
    """
    changed = _load(str(resolve(str(path)))).to_dict()
    for section, values in sections.items():
        if not isinstance(values, Mapping):
            raise UserError(
                f"{section}={values!r}: want a dict of the section's fields, such as "
                "train={'steps': 100}"
            )
        changed[section] = {**changed.get(section, {}), **values}
    return fields.to_config_dict(fields.from_config_dict(changed))


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


def resolve(given: str) -> str:
    """Finds the file of a config; makes the package `configs` importable for it.

    A relative `configs/NAME.py` that does not exist stands for the preset NAME, so the
    commands of the README work from any folder.

    Args:
      given: a preset or a file, optionally with `:ARGUMENT`.
    """
    place, colon, argument = given.partition(":")
    file = find_shipped(place, "configs")
    if not file.is_file():
        raise UserError(f"--config={given}: {missing(place, 'configs', 'preset')}")
    # ml_collections imports a config as this module, and would find the last one.
    sys.modules.pop("config_config", None)
    make_importable(file, "configs")
    return f"{file}{colon}{argument}"


def find_shipped(given: str, folder: str) -> Path:
    """The file that a name or a path stands for; it may not exist."""
    file = Path(given)
    if not file.is_file() and (file.name == given or file.parent == Path(folder)):
        return shipped_folder(folder) / f"{file.stem}.py"
    return file


def missing(given: str, folder: str, kind: str) -> str:
    """The message for a missing file, with the most similar one that exists."""
    file = Path(given)
    if file.suffix != ".py" and file.name == given:
        names = shipped_names(folder)
        return (
            f"no such {kind}{did_you_mean(given, names)} ({kind}s: "
            f"{', '.join(names)}; a file ends in .py)"
        )
    nearby = sorted(str(f) for f in file.parent.glob("*.py"))
    hint = did_you_mean(given, nearby) if nearby else ""
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
    for known in [n for n in sys.modules if re.match(rf"{name}(\.|$)", n)]:
        del sys.modules[known]  # imported by an earlier file, maybe from elsewhere
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
    except AttributeError as e:
        raise UserError(no_get_config(e, path)) from None
    except flags.Error as e:
        raise UserError(explain(e)) from None


def given_fields(argv: Sequence[str]) -> list[str]:
    """The full names of the fields that a command line sets: `['model.layers']`."""
    found = [re.match(r"-+(?:no)?config\.([^=]+)", word) for word in argv]
    return [match[1] for match in found if match]


def no_get_config(error: AttributeError, path: str = "--config") -> str:
    """The message for a file without a `get_config`."""
    return f"{path} is not a config: {error}; want a get_config()"


def explain(error: flags.Error) -> str:
    """Turns absl's error about a flag into a message.

    For a field of the config it adds the type that the field takes. An error inside a
    config file arrives as a traceback within absl's message. If the config refused its
    argument (`big:en-es`), only the config's own message is kept; any other error is a
    mistake in the file, and its author needs the full traceback.
    """
    text = str(error).strip()
    refused = re.search(
        r"^(?:ValueError|[\w.]+\.UserError): (.+)\Z", text, re.DOTALL | re.M
    )
    if "Traceback" in text and refused:
        return f"--config: {refused[1]}"
    if re.search(r"^TypeError: get_config\(\) takes .* given\Z", text, re.M):
        return "--config: this config takes no argument after a colon"
    missing = re.search(r"Flag --(\w+) must have a value other than None", text)
    if missing:
        return f"--{missing[1]} is missing; give it as --{missing[1]}=VALUE"
    field = re.match(r"flag --config\.(\w+\.[\w.]+)=", text)
    if not field:
        return str(error)
    default = fields.default_of(field[1])
    return f"{error}; want {type(default).__name__}, such as {default!r}"
