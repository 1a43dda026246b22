"""Scores of language models follow from log-probabilities and text alone."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.io.errors import UserError
from t2t_jax.metrics import measures
from t2t_jax.metrics.likelihoods import LIKELIHOODS, answer, statistics

# A uniform model: each piece has the same probability.
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)


def scores(answers, pairs):
    return {
        name: measures.measured(measure, measure.statistics(answers, pairs))
        for name, measure in LIKELIHOODS.items()
    }


@given(st.lists(st.tuples(TEXT, st.floats(0, 300), st.integers(1, 99)), min_size=1))
def test_scores_are_those_of_the_whole_text(examples):
    pairs = [("", text) for text, _, _ in examples]
    found = scores([answer(-nats, pieces) for _, nats, pieces in examples], pairs)
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


def test_a_document_has_the_scores_of_its_lines():
    lines = ["the cat", "sleeps – well", "."]
    apart = statistics([answer(-2.5, 4)] * 3, [("", line) for line in lines])
    whole = statistics([answer(-7.5, 12)], [("", "\n".join(lines))])
    np.testing.assert_allclose(whole[0], apart.sum(0))


def test_a_model_without_hope_has_a_finite_perplexity():
    assert scores([answer(-1e9, 1)], [("", "a")])["perplexity"] == math.exp(700)


@pytest.mark.parametrize("line", ["", "-3.5", "a cat\t3", "-3.5\t4.5", "-1\t2\t3"])
def test_what_is_no_answer_is_refused_with_its_line(line):
    with pytest.raises(UserError, match="line 2 of the answers: .*want LOG_PROB"):
        statistics([answer(-1, 1), line], [("", "a"), ("", "b")])
