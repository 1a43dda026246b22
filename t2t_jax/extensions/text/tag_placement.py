"""Places tags in a translation, by links between its units and those of the source.

An element encloses the smallest span of target units that has all units linked to its
source units. It stays in its parent and beside its siblings: where a sibling's units
are between its own, it encloses the larger part of these (the first of equal ones), and
a unit of two siblings goes to the one that has fewer, or is the first.

What has no linked unit goes before the translation of the next unit, else after that of
the previous one; or the other way round, if it is an end tag, or has white space after
it and none before, or is within a word. Tags without a partner stay in order.

A tag within a word stays there if the word is translated as itself; else it goes to the
word's end. White space stays on the side of a tag where it was.
"""

import bisect
import collections
import dataclasses
import html
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from t2t_jax.text.units import Aligned, Span


@dataclasses.dataclass(slots=True)
class Mark:
    """A tag, or a piece without text, of a segment."""

    page: str  # the text that it is from
    kind: str  # "element", "piece"; of a tag without partner: "start", "end"
    begin: int  # in characters of the page; of an element, those of its start tag
    end: int
    place: int  # the characters of the segment that are before it
    space_before: bool
    space_after: bool = False
    separates: bool = False  # is it white space, as <br> is?
    close: "Mark | None" = None  # the end tag of an element
    parts: "list[Mark]" = dataclasses.field(default_factory=list)  # those within it

    @property
    def text(self) -> str:
        return self.page[self.begin : self.end]

    @property
    def stop(self) -> int:
        """The end, of an element that of its end tag."""
        return (self.close or self).end

    @property
    def follows_space(self) -> bool:
        """True if the space of two words is written before this tag, not after it."""
        if self.space_before != self.space_after:
            return self.space_before
        return self.kind != "end"


class _Word(NamedTuple):
    """A source unit, or a part of one, and the numbers of target units linked to it."""

    begin: int
    end: int
    linked: set[int]


def place(
    source: str, parts: Sequence[Mark], target: str, aligned: Aligned
) -> tuple[str, collections.Counter[str]]:
    """Writes a translation with the tags of its source.

    Args:
      source: the text of a segment.
      parts: its tags.
      target: the translation, as plain text.
      aligned: units and links of both.

    Returns:
      (the translation with tags, escaped; counts, see `MarkupDocument.report`).

    Raises:
      ValueError: links are out of range.
    """
    sizes = len(aligned.source), len(aligned.target)
    for s, t in aligned.links:
        if not (0 <= s < sizes[0] and 0 <= t < sizes[1]):
            raise ValueError(f"link {s, t} is out of range; there are {sizes} units")
    words, targets = _split_words(source, parts, target, aligned)
    counts: collections.Counter[str] = collections.Counter()
    gaps: list[list[Mark]] = [[] for _ in range(len(targets) + 1)]
    _fill(gaps, parts, words, (0, len(targets)), (0, len(words)), counts)
    output, end = [], 0
    for marks, span in zip(gaps, [*targets, (len(target),) * 2], strict=True):
        output += _gap(marks, target, end, span[0])
        output.append(html.escape(target[slice(*span)], quote=False))
        end = span[1]
    return "".join(output), counts


def _split_words(
    source: str, parts: Sequence[Mark], target: str, aligned: Aligned
) -> tuple[list[_Word], list[Span]]:
    """Splits words at the tags within, if they are translated as themselves."""
    cuts, links = sorted(set(_places(parts))), set(aligned.links)
    uses = [collections.Counter(side) for side in zip(*links, strict=True)]
    sources, targets = set(aligned.source), set(aligned.target)
    linked: dict[Span, list[Span]] = collections.defaultdict(list)
    for s, t in links:
        (begin, end), (low, high) = spans = aligned.source[s], aligned.target[t]
        within = cuts[bisect.bisect(cuts, begin) : bisect.bisect_left(cuts, end)]
        pairs = [spans]
        if source[begin:end] == target[low:high] and uses[0][s] == uses[1][t] == 1:
            sources.remove(spans[0])
            targets.remove(spans[1])
            borders = itertools.pairwise([begin, *within, end])
            pairs = [((a, b), (a - begin + low, b - begin + low)) for a, b in borders]
        for unit, translation in pairs:
            sources.add(unit)
            targets.add(translation)
            linked[unit].append(translation)
    number = {span: n for n, span in enumerate(sorted(targets))}
    linked_to = {s: {number[t] for t in linked[s]} for s in sorted(sources)}
    return [_Word(*span, units) for span, units in linked_to.items()], [*number]


def _places(parts: Sequence[Mark]) -> Iterator[int]:
    for mark in parts:
        end = (mark.close or mark).place
        yield from (mark.place, *_places(mark.parts), end)


