"""ASPECTS: ways to divide a test set into buckets, and the scores of these.

A bucket holds lines, which are scored by BLEU and chrF, or words, which are scored by
how many a system gets right, as in compare-mt (Neubig et al. 2019). A new aspect is a
function of `Texts`, and a line in `ASPECTS`.
"""

import bisect
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.metrics.measures import bounds, sampled_sums
from t2t_jax.metrics.text_measures import bleu_of, chrf_of
from t2t_jax.tools.compare.texts import NotAvailableError, Texts, Words, is_word

LENGTHS = (5, 10, 15, 20, 30, 40, 60)  # words, the upper edges of the buckets
FREQUENCIES = (0, 1, 4, 9, 99, 999)  # occurrences in the training text, upper edges
SENTENCE_ENDS = {*".!?:;…。！？", "..."}
NONE = -1  # the bucket of a word that is in none


class LineBuckets(NamedTuple):
    """A division of the lines: the bucket of each, and the names of the buckets."""

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
    return LineBuckets(_ranges(LENGTHS, " words"), np.searchsorted(LENGTHS, lengths))


def by_frequency(texts: Texts) -> WordBuckets:
    """Divides words by how often they occur in the targets of the training text."""
    count = texts.trained().target_count

    def label(words: Words, line: int) -> list[int]:
        return [bisect.bisect_left(FREQUENCIES, count[word]) for word in words]

    return WordBuckets(_ranges(FREQUENCIES, " times"), label)


def capitalised(words: Words) -> list[bool]:
    """Marks words that begin with a capital, and are not first in a sentence.

    It holds for names in most languages with capitals; in German also for each noun.
    """
    marks, initial = [], True
    for word in words:
        marks.append(not initial and unicodedata.category(word[0]) in ("Lu", "Lt"))
        # Quotes and dashes before the first word leave it the first.
        initial = word in SENTENCE_ENDS or (initial and not is_word(word))
    return marks


def by_source(texts: Texts, select: Callable[[Words], list[bool]]) -> WordBuckets:
    """Divides the selected words by whether the source has the same word."""
    in_sources = [{*words} for words in texts.source_words]

    def label(words: Words, line: int) -> list[int]:
        return [
            (0 if word in in_sources[line] else 1) if selected else NONE
            for word, selected in zip(words, select(words), strict=True)
        ]

    return WordBuckets(("in the source", "not in the source"), label)


def _ranges(edges: tuple[int, ...], unit: str) -> tuple[str, ...]:
    """Names the ranges between edges: "0", "1", "2–4", ..., and "1,000 or more"."""
    named, lowest = [], 0
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
        lambda texts: by_source(
            texts, lambda words: [any(map(str.isdigit, word)) for word in words]
        ),
    ),
    "names": Aspect(
        "Names",
        "Words that begin with a capital and are not the first of a sentence. A word "
        "that the source has too is nearly always a name; among the others are, in "
        "German, all nouns.",
        lambda texts: by_source(texts, capitalised),
    ),
    "copied": Aspect(
        "Copied words",
        "Words, without punctuation, by whether the source has the same word.",
        lambda texts: by_source(texts, lambda words: [*map(is_word, words)]),
    ),
}


# ------------------------------------------------------------------------------- scores

REFERENCE, GOT, OUTPUT, RIGHT = range(4)  # the counts of words in a bucket
CHRF = slice(None, 18)  # the statistics of a line: those of chrF, then those of BLEU
BLEU = slice(18, None)


def _ratio(count: np.ndarray, total: np.ndarray) -> np.ndarray:
    return np.where(total > 0, 100 * count / np.maximum(total, 1), np.nan)


def recall(sums: np.ndarray) -> np.ndarray:
    """The share of the references' words that a system gets, from sums [..., 4]."""
    return _ratio(sums[..., GOT], sums[..., REFERENCE])


def precision(sums: np.ndarray) -> np.ndarray:
    """The share of a system's words that the reference has, from sums [..., 4]."""
    return _ratio(sums[..., RIGHT], sums[..., OUTPUT])


def f1(sums: np.ndarray) -> np.ndarray:
    """The harmonic mean of recall and precision; NaN only without any word."""
    r, p = (np.nan_to_num(score(sums)) for score in (recall, precision))
    mean = 2 * r * p / np.where(r + p > 0, r + p, 1)
    none = (sums[..., REFERENCE] == 0) & (sums[..., OUTPUT] == 0)
    return np.where(none, np.nan, mean)


# The first score of each is the one that is drawn. All are from 0 to 100.
LINE_SCORES: dict[str, Callable] = {
    "chrf": lambda sums: chrf_of(sums[..., CHRF]),
    "bleu": lambda sums: bleu_of(sums[..., BLEU]),
}
WORD_SCORES: dict[str, Callable] = {"f1": f1, "recall": recall, "precision": precision}


