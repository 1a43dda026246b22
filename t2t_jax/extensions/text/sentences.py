"""Texts of several sentences, and ones that are too long for the model, in parts."""

import functools
import importlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise

import regex  # a dependency of sacrebleu and of sacremoses

from t2t_jax.io.errors import UserError
from t2t_jax.text.languages import identify
from t2t_jax.text.units import CORE, Span, core

WINDOW = 2_000  # characters of a text that are split at a time
EQUAL = 32  # parts of a sentence that are made equal in length
HAN = "\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"  # Han, kana: no space between words
# Ordinals and titles at whose full stop sentencex ends a sentence.
_NO_END = {"de": regex.compile(r"\b\d{1,3}\.$"), "fr": regex.compile(r"\bMM?\.$")}
_NEVER, _SURROGATE = regex.compile(r"(?!)"), regex.compile("[\ud800-\udfff]")
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


def sentences(
    text: str, language: str, fits: Callable[[str], bool]
) -> Iterator[list[Span]]:
    """Splits a text into sentences; yields each, or the parts of it that fit."""
    for begin, end in split(text, language):
        parts = split_long(text[begin:end], fits)
        yield [(begin + first, begin + last) for first, last in parts]


def split(text: str, language: str) -> Iterator[Span]:
    """Splits a line or paragraph into sentences; rules of unknown ones are English."""
    language = identify(language).code
    find = library("sentencex", "split=sentences").get_sentence_boundaries
    plain = _SURROGATE.sub("\ufffd", text)
    no_end = _NO_END.get(language, _NEVER)
    spans: list[Span] = []  # the last one may go on
    # The library's time grows with the square of a text of other letters than ASCII.
    offset, size = 0, WINDOW
    while offset < len(text):
        bounds = find(language, plain[offset : offset + size])
        if offset + size < len(text):
            bounds = bounds[:-1]
        elif not bounds:
            bounds = [{"start_index": 0, "end_index": len(text) - offset}]
        for bound in bounds:
            begin, end = offset + bound["start_index"], offset + bound["end_index"]
            if spans and no_end.search(text[slice(*spans[-1])]):
                begin = spans.pop()[0]
            spans += cut(text, (begin, end))
            yield from spans[:-1]
            spans = spans[-1:]
        offset, size = (end, WINDOW) if bounds else (offset, 2 * size)
    yield from spans


def split_long(text: str, fits: Callable[[str], bool]) -> list[Span]:
    """Splits a text that is too long for the model at the best places.

    At ends of sentences; in one that does not fit at semicolons and colons, if all its
    parts fit then, or else also at commas and dashes, at spaces, within words. Parts
    are few and similar in length, with only white space between them; each fits, but
    for a single character that does not.
    """
    fit = functools.cache(lambda span: fits(text[slice(*span)]))
    if fit(core(text)):
        return cut(text, (0, len(text)))

    def smaller(span: Span) -> list[Span]:
        for level in range(1, 4):
            words = cut(text, span, "|".join(_BREAKS[1 : level + 1]))
            if all(map(fit, words)):
                return words
        cuts = [[w] if fit(w) else cut(text, w, _BREAKS[4]) for w in words]
        return [part for cut in cuts for part in packed(cut, fit)]

    parts = []
    for short, group in groupby(cut(text, (0, len(text)), _BREAKS[0]), fit):
        for atoms in [list(group)] if short else map(smaller, group):
            parts += packed(atoms, fit)
    return parts


def packed(atoms: list[Span], fit: Callable[[Span], bool]) -> list[Span]:
    """Joins neighbours to the fewest spans that fit; up to `EQUAL` as equal as can be.

    The longer a span, the less it fits. Spans are tried from the length of the one
    before on, so that few of them are much too long.
    """

    def parts(limit: int) -> list[Span]:
        joined, first, step = [], 0, 1
        while first < len(atoms):

            def wrong(last: int, begin: int = atoms[first][0]) -> bool:
                span = begin, atoms[last][1]
                return span[1] - begin > limit or not fit(span)

            last, end = first, len(atoms)  # of those that fit, and those that do not
            while last + step < end:
                if wrong(last + step):
                    end = last + step
                else:
                    last, step = last + step, 2 * step
            last += bisect_left(range(last + 1, end), True, key=wrong)
            joined.append((atoms[first][0], atoms[last][1]))
            first, step = last + 1, max(1, last - first)
        return joined

    greedy = parts(atoms[-1][1] - atoms[0][0])
    if len(greedy) > EQUAL:
        return greedy
    sizes = range(max(end - begin for begin, end in greedy))
    return parts(bisect_left(sizes, True, key=lambda m: len(parts(m)) <= len(greedy)))


def library(name: str, use: str):
    """Imports a package of the extra `text`, or says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        hint = f"{use} needs {name}: pip install 't2t_jax[text]'"
        raise UserError(hint) from None


def cut(text: str, span: Span, pattern: str = "") -> list[Span]:
    """Cuts a span after each match, if any, without what is around the pieces.

    That is white space and byte order marks; it is not translated, and stays.
    """
    matches = regex.finditer(pattern, text[slice(*span)]) if pattern else ()
    places = [span[0] + match.end() for match in matches]
    pieces = pairwise([span[0], *places, span[1]])
    cores = (CORE.search(text, *piece) for piece in pieces)
    return [core.span() for core in cores if core]
