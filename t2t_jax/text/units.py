"""Words and signs of a text, and which of them a translation has them from."""

import re
from collections.abc import Sequence
from typing import NamedTuple

Span = tuple[int, int]  # begin and end, in characters


def units(text: str, symbols: Sequence[str] = ()) -> list[Span]:
    """The words and the signs, such as a comma, of a text; a symbol is one unit."""
    # The longest first: one symbol may begin another.
    named = sorted(map(re.escape, symbols), key=len, reverse=True)
    pattern = "|".join([*named, r"\w+", r"[^\w\s]"])
    return [match.span() for match in re.finditer(pattern, text)]


class GoldLinks(NamedTuple):
    """Links that an alignment must have, and those it may have, the sure among them."""

    sure: Sequence[tuple[int, int]]
    possible: Sequence[tuple[int, int]]


class Aligned(NamedTuple):
    """The units of a text and of its translation, and links between them.

    Attributes:
      source, target: the units, in order.
      links: (number of a source unit, number of a target unit).
    """

    source: Sequence[Span]
    target: Sequence[Span]
    links: Sequence[tuple[int, int]]
