"""Comparisons: totals are sacreBLEU's, buckets those of a twin, and laws hold."""

import json
import math
from collections import Counter, defaultdict
from unittest import mock

import hypothesis
import numpy as np
import pytest
import sacrebleu
from hypothesis import strategies as st

from t2t_jax.data.corpus import LowScore
from t2t_jax.extensions.text.word_alignment import TranslationTable
from t2t_jax.metrics import measures
from t2t_jax.tools.compare import aspects
from t2t_jax.tools.compare.aspects import ASPECTS
from t2t_jax.tools.compare.compare import (
    compare_texts,
    marks,
    parts,
    word_changes,
)
from t2t_jax.tools.compare.signs import SIGNS
from t2t_jax.tools.compare.summary import summary
from t2t_jax.tools.compare.texts import Texts, bleu_words, count_training
from tests.comparison.made_up_systems import made_up
from tests.doctor.made_up import corpus_of
from tests.documents import PYTHON

WORDS = st.lists(st.sampled_from(["a", "b", "B", "7", "."]), max_size=8)


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch):
    monkeypatch.setattr(measures, "SAMPLES", 100)


@pytest.fixture(scope="module")
def example():
    return made_up()


@pytest.fixture(scope="module")
def compared(example):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "SAMPLES", 100)
        return compare_texts(*example)


# ------------------------------------------------------------------------------ totals


def test_totals_are_those_of_sacrebleu(example, compared):
    texts, systems = example
    metrics = {
        "bleu": sacrebleu.corpus_bleu,
        "chrf": sacrebleu.corpus_chrf,
        "ter": sacrebleu.corpus_ter,
    }
    assert [total["name"] for total in compared["totals"]] == [*metrics]
    for total in compared["totals"]:
        for figures, system in zip(total["systems"], systems, strict=True):
            expected = metrics[total["name"]](system.lines, [texts.references]).score
            assert figures["score"] == pytest.approx(expected, abs=1e-9)
        assert total["signature"].startswith("nrefs:1|")
        # More mistakes: less BLEU and chrF, more TER, and worse by all.
        assert [change["verdict"] for change in total["differences"]] == ["worse"] * 2
    for n, sentence in enumerate(compared["sentences"]):
        for score, system in zip(sentence["chrf"], systems, strict=True):
            reference = [texts.references[n]]
            expected = sacrebleu.sentence_chrf(system.lines[n], reference).score
            assert score == pytest.approx(expected, abs=1e-9)


# ------------------------------------------------------------------------------- laws


def differences_of(compared, system=0):
    """All differences to the baseline, by their places."""
    by_place = {}
    for total in compared["totals"]:
        by_place[total["name"]] = total["differences"][system]["difference"]
    for name, aspect in compared["aspects"].items():
        for bucket in aspect["buckets"]:
            for score, change in bucket["differences"][system].items():
                by_place[name, bucket["name"], score] = change["difference"]
    for name, sign in compared["signs"].items():
        by_place[name] = sign["differences"][system]["difference"]
    return by_place


def test_a_system_against_itself_has_no_difference(example):
    texts, systems = example
    comparison = compare_texts(texts, [systems[1], systems[1]._replace(name="again")])
    assert {*differences_of(comparison).values()} <= {0, None}
    verdicts = {
        change["verdict"] for t in comparison["totals"] for change in t["differences"]
    }
    assert verdicts == {"not significant"}
    assert comparison["changes"] == [{"right": [], "wrong": []}]
    assert comparison["histograms"][0]["equal"] == len(texts.sources)
    assert not any(comparison["histograms"][0]["counts"])


def test_exchanged_systems_have_opposite_differences(example, compared):
    texts, systems = example
    back = compare_texts(texts, [systems[1], systems[0]])
    differences, reversed_differences = differences_of(compared), differences_of(back)
    assert any(differences.values())
    for place, difference in reversed_differences.items():
        assert difference is None or difference == pytest.approx(-differences[place])
    verdicts = {"better", "worse"}, {"not significant"}
    for change, opposite in zip(compared["totals"], back["totals"], strict=True):
        change, opposite = change["differences"][0], opposite["differences"][0]
        assert {change["verdict"], opposite["verdict"]} in verdicts
    assert back["changes"][0]["right"] == compared["changes"][0]["wrong"]
    counts = compared["histograms"][0]["counts"]
    assert back["histograms"][0]["counts"] == counts[::-1]


# ----------------------------------------------------------------------------- buckets


def matched(words, available):
    """The words that another list has, each of its occurrences used once."""
    unused, matches = [*available], []
    for word in words:
        if word in unused:
            unused.remove(word)
            matches.append(word)
    return matches


