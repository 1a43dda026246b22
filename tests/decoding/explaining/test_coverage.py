"""Coverage of source words, from weights that are known."""

import numpy as np
import pytest

from t2t_jax.decoding import alignment
from t2t_jax.decoding.results import AttentionMaps
from t2t_jax.tools.explain.words import cover, words_of_tokens
from tests.decoding.small_translator import vocabulary


def covered(source, target, looks_at):
    """The coverage of a pair whose pieces look at one source word each.

    Args:
      looks_at: for each target word, the source word; -1 for the end.
    """
    ours = vocabulary()
    pair = tuple(ours.encode([source, target], end=True))
    source_words = np.array([*alignment.words_of_pieces(ours, pair[0][:-1]), -1])
    weights = np.zeros((1, 2, len(pair[1]), len(pair[0])), np.float32)
    target_words = alignment.words_of_pieces(ours, pair[1][:-1])
    for t, word in enumerate([looks_at[j] for j in target_words]):
        keys_s = source_words == word
        weights[0, :, t] = keys_s / keys_s.sum()
    weights[0, :, -1, -1] = 1
    words = [words_of_tokens(ours, ids) for ids in pair]
    return (*words, cover(*words, AttentionMaps((), (), None, None, weights)))


def test_dropped_and_repeated_words():
    source, target, found = covered(
        "the cat sees dogs", "Die Katze, ihre Katze sieht", [0, 1, 0, 1, 2]
    )
    assert source.texts == ["the", "cat", "sees", "dogs"]
    assert target.texts == ["Die", "Katze,", "ihre", "Katze", "sieht"]
    assert found.links == [(0, 0), (1, 1), (0, 2), (1, 3), (2, 4)]
    np.testing.assert_allclose(found.coverage, [2, 2, 1, 0], atol=1e-6)
    assert (found.dropped, found.repeated) == ([3], [0, 1])


@pytest.mark.parametrize(
    ("target", "repeated"),
    [("ein sehr Hund", []), ("Hund, hund! da", [0]), ("a a, b", [0])],
)
def test_neighbours_of_one_word_are_no_repetition_unless_they_are_equal(
    target, repeated
):
    assert covered("dog there", target, [0, 0, 1])[2].repeated == repeated


def test_a_word_that_many_look_at_a_little_is_not_dropped():
    assert covered("the cat", "die Katze", [0, 0])[2].dropped == [1]
    ours = vocabulary()
    pair = tuple(ours.encode(["t s", "d i"], end=True))
    words = [alignment.words_of_pieces(ours, ids[:-1]) for ids in pair]
    weights_ts = np.full((len(pair[1]), len(pair[0])), 0.01)
    weights_ts[:, words[0].index(0)] += 0.7
    weights_ts[:, words[0].index(1)] += 0.2
    maps = AttentionMaps((), (), None, None, weights_ts[None, None])
    assert cover(*(words_of_tokens(ours, ids) for ids in pair), maps).dropped == []


@pytest.mark.parametrize("text", ["القطة ترى الكلب", "a 😀 \u3000 b", "👩🏽‍🚀x", ""])
def test_words_are_those_of_the_text(text):
    source, target, found = covered(text or "a", text, [0] * 9)
    assert target.texts == text.split()
    assert found.weights.shape == (len(text.split()), len((text or "a").split()))
    numbers = [n for n in target.of_piece if n >= 0]
    assert sorted({*numbers}) == [*range(len(text.split()))]
    assert target.of_piece[-1] == source.of_piece[-1] == -1


def test_where_no_spaces_are_written_pieces_are_words():
    ours = vocabulary()
    # Characters of three bytes, since the vocabulary has none of them.
    for text in ("猫が犬を見る。", "猫 が犬を", "แมวเห็น"):
        (ids,) = ours.encode([text], end=True)
        words = words_of_tokens(ours, ids)
        assert words.texts == [*text.replace(" ", "")]
        assert sorted({*words.of_piece}) == [-1, *range(len(words.texts))]
        assert words.of_piece.count(0) == 3
