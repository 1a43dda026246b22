"""Scores that are made of sums, against plain loops and sacreBLEU; likelihoods."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays

from t2t_jax.io.errors import UserError
from t2t_jax.metrics import likelihoods, measures
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
from t2t_jax.metrics.text_measures import UTILITIES, text_measures


def counted(answers, pairs):
    """Words of the answer that are in the target, its words, those of the target."""
    rows = []
    for answer, (_, target) in zip(answers, pairs, strict=True):
        answer_words, target_words = answer.split(), target.split()
        matches = sum(word in target_words for word in answer_words)
        rows.append([matches, len(answer_words), len(target_words)])
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


def percentiles(values):
    """The 2.5% at either end left out, as sacreBLEU does it."""
    ordered = sorted(values)
    return ordered[SAMPLES // 40], ordered[-1 - SAMPLES // 40]


def test_a_comparison_is_that_of_scores_of_samples(monkeypatch):
    system, baseline = examples(60, 0.8, 1), examples(60, 0.6, 2)
    comparison = paired(F1, system, baseline)
    rng = np.random.default_rng(SEED)
    draws = [rng.integers(60, size=60) for _ in range(SAMPLES)]
    scores, baseline_scores = (
        np.array([f1(side[rows].sum(0)) for rows in draws])
        for side in (system, baseline)
    )
    low, high = percentiles(scores)
    assert comparison["interval"] == interval(F1, system)
    assert comparison["baseline_interval"] == interval(F1, baseline)
    assert comparison["interval"]["mean"] == pytest.approx(scores.mean())
    assert comparison["interval"]["half_width"] == pytest.approx((high - low) / 2)
    differences = scores - baseline_scores
    assert comparison["difference"] == measured(F1, system) - measured(F1, baseline)
    low, high = percentiles(differences)
    assert (comparison["low"], comparison["high"]) == pytest.approx((low, high))
    distances = np.abs(differences - differences.mean())
    as_large = distances >= comparison["difference"] - 1e-9
    assert comparison["p_value"] == (as_large.sum() + 1) / (SAMPLES + 1)
    monkeypatch.setattr(measures, "LONGEST", 59)
    assert interval(F1, system) is None  # a long set has none


def test_swapping_of_few_examples_is_that_of_all_swaps():
    """2^8 ways to swap 8 examples: their share that is as large, up to chance."""
    system, baseline = examples(8, 0.95, 3), examples(8, 0.2, 4)
    observed = f1(system.sum(0)) - f1(baseline.sum(0))
    as_large = 0
    for bits in range(1 << 8):
        swap = np.array([bits >> i & 1 for i in range(8)], bool)[:, None]
        sides = np.where(swap, baseline, system), np.where(swap, system, baseline)
        difference = f1(sides[0].sum(0)) - f1(sides[1].sum(0))
        as_large += abs(difference) >= abs(observed) - 1e-9
    p_value = randomised(F1, system, baseline)
    assert 0 < as_large < 1 << 7
    assert p_value == pytest.approx(as_large / (1 << 8), abs=0.03)


@settings(max_examples=3)
@given(counts)
def test_comparisons_are_antisymmetric_and_have_a_zero(statistics):
    baseline = statistics[:, ::-1].copy()
    forward = paired(F1, statistics, baseline)
    backward = paired(F1, baseline, statistics)
    assert forward["difference"] == -backward["difference"]
    assert forward["p_value"] == backward["p_value"]
    # A difference's bounds mirror too.
    assert (forward["low"], forward["high"]) == pytest.approx(
        (-backward["high"], -backward["low"])
    )
    both_ways = (statistics, baseline), (baseline, statistics)
    assert len({randomised(F1, *sides) for sides in both_ways}) == 1
    itself = paired(F1, statistics, statistics.copy())
    assert (itself["difference"], itself["low"], itself["p_value"]) == (0, 0, 1)
    assert randomised(F1, statistics, statistics.copy()) == 1


def test_the_interval_is_the_one_that_sacrebleu_computes():
    rng = np.random.default_rng(1)
    words = [*"abcdefgh"]
    lines = [" ".join(rng.choice(words, 8)) for _ in range(60)]
    answers = [" ".join(rng.permutation(line.split())) for line in lines]
    pairs = [("", line) for line in lines]
    sacrebleu_scores = plain_scores(answers, lines, "de")
    for name, measure in text_measures("de").items():
        computed = interval(measure, measure.statistics(answers, pairs))
        if expected := sacrebleu_scores.get(f"{name}_interval"):
            assert computed == pytest.approx(expected, abs=1e-5)


# ------------------------------------------------------------------------- sacreBLEU

TEXTS = [
    "Der Hund sieht die Katze.",
    "Der Hund sieht den Hund den Hund.",
    "aa aa aa aa aa",
    "",
    "  a\u00a0b  ",
    "日本語 です! 日本語",
    "Die (kleine) Katze, die 1,000.5% sieht &quot;-",
]
# Few letters, so that n-grams repeat and match.
SENTENCES = st.lists(st.text("ab ,.", max_size=24), min_size=1, max_size=6)


@pytest.mark.parametrize("name", UTILITIES)
@settings(max_examples=40)
@given(texts=SENTENCES)
def test_utilities_of_all_pairs_are_sacrebleus_sentence_scores(name, texts):
    peer = {"chrf": sacrebleu.CHRF(), "bleu": sacrebleu.BLEU(effective_order=True)}
    expected = [[peer[name].sentence_score(h, [r]).score for r in texts] for h in texts]
    np.testing.assert_allclose(UTILITIES[name](texts, texts), expected, atol=1e-9)


@pytest.mark.parametrize("texts", [TEXTS, ["a b"], ["", ""]])
def test_measures_of_a_set_are_those_of_sacrebleu(texts):
    """Also of short sets, where orders are missing or nothing matches."""
    peers = {
        "bleu": sacrebleu.BLEU(),
        "bleu_lc": sacrebleu.BLEU(lowercase=True),
        "chrf": sacrebleu.CHRF(),
        "ter": sacrebleu.TER(),
    }
    for references in (texts, texts[::-1], ["x y z"] * len(texts)):
        pairs = [("", reference) for reference in references]
        for name, measure in text_measures().items():
            expected = peers[name].corpus_score(texts, [references]).score
            score = measured(measure, measure.statistics(texts, pairs))
            assert score == pytest.approx(expected, abs=1e-9)


# ----------------------------------------------------------------------- likelihoods


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8"), max_size=30),
            st.floats(0, 300),
            st.integers(1, 99),
        ),
        min_size=1,
    )
)
def test_likelihoods_are_those_of_the_whole_text(examples):
    pairs = [("", text) for text, _, _ in examples]
    answers = [likelihoods.answer(-nats, pieces) for _, nats, pieces in examples]
    scores = {
        name: measured(measure, measure.statistics(answers, pairs))
        for name, measure in likelihoods.LIKELIHOODS.items()
    }
    nats = sum(nats for _, nats, _ in examples)
    text = "".join(f"{text}\n" for text, _, _ in examples)
    bits = nats / math.log(2)
    assert scores["bits_per_byte"] == pytest.approx(bits / len(text.encode()), abs=1e-6)
    units = {
        "perplexity_per_word": len(text.split()) + text.count("\n"),
        "perplexity": sum(pieces for _, _, pieces in examples),
    }
    for name, unit in units.items():
        assert scores[name] == pytest.approx(math.exp(nats / unit), rel=1e-5)


@pytest.mark.parametrize("line", ["", "a cat\t3", "-3.5\t4.5"])
def test_what_is_no_answer_is_refused_with_its_line(line):
    good = likelihoods.answer(-1, 1)
    with pytest.raises(UserError, match="line 2 of the answers: .*want LOG_PROB"):
        likelihoods.statistics([good, line], [("", "a"), ("", "b")])
