"""Scores of word alignments against gold links (Och and Ney 2003, section 6)."""

from collections.abc import Collection, Sequence

import numpy as np

from t2t_jax.metrics.measures import Measure, percent
from t2t_jax.text.units import GoldLinks


def link_counts(
    links: Sequence[Collection[tuple[int, int]]], gold: Sequence[GoldLinks]
) -> np.ndarray:
    """Counts of each sentence, float64 [n, 4].

    The links, those of them that are possible, the sure links, those that are found.
    """
    counts = np.zeros((len(gold), 4))
    for n, (found, (sure, possible)) in enumerate(zip(links, gold, strict=True)):
        all_of = {*found}
        right = len(all_of.intersection(possible)), len(all_of.intersection(sure))
        counts[n] = len(all_of), right[0], len({*sure}), right[1]
    return counts


# A score is 100 times the ratio of two sums of the counts.
ERRORS = np.array([[1, 1], [-1, 0], [1, 1], [-1, 0]])
ALIGNMENT_MEASURES = {
    "aer": Measure("AER", link_counts, lambda c: percent(c @ ERRORS), False),
    "precision": Measure("precision", link_counts, lambda c: percent(c[..., [1, 0]])),
    "recall": Measure("recall", link_counts, lambda c: percent(c[..., [3, 2]])),
}
