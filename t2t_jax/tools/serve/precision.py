"""Precision: the share of good translations among those that a model is as sure of.

It is measured on a dev set, with the search that answers. A translation is good if its
sentence chrF against the reference is at least `good_chrf`. What is reported is the
lower end of Wilson's interval (Wilson 1927) at a one-sided 95%: few lines say little.
"""

import math
from collections.abc import Sequence

import numpy as np

from t2t_jax.data.corpus import Pair
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.evaluation.provenance import hashed
from t2t_jax.metrics.plain import sacrebleu_metrics


def confidence(best: Hypothesis) -> float:
    """The geometric mean of the probabilities of a hypothesis's tokens, 0 to 1."""
    return math.exp(min(0.0, best.log_prob) / max(len(best.tokens), 1))


def wilson_low(good: int, count: int) -> float:
    """The lower end of Wilson's interval of a share, `good` of `count`."""
    from scipy import stats  # slow to import

    test = stats.binomtest(int(good), int(count), alternative="greater")
    return test.proportion_ci(0.95, method="wilson").low


class Precision:
    """Precision by confidence.

    Attributes:
      facts: what it was measured on, for an answer's provenance.

    Args:
      pairs: the dev set.
      translations: of each of its sources; an error, or a blank line, does not
        count.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        translations: Sequence[Translation | Exception],
        good_chrf: float,
    ):
        chrf_of = sacrebleu_metrics("")["chrf"].sentence_score
        rows = [
            (confidence(t.best), chrf_of(t.text, [reference]).score >= good_chrf)
            for t, (_, reference) in zip(translations, pairs, strict=True)
            if isinstance(t, Translation) and t.best.tokens
        ]
        confidences, good = np.array(sorted(rows)).reshape(-1, 2).T
        self._confidences, first_rows = np.unique(confidences, return_index=True)
        # Of the lines with at least each confidence.
        low = [wilson_low(good[n:].sum(), len(good) - n) for n in first_rows]
        # A line with more confidence is also among those with at least less of it.
        self._precisions = np.maximum.accumulate(low)
        self.facts = {
            "lines": len(rows),
            "good": int(good.sum()),
            "good_chrf": good_chrf,
            "source_sha256": hashed([source for source, _ in pairs]),
            "reference_sha256": hashed([reference for _, reference in pairs]),
        }

    def at(self, confidence: float) -> float:
        """The precision of translations with at least a confidence; 0 below all."""
        below = np.searchsorted(self._confidences, confidence, side="right")
        return float(self._precisions[below - 1]) if below else 0.0
