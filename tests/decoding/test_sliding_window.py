"""A window slides along a text: each piece is counted once, with enough before it."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.decoding import scoring
from t2t_jax.decoding.scoring import log_probs, windows
from t2t_jax.io.errors import UserError
from tests.decoding.small_translator import translator

pytestmark = pytest.mark.usefixtures("quick_compiler")

SIZES = st.integers(1, 9).flatmap(
    lambda window: st.tuples(st.just(window), st.integers(1, window))
)


@given(st.integers(1, 60), SIZES)
def test_each_piece_is_counted_once_with_enough_before_it(pieces, sizes):
    window, stride = sizes
    found = windows(pieces, window, stride)
    counted = [i for w in found for i in range(w.first, w.end)]
    assert counted == list(range(pieces))
    for w in found:
        assert w.begin <= w.first < w.end
        assert w.end - w.begin <= window
        assert w.begin == 0 or w.first - w.begin >= window - stride
    if stride == window:
        assert all(w.begin == w.first for w in found)


@functools.cache
def one():
    return translator(1, kind="decoder_only")


def brute_force(ids, window, stride):
    """Each piece by itself: the probability after its window's earlier pieces."""
    rows = []
    for place in range(len(ids)):
        # The first window, in the order of their begins, that reaches the piece.
        begin = next(b for b in range(0, place + 1, stride) if b + window > place)
        rows.append(([], ids[begin : place + 1]))
    scores = scoring.score(one().vocabulary, one().members, rows, 0.0, "none")
    return [score.log_probs[-1] for score in scores]


@settings(max_examples=5)
@given(st.lists(st.integers(4, 280), min_size=1, max_size=24), SIZES)
def test_windows_equal_brute_force(ids, sizes):
    vocabulary, members = one().vocabulary, one().members
    (found,) = log_probs(vocabulary, members, [ids], *sizes)
    np.testing.assert_allclose(found, brute_force(ids, *sizes), atol=1e-4)


def test_of_short_texts_it_is_plain_scoring():
    lines = ["the cat sees the dog", "a dog", ""]
    texts = one().vocabulary.encode(lines, end=True)
    found = log_probs(one().vocabulary, one().members, texts, 40, 7)
    scores = one().score([("", line) for line in lines])
    assert found == [[*score.log_probs] for score in scores]


def test_a_window_that_cannot_be_read_is_refused():
    short = translator(1, kind="decoder_only", positions="learned", max_positions=48)
    with pytest.raises(UserError, match="window=64, but config.model.max_positions=48"):
        log_probs(short.vocabulary, short.members, [[5] * 80], 64, 32)
    with pytest.raises(UserError, match="stride=9 with window=8"):
        log_probs(one().vocabulary, one().members, [[5] * 80], 8, 9)
