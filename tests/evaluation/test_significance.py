"""Two systems on the same lines."""

import itertools
import random

import numpy as np
import pytest
import sacrebleu

from t2t_jax.data.corpus import open_corpora
from t2t_jax.evaluation.scores import read_baselines
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.measures import compared, significance
from t2t_jax.metrics.text_measures import text_measures

WORDS = ["der", "die", "Hund", "Katze", "sieht", "geht", "rot", "blau", "heute", "nie"]


@pytest.fixture(scope="module")
def systems():
    """References, a good system and one with more mistakes."""
    draw = random.Random(3)
    references = [" ".join(draw.choices(WORDS, k=9)) for _ in range(120)]

    def with_mistakes(rate):
        return [
            " ".join(
                draw.choice(WORDS) if draw.random() < rate else word
                for word in line.split()
            )
            for line in references
        ]

    return references, with_mistakes(0.2), with_mistakes(0.4)


def compare(one, other, references):
    pairs = [("", reference) for reference in references]
    return compared(text_measures("de"), one, other, pairs)


def test_a_system_much_worse_is_told_from_one(systems):
    references, good, bad = systems
    found = compare(good, bad, references)
    for name, sign in (("bleu", 1), ("bleu_lc", 1), ("chrf", 1), ("ter", -1)):
        it = found[name]
        assert it["p_value"] < 0.01
        assert it["difference"] == it["score"] - it["baseline_score"]
        assert it["difference"] * sign > 0
        assert it["low"] * sign > 0
    wanted = sacrebleu.corpus_bleu(good, [references]).score
    assert found["bleu"]["score"] == pytest.approx(wanted)
    theirs = sacrebleu.corpus_bleu(bad, [references]).score
    assert found["bleu"]["baseline_score"] == pytest.approx(theirs)
    back = compare(bad, good, references)["bleu"]
    assert back["difference"] == -found["bleu"]["difference"]
    assert back["interval"] == found["bleu"]["baseline_interval"]


def test_a_difference_by_chance_is_called_one(systems):
    references, good, bad = systems
    both = (good[:60] + bad[60:], bad[:60] + good[60:])
    assert compare(*both, references)["bleu"]["p_value"] > 0.1
    same = compare(good, list(good), references)["bleu"]
    assert (same["difference"], same["p_value"]) == (0, 1)


def test_p_is_that_of_a_bootstrap_written_out(systems):
    """Koehn 2004. TER is edits over words, so its samples are sums."""
    references, good, bad = systems
    both = (good[:60] + bad[60:], bad[:60] + good[60:])
    ter = sacrebleu.TER()
    edits_sl = [
        [
            ter.sentence_score(line, [reference]).num_edits
            for line, reference in zip(side, references, strict=True)
        ]
        for side in both
    ]
    draws = np.random.default_rng(1).integers(120, size=(4_000, 120))
    length = 9 * len(references)
    ter_sd = [100 * np.array(edits)[draws].sum(1) / length for edits in edits_sl]
    difference_d = ter_sd[0] - ter_sd[1]
    observed = 100 * abs(sum(edits_sl[0]) - sum(edits_sl[1])) / length
    chance = np.mean(np.abs(difference_d - difference_d.mean()) >= observed - 1e-9)
    found = compare(*both, references)["ter"]
    assert abs(found["difference"]) == pytest.approx(observed)
    assert found["p_value"] == pytest.approx(chance, abs=0.04)
    assert 0.02 < chance < 0.98


def test_randomisation_draws_from_all_exchanges(systems):
    """With 8 lines there are 256 ways to exchange the two systems' translations."""
    references, good, bad = (side[8:16] for side in systems)
    good, bad = good[:5] + bad[5:], bad[:5] + good[5:]  # a small difference
    metric = sacrebleu.BLEU()

    def difference(exchanged):
        pairs = [
            pair[::-1] if turn else pair
            for pair, turn in zip(zip(good, bad, strict=True), exchanged, strict=True)
        ]
        one, other = (
            metric.corpus_score(side, [references]).score
            for side in zip(*pairs, strict=True)
        )
        return abs(one - other)

    differences = np.array([*map(difference, itertools.product([0, 1], repeat=8))])
    chance = np.mean(differences >= differences[0] - 1e-9)
    pairs = [("", reference) for reference in references]
    found = significance(text_measures("de")["bleu"], good, bad, pairs)
    assert found["randomisation"] == pytest.approx(chance, abs=0.04)
    assert 0.05 < chance < 0.95
    assert abs(found["difference"]) == pytest.approx(differences[0])
    by_bootstrap = compare(good, bad, references)["bleu"]["p_value"]
    assert found["bootstrap"] == by_bootstrap


def test_systems_that_do_not_fit_are_refused(systems):
    references, good, bad = systems
    with pytest.raises(ValueError, match="argument 2 is longer"):
        compare(good, bad[1:], references)


@pytest.fixture
def corpora(tmp_path):
    for name, lines in (("one", 3), ("two", 2)):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text("a b\n" * lines)
    return open_corpora(f"{tmp_path}/one,{tmp_path}/two", "en", "de")


def test_baselines_are_read_in_the_order_of_the_sets(corpora, tmp_path):
    (tmp_path / "a.txt").write_text("x\n\u2028\nz\n")
    (tmp_path / "b.txt").write_text("v\nw\n")
    found = read_baselines(f"{tmp_path}/a.txt, {tmp_path}/b.txt", corpora)
    assert found == [["x", "\u2028", "z"], ["v", "w"]]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"x\ny\n", r"base.txt has 2 lines, but .*one has 3; want an answer"),
        (b"x\n\xff\nz\n", "base.txt, line 2: byte 1"),
        (None, "base.txt is not a file; want another system's answers to one"),
    ],
)
def test_baselines_that_do_not_fit_are_told(corpora, tmp_path, content, told):
    file = tmp_path / "base.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=told):
        read_baselines(str(file), corpora[:1])


def test_there_is_a_baseline_for_each_set(corpora):
    with pytest.raises(UserError, match=r"1 files for 2 test sets \(one, two\)"):
        read_baselines("base.txt", corpora)
    with pytest.raises(UserError, match="0 files for 2"):
        read_baselines("", corpora)