def _fill(
    gaps, parts: Sequence[Mark], words, target: Span, source: Span, counts
) -> None:
    """Puts `parts`, the children of an element, into gaps of the translation.

    `target` and `source` are the element's units; `gaps` and `counts` are changed.
    """
    covered, linked = [], {}
    for n, mark in enumerate(parts):
        end = (mark.close or mark).place
        low = bisect.bisect(words, mark.place, key=lambda word: word.end)
        high = bisect.bisect_left(words, end, key=lambda word: word.begin)
        covered.append((low, high))
        if mark.close:
            linked[n] = _reached(words[low:high], target)
    spans = _spans(linked, counts)
    siblings, latest = [(target[0],) * 2, *sorted(spans.values())], target[0]
    for n, mark in enumerate(parts):
        kind = {"element": "elements", "piece": "pieces"}.get(mark.kind, "unpaired")
        counts[kind] += 1
        if n not in spans:
            unit = _near(mark, words, target, source, covered[n])
            low, high = siblings[bisect.bisect_left(siblings, (unit,)) - 1]
            if low < unit < high:
                unit = high if mark.kind == "end" else low
            if kind == "unpaired":
                unit = latest = max(unit, latest)
            spans[n] = unit, unit
            counts["emptied"] += kind == "elements"
    # At the same unit, what is empty comes first.
    for n in sorted(spans, key=lambda n: (spans[n][0], spans[n][0] < spans[n][1], n)):
        gaps[spans[n][0]].append(parts[n])
        if parts[n].close:
            _fill(gaps, parts[n].parts, words, spans[n], covered[n], counts)
            gaps[spans[n][1]].append(parts[n].close)


def _reached(words: Sequence[_Word], target: Span) -> set[int]:
    """The units within a span of the target that are linked to words."""
    return {t for word in words for t in word.linked if target[0] <= t < target[1]}


def _spans(linked: Mapping[int, set[int]], counts) -> dict[int, Span]:
    """Finds the target units of siblings without overlaps, by those linked to each."""
    owner = {}
    for n in sorted(linked, key=lambda n: (len(linked[n]), n), reverse=True):
        owner.update(dict.fromkeys(linked[n], n))
    runs = [[*run] for _, run in itertools.groupby(sorted(owner), key=owner.get)]
    spans: dict[int, Span] = {}
    for run in sorted(runs, key=len, reverse=True):
        spans.setdefault(owner[run[0]], (run[0], run[-1] + 1))
    counts["split"] += sum(not linked[n] <= {*range(*spans[n])} for n in spans)
    return spans


def _near(
    mark: Mark, words: Sequence[_Word], target: Span, source: Span, covered: Span
) -> int:
    """Finds the place of what has no linked unit, by the units next to its own."""
    low, high = covered if mark.close else (covered[1], covered[1])
    follows_space = mark.follows_space and low == covered[0]  # else it is within a word
    right, left = range(high, source[1]), range(low - 1, source[0] - 1, -1)
    for pair in itertools.zip_longest(right, left):
        for n in pair if follows_space else pair[::-1]:
            if n is not None and (units := _reached(words[n : n + 1], target)):
                return min(units) if n >= high else max(units) + 1
    return target[1]


def _gap(marks: Sequence[Mark], target: str, begin: int, end: int) -> list[str]:
    """Writes the tags between two units, and the white space between these."""
    white = html.escape(target[begin:end], quote=False)
    if any(m.separates and not (m.space_before or m.space_after) for m in marks):
        white = white.strip()
    slot = next((n for n, mark in enumerate(marks) if mark.follows_space), len(marks))
    # A piece with white space on both sides gets a second space, but not next to signs;
    # one of words, with white space on one side, and a sign on the other, only next to
    # a word.
    at_begin, at_end = begin == 0, end == len(target)
    after_word = target[begin - 1 : begin].isalnum()
    before_word = target[end : end + 1].isalnum()
    output, spaced = [], at_begin
    for n, mark in enumerate(marks):
        piece = mark.kind == "piece"
        has_words = re.search(r">[^<>]*\w", mark.text) is not None
        if n == slot and white:
            output.append(white)
        elif piece and not at_begin | spaced and (white or at_end or after_word):
            inner = mark.space_after and after_word and has_words
            output += [" "] * (mark.space_before or inner)
        output.append(mark.text)
        spaced = (spaced or n == slot) and not piece
        outer = mark.space_after or (mark.space_before and before_word and has_words)
        fits = slot <= n if white else at_begin or before_word
        if piece and outer and fits and not at_end:
            output.append(" ")
            spaced = True
    return output if slot < len(marks) else [*output, white]
