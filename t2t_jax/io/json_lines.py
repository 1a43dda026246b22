"""Logs that grow by a line: a JSON object on each."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from etils import epath

# Makes an entry of the JSON on a line; one that has no such entry is damaged.
Parse = Callable[[Any], Any]


class LogLines(NamedTuple):
    """The lines of a log."""

    entries: list[Any]  # in order; None for a damaged line
    tail: bytes  # after the last line end: a line being written, or half of one


def read_lines(file: epath.PathLike, parse: Parse) -> LogLines:
    """Reads a log, also while a run writes it; one that does not exist is empty."""
    file = epath.Path(file)
    return parse_lines(file.read_bytes() if file.exists() else b"", parse)


def parse_lines(content: bytes, parse: Parse) -> LogLines:
    """Reads the content of a log."""
    *lines, tail = content.split(b"\n")
    return LogLines([_entry(line, parse) for line in lines], tail)


def _entry(line: bytes, parse: Parse) -> Any:
    try:
        return parse(json.loads(line))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return None
    except RecursionError:  # of JSON that is nested to harm
        return None
