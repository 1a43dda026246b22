"""Scores that are made of sums: intervals and comparisons, against plain loops."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays

from t2t_jax.metrics import measures
from t2t_jax.metrics.measures import (
    SAMPLES,
    SEED,
    Measure,
    interval,
    measured,
    paired,
    randomised,
)
from t2t_jax.metrics.plain import plain_scores
from t2t_jax.metrics.text_measures import text_measures


def counted(answers, pairs):
    """Words of the answer that are in the target, its words, those of the target."""
    rows = []
    for answer, (_, target) in zip(answers, pairs, strict=True):
        said, wanted = answer.split(), target.split()
        rows.append([sum(w in wanted for w in said), len(said), len(wanted)])
    return np.array(rows, np.float64)


def f1(sums):
    return 200 * sums[..., 0] / np.maximum(sums[..., 1] + sums[..., 2], 1)


F1 = Measure("words in common", counted, f1)
counts = st.integers(1, 12).flatmap(
    lambda n: arrays(np.float64, (n, 3), elements=st.integers(0, 9))
)


def examples(n, rate, seed):
    """Statistics of n answers that are right with a probability."""
    right = np.random.default_rng(seed).random(n) < rate
    return np.stack([right, np.ones(n), np.ones(n)], axis=1).astype(np.float64)


def of_95_percent(values):
    """The 2.5% at either end left out, as sacreBLEU does it."""
    ordered = sorted(values)
    return ordered[SAMPLES // 40], ordered[-1 - SAMPLES // 40]


def test_a_comparison_is_that_of_scores_of_samples(monkeypatch):
    ours, theirs = examples(60, 0.8, 1), examples(60, 0.6, 2)
    found = paired(F1, ours, theirs)
    rng = np.random.default_rng(SEED)
    draws = [rng.integers(60, size=60) for _ in range(SAMPLES)]
    scores, others = (
        np.array([f1(side[rows].sum(0)) for rows in draws]) for side in (ours, theirs)
    )
    low, high = of_95_percent(scores)
    assert found["interval"] == interval(F1, ours)
    assert found["baseline_interval"] == interval(F1, theirs)
    assert found["interval"]["mean"] == pytest.approx(scores.mean())
    assert found["interval"]["half_width"] == pytest.approx((high - low) / 2)
    differences = scores - others
    assert found["difference"] == measured(F1, ours) - measured(F1, theirs)
    low, high = of_95_percent(differences)
    assert (found["low"], found["high"]) == pytest.approx((low, high))
    as_large = np.abs(differences - differences.mean()) >= found["difference"] - 1e-9
    assert found["p_value"] == (as_large.sum() + 1) / (SAMPLES + 1)
    monkeypatch.setattr(measures, "LONGEST", 59)
    assert interval(F1, ours) is None  # a long set has none


def test_swapping_of_few_examples_is_that_of_all_swaps():
    """2^8 ways to swap 8 examples: their share that is as large, up to chance."""
    ours, theirs = examples(8, 0.95, 3), examples(8, 0.2, 4)
    observed = f1(ours.sum(0)) - f1(theirs.sum(0))
    as_large = 0
    for bits in range(1 << 8):
        swap = np.array([bits >> i & 1 for i in range(8)], bool)[:, None]
        mine, yours = np.where(swap, theirs, ours), np.where(swap, ours, theirs)
        difference = f1(mine.sum(0)) - f1(yours.sum(0))
        as_large += abs(difference) >= abs(observed) - 1e-9
    found = randomised(F1, ours, theirs)
    assert 0 < as_large < 1 << 7
    assert found == pytest.approx(as_large / (1 << 8), abs=0.03)


@pytest.mark.parametrize(
    "p_value",
    [lambda *sides: paired(*sides)["p_value"], randomised],
    ids=["bootstrap", "randomisation"],
)
def test_differences_are_told_from_chance(p_value):
    good = examples(300, 0.8, 5)
    assert p_value(F1, good, examples(300, 0.6, 6)) < 0.01
    assert p_value(F1, good, examples(300, 0.8, 7)) > 0.1
    with pytest.raises(ValueError, match="3 and 2 examples"):
        p_value(F1, examples(3, 1, 0), examples(2, 1, 0))


@settings(max_examples=3, deadline=None)
@given(counts, st.randoms(use_true_random=False))
def test_comparisons_are_antisymmetric_and_have_a_zero(statistics, draw):
    other = statistics[:, ::-1].copy()
    there, back = paired(F1, statistics, other), paired(F1, other, statistics)
    assert there["difference"] == -back["difference"]
    assert there["p_value"] == back["p_value"]
    # A difference's bounds mirror too.
    assert (there["low"], there["high"]) == pytest.approx((-back["high"], -back["low"]))
    forth, again = randomised(F1, statistics, other), randomised(F1, other, statistics)
    assert forth == again
    same = paired(F1, statistics, statistics.copy())
    assert (same["difference"], same["low"], same["p_value"]) == (0, 0, 1)
    assert randomised(F1, statistics, statistics.copy()) == 1
    rows = [*range(len(statistics))]
    draw.shuffle(rows)
    assert measured(F1, statistics[rows]) == measured(F1, statistics)


def test_the_interval_is_the_one_that_sacrebleu_computes():
    rng = np.random.default_rng(1)
    words = [*"abcdefgh"]
    lines = [" ".join(rng.choice(words, 8)) for _ in range(60)]
    answers = [" ".join(rng.permutation(line.split())) for line in lines]
    theirs = plain_scores(answers, lines, "de")
    for name, measure in text_measures("de").items():
        ours = interval(measure, measure.statistics(answers, [("", x) for x in lines]))
        if f"{name}_interval" in theirs:
            assert ours == pytest.approx(theirs[f"{name}_interval"], abs=1e-5)
