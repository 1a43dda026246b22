"""A model without a source goes on from each line."""

import pytest

from t2t_jax.commands.prompt import Prompt
from t2t_jax.io.errors import UserError
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
