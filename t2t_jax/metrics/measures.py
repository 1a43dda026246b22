"""Scores that follow from sums over examples; their intervals and comparisons.

A measure counts something in each example (words that match, words in all) and makes a
score of the sums. So any measure has a bootstrap interval and a paired test.

Shape suffixes: n examples, k numbers per example, m samples.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.metrics.bootstrap import SAMPLES, SEED

Pair = tuple[str, str]


class Measure(NamedTuple):
    """A score of a set, computed from sums over its examples.

    Attributes:
      description: a few words for people, such as "labelled bracketing F1".
      statistics: (answers, pairs) -> float64 [n, k]; an answer is a line of text.
      of: sums [..., k] -> scores [...]; sums may be those of a sample.
      higher_is_better: False for errors and perplexities.
      digits: decimals that are printed.
    """

    description: str
    statistics: Callable[[Sequence[str], Sequence[Pair]], np.ndarray]
    of: Callable[[np.ndarray], np.ndarray]
    higher_is_better: bool = True
    digits: int = 2


def measured(measure: Measure, statistics_nk: np.ndarray) -> float:
    """Computes the score of a set from the statistics of its examples."""
    return float(measure.of(statistics_nk.sum(0)))


def _samples(n: int) -> np.ndarray:
    """How often each of `SAMPLES` samples, with replacement, draws each example."""
    rng = np.random.default_rng(SEED)
    counts_mn = np.zeros((SAMPLES, n), np.float64)
    for counts_n in counts_mn:
        counts_n += np.bincount(rng.integers(n, size=n), minlength=n)
    return counts_mn


def interval(measure: Measure, statistics_nk: np.ndarray) -> dict[str, float]:
    """Computes a 95% bootstrap interval: `{"mean": m, "half_width": w}`."""
    scores_m = measure.of(_samples(len(statistics_nk)) @ statistics_nk)
    low, high = np.quantile(scores_m, (0.025, 0.975))
    return {"mean": float(scores_m.mean()), "half_width": float(high - low) / 2}


def paired(
    measure: Measure, ours_nk: np.ndarray, baseline_nk: np.ndarray
) -> dict[str, float | dict]:
    """Compares two systems on the same examples by paired bootstrap.

    Returns:
      `score` and `interval`, `baseline_score` and `baseline_interval`, `difference`
      (score - baseline_score) with its bounds `low` and `high` (95%), and `p_value`:
      how often chance alone makes a difference as large (Koehn 2004; shifted as in
      sacreBLEU).

    Raises:
      ValueError: the systems have different numbers of examples.
    """
    if len(ours_nk) != len(baseline_nk):
        raise ValueError(f"{len(ours_nk)} and {len(baseline_nk)} examples")
    score, baseline = (measured(measure, s) for s in (ours_nk, baseline_nk))
    samples_mn = _samples(len(ours_nk))
    differences_m = measure.of(samples_mn @ ours_nk) - measure.of(
        samples_mn @ baseline_nk
    )
    low, high = np.quantile(differences_m, (0.025, 0.975))
    difference = score - baseline
    centred_m = np.abs(differences_m - differences_m.mean())
    as_large = int((centred_m >= abs(difference)).sum()) if difference else SAMPLES
    return {
        "score": score,
        "interval": interval(measure, ours_nk),
        "baseline_score": baseline,
        "baseline_interval": interval(measure, baseline_nk),
        "difference": difference,
        "low": float(low),
        "high": float(high),
        "p_value": (as_large + 1) / (SAMPLES + 1) if difference else 1.0,
    }
