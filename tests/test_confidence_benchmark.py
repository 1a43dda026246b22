"""The benchmark of confidence: its statistics, against definitions and SciPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.confidence import (
    auroc,
    interval,
    pearson,
    row,
    spearman,
    split_measures,
    worst_lines,
)
from t2t_jax import UserError

VALUES = st.lists(st.integers(0, 4), min_size=3, max_size=12)


@settings(max_examples=40)
@given(VALUES, st.data())
def test_statistics_are_those_of_their_definitions(values, data):
    x = np.array(values, float)
    y = np.array(data.draw(st.permutations(range(len(values)))), float)
    if np.ptp(x):
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
        assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    else:
        assert np.isnan(pearson(x, y))
    bad = worst_lines(y, 0.3)
    wins = [(a < b) + (a == b) / 2 for a in x[bad] for b in x[~bad]]
    assert auroc(x, bad) == pytest.approx(np.mean(wins))


def test_the_worst_lines_are_those_of_the_lowest_chrf():
    chrf = np.array([5.0, 1.0, 3.0, 1.0, 9.0, 8.0, 7.0, 6.0, 4.0, 2.0])
    assert np.flatnonzero(worst_lines(chrf, 0.1)).tolist() == [1]
    assert np.flatnonzero(worst_lines(chrf, 0.3)).tolist() == [1, 3, 9]


def test_a_perfect_measure_finds_all_worst_lines():
    chrf = np.arange(40.0)
    cells = row(chrf**2, chrf, 0.1)
    assert cells[0] == "1.000 [1.000, 1.000]"
    assert cells[2] == "1.000 [1.000, 1.000]"
    assert cells[-2:] == ["1.5", "21.5"]  # the mean chrF of the marked and the others


def test_an_interval_covers_the_value_and_is_the_same_each_time():
    rng = np.random.default_rng(1)
    x = rng.normal(size=60)
    y = x + rng.normal(size=60)
    low, high = interval(pearson, x, y)
    assert low < pearson(x, y) < high
    assert (low, high) == interval(pearson, x, y)


def test_options_of_a_measure_may_have_commas():
    measures = split_measures("log_prob,dropout_mean:passes=5,seed=1,entropy")
    assert measures == ["log_prob", "dropout_mean:passes=5,seed=1", "entropy"]
    with pytest.raises(UserError, match="did you mean"):
        split_measures("entropi")