def copied(texts, outputs):
    """The counts of words that a twin finds, {bucket: [in references, got, ...]}."""
    counts = defaultdict(lambda: [0, 0, 0, 0])
    sides = texts.source_words, texts.reference_words, outputs
    for source, reference, output in zip(*sides, strict=True):
        for words, opposite, column in ((reference, output, 0), (output, reference, 2)):
            by_bucket = defaultdict(list)
            for word in words:
                bucket_name = "in the source" if word in source else "not in the source"
                if any(c.isalnum() for c in word):
                    by_bucket[bucket_name].append(word)
            for bucket, bucket_words in by_bucket.items():
                counts[bucket][column] += len(bucket_words)
                counts[bucket][column + 1] += len(matched(bucket_words, opposite))
    return dict(counts)


def test_words_in_buckets_are_counted_as_by_a_twin(example, compared):
    texts, systems = example
    division = ASPECTS["copied"].divide(texts)
    rows = compared["aspects"]["copied"]["buckets"]
    rows_by_name = {bucket["name"]: bucket for bucket in rows}
    for s, system in enumerate(systems):
        words = bleu_words(system.lines, "de")
        expected = copied(texts, words)
        assert len(expected) > 1
        counted = aspects.count_words(division, texts, words).sum(0)
        for bucket, counts in zip(division.names, counted, strict=True):
            assert [*counts] == expected.get(bucket, [0, 0, 0, 0])
        for bucket, (total, hit, output, right) in expected.items():
            assert rows_by_name[bucket]["count"] == total
            r = hit / total if total else 0
            p = right / output if output else 0
            f1 = 2 * r * p / (r + p) if r + p else 0
            assert rows_by_name[bucket]["systems"][s]["f1"] == pytest.approx(100 * f1)


def test_lines_by_length_are_scored_as_sets_of_their_own(example, compared):
    texts, systems = example
    rows = compared["aspects"]["length"]["buckets"]
    assert len(rows) == 3
    for row, (low, high) in zip(rows, ((0, 5), (6, 10), (11, 15)), strict=True):
        numbers = [
            n for n, words in enumerate(texts.source_words) if low <= len(words) <= high
        ]
        assert row["count"] == len(numbers)
        for s, system in enumerate(systems):
            lines = [system.lines[n] for n in numbers]
            references = [[texts.references[n] for n in numbers]]
            expected = sacrebleu.corpus_bleu(lines, references).score
            assert row["systems"][s]["bleu"] == pytest.approx(expected)
            expected = sacrebleu.corpus_chrf(lines, references).score
            assert row["systems"][s]["chrf"] == pytest.approx(expected)


def test_the_aspect_of_the_documentation_is_one():
    texts, systems = made_up(lines=4)
    texts.references[0] = "Achtung, Hund."
    (block,) = [b for b in PYTHON if b.page == "docs/compare.md"]
    with mock.patch.dict(ASPECTS):
        exec(compile(block.code, str(block), "exec"), {})
        comparison = compare_texts(texts, systems)
        assert any("Endings" in line for line in summary(comparison))
    (bucket,) = comparison["aspects"]["endings"]["buckets"]
    assert (bucket["name"], bucket["count"]) == ("-ung", 1)


def test_without_training_text_the_reason_is_said():
    texts, systems = made_up(lines=4, training=False)
    comparison = compare_texts(texts, systems)
    assert "--train" in comparison["aspects"]["frequency"]["missing"]
    assert "--train" in comparison["signs"]["unsupported"]["missing"]
    assert "missing" not in comparison["signs"]["untranslated"]
    assert any("--train" in line for line in summary(comparison))


# ------------------------------------------------------------------- words of the lines


@hypothesis.settings(max_examples=40)
@hypothesis.given(st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=4))
def test_changed_words_are_those_that_one_system_lacks(lines):
    references, base, system = zip(*lines, strict=True) if lines else ([], [], [])
    changes = word_changes(references, base, system)
    expected = {"right": Counter(), "wrong": Counter()}
    for reference, a, b in lines:
        got_a, got_b = matched(reference, a), matched(reference, b)
        for word in {*reference} - {"."}:
            change = got_b.count(word) - got_a.count(word)
            expected["right" if change > 0 else "wrong"][word] += abs(change)
        # Marks say the same: bit 0 is the first system, bit 1 the second.
        reference_marks, output_marks = marks(reference, [a, b])
        for s, (hit, output) in enumerate(((got_a, a), (got_b, b))):
            bit = 1 << s
            marked_words = [
                w for w, m in zip(reference, reference_marks, strict=True) if m & bit
            ]
            assert sorted(marked_words) == sorted(hit)
            right_words = [
                w for w, m in zip(output, output_marks[s], strict=True) if m & bit
            ]
            assert sorted(right_words) == sorted(hit)
    for side, counts in expected.items():
        assert {w["word"]: w["count"] for w in changes[side]} == {
            word: count for word, count in counts.items() if count
        }
        order = [w["count"] for w in changes[side]]
        assert order == sorted(order, reverse=True)
        for row in changes[side]:
            assert all(row["word"] in references[n] for n in row["lines"])


