"""Decides which rows of an experiment differ from its baseline.

A difference is claimed only if two kinds of chance are unlikely to explain it: other
seeds of training, and, for scores of a test set, other lines of the test set.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_jax.tools.experiment.line_tests import has_lines, line_p_values
from t2t_jax.tools.experiment.results import Results, RowResult, better

LEVEL = 0.05  # of every test, and of the false discoveries among all claims
BETTER, WORSE, UNDECIDED = "better", "worse", "not distinguishable"
SAME_RUNS = "same runs"


class Comparison(NamedTuple):
    """A row against the baseline, in one column.

    Attributes:
      verdict: `BETTER`, `WORSE`, `UNDECIDED`, or `SAME_RUNS` if the row shares runs
        with the baseline.
      reason: for the verdict; for people.
      difference: of the means, row - baseline.
      p_seeds: of the test over seeds; nan if there is none.
      p_lines: of each test over lines, if there are any.
      p_adjusted: the largest of these, or 1 if the lines could not be tested,
        corrected for the number of comparisons; nan if there is no test over seeds.
    """

    verdict: str
    reason: str
    difference: float
    p_seeds: float = math.nan
    p_lines: Mapping[str, float] = {}
    p_adjusted: float = math.nan


def pooled_deviation(samples: Sequence[Sequence[float]]) -> tuple[float, int]:
    """The standard deviation over seeds that all rows have in common.

    Returns:
      The deviation, and its degrees of freedom; (nan, 0) if no row has two seeds.
    """
    repeated = [sample for sample in samples if len(sample) > 1]
    if not repeated:
        return math.nan, 0
    freedom = sum(len(sample) - 1 for sample in repeated)
    # Of equal values, rounding makes a variance that is not quite 0.
    squares = sum(np.var(s) * len(s) if np.ptp(s) else 0.0 for s in repeated)
    return math.sqrt(squares / freedom), freedom


def t_test(
    ours: Sequence[float], theirs: Sequence[float], deviation: float, freedom: int
) -> float:
    """Two-sided p of a difference between two means, of samples of one deviation.

    Args:
      deviation, freedom: from `pooled_deviation`; one of the samples, or both, may then
        be a single value.
    """
    from scipy.special import stdtr  # slow to import

    error = deviation * math.sqrt(1 / len(ours) + 1 / len(theirs))
    statistic = (np.mean(ours) - np.mean(theirs)) / error
    return float(2 * stdtr(freedom, -abs(statistic)))


def welch_test(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided p of a difference between two means, each of a deviation of its own.

    Welch 1947. Of samples of two or more values, which are not all equal.
    """
    from scipy.special import stdtr

    shares = [np.var(sample, ddof=1) / len(sample) for sample in (ours, theirs)]
    variance = sum(shares)
    counts = (len(ours), len(theirs))
    freedom = variance**2 / sum(
        share**2 / (count - 1) for share, count in zip(shares, counts, strict=True)
    )
    statistic = (np.mean(ours) - np.mean(theirs)) / math.sqrt(variance)
    return float(2 * stdtr(freedom, -abs(statistic)))


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusts p-values for their number (Benjamini & Hochberg 1995).

    Of the comparisons whose adjusted p is at most 5%, at most 5% are expected to be
    false. This holds for independent tests and for those of positive dependence
    (Benjamini & Yekutieli 2001), which is what a common baseline causes: one that is
    low by chance makes all rows look better.
    """
    count = len(p_values)
    order = np.argsort(p_values)[::-1]  # the largest first
    scaled = np.asarray(p_values)[order] * count / np.arange(count, 0, -1)
    adjusted = np.empty(count)
    adjusted[order] = np.minimum.accumulate(np.minimum(scaled, 1))
    return adjusted.tolist()


def compare(
    results: Results, column: str, baseline: str, folder: Path
) -> dict[str, Comparison]:
    """Compares every row that has a value of the column with the baseline.

    Args:
      column: one for which `results.better` knows which value is better.
      folder: of the experiment; tests over lines are cached there.

    Returns:
      By row; empty while the baseline has no value.
    """
    rows = [row for row in results if row.values(column)]
    if baseline not in [row.row.name for row in rows]:
        return {}
    theirs = results[baseline]
    # Rows may share runs, which count once.
    finite = [row for row in rows if math.isfinite(row.mean(column))]
    samples = {_runs(row): row.values(column) for row in finite}
    pooled = pooled_deviation(list(samples.values()))
    found = {
        row.row.name: _compare_row(row, theirs, column, pooled, folder)
        for row in rows
        if row is not theirs
    }
    tested = [name for name, one in found.items() if not math.isnan(one.p_seeds)]
    adjusted = benjamini_hochberg([_largest_p(found[name]) for name in tested])
    for name, p in zip(tested, adjusted, strict=True):
        found[name] = _judge(found[name]._replace(p_adjusted=p), better(column))
    return found


def _runs(row: RowResult) -> tuple[str, ...]:
    return tuple(run.run.hash for run in row.runs)


def _compare_row(
    row: RowResult, theirs: RowResult, column: str, pooled, folder: Path
) -> Comparison:
    """The tests of one row; the verdict has to wait for those of the others."""
    difference = row.mean(column) - theirs.mean(column)
    if set(_runs(row)) & set(_runs(theirs)):
        return Comparison(SAME_RUNS, "", difference)
    if not math.isfinite(difference):
        return Comparison(UNDECIDED, "a value is not finite", difference)
    if not pooled[1]:
        return Comparison(UNDECIDED, "one seed", difference)
    if not pooled[0]:
        return Comparison(UNDECIDED, "the seeds do not differ", difference)
    ours, others = row.values(column), theirs.values(column)
    if min(len(ours), len(others)) > 1 and np.ptp(ours) + np.ptp(others) > 0:
        p_seeds = welch_test(ours, others)
    else:
        p_seeds = t_test(ours, others, *pooled)
    one = Comparison("", "", difference, p_seeds)
    # Without the tests over lines, the largest p of such a row may be too small, but
    # it is above 5%, where it changes no verdict of this row or of others.
    if p_seeds > LEVEL or not (has_lines(row, column) and has_lines(theirs, column)):
        return one
    try:
        return one._replace(p_lines=line_p_values(row, theirs, column, folder))
    except (ValueError, KeyError, OSError) as e:  # UserError is a ValueError
        return one._replace(reason=f"lines not tested: {e}")


def _largest_p(one: Comparison) -> float:
    # A claim needs every test, so it is as strong as the weakest of them.
    return 1.0 if one.reason else max([one.p_seeds, *one.p_lines.values()])


def _judge(one: Comparison, direction: str) -> Comparison:
    """The verdict, once the p-value is corrected."""
    if one.p_adjusted <= LEVEL:
        improved = (one.difference > 0) == (direction == "higher")
        return one._replace(verdict=BETTER if improved else WORSE)
    reason = one.reason
    if not reason:
        lines = max(one.p_lines.values(), default=0)
        reason = (
            "within the variation over seeds"
            if one.p_seeds > LEVEL
            else "within the variation over lines"
            if lines > LEVEL
            else "not after the correction for the number of comparisons"
        )
    return one._replace(verdict=UNDECIDED, reason=reason)
