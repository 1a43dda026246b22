"""Confidence in translations: by definition, line by line, and in the command."""

import dataclasses
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import Translator, UserError
from t2t_jax.commands.translate import Marks
from t2t_jax.decoding import scoring
from t2t_jax.decoding.batch_decoding import EMPTY, NOTHING
from t2t_jax.decoding.jobs import record
from t2t_jax.decoding.programs import row_hashes
from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.scoring import CONFIDENCES, ConfidenceOptions, parse_confidence
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
    wanted = np.log(p_tv[np.arange(len(pair[1])), pair[1]]).mean()
    assert small.confidence(PAIRS, "log_prob")[0] == pytest.approx(wanted, abs=1e-4)
    wanted = (p_tv * np.log(p_tv)).sum(axis=1).mean()
    assert small.confidence(PAIRS, "entropy")[0] == pytest.approx(wanted, abs=1e-4)
    pairs = [("", EMPTY), ("a dog", NOTHING), PAIRS[1]]
    found = small.confidence(pairs, "log_prob")
    assert found == [0.0, -np.inf, small.confidence(PAIRS, "log_prob")[1]]


@pytest.mark.parametrize("measure", CONFIDENCES)
def test_a_line_has_its_number_whatever_is_beside_it(small, measure):
    together = small.confidence(PAIRS, measure, passes=3)  # lines of one block
    others = small.confidence([*PAIRS[::-1], *PAIRS[:1] * 20], measure, passes=3)
    assert others[:4] == together[::-1]  # to the bit
    assert {*others[4:]} == {together[0]}
    assert all(value < 0 for value in together)


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


def test_the_hash_of_a_row_is_that_of_its_tokens():
    def hashed(rows, width):
        batch = {}
        for number, side in enumerate(("source", "target")):
            token_bt = np.full((len(rows), width), 7)  # 7 is padding
            segment_bt = np.zeros((len(rows), width), int)
            for n, row in enumerate(rows):
                token_bt[n, : len(row[number])] = row[number]
                segment_bt[n, : len(row[number])] = 1
            batch[side] = jnp.array(token_bt)
            batch[f"{side}_segment"] = jnp.array(segment_bt)
        return row_hashes(batch).tolist()

    rows = [([3, 4], [5]), ([4, 3], [5]), ([5], [3, 4]), ([3], [4, 5]), ([3, 4], [6])]
    found = hashed(rows, 2)
    assert len(set(found)) == len(rows)
    assert hashed(rows, 9) == found


def test_options_are_read_and_mistakes_told():
    assert parse_confidence("entropy") == ("entropy", ConfidenceOptions())
    parsed = parse_confidence("dropout_variance:seed=3,passes=7")
    assert parsed == ("dropout_variance", ConfidenceOptions(7, 3))
    for text, what in (
        ("logprob", "did you mean 'log_prob'"),
        ("log_prob:seed=1", "has no options; want 'log_prob'"),
        ("dropout_mean:seeds=1", "no option 'seeds'.*seed"),
        ("dropout_mean:passes=1", "passes=1 is too small; want at least 2"),
    ):
        with pytest.raises(UserError, match=what):
            parse_confidence(text)
    for dropout, measure, passes, what in (
        (0.5, "entropie", 2, "measure='entropie'; did you mean 'entropy'"),
        (0.5, "dropout_mean", 1, "passes=1 is too small"),
        (0.0, "dropout_mean", 2, "choose one of entropy, log_prob"),
    ):
        with pytest.raises(UserError, match=what):
            translator(dropout=dropout).confidence(PAIRS, measure, passes=passes)


def marks_of(confidence=None, lowest=None):
    return Marks.of(SimpleNamespace(confidence=confidence, min_confidence=lowest))


def test_lines_are_marked_and_none_is_dropped():
    found = [
        Translation(f"s{n}", tuple(dataclasses.replace(EMPTY, text=t) for t in texts))
        for n, texts in enumerate([["a", "b"], ["c"], [""]])
    ]
    numbers = {"a": -0.5, "b": -1.25, "c": -0.75, "": 0.0}

    def confidence(pairs, measure, **options):
        assert (options["passes"], options["seed"]) == (10, 0)
        return [numbers[hypothesis.text] for _, hypothesis in pairs]

    marks, known = marks_of(lowest=-0.75), SimpleNamespace(confidence=confidence)
    fields = marks.fields(known, found)
    text = "".join(record(t, n, True, False, None, fields) for n, t in enumerate(found))
    assert text.splitlines() == [
        "0 ||| a ||| 0.000000 ||| -0.5 ||| ok",
        "0 ||| b ||| 0.000000 ||| -1.25 ||| low",
        "1 ||| c ||| 0.000000 ||| -0.75 ||| ok",
        "2 |||  ||| 0.000000 ||| 0 ||| ok",
    ]
    assert next(marks_of("entropy").fields(known, found)) == "-0.5"
    # The record of a job has what the output depends on, and no option without effect.
    assert marks.options() == {"confidence": {"measure": "log_prob", "lowest": -0.75}}
    wanted = {"measure": "dropout_mean", "passes": 10, "seed": 4, "lowest": None}
    assert marks_of("dropout_mean:seed=4").options() == {"confidence": wanted}
    assert marks_of() is None


def test_the_command_marks(trained, commands):
    arguments = (f"--workdir={trained[0]}", "--min_confidence=-4.5", "--beam=1")
    status, output, told = commands("translate", *arguments, source=b"A dog.\n\nOne.")
    assert status == 0, told
    rows = [line.split(" ||| ") for line in output.splitlines()]
    loaded = Translator.load(trained[0])
    found = loaded.translate(["A dog.", "", "One."], beam=1, warn=False)
    wanted = loaded.confidence([(t.source, t) for t in found])
    assert [row[0] for row in rows] == [t.text for t in found]
    assert [float(row[1]) for row in rows] == pytest.approx(wanted, abs=1e-4)
    assert [row[2] for row in rows] == [("low" if c < -4.5 else "ok") for c in wanted]
    assert f"{sum(c < -4.5 for c in wanted)} of 3 lines are marked low" in told


@pytest.mark.slow
def test_ensembles_have_a_dropout_for_each_member(small):
    twice = Translator.ensemble([small, small])
    one, two = (
        t.confidence(PAIRS[:1], "dropout_mean", passes=2) for t in (small, twice)
    )
    assert one != two  # else both would drop the same
    plain = [t.confidence(PAIRS, "log_prob") for t in (small, twice)]
    np.testing.assert_allclose(*plain, atol=1e-5)
