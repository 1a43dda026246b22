"""Scores that follow from sums over examples; their intervals and comparisons.

A measure counts something in each example (words that match, words in all) and makes a
score of the sums. So any measure has a bootstrap interval and a paired test.

Shape suffixes: n examples, k numbers per example, m samples.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

SAMPLES, SEED = 1_000, 12345  # of every bootstrap; both are sacreBLEU's defaults
# sacreBLEU keeps every sample in memory at once: 72 bytes per line and sample, so about
# 720 MB for this many lines.
LONGEST = 10_000  # lines; longer sets get no interval
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


def with_count(values_n: Sequence[float] | np.ndarray) -> np.ndarray:
    """Statistics of which `mean` is the mean of a value of each example, [n, 2]."""
    return np.stack([values_n, np.ones(len(values_n))], axis=1).astype(np.float64)


def mean(sums: np.ndarray) -> np.ndarray:
    """A mean, from a sum and the number of what was summed up; 0 of nothing."""
    return sums[..., 0] / np.maximum(sums[..., 1], 1)


def percent(sums: np.ndarray) -> np.ndarray:
    """A `mean` in percent."""
    return 100 * mean(sums)


def sampled_sums(statistics_nk: np.ndarray) -> np.ndarray:
    """Sums statistics over each of `SAMPLES` samples with replacement, [m, k].

    They depend on the number of examples alone, so two systems get the same samples.
    """
    n = len(statistics_nk)
    rng = np.random.default_rng(SEED)
    # These are the samples that sacreBLEU draws at once.
    # One sample at a time: all at once would take 8 bytes per example and sample.
    drawn = (rng.integers(n, size=n) for _ in range(SAMPLES))
    return np.array([np.bincount(i_n, minlength=n) @ statistics_nk for i_n in drawn])


def interval(measure: Measure, statistics_nk: np.ndarray) -> dict[str, float] | None:
    """Computes a 95% bootstrap interval: `{"mean": m, "half_width": w}`.

    None for more than `LONGEST` examples, as for scores of translations.
    """
    if len(statistics_nk) > LONGEST:
        return None
    return interval_of(measure.of(sampled_sums(statistics_nk)))


def interval_of(scores_m: np.ndarray) -> dict[str, float]:
    """The 95% interval of the scores of samples, as `interval` returns it."""
    low, high = bounds(scores_m)
    return {"mean": float(scores_m.mean()), "half_width": (high - low) / 2}


def bounds(values_m: np.ndarray) -> tuple[float, float]:
    """The bounds of 95% of samples: sacreBLEU's rule, so that its intervals are ours.

    Of 1,000 sorted samples the 26th and the 975th.
    """
    outside, sorted_m = len(values_m) // 40, np.sort(values_m)
    return float(sorted_m[outside]), float(sorted_m[-outside - 1])


def paired(
    measure: Measure, ours_nk: np.ndarray, baseline_nk: np.ndarray
) -> dict[str, float | dict]:
    """Compares two systems on the same examples by paired bootstrap.

    Returns:
      `score` and `interval`, `baseline_score` and `baseline_interval`, `difference`
      (score - baseline_score) with its bounds `low` and `high` (95%), and `p_value`:
      how often chance alone makes a difference as large, in either direction (Koehn
      2004; the differences of samples are shifted to a mean of 0). sacreBLEU shifts
      their absolute values, so its p-values are smaller, by half for large ones.

    Raises:
      ValueError: the systems have different numbers of examples.
    """
    _check_lengths(ours_nk, baseline_nk)
    sides = ours_nk, baseline_nk
    score, baseline = (measured(measure, statistics_nk) for statistics_nk in sides)
    ours_m, baseline_m = (measure.of(sampled_sums(counts_nk)) for counts_nk in sides)
    differences_m = ours_m - baseline_m
    low, high = bounds(differences_m)
    difference = score - baseline
    return {
        "score": score,
        "interval": interval_of(ours_m),
        "baseline_score": baseline,
        "baseline_interval": interval_of(baseline_m),
        "difference": difference,
        "low": low,
        "high": high,
        "p_value": _p_value(differences_m - differences_m.mean(), difference),
    }


TESTS = "bootstrap", "randomisation"  # the p-values of `significance`


def significance(
    measure: Measure,
    answers: Sequence[str],
    baseline: Sequence[str],
    pairs: Sequence[Pair],
) -> dict[str, float]:
    """Tests whether two systems differ in one score.

    Returns:
      `difference`, and the p-values by paired bootstrap (`paired`) and by approximate
      randomisation (`randomised`), named as in `TESTS`.
    """
    sides = [measure.statistics(lines, pairs) for lines in (answers, baseline)]
    by_bootstrap = paired(measure, *sides)
    return {
        "difference": by_bootstrap["difference"],
        "bootstrap": by_bootstrap["p_value"],
        "randomisation": randomised(measure, *sides),
    }


def compared(
    measures: Mapping[str, Measure],
    answers: Sequence[str],
    baseline: Sequence[str],
    pairs: Sequence[Pair],
) -> dict[str, dict]:
    """Compares the answers of two systems by each measure, as `paired` does."""
    return {
        name: paired(
            measure, *(measure.statistics(s, pairs) for s in (answers, baseline))
        )
        for name, measure in measures.items()
    }


def randomised(measure: Measure, ours_nk: np.ndarray, baseline_nk: np.ndarray) -> float:
    """Compares two systems by approximate randomisation (Riezler & Maxwell 2005).

    The systems swap their answers to examples that are drawn by tossing a coin.

    Returns:
      The p-value: how often this makes a difference as large.

    Raises:
      ValueError: the systems have different numbers of examples.
    """
    _check_lengths(ours_nk, baseline_nk)
    ours_k, baseline_k = ours_nk.sum(0), baseline_nk.sum(0)
    rng = np.random.default_rng(SEED)
    coins = (rng.integers(2, size=len(ours_nk)) for _ in range(SAMPLES))
    swapped_mk = np.array([coin_n @ (baseline_nk - ours_nk) for coin_n in coins])
    ours_m = measure.of(ours_k + swapped_mk)
    baseline_m = measure.of(baseline_k - swapped_mk)
    difference = float(measure.of(ours_k) - measure.of(baseline_k))
    return _p_value(ours_m - baseline_m, difference)


def _p_value(by_chance_m: np.ndarray, difference: float) -> float:
    """The share of chance differences that are as large; 1 without a difference."""
    if not difference:
        return 1.0
    # Sums in another order round differently; an equal difference counts as as large.
    as_large = np.abs(by_chance_m) >= abs(difference) * (1 - 1e-9)
    return (int(as_large.sum()) + 1) / (SAMPLES + 1)


def _check_lengths(ours_nk: np.ndarray, baseline_nk: np.ndarray) -> None:
    if len(ours_nk) != len(baseline_nk):
        raise ValueError(f"{len(ours_nk)} and {len(baseline_nk)} examples")