@hypothesis.settings(max_examples=60)
@hypothesis.given(st.text(alphabet='aB7.,-& ;"\u00a0', max_size=30))
def test_a_text_is_cut_and_joined_again(text):
    (words,) = bleu_words([text], "de")
    cut = parts(text, words)
    assert len(cut) == len(words)
    assert "".join(cut).split() == text.split()
    (words,) = bleu_words(["Tom &amp; Anna"], "de")  # shown as its words
    assert parts("Tom &amp; Anna", words) == ["Tom", " &", " Anna"]


# ------------------------------------------------------------------------------- signs


def counts_of(name, source, reference, output, training=None):
    lines = [[line] for line in (source, reference, output)]
    texts = Texts("one", "en", "de", *lines[:2], training)
    ((count, total),) = SIGNS[name].count(texts, bleu_words(lines[2], "de"))
    return count, total


@pytest.mark.parametrize(
    ("name", "output", "count"),
    [
        ("empty", "", 1),
        ("short", "Ein", 1),
        ("long", "Ein Hund und noch ein ganz kleiner Hund .", 1),
        ("loops", "Ein Ein Hund bellt", 0),
        ("loops", "Ein Ein Ein Hund", 1),
        ("loops", "Ein Hund Ein Hund", 1),
        ("loops", "Hund . . . !", 0),
        ("untranslated", "Ein dog barks", 2),
    ],
)
def test_signs_of_a_line(name, output, count):
    assert counts_of(name, "A dog barks .", "Ein Hund bellt .", output)[0] == count
    # A blank source is translated by an empty line.
    assert counts_of("empty", "", "", "") == (0, 0)


def test_words_without_support_are_found_in_both_directions():
    english = ["one", "two", "three", "four", "five", "six"]
    german = ["eins", "zwei", "drei", "vier", "fünf", "sechs"]
    words = dict(zip(english, german, strict=True))
    rng = np.random.default_rng(2)
    pairs = [
        (" ".join(drawn), " ".join(words[w] for w in drawn))
        for drawn in (rng.choice(english, 2, replace=False) for _ in range(80))
    ]
    low = [LowScore(pair) for pair in pairs]  # training leaves these out
    training = count_training([corpus_of([*low, *pairs])], "en", "de")
    assert training.pairs == training.counted == 80
    sides = "one two", "eins zwei"
    assert counts_of("unsupported", *sides, "eins zwei", training) == (0, 2)
    assert counts_of("unsupported", *sides, "eins zwei vier", training) == (1, 3)
    assert counts_of("uncovered", *sides, "eins", training) == (1, 2)
    # Words that the text lacks are not judged, and copies need no support.
    assert counts_of("unsupported", *sides, "eins one neu", training) == (0, 1)


def test_the_lexicon_is_model_1():
    pairs = [("a b", "x y"), ("a", "x"), ("b c", "y z z"), ("c", "z"), ("a a", "x")]
    pairs = [(s.split(), t.split()) for s, t in pairs]
    table = defaultdict(lambda: 1.0)
    for _ in range(3):
        count = Counter()
        for source, target in pairs:
            source = ["", *source]
            for t in target:
                total = sum(table[s, t] for s in source)
                for s in source:
                    count[s, t] += table[s, t] / total
        source_count = Counter()
        for (s, _), c in count.items():
            source_count[s] += c
        shares = {(s, t): c / source_count[s] for (s, t), c in count.items()}
        table = defaultdict(float, shares)
    lexicon = TranslationTable(pairs, iterations=3, least=1)
    support = lexicon.support(["a", "c", "?"], ["x", "y", "z", "new"])
    expected = [max(table[s, t] for s in "ac") for t in "xyz"]
    assert [*support[:3]] == pytest.approx(expected)
    assert math.isnan(support[3])


# ----------------------------------------------------------- what is written of it


def test_a_comparison_is_json_and_its_summary_names_what_differs(compared):
    assert json.loads(json.dumps(compared, allow_nan=False))["lines"] == 40
    text = "\n".join(summary(compared))
    for total in compared["totals"]:
        for change in total["differences"]:
            assert f"{change['difference']:+.2f}" in text
    best = max(compared["sentences"], key=lambda s: s["chrf"][1] - s["chrf"][0])
    assert f"best: {best['source']}" in text
