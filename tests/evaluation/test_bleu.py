"""Scores are sacreBLEU's and multi-bleu's; the protocols are not confused."""

import math
import os
import types
from collections import Counter

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.config import Config
from t2t_jax.metrics import plain
from t2t_jax.metrics.measures import measured
from t2t_jax.metrics.plain import (
    corpus_scores,
    lower_tokenized,
    paper_scores,
    paper_tokenized,
    plain_scores,
    split_compounds,
    tokenized_scores,
)
from t2t_jax.metrics.text_measures import text_measures
from t2t_jax.tasks.translation import Translation

HYPOTHESES = ["Der Hund sieht die Katze.", 'Ein Mann (alt) sagt: "Nein".']
REFERENCES = ["Der Hund sieht eine Katze.", "Ein alter Mann sagt: „Nein“!"]
WORDS = ["der", "Hund", "Ein-Mann-Zelt", "z.B.", "L'eau", "”so”", "1,5", "x-y", "."]
LINES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
PAIRS = st.lists(st.tuples(LINES, LINES), min_size=1, max_size=8)


def test_all_scores_of_plain_text_are_sacrebleus():
    scores = plain_scores(HYPOTHESES, REFERENCES, "de")
    sides = HYPOTHESES, [REFERENCES]
    expected = {
        **corpus_scores(HYPOTHESES, REFERENCES),
        "bleu": sacrebleu.corpus_bleu(*sides).score,
        "chrf": sacrebleu.corpus_chrf(*sides).score,
        "bleu_lc": sacrebleu.corpus_bleu(*sides, lowercase=True).score,
        "bleu_intl": sacrebleu.corpus_bleu(*sides, tokenize="intl").score,
        "ter": sacrebleu.corpus_ter(*sides).score,
    }
    assert expected.items() <= scores.items()
    version = f"version:{sacrebleu.__version__}"
    bleu_as = f"nrefs:1|case:%s|eff:no|tok:%s|smooth:exp|{version}"
    assert {k: v for k, v in scores.items() if "signature" in k} == {
        "signature": bleu_as % ("mixed", "13a"),
        "bleu_lc_signature": bleu_as % ("lc", "13a"),
        "bleu_intl_signature": bleu_as % ("mixed", "intl"),
        "chrf_signature": f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}",
        "ter_signature": (
            f"nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|{version}"
        ),
    }


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(LINES, LINES, LINES | st.just(""), LINES), min_size=1),
    st.permutations(range(3)),
)
def test_several_references_are_sacrebleus_in_any_order(rows, order):
    """An empty line is none: sacreBLEU's `None`, as its Python interface takes it."""
    hypotheses, *references = map(list, zip(*rows, strict=True))
    streams = [[text or None for text in side] for side in references]
    shuffled = [references[i] for i in order]
    scores = plain_scores(hypotheses, shuffled, "de")
    pairs, further = [("", text) for text in shuffled[0]], shuffled[1:]
    measures = text_measures("de", further)
    for name, metric in {
        "bleu": sacrebleu.BLEU(),
        "chrf": sacrebleu.CHRF(),
        "ter": sacrebleu.TER(),
    }.items():
        assert scores[name] == metric.corpus_score(hypotheses, streams).score
        key = "signature" if name == "bleu" else f"{name}_signature"
        assert scores[key] == str(metric.get_signature())
        statistics = measures[name].statistics(hypotheses, pairs)
        assert measured(measures[name], statistics) == pytest.approx(scores[name])
    kept = [row for row in rows if all(row)]
    if kept:
        hypotheses, *references = map(list, zip(*kept, strict=True))
        scores = paper_scores(hypotheses, references, "de", "en")
        assert scores["bleu_paper_signature"].startswith("nrefs:3|")
        one = paper_scores(hypotheses, references[:1], "de", "en")
        assert one == paper_scores(hypotheses, references[0], "de", "en")


def test_an_interval_is_sacrebleus_and_knows_no_environment(monkeypatch):
    hypotheses = [f"Der Hund sieht {n} Katzen ." for n in range(30)]
    references = [f"Der Hund sieht {n * n} Katzen ." for n in range(30)]
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    bleu = sacrebleu.BLEU()
    score = bleu.corpus_score(hypotheses, [references], n_bootstrap=1_000)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    interval = plain_scores(hypotheses, references, "de")["bleu_interval"]
    assert os.environ.get("SACREBLEU_SEED") == "7"
    assert f"± {interval['half_width']:.3f})" in score.format(width=3)
    assert f"(μ = {interval['mean']:.3f} " in score.format(width=3)
    assert interval["half_width"] > 1


