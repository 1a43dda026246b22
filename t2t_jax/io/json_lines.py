"""Logs that grow by a line: a JSON object on each."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from etils import epath

from t2t_jax.io.growing import BucketFile, DiskFile, open_growing

# Makes an entry of the JSON on a line; whatever error it raises, the line is damaged.
Parse = Callable[[Any], Any]


class LogLines(NamedTuple):
    """The lines of a log.

    Attributes:
      entries: in order; None for a damaged line.
      tail: what follows the last line end: a line that a run is writing, or was writing
        when it was killed.
    """

    entries: list[Any]
    tail: bytes


def read_lines(file: epath.PathLike, parse: Parse) -> LogLines:
    """Reads a log, also while a run writes it; one that does not exist is empty."""
    file = epath.Path(file)
    return parse_lines(file.read_bytes() if file.exists() else b"", parse)


def parse_lines(content: bytes, parse: Parse) -> LogLines:
    """Reads the content of a log."""

    def entry(line: bytes) -> Any:
        try:
            return parse(json.loads(line))
        # RecursionError: JSON that is nested to harm.
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    end = content.rfind(b"\n") + 1
    return LogLines([entry(line) for line in content[:end].splitlines()], content[end:])


def open_log(
    file: epath.Path, parse: Parse, begin: bytes
) -> tuple[list[Any], DiskFile | BucketFile]:
    """Opens a log to append lines, which begin with `begin`; also returns its entries.

    Half of such a line, which a crash has left, is cut off. Another tail was not
    written here: it becomes a damaged line.
    """
    content = file.read_bytes() if file.exists() else b""
    entries, tail = parse_lines(content, parse)
    # The tail may be shorter than the beginning it is compared with.
    if tail.startswith(begin[: len(tail)]):
        content = content[: len(content) - len(tail)]
    else:
        content += b"\n"
        entries.append(None)
    return entries, open_growing(file, content)
