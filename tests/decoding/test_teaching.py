"""Teacher forcing: probabilities, attention and alignments against what they mean."""

import itertools
import logging
import math
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_jax.decoding import alignment
from t2t_jax.decoding.results import Alignment
from t2t_jax.io.errors import UserError
from t2t_jax.model.attention import LayerTrace
from t2t_jax.text.units import matched, units
from t2t_jax.text.words import visible
from t2t_jax.tools.verify.references import twin
from tests.decoding.small_translator import translator
from tests.model.twin_variants import logits

PAIRS = [
    ("the cat", "die Katze"),
    ("a dog", ""),
    ("", "ein Hund"),
    ("", ""),
    ("😀", "\u2028\x00 ü"),
    ("the cat", "die Katze sieht"),
]


def of_twin(translator, source, target):
    """float64 logits [t, v], and the attention weights of every head in order."""
    bos, eos = translator.vocabulary.bos, translator.vocabulary.eos
    recorded, softmax = [], twin.softmax

    def recording(scores):
        recorded.append(softmax(scores))
        return recorded[-1]

    batch = {
        "source": np.array([[*source, eos]]),
        "target_input": np.array([[bos, *target]]),
    }
    for side, tokens in (("source", "source"), ("target", "target_input")):
        batch[f"{side}_segment"] = np.ones_like(batch[tokens])
        batch[f"{side}_position"] = np.arange(batch[tokens].shape[1])[None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(twin, "softmax", recording)
        logits_btv = logits(translator.config.model, translator.parameters, batch)
    return logits_btv[0], recorded


def test_scores_are_the_twins(tiny):
    for (source, target), score in zip(PAIRS, tiny.score(PAIRS), strict=True):
        source_ids, target_ids = tiny.vocabulary.encode([source, target])
        logits_tv, _ = of_twin(tiny, source_ids, target_ids)
        ids = [*target_ids, tiny.vocabulary.eos]
        expected = np.log(
            [twin.softmax(x)[i] for x, i in zip(logits_tv, ids, strict=True)]
        )
        np.testing.assert_allclose(score.log_probs, expected, atol=1e-4)
        assert score.pieces == (*tiny.vocabulary.pieces(target), "</s>")
        assert score.log_prob == math.fsum(score.log_probs)
        assert score.perplexity == pytest.approx(math.exp(-np.mean(expected)), rel=1e-4)
        penalty = ((5 + len(expected)) / 6) ** tiny.config.decode.alpha
        assert score.score == pytest.approx(sum(expected) / penalty, abs=1e-4)


def test_a_hypothesis_has_the_probability_it_was_found_with(tiny):
    lines = ["the cat sees the dog", "a dog sleeps", "😀😀"]
    results = tiny.translate(lines, nbest=3, penalty="length", alpha=0.7, warn=False)
    results += tiny.translate(lines, prefix="die", nbest=3, penalty="length", alpha=0.7)
    results += tiny.sample(
        lines, samples=2, temperature=0.8, penalty="length", alpha=0.7
    )
    pairs = [(t.source, h) for t in results for h in t.hypotheses]
    assert len(pairs) >= 20
    scores = tiny.score(pairs, penalty="length", alpha=0.7)
    for (_, hypothesis), score in zip(pairs, scores, strict=True):
        assert len(score.pieces) == len(hypothesis.tokens)
        assert score.log_prob == pytest.approx(hypothesis.log_prob, rel=1e-5, abs=3e-4)
        assert score.score == pytest.approx(hypothesis.score, rel=1e-5, abs=1e-4)


def test_a_target_longer_than_any_translation_is_cut_with_a_warning(tiny, caplog):
    with caplog.at_level(logging.WARNING, logger="t2t_jax"):
        long_pair, short = tiny.score([("a", "x" * 100_000), ("a", "b")], first_line=3)
    assert len(long_pair.pieces) == 64 + 5  # max_source and extra_length
    assert len(short.pieces) == len(tiny.vocabulary.encode(["b"], end=True)[0])
    (message,) = caplog.messages
    assert message.startswith("line 3: its target ha")


def test_what_is_no_pair_is_told(tiny):
    for pair, message in (
        ("ab", "is not a pair; want"),
        (("a", None), "want texts, Hypothesis or Translation"),
        (("a", "\ud800"), "lone surrogate"),
    ):
        with pytest.raises(UserError, match=message):
            tiny.score([pair])


def test_attention_is_the_twins():
    tiny = translator(1, layers=2, norm="pre")
    source, target = "the cat", "die Katze ü"
    maps = tiny.attention(source, target)
    source_ids, target_ids = tiny.vocabulary.encode([source, target])
    _, recorded = of_twin(tiny, source_ids, target_ids)
    layers, heads = tiny.config.model.layers, tiny.config.model.heads
    s, t = len(source_ids) + 1, len(target_ids) + 1
    assert maps.encoder.shape == (layers, heads, s, s)
    assert maps.decoder.shape == (layers, heads, t, t)
    assert maps.cross.shape == (layers, heads, t, s)
    heads_of_twin = iter(recorded)  # in the twin's order

    def layer():
        return [next(heads_of_twin)[0] for _ in range(heads)]

    for weights in maps.encoder:
        np.testing.assert_allclose(weights, layer(), atol=1e-3)
    for weights, cross in zip(maps.decoder, maps.cross, strict=True):
        np.testing.assert_allclose(weights, layer(), atol=1e-3)
        assert not np.triu(weights, 1).any()
        np.testing.assert_allclose(cross, layer(), atol=1e-3)
    assert not [*heads_of_twin]
    assert maps.source == (*tiny.vocabulary.pieces(source), "</s>")
    assert maps.read == ("<s>", *tiny.vocabulary.pieces(target))


def test_alignments_of_words_in_pieces(tiny, monkeypatch):
    """The mean of a word's target pieces, the sum of a word's source pieces."""
    source, target = "zz t", "d i"
    pieces = tiny.vocabulary.pieces
    assert pieces(source) == ["▁", "z", "z", "▁t"]
    assert pieces(target) == ["▁d", "▁", "i"]

    def weights(t, s):
        assert (t, s) == (4, 5)  # the ends of sentences do not count
        return [
            [0.2, 0.2, 0.1, 0.4, 9.0],  # d: no piece of zz has more than t, all have
            [0.0, 0.0, 0.0, 0.9, 9.0],  # i, with its space: zz has 0.3, and t 0.65
            [0.0, 0.6, 0.0, 0.4, 9.0],
            [0.0, 9.0, 0.0, 0.0, 0.0],
        ]

    def traces(vocabulary, member, pairs):
        for row, (source, target) in enumerate(pairs):
            weights_ts = np.array(weights(len(target), len(source)), np.float32)
            yield row, LayerTrace(None, None, np.stack([[weights_ts]] * 2))

    monkeypatch.setattr(alignment, "traces", traces)
    (results,) = tiny.align([(source, target)])
    assert results == Alignment(((0, 0), (1, 1)))


WORDS = st.text(
    st.sampled_from("a ü\u2028\u2003\u3000\x00\x1f\x85\ufffd😀\u2581"), max_size=7
)


# White space that is spelled in bytes, the first of which look like a word.
SPACES = ["Katze \u2003", "a \u3000b", "\u2028 \u2029", "the cat"]


@settings(max_examples=40)
@example([*itertools.product(SPACES, SPACES)])
@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=8))
def test_every_target_word_has_one_source_word(pairs):
    for (source, target), results in zip(
        pairs, translator(1).align(pairs), strict=True
    ):
        words = len(source.encode().split())  # by ASCII white space
        expected = range(len(target.encode().split()) if visible(source) else 0)
        assert [j for _, j in results.links] == [*expected]
        assert all(0 <= i < words for i, _ in results.links)


