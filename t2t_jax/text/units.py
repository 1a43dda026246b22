"""Words and signs of a text, links between those of two, and replaced parts."""

import bisect
import difflib
from collections.abc import Sequence
from typing import NamedTuple

import regex as re  # it knows scripts, and marks such as vowels

Pair = tuple[str, str]  # a source line and its target line
Span = tuple[int, int]  # begin and end, in characters
# Stand for placeholders (`extensions/text/placeholders.py`); enclose a term and its
# translation (`extensions/text/terms.py`). No symbol begins another.
SYMBOLS = tuple(f"<ph{number}>" for number in range(1, 9))
MARKS = "<term>", "<is>", "</term>"

# Scripts without spaces between words: a character with its marks is a unit.
_DENSE = "".join(
    rf"\p{{{script}}}"
    for script in ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
)
_UNIT = re.compile(
    rf"{'|'.join((*SYMBOLS, *MARKS))}"
    rf"|[{_DENSE}]\p{{M}}*|(?:(?![{_DENSE}])[\w\p{{M}}])+|[^\w\s\p{{M}}]"
)

# A text without the white space and byte order marks around it.
CORE = re.compile(r"(?s)[^\s\ufeff](?:.*[^\s\ufeff])?")


def core(text: str) -> Span:
    """The span of a text without what is around it; of a blank text, its end."""
    match = CORE.search(text)
    return match.span() if match else (len(text), len(text))


def units(text: str) -> list[Span]:
    """Finds the words and the signs, such as a comma, of a text; a symbol is one."""
    return [match.span() for match in _UNIT.finditer(text)]


def matched(
    text_a: str, spans_a: Sequence[Span], text_b: str, spans_b: Sequence[Span]
) -> dict[int, int]:
    """Maps numbers of units of a text to those of equal units in another text."""
    a = [text_a[begin:end] for begin, end in spans_a]
    b = [text_b[begin:end] for begin, end in spans_b]
    blocks = difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return {block.a + n: block.b + n for block in blocks for n in range(block.size)}


class Aligned(NamedTuple):
    """The units of a text and of its translation, and links between them.

    Attributes:
      source, target: the units, in order.
      links: (number of a source unit, number of a target unit).
    """

    source: Sequence[Span]
    target: Sequence[Span]
    links: Sequence[tuple[int, int]]


# Replaced parts of a text, in order: (span before, span after). The rest is the same.
Edits = Sequence[tuple[Span, Span]]


def splice(
    text: str, spans: Sequence[Span], replacements: Sequence[str]
) -> tuple[str, Edits]:
    """Replaces spans of a text, which are in order and do not overlap."""
    parts, edits, end, length = [], [], 0, 0
    for span, new in zip(spans, replacements, strict=True):
        parts += text[end : span[0]], new
        begin = length + span[0] - end
        end, length = span[1], begin + len(new)
        edits.append((span, (begin, length)))
    return "".join([*parts, text[end:]]), edits


def inverse(edits: Edits) -> Edits:
    """Returns the edits that restore the text."""
    return [(after, before) for before, after in edits]


def map_span(span: Span, edits: Edits) -> Span:
    """Finds a span of a text after edits; with a part of a replaced span, all of it."""

    def mapped(place: int, side: int) -> int:
        n = bisect.bisect_left(edits, place, key=lambda edit: edit[0][0])
        if not n:  # before all edits
            return place
        before, after = edits[n - 1]
        # A begin within a replaced span goes to its begin, an end to its end.
        if place < before[1] + side:
            return after[side]
        return place + after[1] - before[1]

    return mapped(span[0], 0), mapped(span[1], 1)
