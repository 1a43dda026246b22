"""Logs that grow by a line: a JSON object on each."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from etils import epath

from t2t_jax.io.growing import BucketFile, DiskFile, open_growing

# Makes an entry of the JSON on a line; whatever error it raises, the line is damaged.
Parse = Callable[[Any], Any]


class LogLines(NamedTuple):
    """The lines of a log."""

    entries: list[Any]  # in order; None for a damaged line
    # What follows the last line end: a line that a run is writing, or was writing when
    # it was killed.
    tail: bytes


def read_lines(file: epath.PathLike, parse: Parse) -> LogLines:
    """Reads a log, also while a run writes it; one that does not exist is empty."""
    file = epath.Path(file)
    content = file.read_bytes() if file.exists() else b""
    *lines, tail = content.split(b"\n")
    return LogLines([_entry(line, parse) for line in lines], tail)


def _entry(line: bytes, parse: Parse) -> Any:
    try:
        return parse(json.loads(line))
    # RecursionError: JSON that is nested to harm.
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def open_log(
    file: epath.Path, parse: Parse, begin: bytes
) -> tuple[list[Any], DiskFile | BucketFile]:
    """Opens a log to append lines, which begin with `begin`; also returns its entries.

    Half of such a line, which a crash has left, is cut off. Another tail was not
    written here: it becomes a damaged line.
    """
    entries, tail = read_lines(file, parse)
    content = file.read_bytes() if file.exists() else b""
    # The tail may be shorter than the beginning it is compared with.
    if tail.startswith(begin[: len(tail)]):
        return entries, open_growing(file, content[: len(content) - len(tail)])
    return [*entries, None], open_growing(file, content + b"\n")
