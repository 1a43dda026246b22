"""Decides which rows of an experiment differ from its baseline.

A difference is claimed only if two kinds of chance are unlikely to explain it: other
seeds of training, and, for scores of a test set, other lines of the test set.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_jax.evaluation.provenance import hashed
from t2t_jax.evaluation.scores import read_answers
from t2t_jax.io.atomic import write_atomically
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.measures import TESTS
from t2t_jax.metrics.text_measures import text_measures
from t2t_jax.tasks.table import known_measures, task_of
from t2t_jax.tools.experiment.results import (
    Results,
    RowResult,
    RunResult,
    better,
    read_json,
)

LEVEL = 0.05  # of every test, and of the false discoveries among all claims
BETTER, WORSE, UNDECIDED = "better", "worse", "not distinguishable"
SAME_RUNS = "same runs"


class Comparison(NamedTuple):
    """A row against the baseline, in one column."""

    # `BETTER`, `WORSE`, `UNDECIDED`, or `SAME_RUNS` if the row shares runs with it.
    verdict: str
    reason: str  # for the verdict; for people
    difference: float  # of the means, row - baseline
    p_seeds: float = math.nan  # of the test over seeds; nan if there is none
    p_lines: Mapping[str, float] = {}  # of each test over lines, if there are any
    # The largest of these, or 1 if the lines could not be tested, corrected for the
    # number of comparisons; nan if there is no test over seeds.
    p_adjusted: float = math.nan


def pooled_deviation(samples: Sequence[Sequence[float]]) -> tuple[float, int]:
    """The standard deviation over seeds that all rows have in common.

    And its degrees of freedom; (nan, 0) if no row has two seeds.
    """
    repeated = [sample for sample in samples if len(sample) > 1]
    if not repeated:
        return math.nan, 0
    freedom = sum(len(sample) - 1 for sample in repeated)
    # Of equal values, rounding makes a variance that is not quite 0.
    squares = sum(np.var(s) * len(s) if np.ptp(s) else 0.0 for s in repeated)
    return math.sqrt(squares / freedom), freedom


def t_test(
    row: Sequence[float], baseline: Sequence[float], deviation: float, freedom: int
) -> float:
    """Two-sided p of a difference between two means, of samples of one deviation.

    As of `pooled_deviation`; one of the samples, or both, may be a single value.
    """
    from scipy import stats  # slow to import

    error = deviation * math.sqrt(1 / len(row) + 1 / len(baseline))
    statistic = (np.mean(row) - np.mean(baseline)) / error
    return float(2 * stats.t.sf(abs(statistic), freedom))


def welch_test(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided p of a difference between two means, each of a deviation of its own.

    Welch 1947. Of samples of two or more values, which are not all equal.
    """
    from scipy import stats

    # Not `ttest_ind`, which warns of samples whose values are nearly equal.
    a, b = ((np.mean(s), np.std(s, ddof=1), len(s)) for s in (ours, theirs))
    return float(stats.ttest_ind_from_stats(*a, *b, equal_var=False).pvalue)


def seeds_test(
    row: Sequence[float], base: Sequence[float], pooled: tuple[float, int]
) -> float:
    """Two-sided p of a difference: Welch's test, of single values `t_test`.

    `pooled` is the `pooled_deviation` of all rows, not 0.
    """
    if min(len(row), len(base)) > 1 and np.ptp(row) + np.ptp(base) > 0:
        return welch_test(row, base)
    return t_test(row, base, *pooled)


def smallest_difference(
    deviation: float, freedom: int, seeds: int, power: float = 0.8
) -> float:
    """The difference between two rows that an experiment of some seeds shows.

    Args:
      deviation: The standard deviation over seeds, `pooled_deviation`.
      freedom: Its degrees of freedom.
      seeds: Of each of the two rows.
      power: The share of such experiments that find p <= `LEVEL`, two-sided.
    """
    from scipy import optimize, stats

    critical = stats.t.isf(LEVEL / 2, freedom)

    def surplus(shift: float) -> float:  # of power; a difference in standard errors
        return stats.nct.sf(critical, freedom, shift) - power

    error = deviation * math.sqrt(2 / seeds)
    return error * optimize.brentq(surplus, 0.0, critical + 10 * max(1.0, critical))


