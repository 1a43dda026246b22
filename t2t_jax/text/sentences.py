"""Texts of several sentences, and ones that are too long for the model, in parts."""

import functools
import html
import importlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from itertools import groupby, pairwise

import regex  # a dependency of sacrebleu and of sacremoses

from t2t_jax.io.errors import UserError
from t2t_jax.text.units import Span

_ENTITY = r"&#?\w+;"
HAN = "\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"  # Han, kana: no space between words
# Ordinals and titles at whose full stop sentencex ends a sentence.
_NO_END = {"de": r"\b\d{1,3}\.$", "fr": r"\bMM?\.$"}
_CLOSING = "[\"'”’»)\\]」』]*"
# Places to split a text at, after a match: the best first; last, within words. A mark,
# or what a joiner joins, belongs to the character before.
_BREAKS = [
    rf"(?:{place})(?!\p{{GCB=EX}}|\p{{GCB=SM}}|\p{{GCB=ZWJ}})"
    for place in (
        rf"\n\s*|[.!?…]{_CLOSING}\s+(?![a-zà-ÿ])|[。！？]{_CLOSING}",
        r"[;:]\s+|[；：]",
        r"[,،]\s+|[、，]|\s[-–—](?=\s)|—",
        r"\s+",
        r"[\ud800-\udbff][\udc00-\udfff]\p{GCB=EX}*|\X",
    )
]
_BREAK_IN_HAN = rf"(?<=[{HAN}])\s*[\r\n]\s*(?=[{HAN}])"


class Plain:
    """A document of one segment, the text itself."""

    def __init__(self, text: str):
        self.segments, self.inline = [text], [False]

    def assemble(self, translations, aligned=()) -> str:
        return translations[0]


class Composed:
    """A document of spans of a text, by default its lines.

    `inner` makes documents of `sources`, which are by default the texts of the spans.
    """

    def __init__(self, text: str, spans=None, sources=None, inner=Plain):
        lines = _cut(text, (0, len(text)), r"[\r\n]+")
        self.text, self.spans = text, lines if spans is None else spans
        joined = (regex.sub(_BREAK_IN_HAN, "", text[b:e]) for b, e in self.spans)
        self.sources = sources or [" ".join(source.split()) for source in joined]
        self.parts = [inner(source) for source in self.sources]
        self.segments = [s for part in self.parts for s in part.segments]
        self.inline = [i for part in self.parts for i in part.inline]

    def assemble(self, translations, aligned=None) -> str:
        """Returns the text with translations in place of the segments."""
        aligned = aligned or [None] * len(translations)
        assert len(translations) == len(aligned) == len(self.segments)
        kept, at, n = [], 0, 0
        for span, source, part in zip(
            self.spans, self.sources, self.parts, strict=True
        ):
            m = n + len(part.segments)
            new = part.assemble(translations[n:m], aligned[n:m])
            # A parser of HTML escapes signs that these formats write as they are.
            if getattr(part, "escapes", False) and not regex.search(_ENTITY, source):
                new = html.unescape(new)
            old = self.text[slice(*span)]
            kept += self.text[at : span[0]], self.written(old, source, new)
            at, n = span[1], m
        return "".join([*kept, self.text[at:]])

    @property
    def report(self) -> Counter[str]:
        """The sum of the reports of the documents, if they have one."""
        return sum((getattr(p, "report", Counter()) for p in self.parts), Counter())

    def written(self, old: str, source: str, new: str) -> str:
        """Returns what replaces the text `old` of a span."""
        return old if new == source else new


def split(text: str, language: str) -> list[Span]:
    """Splits a line or paragraph into sentences; rules of unknown ones are English."""
    language = regex.split("[-_]", language.lower())[0]  # de-AT
    find = library("sentencex", "--split=sentences").get_sentence_boundaries
    spans: list[Span] = []
    for found in find(language, regex.sub("[\ud800-\udfff]", "\ufffd", text)):
        begin, end = found["start_index"], found["end_index"]
        no_end = _NO_END.get(language, r"(?!)")
        if spans and regex.search(no_end, text[slice(*spans[-1])]):
            begin = spans.pop()[0]
        spans += _cut(text, (begin, end))
    return spans


def split_long(text: str, fits: Callable[[str], bool]) -> list[Span]:
    """Splits a text that is too long for the model at the best places.

    At ends of sentences; in one that does not fit at semicolons and colons, if all its
    parts fit then, or else also at commas and dashes, at spaces, within words. Parts
    are few and similar in length, with only white space between them; each fits, but
    for a single character that does not.
    """
    fit = functools.cache(lambda span: fits(text[slice(*span)]))

    def smaller(span: Span) -> list[Span]:
        for last in range(1, 4):
            words = _cut(text, span, "|".join(_BREAKS[1 : last + 1]))
            if all(map(fit, words)):
                return words
        cuts = [[w] if fit(w) else _cut(text, w, _BREAKS[4]) for w in words]
        return [part for cut in cuts for part in packed(cut, fit)]

    parts = []
    for short, group in groupby(_cut(text, (0, len(text)), _BREAKS[0]), fit):
        for atoms in [list(group)] if short else map(smaller, group):
            parts += packed(atoms, fit)
    return parts


def packed(atoms: list[Span], fit: Callable[[Span], bool]) -> list[Span]:
    """Joins neighbours to the fewest spans that fit, as equal in length as can be."""

    def parts(most: int) -> list[Span]:
        found, rest = [], atoms
        while rest:
            joined = [(rest[0][0], end) for _, end in rest[1:]]
            # The longer, the less a span fits.
            good = [s for s in joined if s[1] - s[0] <= most]
            wrong = bisect_left(good, True, key=lambda span: not fit(span))
            found.append((rest[0][0], rest[wrong][1]))
            rest = rest[wrong + 1 :]
        return found

    sizes = range(atoms[-1][1] - atoms[0][0])
    fewest = len(parts(sizes.stop))
    return parts(bisect_left(sizes, True, key=lambda most: len(parts(most)) <= fewest))


def library(name: str, use: str):
    """Imports a package of the extra `text`, or says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        hint = f"{use} needs {name}: pip install 't2t_jax[text]'"
        raise UserError(hint) from None


def _cut(text: str, span: Span, pattern: str = r"\Z") -> list[Span]:
    """Cuts a span after each match, without the white space around the pieces."""
    places = [span[0] + m.end() for m in regex.finditer(pattern, text[slice(*span)])]
    pieces = pairwise([span[0], *places, span[1]])
    cores = (regex.search(r"(?s)\S(?:.*\S)?", text, pos=b, endpos=e) for b, e in pieces)
    return [core.span() for core in cores if core]