def test_learned_positions_that_are_no_power_of_two_score_the_longest_translation():
    learned = translator(positions="learned", max_positions=48)  # 32 and 5 are read
    pair = "the cat sees the dog " * 9, "a dog sleeps " * 20
    (score,) = learned.score([pair], warn=False)
    assert np.isfinite(score.log_prob)
    assert len(score.pieces) == 37
    assert learned.align([pair], warn=False)[0].links


@settings(max_examples=40)
@example(["the cat, the dog", "ü!\u2028 a-b", "", "\x00 \u2003", "<x> can't <x>"])
@given(st.lists(WORDS, min_size=1, max_size=8))
def test_units_are_linked_as_words_are(texts):
    tiny = translator(1)
    pairs = [*zip(texts, texts[::-1], strict=True)]
    by_words = tiny.align(pairs)
    for pair, results, words in zip(
        pairs, tiny.align_units(pairs), by_words, strict=True
    ):
        assert [results.source, results.target] == [*map(units, pair)]
        if "\u2581" in "".join(pair):
            continue  # spelled as two characters, so these units do not match
        linked = [j for _, j in results.links]
        expected = range(len(results.target) if visible(pair[0]) else 0)
        assert linked == [*expected]
        if re.fullmatch(r"[\w ]*", "".join(pair)):
            assert results.links == words.links


def test_units_of_a_normalized_text_are_matched_with_those_of_the_line():
    spelled, text = "<2de> can't fi .", "can't, \ufb01 ."
    sides = spelled, units(spelled), text, units(text)
    assert matched(*sides) == {3: 0, 4: 1, 5: 2, 7: 5}
    assert matched(*sides[2:] * 2) == {n: n for n in range(6)}
    assert units("a <is>!") == [(0, 1), (2, 6), (6, 7)]
