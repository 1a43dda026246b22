"""Scores are sacreBLEU's; the two protocols are not confused."""

import pytest
import sacrebleu

from t2t_jax.evaluation.bleu import corpus_scores, lower_tokenized, tokenized_scores

HYPOTHESES = ["Der Hund sieht die Katze.", 'Ein Mann (alt) sagt: "Nein".']
REFERENCES = ["Der Hund sieht eine Katze.", "Ein alter Mann sagt: „Nein“!"]


def test_plain_text_is_scored_as_sacrebleu_does_by_default():
    scores = corpus_scores(HYPOTHESES, REFERENCES)
    assert scores["bleu"] == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores["chrf"] == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert "case:mixed" in scores["signature"]
    assert "tok:13a" in scores["signature"]


def test_the_older_protocol_lowers_and_tokenises_both_sides():
    assert lower_tokenized(HYPOTHESES, "de") == [
        "der hund sieht die katze .",
        "ein mann ( alt ) sagt : &quot; nein &quot; .",
    ]
    scores = tokenized_scores(HYPOTHESES, REFERENCES, "de")
    sides = (lower_tokenized(side, "de") for side in (HYPOTHESES, REFERENCES))
    hypotheses, references = sides
    plain = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True)
    assert scores["bleu_lc_tok"] == plain.score
    assert "tok:none" in scores["bleu_lc_tok_signature"]
    assert "lc+moses-de-escaped:sacremoses-" in scores["bleu_lc_tok_signature"]
    shouted = [line.upper() for line in HYPOTHESES]
    assert tokenized_scores(shouted, REFERENCES, "de") == scores


def test_the_language_decides_where_a_full_stop_is_of_the_word():
    assert lower_tokenized(["Dr. Maier kommt ca. um drei."], "de") == [
        "dr. maier kommt ca. um drei ."
    ]


@pytest.mark.parametrize("score", [corpus_scores, tokenized_scores])
def test_a_line_too_few_is_an_error(score):
    more = ("de",) if score is tokenized_scores else ()
    with pytest.raises(ValueError, match="1 hypotheses, 2 references"):
        score(HYPOTHESES[:1], REFERENCES, *more)
