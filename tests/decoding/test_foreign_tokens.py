"""Tokens of another model's vocabulary, and probabilities that are not numbers."""

import dataclasses
import logging
import math

import jax
import numpy as np
import pytest

from t2t_jax import Translator, UserError
from t2t_jax.decoding.results import Hypothesis
from tests.decoding.small_translator import translator

LINE = "the cat sees"


@pytest.fixture(scope="module")
def theirs():
    """What a model with another vocabulary says: ended, cut off, and as a candidate."""
    other = translator(3, 300)
    translation = other.translate([LINE], nbest=3)[0]
    ended = dataclasses.replace(translation.best, ended=True)
    translation = dataclasses.replace(translation, hypotheses=(ended,))
    return [ended, dataclasses.replace(ended, ended=False), translation]


def test_a_hypothesis_of_another_vocabulary_counts_as_text(one, theirs):
    ended, cut, translation = theirs
    assert max(ended.tokens) < len(one.vocabulary)  # nothing shows but the numbers
    pairs, texts = [(LINE, ended), (LINE, translation)], [(LINE, ended.text)] * 2
    assert one.score(pairs) == one.score(texts)
    assert one.align(pairs) == one.align(texts)
    assert one.confidence(pairs) == one.confidence(texts)
    whole, begun = one.score([(LINE, ended.text), (LINE, cut)])
    assert begun.pieces == whole.pieces[:-1]  # without an end, as it was
    own = one.translate([LINE])[0]
    assert one.score([(LINE, own)])[0].log_prob == pytest.approx(own.log_prob, abs=1e-4)


def test_a_text_without_tokens_is_no_failure():
    assert Hypothesis("part one, part two", -1.0, -1.0, False).failure == ""
    assert "NaN" in Hypothesis("", math.nan, math.nan, False).failure
    assert "constraints" in Hypothesis("", -math.inf, -math.inf, False).failure


def test_ids_that_a_vocabulary_lacks_are_refused(one):
    unknown = Hypothesis("text", 0.0, 0.0, True, (5, len(one.vocabulary)))
    for ask in (
        lambda: one.score([(LINE, unknown)]),
        lambda: one.attention(LINE, unknown),
        lambda: one.translate_ids([[5, 2], [len(one.vocabulary), 2]]),
        lambda: one.translate_ids([[-1, 2]]),
    ):
        with pytest.raises(UserError, match="want ids from 0 to 289, those of this mo"):
            ask()


def test_probabilities_that_are_nan_are_no_unmet_constraints(one, caplog):
    parameters = jax.tree.map(lambda x: x * math.nan, one.parameters)
    broken = Translator(one.config, one.vocabulary, one.model, parameters)
    with caplog.at_level(logging.WARNING, "t2t_jax"):
        translations = broken.translate([LINE] * 2, must=["Hund"])
        drawn = broken.sample([LINE])
    assert [t.text for t in (*translations, *drawn)] == [""] * 3
    assert caplog.text.count("the model's probabilities are not finite (NaN)") == 2
    assert "constraints" not in caplog.text
    assert broken.confidence([(LINE, translations[0])]) == [-math.inf]


def test_a_translator_of_own_parameters_says_so(one):
    own = Translator(one.config, one.vocabulary, one.model, one.parameters)
    assert repr(own).endswith(" 8,960 parameters)")
    assert repr(one).endswith(" 8,960 parameters of steps 7)")
    assert np.array_equal(own.score([(LINE, "a")]), one.score([(LINE, "a")]))
