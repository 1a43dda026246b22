"""BLEU, chrF and TER of a set as `Measure`s: they follow from sums over its lines.

So differences of two systems have an interval (`measures.paired`), and the best of many
choices among hypotheses is found without scoring each by itself. The scores are those
of `plain.py`.
"""

import functools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from t2t_jax.metrics.measures import Measure, Pair
from t2t_jax.metrics.pairwise import (
    BLEU_ORDERS,
    CHRF_BETA,
    CHRF_ORDERS,
    tokenizer,
)
from t2t_jax.metrics.plain import sacrebleu_metrics


def text_measures(language: str = "") -> dict[str, Measure]:
    """Returns `bleu`, `bleu_lc`, `chrf` and `ter` for text of a language.

    sacreBLEU counts the edits of TER (Snover et al. 2006), which is slow.
    """
    of_bleu, of_bleu_lc, of_ter = (
        functools.partial(statistics, language=language)
        for statistics in (bleu_statistics, lower_cased_bleu_statistics, ter_statistics)
    )
    return {
        "bleu": Measure("sacreBLEU of plain text", of_bleu, bleu_of),
        "bleu_lc": Measure("sacreBLEU, lower-cased", of_bleu_lc, bleu_of),
        "chrf": Measure("chrF2", chrf_statistics, chrf_of),
        "ter": Measure("TER, less is better", of_ter, ter_of, higher_is_better=False),
    }


def ter_statistics(
    answers: Sequence[str], pairs: Sequence[Pair], language: str = ""
) -> np.ndarray:
    """Counts edits and words of references, [n, 2]."""
    metric, rows = sacrebleu_metrics(language)["ter"], []
    for answer, (_, reference) in zip(answers, pairs, strict=True):
        score = metric.corpus_score([answer], [[reference]])
        rows.append([score.num_edits, score.ref_length])
    return np.array(rows, np.float64).reshape(-1, 2)


def ter_of(sums: np.ndarray) -> np.ndarray:
    """Computes TER from sums [..., 2]; 100 for edits without a word of a reference."""
    edits, words = sums[..., 0], sums[..., 1]
    return 100 * np.where(words > 0, edits / np.maximum(words, 1), edits > 0)


def bleu_statistics(
    answers: Sequence[str], pairs: Sequence[Pair], language: str = ""
) -> np.ndarray:
    """Counts matches, n-grams of answers, and both lengths, [n, 2 orders + 2]."""
    tokenize, rows = tokenizer(language), []
    for answer, (_, reference) in zip(answers, pairs, strict=True):
        ours, theirs = (tokenize(text.rstrip()).split() for text in (answer, reference))
        totals = [max(len(ours) - order, 0) for order in range(BLEU_ORDERS)]
        matches = _matches(ours, theirs, BLEU_ORDERS)
        rows.append([*matches, *totals, len(ours), len(theirs)])
    return np.array(rows, np.float64).reshape(-1, 2 * BLEU_ORDERS + 2)


def lower_cased_bleu_statistics(
    answers: Sequence[str], pairs: Sequence[Pair], language: str = ""
) -> np.ndarray:
    """Counts as `bleu_statistics`, of lower-cased text."""
    lower_cased = [(source, reference.lower()) for source, reference in pairs]
    return bleu_statistics([line.lower() for line in answers], lower_cased, language)


def _matches(ours: Sequence[str], theirs: Sequence[str], orders: int) -> list[int]:
    """Counts the n-grams of each order that two sequences share."""
    found = []
    for order in range(1, orders + 1):
        grams = (
            # Shifted copies side by side are the n-grams.
            Counter(zip(*(side[start:] for start in range(order)), strict=False))
            for side in (ours, theirs)
        )
        found.append((next(grams) & next(grams)).total())
    return found


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
    rows, shorter = [], np.arange(CHRF_ORDERS)
    for answer, (_, reference) in zip(answers, pairs, strict=True):
        texts = ["".join(text.split()) for text in (answer, reference)]
        ours, theirs = (np.maximum(len(text) - shorter, 0) for text in texts)
        # As in sacreBLEU: only orders that the reference is long enough for.
        ours = np.where(theirs > 0, ours, 0)
        rows.append([*ours, *theirs, *_matches(*texts, CHRF_ORDERS)])
    return np.array(rows, np.float64).reshape(-1, 3 * CHRF_ORDERS)


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