def rank_correlation(
    ours: Sequence[float], theirs: Sequence[float], samples: int = 10_000
) -> tuple[float, float, float]:
    """Spearman's correlation, and its 95% interval by bootstrap over the pairs.

    A sample whose values are all equal has no correlation and is left out.
    """
    from scipy import stats

    both = np.stack([ours, theirs])
    draws = np.random.default_rng(0).integers(len(ours), size=(samples, len(ours)))
    ranks = stats.rankdata(both[:, draws], axis=-1)  # [2, sample, pair]
    ranks -= ranks.mean(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        scale = np.sqrt(np.square(ranks).sum(-1).prod(0))
        correlations = ranks.prod(0).sum(-1) / scale
    low, high = np.nanpercentile(correlations, [2.5, 97.5])
    return float(stats.spearmanr(ours, theirs).statistic), float(low), float(high)


def compare(
    results: Results, column: str, baseline: str, folder: Path
) -> dict[str, Comparison]:
    """Compares every row that has a value of the column with the baseline.

    Returns nothing while the baseline has no value. Tests over lines are cached in the
    experiment's folder.
    """
    from scipy import stats

    rows = [row for row in results if row.values(column)]
    if baseline not in [row.row.name for row in rows]:
        return {}
    base = results[baseline]
    # Rows may share runs, which count once.
    finite = [row for row in rows if math.isfinite(row.mean(column))]
    samples = {_runs(row): row.values(column) for row in finite}
    pooled = pooled_deviation(list(samples.values()))
    comparisons = {
        row.row.name: _compare_row(row, base, column, pooled, folder)
        for row in rows
        if row is not base
    }
    tested = [
        name for name, result in comparisons.items() if not math.isnan(result.p_seeds)
    ]
    # Benjamini & Hochberg 1995: of the rows whose adjusted p is at most 5%, at most 5%
    # are expected to be false. This holds for tests of positive dependence, too
    # (Benjamini & Yekutieli 2001), which is what a common baseline causes: one that is
    # low by chance makes all rows look better.
    largest = [
        # A claim needs every test, so it is as strong as the weakest of them.
        1.0 if result.reason else max([result.p_seeds, *result.p_lines.values()])
        for result in map(comparisons.get, tested)
    ]
    adjusted = stats.false_discovery_control(largest).tolist()
    for name, p in zip(tested, adjusted, strict=True):
        result = comparisons[name]._replace(p_adjusted=p)
        comparisons[name] = _judge(result, better(column))
    return comparisons


def _runs(row: RowResult) -> tuple[str, ...]:
    return tuple(run.run.hash for run in row.runs)


def _compare_row(
    row: RowResult, base: RowResult, column: str, pooled, folder: Path
) -> Comparison:
    """The tests of one row; the verdict has to wait for those of the others."""
    difference = row.mean(column) - base.mean(column)
    if set(_runs(row)) & set(_runs(base)):
        return Comparison(SAME_RUNS, "", difference)
    if not math.isfinite(difference):
        return Comparison(UNDECIDED, "a value is not finite", difference)
    if not pooled[1]:
        return Comparison(UNDECIDED, "one seed", difference)
    if not pooled[0]:
        return Comparison(UNDECIDED, "the seeds do not differ", difference)
    p_seeds = seeds_test(row.values(column), base.values(column), pooled)
    result = Comparison("", "", difference, p_seeds)
    # Without the tests over lines, the largest p of such a row may be too small, but
    # it is above 5%, where it changes no verdict of this row or of others.
    if p_seeds > LEVEL or not (has_lines(row, column) and has_lines(base, column)):
        return result
    try:
        return result._replace(p_lines=_line_p_values(row, base, column, folder))
    except (ValueError, KeyError, OSError) as e:  # UserError is a ValueError
        return result._replace(reason=f"lines not tested: {e}")


def _judge(result: Comparison, direction: str) -> Comparison:
    """The verdict, once the p-value is corrected."""
    if result.p_adjusted <= LEVEL:
        improved = (result.difference > 0) == (direction == "higher")
        return result._replace(verdict=BETTER if improved else WORSE)
    reason = "not after the correction for the number of comparisons"
    if result.p_seeds > LEVEL:
        reason = "within the variation over seeds"
    elif any(p > LEVEL for p in result.p_lines.values()):
        reason = "within the variation over lines"
    return result._replace(verdict=UNDECIDED, reason=result.reason or reason)


CACHE = "line_p_values.json"  # in the experiment's folder; the tests take seconds each


def has_lines(row: RowResult, column: str) -> bool:
    """True if the column is a score of the row's answers to a test set."""
    test_set, _, metric = column.rpartition(".")
    if test_set in ("dev", "train"):
        return False
    is_text_measure = metric in text_measures()
    # Other tasks have an interval of each score that follows from sums over lines.
    name = metric if is_text_measure else f"{metric}_interval"
    is_score = is_text_measure or metric in known_measures()
    return is_score and any(name in run.scores(test_set) for run in row.runs)


def _line_p_values(
    row: RowResult, base: RowResult, column: str, folder: Path
) -> dict[str, float]:
    """The largest p-value of all pairs of runs of one seed, by test of `TESTS`.

    A pair whose difference has the opposite sign of the difference between the means
    has p = 1.
    """
    difference = row.mean(column) - base.mean(column)
    # Not strict: a row may have fewer seeds.
    tested = [
        _pair(*pair, column, folder)
        for pair in zip(row.runs, base.runs, strict=False)
        if all(run.value(column) is not None for run in pair)
    ]
    if not tested:
        raise UserError("no two runs of the same seed are scored")
    if any(pair["difference"] * difference <= 0 for pair in tested):
        return dict.fromkeys(TESTS, 1.0)
    return {test: max(pair[test] for pair in tested) for test in TESTS}


def _pair(
    row_run: RunResult, base_run: RunResult, column: str, folder: Path
) -> dict[str, float]:
    """The p-values of two runs, and the difference between their scores."""
    test_set, _, metric = column.rpartition(".")
    scores = row_run.scores(test_set)
    if scores["sha256"] != base_run.scores(test_set)["sha256"]:
        raise UserError(f"the two were scored on different lines of {test_set}")
    task = task_of(row_run.run.config)
    # A scored place starts at the current folder: it includes config.data.dir.
    corpus = task.open(scores["set"])
    runs = row_run, base_run
    answers = [read_answers(run.scores(test_set), corpus, run.path) for run in runs]
    hashes = [run.scores(test_set)["translations_sha256"] for run in runs]
    # The place alone would miss a change of its files.
    key = " ".join([*hashes, scores["set"], scores["sha256"], metric])
    try:
        cached = read_json(folder / CACHE)
    except ValueError:  # damaged: all is computed again
        cached = {}
    if key not in cached:
        pairs = task.of(corpus).examples(corpus)
        if hashed([target for _, target in pairs]) != scores["reference_sha256"]:
            raise UserError(f"{corpus.spec} has changed since it was scored")
        cached[key] = task.of(corpus).significance(metric, *answers, pairs, corpus)
        write_atomically(folder / CACHE, json.dumps(cached, indent=1).encode())
    return cached[key]
