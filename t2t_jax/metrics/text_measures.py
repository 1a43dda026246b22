"""BLEU and chrF of a set as `Measure`s: they follow from sums over its lines.

So differences of two systems have an interval (`measures.paired`), and the best of many
choices among hypotheses is found without scoring each by itself. The scores are those
of `plain.py`.
"""

import functools
from collections.abc import Sequence

import numpy as np

from t2t_jax.metrics.measures import Measure, Pair
from t2t_jax.metrics.pairwise import (
    BLEU_ORDERS,
    CHRF_BETA,
    CHRF_ORDERS,
    ngram_matches,
    tokenizer,
)


def text_measures(language: str = "") -> dict[str, Measure]:
    """Returns `bleu` and `chrf` for text of a language."""
    of_bleu = functools.partial(bleu_statistics, language=language)
    return {
        "bleu": Measure("sacreBLEU of plain text", of_bleu, bleu_of),
        "chrf": Measure("chrF2", chrf_statistics, chrf_of),
    }


def bleu_statistics(
    answers: Sequence[str], pairs: Sequence[Pair], language: str = ""
) -> np.ndarray:
    """Counts matches, n-grams of answers, and both lengths, [n, 2 orders + 2]."""
    tokenize, rows = tokenizer(language), []
    for answer, (_, reference) in zip(answers, pairs, strict=True):
        texts = [tokenize(text.rstrip()).split() for text in (answer, reference)]
        (ours, theirs), match_onn = ngram_matches(texts, BLEU_ORDERS)
        rows.append([*match_onn[:, 0, 1], *ours, ours[0], theirs[0]])
    return np.array(rows).reshape(-1, 2 * BLEU_ORDERS + 2)


def bleu_of(sums: np.ndarray) -> np.ndarray:
    """Computes BLEU from sums [..., 2 orders + 2], smoothed by `exp`."""
    match, total = sums[..., :BLEU_ORDERS], sums[..., BLEU_ORDERS:-2]
    ours, theirs = np.maximum(sums[..., -2], 1), sums[..., -1]
    missed = match == 0
    matched = np.where(missed, 0.5 ** np.cumsum(missed, axis=-1), match)
    mean = np.log(100 * matched / np.maximum(total, 1)).mean(-1)
    score = np.exp(mean + np.minimum(1 - theirs / ours, 0))
    # Without any match, or without an n-gram of some order, nothing is smoothed.
    return np.where(match.any(-1) & (total > 0).all(-1), score, 0.0)


def chrf_statistics(answers: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    """Counts n-grams of answers and references, and matches, [n, 3 orders]."""
    rows = []
    for answer, (_, reference) in zip(answers, pairs, strict=True):
        texts = ["".join(text.split()) for text in (answer, reference)]
        (ours, theirs), match_onn = ngram_matches(texts, CHRF_ORDERS)
        # As in sacreBLEU: only orders that the reference is long enough for.
        rows.append([*np.where(theirs > 0, ours, 0), *theirs, *match_onn[:, 0, 1]])
    return np.array(rows).reshape(-1, 3 * CHRF_ORDERS)


def chrf_of(sums: np.ndarray) -> np.ndarray:
    """Computes chrF2 from sums [..., 3 orders]."""
    ours, theirs, match = np.split(sums, 3, axis=-1)
    counts = (ours > 0) & (theirs > 0)
    orders = np.maximum(counts.sum(-1), 1)
    precision = np.where(counts, match / np.maximum(ours, 1), 0).sum(-1) / orders
    recall = np.where(counts, match / np.maximum(theirs, 1), 0).sum(-1) / orders
    factor = CHRF_BETA**2
    denominator = factor * precision + recall
    numerator = (1 + factor) * precision * recall
    return 100 * numerator / np.where(denominator > 0, denominator, 1)