def compare_buckets(
    aspect: Aspect,
    texts: Texts,
    outputs: Sequence[Sequence[Words]],
    line_statistics: Sequence[np.ndarray],
) -> dict:
    """Scores each bucket of an aspect for each system; the first is the baseline.

    Args:
      line_statistics: for each system the counts of chrF and of BLEU, [n, 28].

    Returns:
      `title`, `about`, `unit` ("lines" or "words"), `scores` (their names), and
      `buckets`: those that hold anything, each with `name`, `count` (lines, or words of
      the references), `systems`: a dict of scores for each, and `differences`: for each
      but the first its `difference` to the baseline with its 95% interval `low`,
      `high`, by score. A score without any word is None.
      If the aspect lacks something: `title`, `about`, and `missing`, the reason.
    """
    head = {"title": aspect.title, "about": aspect.about}
    try:
        division = aspect.divide(texts)
    except NotAvailableError as e:
        return head | {"missing": str(e)}
    by_line = isinstance(division, LineBuckets)
    if by_line:
        scores = LINE_SCORES
        counts_b = np.bincount(division.bucket_n, minlength=len(division.names))
        systems = [_spread(division, counts_nk) for counts_nk in line_statistics]
    else:
        scores = WORD_SCORES
        systems = [count_words(division, texts, words) for words in outputs]
        counts_b = systems[0].sum(0)[:, REFERENCE]
    sums = [(counts_nbk.sum(0), _sampled(counts_nbk)) for counts_nbk in systems]
    # By score, for each system its scores [b], and those of samples [m, b].
    by_score = {
        name: [(score(sums_bk), score(sums_mbk)) for sums_bk, sums_mbk in sums]
        for name, score in scores.items()
    }
    held_b = np.any([sums_bk.sum(-1) > 0 for sums_bk, _ in sums], axis=0)

    def change(system: tuple, baseline: tuple, b: int) -> dict:
        (score_b, score_mb), (base_b, base_mb) = system, baseline
        return difference(score_b[b] - base_b[b], score_mb[:, b] - base_mb[:, b])

    return head | {
        "unit": "lines" if by_line else "words",
        "scores": [*scores],
        "buckets": [
            {
                "name": division.names[b],
                "count": int(counts_b[b]),
                "systems": [
                    {name: _plain(values[s][0][b]) for name, values in by_score.items()}
                    for s in range(len(systems))
                ],
                "differences": [
                    {
                        name: change(values[s], values[0], b)
                        for name, values in by_score.items()
                    }
                    for s in range(1, len(systems))
                ],
            }
            for b in np.flatnonzero(held_b)
        ],
    }


def difference(exact: float, sampled_m: np.ndarray) -> dict:
    """Returns a `difference` and its 95% interval, `low` and `high`; None for NaN."""
    finite_m = sampled_m[np.isfinite(sampled_m)]
    low, high = bounds(finite_m) if len(finite_m) else [np.nan] * 2
    return {"difference": _plain(exact), "low": _plain(low), "high": _plain(high)}


def _plain(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


def _spread(division: LineBuckets, counts_nk: np.ndarray) -> np.ndarray:
    """Puts the counts of each line into its bucket, [n, b, k]."""
    n, k = counts_nk.shape
    spread_nbk = np.zeros((n, len(division.names), k))
    spread_nbk[np.arange(n), division.bucket_n] = counts_nk
    return spread_nbk


def _sampled(statistics_nbk: np.ndarray) -> np.ndarray:
    n, *sizes = statistics_nbk.shape
    return sampled_sums(statistics_nbk.reshape(n, -1)).reshape(-1, *sizes)


def count_words(
    division: WordBuckets, texts: Texts, outputs: Sequence[Words]
) -> np.ndarray:
    """Counts the words of references and translations in each bucket, [n, b, 4].

    A word is right as often as both sides have it, as in BLEU: the reference's words in
    the bucket that are anywhere in the translation, and the other way round.
    """
    counts_nbk = np.zeros((len(outputs), len(division.names), 4))
    for line, sides in enumerate(zip(texts.reference_words, outputs, strict=True)):
        side_counts = [Counter(words) for words in sides]
        for side, words in enumerate(sides):
            total, right = (REFERENCE, GOT) if side == 0 else (OUTPUT, RIGHT)
            labels = np.array(division.label(words, line))
            for b in {*labels.tolist()} - {NONE}:
                inside = Counter(words[i] for i in np.flatnonzero(labels == b))
                counts_nbk[line, b, total] = inside.total()
                counts_nbk[line, b, right] = (inside & side_counts[1 - side]).total()
    return counts_nbk
