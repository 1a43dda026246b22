"""Heads in numbers, rollout one path at a time, and coverage of words."""

import itertools

import numpy as np
import pytest

from t2t_jax.decoding.results import AttentionMaps
from t2t_jax.tools.explain.attention_summary import rollout, summarize
from t2t_jax.tools.explain.words import cover, explained_words
from tests.decoding.small_translator import vocabulary


def maps_of(layers, heads, s, t, seed=0):
    rng = np.random.default_rng(seed)

    def weights(queries, keys, causal=False):
        w = rng.random((layers, heads, queries, keys)).astype(np.float32)
        w = np.tril(w) if causal else w
        return w / w.sum(-1, keepdims=True)

    names = tuple("abcdefg"[:s]), tuple("ABCDEFG"[:t])
    return AttentionMaps(*names, weights(s, s), weights(t, t, True), weights(t, s))


def test_heads_that_are_known():
    maps = maps_of(1, 2, s=4, t=3)
    maps.encoder[0, 0] = 1 / 4  # even: two bits, and no offset on the whole
    maps.encoder[0, 1] = np.eye(4)[[1, 2, 3, 3]]  # the next one, and the end itself
    maps.cross[0, 0] = np.eye(4)[[3, 3, 0]]
    summary = summarize(maps)
    assert summary["encoder"].entropy[0] == pytest.approx([2, 0])
    assert summary["encoder"].offset[0] == pytest.approx([0, 3 / 4])
    assert summary["cross"].peak[0, 0] == pytest.approx(2 / 3)


def test_rollout_sums_over_all_paths():
    """Each sub-layer goes on with its input or, as probably, where a head looks."""
    layers, s, t = 2, 3, 4
    maps = maps_of(layers, 2, s, t)
    encoder, decoder, cross = (
        getattr(maps, name).mean(1) for name in ("encoder", "decoder", "cross")
    )

    def step(weights, i, j):
        return weights[i, j] / 2 + (i == j) / 2

    want_ss = np.zeros((s, s))
    for i, j, k in itertools.product(range(s), repeat=3):
        want_ss[i, k] += step(encoder[1], i, j) * step(encoder[0], j, k)
    want_ts = np.zeros((t, s))
    for i, j, k in itertools.product(range(t), range(s), range(s)):
        want_ts[i, k] += cross[1][i, j] / 2 * want_ss[j, k]
        for middle in range(t):
            went = step(decoder[1], i, middle) / 2  # from the first layer's output
            want_ts[i, k] += went * cross[0][middle, j] / 2 * want_ss[j, k]
    sums = rollout(maps)
    np.testing.assert_allclose(sums.encoder, want_ss, rtol=1e-5)
    np.testing.assert_allclose(sums.cross, want_ts / (3 / 4), rtol=1e-5)


def covered(source, target, looks_at):
    """The coverage of a pair whose pieces look at one source word each.

    Args:
      looks_at: for each target word, the source word; -1 for the end.
    """
    small_vocabulary = vocabulary()
    pair = tuple(small_vocabulary.encode([source, target], end=True))
    source_words = np.array([*small_vocabulary.words(pair[0][:-1]).of_token, -1])
    weights = np.zeros((1, 2, len(pair[1]), len(pair[0])), np.float32)
    target_words = small_vocabulary.words(pair[1][:-1]).of_token
    for t, word in enumerate([looks_at[j] for j in target_words]):
        keys_s = source_words == word
        weights[0, :, t] = keys_s / keys_s.sum()
    weights[0, :, -1, -1] = 1
    words = [explained_words(small_vocabulary, ids, None) for ids in pair]
    maps = AttentionMaps((), (), None, None, weights)
    coverage = cover(*words, maps, 0, None)
    assert coverage.links == cover(*words, maps, 0, 1).links  # both heads are alike
    return (*words, coverage)


def test_dropped_and_repeated_words():
    source, target, coverage = covered(
        "the cat sees dogs", "Die Katze, ihre Katze sieht", [0, 1, 0, 1, 2]
    )
    assert source.texts == ["the", "cat", "sees", "dogs"]
    assert target.texts == ["Die", "Katze,", "ihre", "Katze", "sieht"]
    assert coverage.links == [(0, 0), (1, 1), (0, 2), (1, 3), (2, 4)]
    np.testing.assert_allclose(coverage.coverage, [2, 2, 1, 0], atol=1e-6)
    assert (coverage.dropped, coverage.repeated) == ([3], [0, 1])
    assert covered("a", "", [])[2].weights.shape == (0, 1)  # no word


@pytest.mark.parametrize(
    ("target", "repeated"), [("ein sehr Hund", []), ("Hund, hund! da", [0])]
)
def test_neighbours_of_one_word_are_no_repetition_unless_they_are_equal(
    target, repeated
):
    assert covered("dog there", target, [0, 0, 1])[2].repeated == repeated


def test_where_no_spaces_are_written_pieces_are_words():
    small_vocabulary = vocabulary()
    # Characters of three bytes, since the vocabulary has none of them.
    for text in ("猫 が犬を", "แมวเห็น"):
        (ids,) = small_vocabulary.encode([text], end=True)
        words = explained_words(small_vocabulary, ids, None)
        assert words.texts == [*text.replace(" ", "")]
        assert sorted({*words.of_token}) == [-1, *range(len(words.texts))]
        # A character in bytes, after the space that begins a line.
        assert words.of_token.count(0) == 4
