"""A model without a source goes on from each line."""

import numpy as np
import pytest

from t2t_jax.commands.prompt import Prompt
from t2t_jax.io.errors import UserError
from t2t_jax.tools.explain.explain import explain
from t2t_jax.tools.explain.explanation import to_payload
from tests.decoding.small_translator import translator

pytestmark = pytest.mark.usefixtures("quick_compiler")

LINES = ["", "the cat", "the cat", "a dog ", ""]


@pytest.fixture(scope="module")
def one():
    return translator(1, kind="decoder_only")


def test_a_text_begins_with_its_line(one):
    found = one.translate(LINES, nbest=3, warn=False)
    for line, text in zip(LINES, found, strict=True):
        assert all(h.text.startswith(line.rstrip()) for h in text.hypotheses)
    assert found[0].hypotheses == found[4].hypotheses
    assert found[1].hypotheses == found[2].hypotheses
    # The probabilities are those of the whole text, its beginning included.
    pairs = [("", h) for text in found for h in text.hypotheses]
    scores = one.score(pairs)
    assert [s.log_prob for s in scores] == pytest.approx(
        [h.log_prob for _, h in pairs], abs=1e-3
    )


def test_equal_lines_have_samples_of_their_own(one):
    """They depend on the number of the line, and on nothing else of the input."""
    options = {"seed": 3, "warn": False}
    whole = [str(t) for t in one.sample([""] * 6, **options)]
    assert len({*whole}) > 1
    parts = [str(one.sample([""], first_line=n, **options)[0]) for n in range(1, 7)]
    assert parts == whole
    assert [str(t) for t in one.sample([""] * 6, batch_size=2, **options)] == whole
    assert [str(t) for t in one.sample([""] * 6, seed=4, warn=False)] != whole


def test_samples_have_the_probabilities_of_the_model(one):
    """The first piece of a text, of 600 lines at once."""
    ids = np.array([t.best.tokens[0] for t in one.sample([""] * 600, warn=False)])
    (score,) = one.score([("", "the")])
    first = one.vocabulary.encode(["the"])[0][0]
    expected = np.exp(score.log_probs[0])
    deviation = np.sqrt(expected * (1 - expected) / len(ids))
    assert abs(np.mean(ids == first) - expected) < 5 * deviation + 1e-3


def test_what_cannot_begin_a_text_is_refused(one):
    with pytest.raises(UserError, match="line 2: the beginning .* has .* at most 63"):
        one.translate(["a", "the cat " * 60])
    with pytest.raises(UserError, match="prefix='a': .*goes on from the line itself"):
        one.translate(["the cat"], prefix="a")


def test_it_can_be_typed(one):
    typed = Prompt(one, {"beam": None, "nbest": 3, "warn": False}).answer
    assert typed(":score a dog").startswith("    score ")
    assert all("the cat" in text for text in typed("the cat").split("\n"))
    assert len(typed("").split("\n")) == 3  # a text from nothing
    assert ":align" not in typed(":help")
    with pytest.raises(UserError, match=":align is not a command"):
        typed(":align")


@pytest.mark.slow
def test_a_text_is_explained(one):
    """What is missing says why; the rest is that of any model."""
    lines = ["the cat", ""]
    found = explain(one, lines, ["the cat sees a dog", None], alternatives=2)
    translated = one.translate(lines, warn=False)
    for sentence, text in zip(found.sentences, translated, strict=True):
        assert sentence.pieces == ("</s>",)  # there is no source to show
        for reading in sentence.readings:
            layers, heads, t, _ = reading.maps.decoder.shape
            assert (layers, heads, t) == (1, 2, len(reading.pieces))
            assert len(reading.maps.cross) == 0
            assert "has no attention to the source" in reading.coverage.why
            said = reading.attribution.said
            assert not said.source.any()
            assert said.target[-1].any()
        first = sentence.readings[0].hypothesis
        assert (first.text, first.tokens) == (text.text, text.best.tokens)
    page = to_payload(found).content["sentences"][0]["of"][0]
    assert page["readings"][0]["attention"]["cross"] == {
        "missing": "This model has no attention from the target to the source."
    }
