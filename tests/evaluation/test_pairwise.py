"""Utilities of all pairs are the sentence scores of sacreBLEU."""

import hypothesis
import numpy as np
import pytest
import sacrebleu
from hypothesis import strategies

from t2t_jax.metrics import text_measures as measures_of_text
from t2t_jax.metrics.measures import measured
from t2t_jax.metrics.text_measures import UTILITIES, text_measures

TEXTS = [
    "Der Hund sieht die Katze.",
    "Der Hund sieht den Hund den Hund.",
    "Der Hund",
    "aa aa aa aa aa",
    "a",
    "",
    "  a\u00a0b  ",
    "日本語 です! 日本語",
    "Die (kleine) Katze, die 1,000.5% sieht &quot;-",
]
REFERENCES = {
    "chrf": sacrebleu.CHRF(),
    "bleu": sacrebleu.BLEU(effective_order=True),
}
# Few letters, so that n-grams repeat and match.
sentences = strategies.lists(
    strategies.text("ab ,.", max_size=24), min_size=1, max_size=6
)


def peer(name, hypotheses, references):
    scorer = REFERENCES[name]
    return [
        [scorer.sentence_score(h, [r]).score for r in references] for h in hypotheses
    ]


@pytest.mark.parametrize("name", UTILITIES)
@hypothesis.settings(max_examples=40)
@hypothesis.given(texts=sentences)
def test_any_sentences_score_as_sacrebleu_scores_them(name, texts):
    found = UTILITIES[name](texts, texts)
    np.testing.assert_allclose(found, peer(name, texts, texts), atol=1e-9)


def test_bleu_cuts_words_as_its_language_does():
    # Without spaces, words are characters; by 13a each text is one word.
    texts = ["日本語です", "日本語だ"]
    assert measures_of_text.bleu(texts, texts, "ja")[0, 1] > 30
    assert measures_of_text.bleu(texts, texts, "de")[0, 1] == 0


@pytest.mark.parametrize("name", UTILITIES)
def test_a_score_is_that_of_its_pair_alone(name):
    """To the bit for equal texts; up to rounding in other company."""
    texts = [*TEXTS, TEXTS[0], TEXTS[3]]
    found = UTILITIES[name](texts, texts)
    for n, m in ((0, -2), (3, -1)):
        np.testing.assert_array_equal(found[n], found[m])
        np.testing.assert_array_equal(found[:, n], found[:, m])
    for n in (0, 4, 5):
        alone = UTILITIES[name](texts[n : n + 1], texts[1:2])
        np.testing.assert_allclose(alone, found[n : n + 1, 1:2], atol=1e-9)
    assert UTILITIES[name]([], texts).shape == (0, len(texts))


@pytest.mark.parametrize("texts", [TEXTS, ["a b"], ["", ""], ["a b c d"] * 2])
def test_measures_of_a_set_are_those_of_sacrebleu(texts):
    """Also of short sets, where orders are missing or nothing matches."""
    for references in (texts, texts[::-1], ["x y z"] * len(texts)):
        pairs = [("", reference) for reference in references]
        for name, measure in text_measures().items():
            scorer = {
                "bleu": sacrebleu.BLEU(),
                "bleu_lc": sacrebleu.BLEU(lowercase=True),
                "chrf": sacrebleu.CHRF(),
                "ter": sacrebleu.TER(),
            }[name]
            wanted = scorer.corpus_score(texts, [references]).score
            found = measured(measure, measure.statistics(texts, pairs))
            assert found == pytest.approx(wanted, abs=1e-9)
