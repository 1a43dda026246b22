"""What is called a difference, and what is not."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings

from t2t_jax.metrics.measures import TESTS
from t2t_jax.tasks.translation import Translation
from t2t_jax.tools.experiment import statistics
from t2t_jax.tools.experiment.statistics import (
    BETTER,
    LEVEL,
    UNDECIDED,
    WORSE,
    compare,
    pooled_deviation,
    rank_correlation,
    smallest_difference,
    t_test,
    welch_test,
)
from tests.experiment.made_up import row, with_mistakes, write_rows

PERPLEXITY, BLEU = "test.perplexity", "test.bleu"
samples = st.lists(st.integers(0, 999), min_size=2, max_size=5, unique=True)


@settings(max_examples=25)
@given(samples, samples)
def test_tests_are_the_usual_ones(row, base):
    p = t_test(row, base, *pooled_deviation([row, base]))
    assert p == pytest.approx(scipy.stats.ttest_ind(row, base).pvalue, abs=1e-9)
    p = scipy.stats.ttest_ind(row, base, equal_var=False).pvalue
    assert welch_test(row, base) == pytest.approx(p, abs=1e-9)
    # A single seed: inside the prediction interval exactly if p is above 5%.
    pooled = pooled_deviation([base, row[:1], []])
    assert pooled == (pytest.approx(np.std(base, ddof=1)), len(base) - 1)
    half = scipy.stats.t.ppf(0.975, pooled[1]) * pooled[0]
    half *= math.sqrt(1 + 1 / len(base))
    inside = abs(row[0] - np.mean(base)) < half
    assert (t_test(row[:1], base, *pooled) > LEVEL) == inside


def test_without_a_difference_few_experiments_claim_one():
    draw = np.random.default_rng(5)
    claims = 0
    for _ in range(600):
        baseline, *rows = draw.normal(size=(6, 3))
        pooled = pooled_deviation([baseline, *rows])
        p_values = [t_test(sample, baseline, *pooled) for sample in rows]
        claims += min(scipy.stats.false_discovery_control(p_values)) <= LEVEL
    # 5% at most, and not far less, or the tests would find nothing.
    assert 0.02 < claims / 600 < 0.07


@pytest.mark.parametrize(("seeds", "freedom"), [(3, 4), (1, 8), (5, 8)])
def test_four_of_five_experiments_show_the_smallest_difference(seeds, freedom):
    least, draw = smallest_difference(2.0, freedom, seeds), np.random.default_rng(3)
    means = draw.normal(0, 2 * math.sqrt(2 / seeds), 20_000) + least
    deviation = 2 * np.sqrt(draw.chisquare(freedom, 20_000) / freedom)
    statistic = means / (deviation * math.sqrt(2 / seeds))
    p = 2 * scipy.stats.t.sf(abs(statistic), freedom)
    assert np.mean(p <= LEVEL) == pytest.approx(0.8, abs=0.01)


def test_rank_correlation_is_scipys_with_an_interval_around_it():
    draw = np.random.default_rng(1)
    for noise in (0.2, 1.0):
        ours = draw.normal(size=17)
        theirs = ours + draw.normal(0, noise, size=17)
        value, low, high = rank_correlation(ours, theirs)
        assert value == pytest.approx(scipy.stats.spearmanr(ours, theirs).statistic)
        expected = scipy.stats.bootstrap(
            (ours, theirs),
            lambda a, b: scipy.stats.spearmanr(a, b).statistic,
            paired=True,
            vectorized=False,
            n_resamples=999,
            method="percentile",
            random_state=2,
        ).confidence_interval
        assert (low, high) == pytest.approx(expected, abs=0.06)
    assert rank_correlation([1, 2, 2, 3], [10, 20, 20, 30]) == pytest.approx((1, 1, 1))


def test_a_row_of_wild_seeds_does_not_hide_the_others(tmp_path):
    scores = {"base": [94.8, 94.9, 95.0], "good": [96.0, 96.1, 96.2]}
    comparisons = compared(tmp_path, scores | {"wild": [45, 75, 62]}, PERPLEXITY)
    assert (comparisons["good"].verdict, comparisons["wild"].verdict) == (
        BETTER,
        UNDECIDED,
    )


def compared(folder, scores, column, lines=None):
    results = write_rows([row(n) for n in scores], folder, scores, lines)
    return compare(results, column, "base", folder)


def test_differences_over_seeds_are_found(tmp_path):
    scores = {"base": [50.0, 50.1, 49.9], "good": [55, 55.1], "bad": [45]}
    scores |= {"same": [50.05, 49.9, 50.1], "left": []}
    comparisons = compared(tmp_path, scores, PERPLEXITY)  # 100 / BLEU: lower is better
    verdicts = {name: comparison.verdict for name, comparison in comparisons.items()}
    assert verdicts == {"good": BETTER, "bad": WORSE, "same": UNDECIDED}
    assert comparisons["same"].reason == "within the variation over seeds"
    assert comparisons["good"].difference < 0
    assert not any(comparison.p_lines for comparison in comparisons.values())
    raw = [comparison.p_seeds for comparison in comparisons.values()]
    adjusted = [comparison.p_adjusted for comparison in comparisons.values()]
    assert adjusted == scipy.stats.false_discovery_control(raw).tolist()


def test_a_claim_survives_its_correction_or_is_none(tmp_path):
    """One of six rows is at an uncorrected p of a few percent."""
    scores = {"base": [100 / 50, 100 / 50.2], "some": [100 / 50.99, 100 / 50.79]}
    scores |= dict.fromkeys("abcd", scores["base"])
    comparison = compared(tmp_path, scores, PERPLEXITY)["some"]
    assert (
        comparison.p_seeds
        < LEVEL
        < comparison.p_adjusted
        == pytest.approx(5 * comparison.p_seeds)
    )
    assert (comparison.verdict, comparison.reason) == (
        UNDECIDED,
        "not after the correction for the number of comparisons",
    )


@pytest.mark.parametrize(
    ("base", "good", "reason"),
    [
        ([0.1, 0.1, 0.1], [50.0], "the seeds do not differ"),
        ([50.0, 50.1, 49.9], [math.inf, 1.0], "a value is not finite"),
    ],
)
def test_values_without_a_test(tmp_path, base, good, reason):
    comparison = compared(tmp_path, {"base": base, "good": good}, BLEU)["good"]
    assert (comparison.verdict, comparison.reason) == (UNDECIDED, reason)
    assert math.isnan(comparison.p_adjusted)


LINES = {
    "base": with_mistakes(0.3),
    "good": with_mistakes(0.05, 1),
    "luck": with_mistakes(0.3, 2),
}
# By seeds alone, both rows would be better.
SCORES = {"base": [50.0, 50.1], "good": [70.0, 70.1], "luck": [55.0, 55.1]}


def test_a_claim_about_translations_needs_both_tests(tmp_path, monkeypatch):
    comparisons = compared(tmp_path, SCORES, BLEU, LINES)
    assert (comparisons["good"].verdict, comparisons["luck"].verdict) == (
        BETTER,
        UNDECIDED,
    )
    assert comparisons["luck"].reason == "within the variation over lines"
    assert comparisons["luck"].p_seeds < 0.001
    assert (
        comparisons["luck"].p_adjusted
        == max(comparisons["luck"].p_lines.values())
        > LEVEL
    )
    assert set(comparisons["good"].p_lines) == set(TESTS)
    # Significantly worse in one pair is no evidence that the row is better.
    swapped = LINES | {"base": LINES["good"], "good": LINES["base"]}
    comparison = compared(tmp_path / "swapped", SCORES, BLEU, swapped)["good"]
    assert comparison.p_lines == {"bootstrap": 1, "randomisation": 1}
    assert comparison.verdict == UNDECIDED
    # What was tested is not tested again.
    monkeypatch.setattr(Translation, "significance", None)
    rows = [row(name) for name in SCORES]
    results = write_rows(rows, tmp_path, {})
    assert compare(results, BLEU, "base", tmp_path) == comparisons


def test_one_pair_of_the_other_sign_is_no_evidence(tmp_path, monkeypatch):
    pairs = iter({"difference": d} | dict.fromkeys(TESTS, 0.01) for d in (1, -1))
    monkeypatch.setattr(statistics, "_pair", lambda *_: next(pairs))
    scores = {name: SCORES[name] for name in ("base", "good")}
    comparison = compared(tmp_path, scores, BLEU, LINES)["good"]
    assert comparison.p_lines == dict.fromkeys(TESTS, 1.0)


def test_lines_that_cannot_be_tested(tmp_path):
    scores = {"base": [50.0, 50.1], "good": [70.0]}
    results = write_rows([row(name) for name in scores], tmp_path, scores, LINES)
    (tmp_path / "test.de").write_text("other\n" * 40)
    comparison = compare(results, BLEU, "base", tmp_path)["good"]
    assert comparison.verdict == UNDECIDED
    assert comparison.reason.startswith("lines not tested: ")
    assert "test has changed since it was scored" in comparison.reason
