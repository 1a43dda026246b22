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


@settings(max_examples=3)
@given(counts)
def test_comparisons_are_antisymmetric_and_have_a_zero(statistics):
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
    wanted = [[peer[name].sentence_score(h, [r]).score for r in texts] for h in texts]
    np.testing.assert_allclose(UTILITIES[name](texts, texts), wanted, atol=1e-9)


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
            wanted = peers[name].corpus_score(texts, [references]).score
            found = measured(measure, measure.statistics(texts, pairs))
            assert found == pytest.approx(wanted, abs=1e-9)


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
    found = {
        name: measured(measure, measure.statistics(answers, pairs))
        for name, measure in likelihoods.LIKELIHOODS.items()
    }
    nats = sum(nats for _, nats, _ in examples)
    text = "".join(f"{text}\n" for text, _, _ in examples)
    bits = nats / math.log(2)
    assert found["bits_per_byte"] == pytest.approx(bits / len(text.encode()), abs=1e-6)
    units = {
        "perplexity_per_word": len(text.split()) + text.count("\n"),
        "perplexity": sum(pieces for _, _, pieces in examples),
    }
    for name, unit in units.items():
        assert found[name] == pytest.approx(math.exp(nats / unit), rel=1e-5)


@pytest.mark.parametrize("line", ["", "a cat\t3", "-3.5\t4.5"])
def test_what_is_no_answer_is_refused_with_its_line(line):
    good = likelihoods.answer(-1, 1)
    with pytest.raises(UserError, match="line 2 of the answers: .*want LOG_PROB"):
        likelihoods.statistics([good, line], [("", "a"), ("", "b")])
