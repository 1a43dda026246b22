"""Two systems on the same lines."""

import random

import pytest
import sacrebleu

from t2t_jax.data.corpus import open_corpora
from t2t_jax.evaluation.scores import read_baselines
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.measures import compared
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
    same = compare(good, list(good), references)["bleu"]
    assert (same["difference"], same["p_value"]) == (0, 1)
    back = compare(bad, good, references)["bleu"]
    assert back["difference"] == -found["bleu"]["difference"]
    assert back["interval"] == found["bleu"]["baseline_interval"]


@pytest.fixture
def corpora(tmp_path):
    for name, lines in (("one", 3), ("two", 2)):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text("a b\n" * lines)
    return open_corpora(f"{tmp_path}/one,{tmp_path}/two", "en", "de")


@pytest.mark.parametrize(
    ("sets", "files", "told"),
    [
        (1, {"a": b"x\ny\n"}, r"a has 2 lines, but .*one has 3; want an answer"),
        (1, {"a": b"x\n\xff\nz\n"}, "a, line 2: byte 1"),
        (1, {"nothing": None}, "nothing is not a file; want another system's answers"),
        (2, {"a": b"x\n"}, r"1 files for 2 test sets \(one, two\)"),
        (2, {}, "0 files for 2"),
    ],
)
def test_baselines_that_do_not_fit_are_told(corpora, tmp_path, sets, files, told):
    for name, content in files.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=told):
        read_baselines(",".join(f"{tmp_path}/{name}" for name in files), corpora[:sets])


def test_baselines_are_read_in_the_order_of_the_sets(corpora, tmp_path):
    (tmp_path / "a.txt").write_text("x\n\u2028\nz\n")
    (tmp_path / "b.txt").write_text("v\nw\n")
    found = read_baselines(f"{tmp_path}/a.txt, {tmp_path}/b.txt", corpora)
    assert found == [["x", "\u2028", "z"], ["v", "w"]]