@pytest.mark.parametrize(
    ("language", "tokenizer", "left_out"),
    [
        ("de", "13a", set()),
        ("zh_CN", "zh", {"bleu_paper", "bleu_lc_tok"}),
        ("ja", "char", {"bleu_paper", "bleu_lc_tok", "ter"}),
    ],
)
def test_languages_without_spaces_are_not_one_word_a_line(
    language, tokenizer, left_out
):
    scores = plain_scores(["我们看见一只猫。"], ["我们看见一条狗。"], language)
    assert f"tok:{tokenizer}|" in scores["signature"]
    assert (scores["bleu"] > 30) == (tokenizer != "13a")
    # Scores that mean nothing for a language are not printed.
    corpus = types.SimpleNamespace(target=language, spec="test")
    printed = Translation(Config()).printed_of(corpus)
    assert {*Translation.printed} - {*printed} == left_out


def multi_bleu(hypotheses, references):
    """BLEU of tokenised lines as multi-bleu.perl defines it, with one reference."""
    correct, total = Counter(), Counter()
    lengths = [0, 0]
    for sides in zip(hypotheses, references, strict=True):
        words = [side.split() for side in sides]
        for n in range(1, 5):
            hypothesis_ngrams, reference_ngrams = (
                Counter(tuple(w[i : i + n]) for i in range(len(w) - n + 1))
                for w in words
            )
            total[n] += sum(hypothesis_ngrams.values())
            correct[n] += sum(
                min(c, reference_ngrams[gram]) for gram, c in hypothesis_ngrams.items()
            )
        lengths = [a + len(w) for a, w in zip(lengths, words, strict=True)]
    if not all(correct[n] for n in range(1, 5)):
        return 0.0
    mean = sum(math.log(correct[n] / total[n]) for n in range(1, 5)) / 4
    return 100 * math.exp(mean + min(0.0, 1 - lengths[1] / lengths[0]))


@given(PAIRS, st.sampled_from([("en", "de"), ("en", "fr"), ("de", "en")]))
@settings(max_examples=40)
def test_the_papers_bleu_is_multi_bleu_of_tokenised_text(pairs, direction):
    source, target = direction
    sides = [list(side) for side in zip(*pairs, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "LONGEST", 0)  # without the bootstrap
        score = paper_scores(*sides, target, source)["bleu_paper"]
    split = direction == ("en", "de")
    hypotheses, references = (paper_tokenized(s, target, split) for s in sides)
    assert score == pytest.approx(multi_bleu(hypotheses, references))


def test_the_papers_bleu_is_not_smoothed():
    sides = ["Der Hund sieht die Katze."], ["Der Hund sah eine Katze."]
    assert paper_scores(*sides, "de", "en")["bleu_paper"] == 0
    assert corpus_scores(*sides)["bleu"] > 0


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # matches do not overlap
        ("a---b", "a ##AT##-##AT## --b"),
        ("x - y -a a-", "x - y -a a-"),
        ("über-über", "über ##AT##-##AT## über"),
        ("a\u00a0-\u00a0b", "a\u00a0 ##AT##-##AT## \u00a0b"),  # bytes, to Perl
    ],
)
def test_compounds_are_split_as_perl_does(line, split):
    assert split_compounds(line) == split


def test_texts_are_tokenised_by_language_and_protocol():
    line = ["Der Hund sagt：”Nein”，Dr. Rot-Weiß."]
    start = "Der Hund sagt : &quot; Nein &quot; , Dr. "
    assert paper_tokenized(line, "de", True) == [start + "Rot ##AT##-##AT## Weiß ."]
    # Only German from English is split, and the signature tells.
    signatures = [
        paper_scores(line, line, target, source)["bleu_paper_signature"]
        for source, target in (("en", "de"), ("en", "fr"), ("fr", "de"))
    ]
    split = ["compounds-split" in signature for signature in signatures]
    assert split == [True, False, False]
    assert "punctuation+moses-de-escaped+compounds-split:sacremoses-" in signatures[0]


def test_the_older_protocol_lowers_and_tokenises_both_sides():
    scores = tokenized_scores(HYPOTHESES, REFERENCES, "de")
    sides = (lower_tokenized(side, "de") for side in (HYPOTHESES, REFERENCES))
    hypotheses, references = sides
    plain = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True)
    assert scores["bleu_lc_tok"] == plain.score
    assert "lc+moses-de-escaped:sacremoses-" in scores["bleu_lc_tok_signature"]
    shouted = [line.upper() for line in HYPOTHESES]
    assert tokenized_scores(shouted, REFERENCES, "de") == scores


def test_translations_that_are_nearly_all_empty_have_intervals():
    """Of a model that has learned nothing; some samples of it score 0."""
    references = [f"Der Hund {n} sieht die Katze." for n in range(10)]
    translations = ["Hund", *[""] * 9]
    scores = plain_scores(translations, references, "de")
    scores |= paper_scores(translations, references, "de", "en")
    for name in ("bleu", "chrf", "ter", "bleu_paper"):
        assert scores[f"{name}_interval"]["mean"] >= 0
