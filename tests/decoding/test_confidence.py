"""Confidence in translations: by definition, line by line, and in the command."""

from types import SimpleNamespace

import numpy as np
import pytest

from t2t_jax import Translator, UserError
from t2t_jax.commands.confidence_flags import Marks
from t2t_jax.decoding import scoring
from t2t_jax.decoding.batch_decoding import EMPTY, NOTHING
from t2t_jax.decoding.scoring import (
    ConfidenceOptions,
    document_confidence,
    parse_confidence,
)
from tests.decoding.explaining.test_distribution import probabilities
from tests.decoding.small_translator import translator

PAIRS = [
    ("the cat sees the dog", "die Katze sieht den Hund"),
    ("a dog sleeps", "ein Hund"),
    ("a dog", "ein"),
    ("the dog sees", "der Hund sieht den Hund und die Katze"),
]


@pytest.fixture(scope="module")
def small():
    return translator(dropout=0.3)


def test_measures_are_what_their_names_say(small):
    """By the float64 distributions of `probabilities`, which knows no padding."""
    reader = small.reader(1, False)
    (pair,) = reader.pairs(PAIRS[:1])
    p_tv = probabilities(small, pair)
    expected = np.log(p_tv[np.arange(len(pair[1])), pair[1]]).mean()
    assert small.confidence(PAIRS, "log_prob")[0] == pytest.approx(expected, abs=1e-4)
    expected = (p_tv * np.log(p_tv)).sum(axis=1).mean()
    assert small.confidence(PAIRS, "entropy")[0] == pytest.approx(expected, abs=1e-4)
    pairs = [("", EMPTY), ("a dog", NOTHING), PAIRS[1]]
    results = small.confidence(pairs, "log_prob")
    assert results == [0.0, -np.inf, small.confidence(PAIRS, "log_prob")[1]]


@pytest.mark.parametrize("measure", ["entropy", "dropout_mean"])
def test_a_line_has_its_number_whatever_is_beside_it(small, measure):
    together = small.confidence(PAIRS, measure, passes=3)  # lines of one block
    shuffled = small.confidence([*PAIRS[::-1], *PAIRS[:1] * 20], measure, passes=3)
    assert shuffled[:4] == together[::-1]  # to the bit
    assert {*shuffled[4:]} == {together[0]}


def test_passes_differ_and_follow_from_the_seed(small):
    options = ConfidenceOptions(passes=4, seed=5)
    scorer = scoring.Scorer(small.vocabulary, small.members, options)
    encoded = small.reader(1, False).pairs(PAIRS)
    passes = scoring._dropout_passes(scorer, encoded)
    assert len(np.unique(passes)) == passes.size  # all draws are different
    mean = small.confidence(PAIRS, "dropout_mean", passes=4, seed=5)
    variance = small.confidence(PAIRS, "dropout_variance", passes=4, seed=5)
    np.testing.assert_array_equal(mean, passes.mean(axis=0))
    np.testing.assert_allclose(variance, -(passes.std(axis=0) ** 2), rtol=1e-9)
    assert mean != small.confidence(PAIRS, "dropout_mean", passes=4, seed=6)


def test_options_are_read_and_mistakes_told():
    parsed = parse_confidence("dropout_variance:seed=3,passes=7")
    assert parsed == ("dropout_variance", ConfidenceOptions(7, 3))
    for text, message in (
        ("logprob", "did you mean 'log_prob'"),
        ("dropout_mean:passes=1", "passes=1 is too small; want at least 2"),
    ):
        with pytest.raises(UserError, match=message):
            parse_confidence(text)
    with pytest.raises(UserError, match="choose one of entropy, log_prob"):
        translator(dropout=0.0).confidence(PAIRS, "dropout_mean", passes=2)


def test_the_record_of_a_job_has_what_its_marks_depend_on():
    flags = SimpleNamespace(confidence="dropout_mean:seed=4", min_confidence=-0.75)
    expected = {"measure": "dropout_mean", "passes": 10, "seed": 4, "lowest": -0.75}
    assert Marks.from_flags(flags).options() == {"confidence": expected}


def test_the_command_marks(trained, commands):
    arguments = (f"--workdir={trained[0]}", "--min_confidence=-4.5", "--beam=1")
    status, output, message = commands(
        "translate", *arguments, source=b"A dog.\n\nOne."
    )
    assert status == 0, message
    rows = [line.split(" ||| ") for line in output.splitlines()]
    loaded = Translator.load(trained[0])
    results = loaded.translate(["A dog.", "", "One."], beam=1, warn=False)
    expected = loaded.confidence([(t.source, t) for t in results])
    assert [row[0] for row in rows] == [t.text for t in results]
    assert [float(row[1]) for row in rows] == pytest.approx(expected, abs=1e-4)
    assert [row[2] for row in rows] == [("low" if c < -4.5 else "ok") for c in expected]
    assert f"{sum(c < -4.5 for c in expected)} of 3 lines are marked low" in message
    mean = (np.exp(expected[0]) + np.exp(expected[2])) / 2  # one line is empty
    half = 1.96 * abs(np.exp(expected[0]) - mean)  # the deviation of two, by sqrt(2)
    assert f"in the 3 lines by log_prob: {mean:.4f} ± {half:.4f}" in message


def test_the_confidence_in_a_document_is_a_mean_over_lines_with_text():
    lines = [np.log(0.5), 0.0, np.log(0.7), -np.inf]  # the last without a translation
    deviation = np.std([0.5, 0.7, 0], ddof=1)
    expected = 0.4, 1.96 * deviation / 3**0.5
    assert document_confidence(lines) == pytest.approx(expected)
    assert document_confidence([-2, -4], "entropy") == pytest.approx((-3, 1.96))
    assert np.isnan(document_confidence([-1])).tolist() == [False, True]
    assert np.isnan(document_confidence([0])).all()
