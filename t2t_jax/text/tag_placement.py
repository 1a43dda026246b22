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
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t2t_jax.text.units import Aligned, Span


@dataclasses.dataclass(slots=True)
class Mark:
    """A tag, or a piece without text, of a segment.

    Attributes:
      page: the text that it is from.
      kind: "start", "end" or "piece".
      begin, end: in characters of the page; of an element's start tag.
      at: the characters of the segment that are before it.
      before, after: whether white space is next to it.
      separates: whether it is white space, as <br> is.
      close: the end tag of an element; None for a piece, or a tag without partner.
      parts: what is within the element.
    """

    page: str
    kind: str
    begin: int
    end: int
    at: int
    before: bool
    after: bool = False
    separates: bool = False
    close: "Mark | None" = None
    parts: "list[Mark]" = dataclasses.field(default_factory=list)

    @property
    def text(self) -> str:
        return self.page[self.begin : self.end]

    @property
    def stop(self) -> int:
        """The end of the whole element."""
        return (self.close or self).end

    @property
    def is_left(self) -> bool:
        """Whether a space between two words goes before it, if it is between them."""
        if self.kind == "end":
            return self.before and not self.after
        return self.before or not self.after


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
      (the translation with tags, escaped; counts, see `Document.report`).

    Raises:
      ValueError: units or links are out of range.
    """
    for text, spans in ((source, aligned.source), (target, aligned.target)):
        ends = [0, *itertools.chain.from_iterable(spans), len(text)]
        if any(a > b for a, b in itertools.pairwise(ends)):
            raise ValueError(f"units {list(spans)} are not in order within {text!r}")
    sizes = len(aligned.source), len(aligned.target)
    for link in aligned.links:
        if not (0 <= link[0] < sizes[0] and 0 <= link[1] < sizes[1]):
            raise ValueError(f"link {link} is out of range; there are {sizes} units")
    split = _split_words(source, parts, target, aligned)
    linked = [set() for _ in split.source]
    for s, t in split.links:
        linked[s].add(t)
    counts: collections.Counter[str] = collections.Counter()
    words = _Words([a for a, _ in split.source], [b for _, b in split.source], linked)
    whole = (0, len(split.target)), (0, len(split.source))
    order = _order(parts, words, *whole, counts)
    return _join(order, target, split.target), counts


class _Words(NamedTuple):
    """Begins and ends of source units, and the target units linked to each."""

    begins: list[int]
    ends: list[int]
    linked: list[set[int]]


def _split_words(
    source: str, parts: Sequence[Mark], target: str, aligned: Aligned
) -> Aligned:
    """Splits words at the tags within, if they are translated as themselves."""
    cuts, links = sorted({mark.at for mark in _all(parts)}), set(aligned.links)
    uses = collections.Counter(side for s, t in links for side in ((0, s), (1, t)))
    offsets: list[dict[int, list[int]]] = [{}, {}]  # of the parts of units
    for s, t in links:
        begin, end = aligned.source[s]
        within = cuts[bisect.bisect(cuts, begin) : bisect.bisect_left(cuts, end)]
        same = within and target[slice(*aligned.target[t])] == source[begin:end]
        if same and uses[0, s] == uses[1, t] == 1:
            offsets[0][s] = offsets[1][t] = [
                cut - begin for cut in (begin, *within, end)
            ]
    sides, first = [], []
    for spans, of_side in zip(aligned[:2], offsets, strict=True):
        borders = [of_side.get(n, (0, b - a)) for n, (a, b) in enumerate(spans)]
        first.append([0, *itertools.accumulate(len(each) - 1 for each in borders)])
        pairs = zip(spans, map(itertools.pairwise, borders), strict=True)
        sides.append([(at + a, at + b) for (at, _), each in pairs for a, b in each])
    moved = [
        (first[0][s] + n, first[1][t] + n)
        for s, t in links
        for n in range(len(offsets[0].get(s, (0, 0))) - 1)
    ]
    return Aligned(*sides, moved)


def _all(parts: Sequence[Mark]):
    for mark in parts:
        yield mark
        if mark.close:
            yield from _all(mark.parts)
            yield mark.close


def _order(
    parts: Sequence[Mark], words: _Words, target: Span, source: Span, counts
) -> list[Mark | int]:
    """Lists units and tags as the translation has them.

    Args:
      parts: the children of an element.
      words: all source units.
      target, source: the units of the element.
      counts: for the report; changed.
    """
    covered = {
        n: (
            bisect.bisect(words.ends, m.at),
            bisect.bisect_left(words.begins, m.close.at),
        )
        for n, m in enumerate(parts)
        if m.close
    }
    spans = _spans(covered, words.linked, target, counts)
    siblings, latest = sorted(spans.values()), target[0]
    for n, mark in enumerate(parts):
        kind = "elements" if mark.close else "pieces"
        if n not in spans:
            at = _near(mark, words, target, source, covered.get(n))
            around = siblings[bisect.bisect_left(siblings, (at,)) - 1 :][:1]
            if around and around[0][0] < at < around[0][1]:
                at = around[0][mark.kind == "end"]
            if mark.kind != "piece" and not mark.close:
                kind, at = "unpaired", max(at, latest)
                latest = at
            spans[n] = at, at
            counts["emptied"] += bool(mark.close)
        counts[kind] += 1
    order, at = [], target[0]
    # At the same unit, what is empty comes first.
    for n in sorted(spans, key=lambda n: (spans[n][0], spans[n][0] < spans[n][1], n)):
        low, high = spans[n]
        order += [*range(at, low), parts[n]]
        if parts[n].close:
            order += _order(parts[n].parts, words, (low, high), covered[n], counts)
            order.append(parts[n].close)
        at = high
    return [*order, *range(at, target[1])]


def _spans(
    covered: Mapping[int, Span], linked: Sequence[set[int]], target: Span, counts
) -> dict[int, Span]:
    """Finds the target units of siblings, by their source units, without overlaps."""
    own, owner = {}, {}
    for n, (low, high) in covered.items():
        units = set().union(*linked[low:high])
        own[n] = {t for t in units if target[0] <= t < target[1]}
    for n in sorted(own, key=lambda n: (len(own[n]), n)):
        owner = {**dict.fromkeys(own[n], n), **owner}
    spans, most = {}, collections.Counter()
    for n, run in itertools.groupby(sorted(owner), key=owner.get):
        run = list(run)
        if len(run) > most[n]:
            most[n], spans[n] = len(run), (run[0], run[-1] + 1)
    for n, (low, high) in spans.items():
        counts["split"] += not low <= min(own[n]) <= max(own[n]) < high
    return spans


def _near(
    mark: Mark, words: _Words, target: Span, source: Span, own: Span | None
) -> int:
    """Finds the place of what has no linked unit, by the units next to its own."""
    at = bisect.bisect_left(words.begins, mark.at)
    low, high = own or (at, at)
    within = at > 0 and words.ends[at - 1] > mark.at
    for distance in range(max(source[1] - high, low - source[0])):
        pair = high + distance, low - 1 - distance
        for unit in pair if mark.is_left and not within else pair[::-1]:
            if source[0] <= unit < source[1]:
                units = [t for t in words.linked[unit] if target[0] <= t < target[1]]
                if units:
                    return min(units) if unit >= high else max(units) + 1
    return target[1]


def _join(order: Sequence[Mark | int], target: str, targets: Sequence[Span]) -> str:
    """Writes units, tags, and the white space between them."""
    output, marks, at = [], [], 0
    for part in [*order, None]:
        if isinstance(part, Mark):
            marks.append(part)
            continue
        begin, end = (len(target),) * 2 if part is None else targets[part]
        output += _gap(marks, target, at, begin)
        output.append(html.escape(target[begin:end], quote=False))
        marks, at = [], end
    return "".join(output)


def _gap(marks: Sequence[Mark], target: str, begin: int, end: int) -> list[str]:
    """Writes the tags between two units, and the white space between these."""
    white = html.escape(target[begin:end], quote=False)
    if any(m.separates and not m.before and not m.after for m in marks):
        white = white.strip()
    slot = next((n for n, mark in enumerate(marks) if mark.is_left), len(marks))
    # A piece with white space on both sides gets a second space, but not next to signs;
    # one of words, with white space on one side, and a sign on the other, only next to
    # a word.
    first, last = begin == 0, end == len(target)
    after_word = not first and target[begin - 1].isalnum()
    before_word = not last and target[end].isalnum()
    left = not first and (white or last or after_word)
    right = not last and (white or first or before_word)
    output, spaced = [], first
    for n, mark in enumerate(marks):
        piece = mark.kind == "piece"
        has_words = re.search(r">[^<]*\w", mark.text) is not None
        if n == slot and white:
            output.append(white)
        elif piece and left and not spaced:
            wanted = mark.before or (mark.after and after_word and has_words)
            output += [" "] * wanted
        output.append(mark.text)
        spaced = (spaced or n == slot) and not piece
        wanted = mark.after or (mark.before and before_word and has_words)
        if piece and wanted and right and (slot <= n or not white):
            output.append(" ")
            spaced = True
    return output if slot < len(marks) else [*output, white]
