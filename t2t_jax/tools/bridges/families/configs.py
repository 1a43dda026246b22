"""The config of an imported model, from what its file and the user say."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_jax.config import Config, DataConfig, DecodeConfig, from_config_dict
from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges.formats import Request
from t2t_jax.tools.bridges.weights import Tensors


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


def languages(
    request: Request,
    found: tuple[str, str] = ("", ""),
    guessed: tuple[str, str] = ("", ""),
    several: bool = False,
) -> tuple[str, str]:
    """Returns source and target: the user's, the files', or else those guessed.

    Args:
      found: in the files; empty where they do not say.
      guessed: such as from the folder's name; the user may say others.
      several: True for a model of several languages, whose files name one pair of them.

    Raises:
      UserError: nobody says one of them, or the user contradicts the files.
    """
    chosen = []
    for side, own, guess in zip(("source", "target"), found, guessed, strict=True):
        wish = getattr(request, side)
        if wish and own and wish != own and not several:
            raise UserError(
                f"--{side}={wish}, but {request.path} says {own}; leave --{side} out"
            )
        if not (language := wish or own or guess):
            raise UserError(
                f"{request.path} does not say its {side} language; add --{side}=, such "
                f"as --{side}=en"
            )
        chosen.append(language)
    return chosen[0], chosen[1]


def imported_config(
    request: Request,
    name: str,
    model: Mapping[str, Any],
    vocabulary: Vocabulary,
    between: tuple[str, str],
    decode: Mapping[str, Any],
) -> Config:
    """Puts the config together.

    Args:
      name: what says `model`, for error messages.
      model: fields of `config.model`.
      between: the languages.
      decode: fields of `config.decode`.

    Raises:
      UserError: the user's fields contradict the model, or a field is impossible.
    """
    for field, value in request.model.items():
        if model.get(field, value) != value:
            raise UserError(
                f"--config.model.{field}={value}, but {name} says {model[field]}; "
                "leave it out"
            )
    longest = model.get("max_positions", DecodeConfig.max_source)
    return from_config_dict(
        {
            "model": {**request.model, **model},
            "data": {
                "source": between[0],
                "target": between[1],
                "joint_vocabulary": vocabulary.joint,
                "vocab_size": len(vocabulary),
                "source_vocab_size": 0 if vocabulary.joint else len(vocabulary.source),
                "max_length": min(DataConfig.max_length, longest),
            },
            "decode": {"average": 1, "max_source": longest, **decode},
        }
    )


def check_size(name: str, tensors: Tensors, table: str, vocabulary: Vocabulary):
    """Checks that a table of embeddings has a row for each piece.

    Raises:
      UserError: the sizes differ, so the tokenizer is of another model.
    """
    rows = len(tensors[table]) if table in tensors else len(vocabulary)
    if rows != len(vocabulary):
        raise UserError(
            f"{name}: {table} has {rows:,} rows, and {vocabulary.name} has "
            f"{len(vocabulary):,} pieces; want the tokenizer that the model was "
            "trained with"
        )
