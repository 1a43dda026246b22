"""The JSON files of a Hugging Face model, read field by field.

What is read has a meaning here; what is left at the end is reported to the user.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from t2t_jax.io.errors import UserError


class Fields:
    """A JSON object of a folder; reports the fields that nobody read.

    Args:
      values: the object.
      name: the file, for error messages.
    """

    def __init__(self, values: Mapping[str, Any], name: str):
        self.values, self.name = dict(values), name
        self._read: set[str] = set()

    @classmethod
    def load(cls, path: Path, required: bool = True) -> "Fields":
        """Reads a file; empty if it is missing and not required."""
        if not required and not path.is_file():
            return cls({}, str(path))
        try:
            return cls(json.loads(path.read_text()), str(path))
        except (OSError, ValueError, TypeError) as e:
            raise UserError(f"{path} is not a JSON object: {e}") from None

    def get(self, field: str, default: Any = None) -> Any:
        """Returns a field; null counts as missing."""
        self._read.add(field)
        value = self.values.get(field)
        return default if value is None else value

    def size(self, field: str) -> int:
        """Returns a field that is a number of at least 1."""
        value = self.get(field)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(field, "a whole number of at least 1")
        return value

    def token(self, field: str, size: int, default: int | None = None) -> int:
        """Returns a field that is an id of a vocabulary of this size."""
        value = self.get(field, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(field, "one token id")
        if not 0 <= value < size:
            raise self.error(field, f"an id below the {size} of the vocabulary")
        return value

    def rate(self, field: str) -> float:
        """Returns a field that is a dropout rate; 0 if it is missing."""
        value = self.get(field, 0.0)
        if not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.error(field, "a rate, 0 <= rate < 1")
        return float(value)

    def flag(self, field: str, default: bool) -> bool:
        """Returns a field that is true or false."""
        value = self.get(field, default)
        if not isinstance(value, bool):
            raise self.error(field, "true or false")
        return value

    def only(self, **wanted: Any) -> None:
        """Refuses fields that are given with another value than the wanted one."""
        for field, value in wanted.items():
            if self.get(field, value) != value:
                raise self.error(
                    field, f"{json.dumps(value)}; no other can be imported"
                )

    def error(self, field: str, wanted: str) -> UserError:
        """Returns an error about the value of a field."""
        if self.values.get(field) is None:
            return UserError(f"{self.name} lacks {field}; want {wanted}")
        got = json.dumps(self.values[field])
        return UserError(f"{self.name} has {field}={got}; want {wanted}")

    def left(self) -> dict[str, Any]:
        """Returns the fields that were not read and hold anything."""
        return {
            name: value
            for name, value in self.values.items()
            if name not in self._read and value not in (None, False, 0, [], {}, "")
        }


class Folder(NamedTuple):
    """The JSON files of a model; `generation` is part of `config` in older ones."""

    path: Path
    config: Fields
    generation: Fields
    tokenizer: Fields

    def merged(self) -> dict[str, Any]:
        """The fields of config.json, with those of generation over them."""
        return {**self.config.values, **self.generation.values}


def open_folder(path: Path) -> Folder:
    """Reads the JSON files of a model's folder.

    Raises:
      UserError: config.json is missing or damaged, or asks for code of its own.
    """
    config = Fields.load(path / "config.json")
    # These change the model's class or the meaning of its weights.
    for field in ("auto_map", "quantization_config", "pruned_heads"):
        if config.get(field):
            raise config.error(field, "none; such a model cannot be imported")
    generation = Fields.load(path / "generation_config.json", required=False)
    if not generation.values:
        generation = config
    tokenizer = Fields.load(path / "tokenizer_config.json", required=False)
    return Folder(path, config, generation, tokenizer)


def recognizer(model_type: str) -> Callable[[Path], bool]:
    """Returns a function that recognizes folders of a `model_type`."""

    def recognize(path: Path) -> bool:
        try:
            return json.loads((path / "config.json").read_text())["model_type"] == (
                model_type
            )
        except (OSError, ValueError, LookupError, TypeError):
            return False

    return recognize
