"""Files next to the weights of other systems' models: JSON, YAML, text, tokens.

Functions that read one raise a UserError that names the file: missing, or damaged.
"""

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from t2t_jax.data.tokenizers.sentencepieces import opened
from t2t_jax.io.errors import UserError


def read_content(path: Path) -> bytes:
    """Reads a file that belongs to a model."""
    if path.is_file():
        return path.read_bytes()
    hint = "it belongs to the model"
    if (path.parent / "tokenizer.json").is_file():
        hint = (
            "tokenizer.json alone, of a fast tokenizer, cannot be read: copy "
            f"{path.name} from the original model"
        )
    raise UserError(f"{path} does not exist; {hint}")


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object."""
    try:
        content = json.loads(read_content(path))
    except (ValueError, RecursionError) as e:
        raise UserError(f"{path} is not JSON: {e}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} has a {type(content).__name__}; want a JSON object")
    return content


def recognizer(field: str, value: str) -> Callable[[Path], bool]:
    """Returns a function that recognizes folders by a field of config.json."""

    def recognize(path: Path) -> bool:
        try:
            return json.loads((path / "config.json").read_bytes())[field] == value
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return False

    return recognize


def read_lines(path: Path, ended: bool = False) -> list[str]:
    """Reads lines of UTF-8; if `ended`, leaves out a last one without a line break."""
    try:
        text = read_content(path).decode("utf-8")
    except UnicodeDecodeError as e:
        raise UserError(f"{path} is not UTF-8: {e}") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text[: text.rfind("\n") + 1] if ended else text
    lines = text.rstrip("\n").split("\n")
    if lines == [""]:
        raise UserError(f"{path} is empty")
    return lines


def read_sentencepiece(path: Path) -> tuple[bytes, list[str]]:
    """Reads a SentencePiece model and its pieces."""
    content = read_content(path)
    processor = opened(content, path)
    return content, [processor.id_to_piece(i) for i in range(len(processor))]


def read_pieces(
    path: Path, required: Collection[str] = (), gaps: bool = False
) -> list[str]:
    """Reads a table {piece: id}, JSON or YAML; returns the tokens in the order of ids.

    Ids that are missing, which `gaps` allows, get empty tokens.
    """
    ids = _yaml_table(path) if path.suffix in (".yml", ".yaml") else read_json(path)
    by_id: dict[int, str] = {}
    limit = 2 * len(ids) if gaps else len(ids) - 1
    for piece, i in ids.items():
        if type(i) is not int or not 0 <= i <= limit:
            raise UserError(
                f"{path}: {piece!r} has the id {i!r}; want 0 to {limit:,}, as it has "
                f"{len(ids):,} tokens"
            )
        if i in by_id:
            raise UserError(f"{path}: {piece!r} and {by_id[i]!r} have the same id {i}")
        by_id[i] = piece
    if absent := [piece for piece in required if piece not in ids]:
        raise UserError(f"{path} lacks {', '.join(absent)}")
    return [by_id.get(i, "") for i in range(max(by_id) + 1)]


def _yaml_table(path: Path) -> dict[str, int]:
    # All values are text: YAML would read the tokens `no` and `1e3` otherwise.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        loaded = yaml.load(read_content(path).decode("utf-8"), loader)
        return {str(piece): int(number) for piece, number in loaded.items()}
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as e:
        raise UserError(f"{path} is not a vocabulary: {e}") from None


class Fields:
    """An object of named values, such as a config; reports those that nobody read.

    What is read has a meaning here; what is left at the end is reported to the user.
    """

    def __init__(self, values: Mapping[str, Any], name: str):
        self.values, self.name = dict(values), name
        self._read: set[str] = set()

    @classmethod
    def load(cls, path: Path, required: bool = True) -> "Fields":
        """Reads a file; empty if it is missing and not required."""
        if not required and not path.is_file():
            return cls({}, str(path))
        return cls(read_json(path), str(path))

    def get(self, field: str, default: Any = None) -> Any:
        """Returns a field; null counts as missing."""
        self._read.add(field)
        value = self.values.get(field)
        return default if value is None else value

    def choice(self, field: str, choices: Mapping[Any, Any], default: Any = "") -> Any:
        """Returns our word for a field that has one of several values."""
        value = self.get(field, default)
        if value not in choices:
            names = [json.dumps(choice).strip('"') for choice in choices]
            raise self.error(field, " or ".join(names))
        return choices[value]

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

    def only(self, **expected: Any) -> None:
        """Refuses fields that are given with another value than the wanted one."""
        for field, value in expected.items():
            if self.get(field, value) != value:
                raise self.error(
                    field, f"{json.dumps(value)}; no other can be imported"
                )

    def error(self, field: str, expected: str) -> UserError:
        """Returns an error about the value of a field."""
        if self.values.get(field) is None:
            return UserError(f"{self.name} lacks {field}; want {expected}")
        value = json.dumps(self.values[field])
        return UserError(f"{self.name} has {field}={value}; want {expected}")

    def unread(self) -> dict[str, Any]:
        """Returns the fields that were not read and hold anything."""
        return {
            name: value
            for name, value in self.values.items()
            if name not in self._read and value not in (None, False, 0, [], {}, "")
        }
