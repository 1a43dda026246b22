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


def test_a_hypothesis_of_another_vocabulary_counts_as_text(tiny, theirs):
    ended, cut, translation = theirs
    assert max(ended.tokens) < len(tiny.vocabulary)  # nothing shows but the numbers
    pairs, texts = [(LINE, ended), (LINE, translation)], [(LINE, ended.text)] * 2
    assert tiny.score(pairs) == tiny.score(texts)
    assert tiny.align(pairs) == tiny.align(texts)
    assert tiny.confidence(pairs) == tiny.confidence(texts)
    complete, begun = tiny.score([(LINE, ended.text), (LINE, cut)])
    assert begun.pieces == complete.pieces[:-1]  # without an end, as it was
    file_text = tiny.translate([LINE])[0]
    assert tiny.score([(LINE, file_text)])[0].log_prob == pytest.approx(
        file_text.log_prob, abs=1e-4
    )


def test_a_text_without_tokens_is_no_failure():
    assert Hypothesis("part one, part two", -1.0, -1.0, False).failure == ""
    assert "NaN" in Hypothesis("", math.nan, math.nan, False).failure
    assert "constraints" in Hypothesis("", -math.inf, -math.inf, False).failure


def test_ids_that_a_vocabulary_lacks_are_refused(tiny):
    unknown = Hypothesis("text", 0.0, 0.0, True, (5, len(tiny.vocabulary)))
    for ask in (
        lambda: tiny.score([(LINE, unknown)]),
        lambda: tiny.attention(LINE, unknown),
        lambda: tiny.translate_ids([[5, 2], [len(tiny.vocabulary), 2]]),
        lambda: tiny.translate_ids([[-1, 2]]),
    ):
        with pytest.raises(UserError, match="want ids from 0 to 289, those of this mo"):
            ask()


def test_probabilities_that_are_nan_are_no_unmet_constraints(tiny, caplog):
    parameters = jax.tree.map(lambda x: x * math.nan, tiny.parameters)
    broken = Translator(tiny.config, tiny.vocabulary, tiny.model, parameters)
    with caplog.at_level(logging.WARNING, "t2t_jax"):
        translations = broken.translate([LINE] * 2, must=["Hund"])
        drawn = broken.sample([LINE])
    assert [t.text for t in (*translations, *drawn)] == [""] * 3
    assert caplog.text.count("the model's probabilities are not finite (NaN)") == 2
    assert "constraints" not in caplog.text
    assert broken.confidence([(LINE, translations[0])]) == [-math.inf]


def test_a_translator_of_own_parameters_says_so(tiny):
    file_text = Translator(tiny.config, tiny.vocabulary, tiny.model, tiny.parameters)
    assert repr(file_text).endswith(" 8,960 parameters)")
    assert repr(tiny).endswith(" 8,960 parameters of steps 7)")
    assert np.array_equal(file_text.score([(LINE, "a")]), tiny.score([(LINE, "a")]))
