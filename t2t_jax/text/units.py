"""Words and signs of a text, and links between those of two texts."""

from collections.abc import Sequence
from typing import NamedTuple

import regex as re  # it knows scripts, and marks such as vowels

Span = tuple[int, int]  # begin and end, in characters


# Scripts without spaces between words: a character with its marks is a unit.
_DENSE = "".join(
    rf"\p{{{script}}}"
    for script in ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
)
_UNIT = rf"[{_DENSE}]\p{{M}}*|(?:(?![{_DENSE}])[\w\p{{M}}])+|[^\w\s\p{{M}}]"


def units(text: str, symbols: Sequence[str] = ()) -> list[Span]:
    """The words and the signs, such as a comma, of a text; a symbol is one unit."""
    # The longest first: one symbol may begin another.
    named = sorted(map(re.escape, symbols), key=len, reverse=True)
    pattern = "|".join([*named, _UNIT])
    return [match.span() for match in re.finditer(pattern, text)]


class Aligned(NamedTuple):
    """The units of a text and of its translation, and links between them.

    Attributes:
      source, target: the units, in order.
      links: (number of a source unit, number of a target unit).
    """

    source: Sequence[Span]
    target: Sequence[Span]
    links: Sequence[tuple[int, int]]


# Parts of a text that were replaced: (span in the new text, span in the old one), in
# order. What is between them is the same in both.
Edits = Sequence[tuple[Span, Span]]


def moved(span: Span, edits: Edits) -> Span:
    """The place in the old text that a span of the new one is from.

    All of what was replaced, for a span with a part of its replacement.
    """

    def moved_to(place: int, side: int) -> int:
        shift = 0
        for new, old in edits:
            if place <= new[0]:
                break
            # A begin within a replacement goes to its begin, an end to its end.
            if place < new[1] + side:
                return old[side]
            shift = old[1] - new[1]
        return place + shift

    return moved_to(span[0], 0), moved_to(span[1], 1)
