"""Models without a source: a text goes on from its line; windows score long texts."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.commands.prompt import Prompt
from t2t_jax.decoding import scoring
from t2t_jax.decoding.scoring import log_probs
from t2t_jax.io.errors import UserError
from tests.decoding.small_translator import translator

LINES = ["", "the cat", "the cat", "a dog ", ""]


@functools.cache
def model():
    return translator(1, kind="decoder_only")


def test_a_text_begins_with_its_line():
    results = model().translate(LINES, nbest=3, warn=False)
    for line, text in zip(LINES, results, strict=True):
        assert all(h.text.startswith(line.rstrip()) for h in text.hypotheses)
    assert results[0].hypotheses == results[4].hypotheses
    # The probabilities are those of the whole text, its beginning included.
    pairs = [("", h) for text in results for h in text.hypotheses]
    assert [score.log_prob for score in model().score(pairs)] == pytest.approx(
        [h.log_prob for _, h in pairs], abs=1e-3
    )


def test_equal_lines_have_samples_of_their_own():
    """They depend on the number of the line, and on nothing else of the input."""
    sample = functools.partial(model().sample, seed=3, warn=False)
    complete = [str(t) for t in sample([""] * 6)]
    assert len({*complete}) > 1
    assert [str(sample([""], first_line=n)[0]) for n in range(1, 7)] == complete
    assert [str(t) for t in sample([""] * 6, batch_size=2)] == complete


def test_what_cannot_begin_a_text_is_refused():
    with pytest.raises(UserError, match="line 2: the beginning .* has .* at most 63"):
        model().translate(["a", "the cat " * 60])
    with pytest.raises(UserError, match="prefix='a': .*goes on from the line itself"):
        model().translate(["the cat"], prefix="a")
    typed = Prompt(model(), {"beam": None, "nbest": 3, "warn": False}).answer
    assert typed(":score a dog").startswith("    score ")
    with pytest.raises(UserError, match=":align is not a command"):
        typed(":align")


# A window slides along a text.

SIZES = st.integers(1, 9).flatmap(
    lambda window: st.tuples(st.just(window), st.integers(1, window))
)


def brute_force(ids, window, stride):
    """Each piece by itself: the probability after its window's earlier pieces."""
    rows = []
    for place in range(len(ids)):
        # The first window, in the order of their begins, that reaches the piece.
        begin = next(b for b in range(0, place + 1, stride) if b + window > place)
        rows.append(([], ids[begin : place + 1]))
    rows = scoring.token_log_probs(model().vocabulary, model().members, rows)
    return [log_probs_t[-1] for log_probs_t in rows]


@settings(max_examples=5)
@given(st.lists(st.integers(4, 280), min_size=1, max_size=24), SIZES)
def test_windows_equal_brute_force(ids, sizes):
    (results,) = log_probs(model().vocabulary, model().members, [ids], *sizes)
    np.testing.assert_allclose(results, brute_force(ids, *sizes), atol=1e-4)


def test_a_window_that_cannot_be_read_is_refused():
    short = translator(1, kind="decoder_only", positions="learned", max_positions=48)
    with pytest.raises(UserError, match="window=64, but config.model.max_positions=48"):
        log_probs(short.vocabulary, short.members, [[5] * 80], 64, 32)
    with pytest.raises(UserError, match="stride=9 with window=8"):
        log_probs(model().vocabulary, model().members, [[5] * 80], 8, 9)
