"""ASPECTS: ways to divide a test set into buckets, each scored by itself.

A bucket holds lines, which are scored by BLEU and chrF, or words, which are scored by
how many a system gets right, as in compare-mt (Neubig et al. 2019). A new aspect is a
function of `Texts`, and a line in `ASPECTS`.
"""

import bisect
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from t2t_jax.tools.compare.texts import Texts, Words, is_word

LENGTHS = (5, 10, 15, 20, 30, 40, 60)  # words, the upper edges of the buckets
FREQUENCIES = (0, 1, 4, 9, 99, 999)  # occurrences in the training text, upper edges
SENTENCE_ENDS = {*".!?:;…。！？", "..."}
NONE = -1  # the bucket of a word that is in none


class LineBuckets(NamedTuple):
    """A division of the lines.

    Attributes:
      names: of the buckets.
      bucket_n: the bucket of each line.
    """

    names: tuple[str, ...]
    bucket_n: np.ndarray


class WordBuckets(NamedTuple):
    """A division of some words of references and translations.

    Attributes:
      names: of the buckets.
      label: (words of a line, its number from 0) -> the bucket of each word, or NONE.
    """

    names: tuple[str, ...]
    label: Callable[[Words, int], list[int]]


class Aspect(NamedTuple):
    """An entry of ASPECTS.

    Attributes:
      title: a heading.
      about: how words or lines come into a bucket, in a sentence.
      divide: Texts -> the division. Raises NotAvailableError if it lacks something.
    """

    title: str
    about: str
    divide: Callable[[Texts], LineBuckets | WordBuckets]


def by_length(texts: Texts) -> LineBuckets:
    """Divides lines by the words of their source."""
    lengths = [len(words) for words in texts.source_words]
    names = _ranges(LENGTHS, " words", lowest=0)
    return LineBuckets(names, np.searchsorted(LENGTHS, lengths))


def by_frequency(texts: Texts) -> WordBuckets:
    """Divides words by how often they occur in the targets of the training text."""
    count = texts.trained().target_count

    def label(words: Words, line: int) -> list[int]:
        return [bisect.bisect_left(FREQUENCIES, count[word]) for word in words]

    return WordBuckets(_ranges(FREQUENCIES, " times", lowest=0), label)


def numbers(texts: Texts) -> WordBuckets:
    """Divides words with a digit by whether the source has the same word."""
    return _by_source(texts, lambda words: [_has_digit(word) for word in words])


def names(texts: Texts) -> WordBuckets:
    """Divides capitalised words by whether the source has the same word."""
    return _by_source(texts, capitalised)


def copied(texts: Texts) -> WordBuckets:
    """Divides words with a letter or digit by whether the source has the same word."""
    return _by_source(texts, lambda words: [is_word(word) for word in words])


def capitalised(words: Words) -> list[bool]:
    """Marks words that begin with a capital, and are not first in a sentence.

    It holds for names in most languages with capitals; in German also for each noun.
    """
    marks, first = [], True
    for word in words:
        marks.append(not first and unicodedata.category(word[0]) in ("Lu", "Lt"))
        # Quotes and dashes before the first word leave it the first.
        first = word in SENTENCE_ENDS or (first and not is_word(word))
    return marks


def _by_source(texts: Texts, chosen: Callable[[Words], list[bool]]) -> WordBuckets:
    in_sources = [{*words} for words in texts.source_words]

    def label(words: Words, line: int) -> list[int]:
        return [
            (0 if word in in_sources[line] else 1) if kept else NONE
            for word, kept in zip(words, chosen(words), strict=True)
        ]

    return WordBuckets(("in the source", "not in the source"), label)


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def _ranges(edges: tuple[int, ...], unit: str, lowest: int) -> tuple[str, ...]:
    """Names the ranges between edges: "0", "1", "2–4", ..., and "1,000 or more"."""
    named = []
    for edge in edges:
        named.append(f"{edge:,}" if edge == lowest else f"{lowest:,}–{edge:,}")
        lowest = edge + 1
    return *(f"{name}{unit}" for name in named), f"{lowest:,}{unit} or more"


ASPECTS = {
    "length": Aspect(
        "Length of the source", "Lines by the number of words of the source.", by_length
    ),
    "frequency": Aspect(
        "Frequency in training",
        "Words by how often they occur in the target side of the training text.",
        by_frequency,
    ),
    "numbers": Aspect(
        "Numbers",
        "Words with a digit, by whether the source has the same word.",
        numbers,
    ),
    "names": Aspect(
        "Names",
        "Words that begin with a capital and are not the first of a sentence. A word "
        "that the source has too is nearly always a name; among the others are, in "
        "German, all nouns.",
        names,
    ),
    "copied": Aspect(
        "Copied words",
        "Words, without punctuation, by whether the source has the same word.",
        copied,
    ),
}
