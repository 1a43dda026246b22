"""Parsing: linearised trees and back, repairs, scores that follow from answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax import config as fields
from t2t_jax.config import from_config_dict
from t2t_jax.grammar.trees import Tree, bracketed, parse_bracketed
from t2t_jax.io.errors import UserError
from t2t_jax.tasks.parsing import (
    REPAIRED,
    answer,
    linearise,
    read_answer,
    repair,
    tokens,
    without_tags,
)
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.treebank import cleaned

DOG = "(S (NP (DT the) (NN dog)) (VP (VBZ barks) (, ,) (ADVP (RB loudly))) (. !))"
WORDS = ["the", "dog", "barks", ",", "loudly", "!"]
LINE = "(S(NP=XX=XX)NP(VP=XX=.(ADVP=XX)ADVP)VP=.)S"

labels = st.sampled_from(["S", "NP", "VP", "TOP", "X|Y", "NNP", "XX"])
tags = st.sampled_from(["NN", ",", ".", "-LRB-", "``", "=", "PRP$", "XX"])
words = st.sampled_from(["a", "b", "(", ")", "-", "'s", "é", "=XX"])
trees = st.recursive(
    st.builds(lambda tag, word: Tree(tag, (word,)), tags, words),
    lambda inner: st.builds(
        lambda label, children: Tree(label, tuple(children)),
        labels,
        st.lists(inner, min_size=1, max_size=4),
    ),
    max_leaves=12,
).map(cleaned)


def config_of(**options):
    config = fields.defaults()
    config.task.kind = "parsing"
    config.task.options.update(options)
    return config


def task(**options):
    return task_of(from_config_dict(config_of(**options)))


def scores_of(answers, pairs, **options):
    return task(**options).quick_scores(answers, pairs)


def test_a_tree_becomes_a_line():
    tree = parse_bracketed(DOG)
    assert linearise(without_tags(tree)) == LINE
    assert "".join(tokens(LINE)) == LINE
    assert len(tokens(LINE)) == 2 * 4 + 6
    assert bracketed(repair(linearise(tree), WORDS)) == DOG


@given(trees)
def test_an_intact_line_is_the_tree_and_not_repaired(tree):
    sentence = " ".join(tree.words())
    for line in (linearise(tree), linearise(without_tags(tree))):
        made = answer(line, sentence)
        assert not made.endswith(REPAIRED)
        assert linearise(read_answer(made)) == line
        assert read_answer(made).spans() == tree.spans()
        assert read_answer(made).words() == tree.words()


pieces = st.lists(
    st.sampled_from(
        [*"()= ", "(S", ")S", "(NP", ")NP", "=XX", "=.", ")VP", "=-NONE-", "(TOP"]
    )
).map("".join)


@given(pieces | st.text(), st.lists(words, min_size=1, max_size=6))
def test_any_string_is_repaired_to_a_tree_over_the_words(line, sentence):
    made = answer(line, " ".join(sentence))
    tree = read_answer(made)
    assert tree.words() == sentence
    assert made == answer(line, " ".join(sentence))


@pytest.mark.parametrize(
    ("line", "tree"),
    [
        ("", "(TOP (XX a) (XX b) (XX c))"),
        ("(S(NP=XX=XX(VP=XX)VP)S", "(S (NP (XX a) (XX b) (VP (XX c))))"),
        ("(S(NP=XX=XX)VP=XX)NP)S", "(S (NP (XX a) (XX b) (XX c)))"),
        ("(S(NP=XX=XX)NP)S", "(S (NP (XX a) (XX b)) (XX c))"),
        ("(S(NP=XX=XX=XX=XX)NP(VP=XX)VP)S", "(S (NP (XX a) (XX b) (XX c)))"),
        ("(S=XX)S(S=XX)S=.", "(TOP (S (XX a)) (S (XX b)) (. c))"),
        ("(S(NP=XX)(VP=XX=XX)", "(S (NP (XX a)) (VP (XX b) (XX c)))"),
        ("=XX=XX=XX", "(TOP (XX a) (XX b) (XX c))"),
        ("(S(A(NP=XX)A=XX)S(B=XX)B", "(TOP (S (A (NP (XX a))) (XX b)) (B (XX c)))"),
    ],
)
def test_repairs(line, tree):
    assert answer(line, "a b c") == tree + REPAIRED


def test_deep_lines_are_repaired():
    assert read_answer(answer(5_000 * "(S" + "=XX", "a b")).words() == ["a", "b"]


def test_scores_follow_from_answers_and_pairs():
    pairs = [(" ".join(WORDS), LINE), ("a b", "(S(NP=XX)NP(VP=XX)VP)S")]
    answers = [answer(LINE, pairs[0][0]), answer("(S(NP=XX)NP=XX", pairs[1][0])]
    scores = scores_of(answers, pairs)
    # By hand: 4 of 4 brackets, then S and NP of S, NP and VP.
    assert scores["recall"] == pytest.approx(100 * 6 / 7)
    assert (scores["precision"], scores["complete_match"]) == (100, 50)
    assert scores["f1"] == pytest.approx(100 * 12 / 13)
    assert (scores["repaired"], scores["crossing"]) == (50, 0)
    assert "tagging_accuracy" not in scores
    # Other systems may write the treebank's trees.
    theirs = f"(TOP {DOG})".replace("(NP ", "(NP-SBJ ")
    assert scores_of([theirs], pairs[:1])["f1"] == 100


def test_tags_are_scored_if_the_model_writes_them():
    line = task(tags=True).linearise(parse_bracketed(DOG))
    assert "=DT=NN)" in line
    pair = " ".join(WORDS), line
    scores = scores_of([answer(line.replace("=DT", "=NN"), pair[0])], [pair], tags=True)
    # Of four scored words.
    assert (scores["tagging_accuracy"], scores["f1"]) == (75, 100)


def test_answers_over_other_words_are_an_error():
    pairs = [("a", "(S=XX)S"), ("a b", "(S=XX=XX)S")]
    with pytest.raises(UserError, match="answer 2: the tree has the words 'a c'; want"):
        scores_of(["(S (X a))", "(S (X a) (X c))"], pairs)
    with pytest.raises(UserError, match="answer 1: .* not closed"):
        scores_of(["(S (X a)", "(S (X a) (X b))"], pairs)


def test_section_23_is_known_by_its_sentences(tmp_path):
    words = ["No", ",", "it", "was", "n't", "Black", "Monday", "."]
    first = "(S " + " ".join(f"(X {word})" for word in words) + ")\n"
    (tmp_path / "wsj.mrg").write_text(first + 2_415 * "(S (X a))\n")
    parsing = task()
    assert "91.3" in parsing.compare_with(parsing.open("wsj", str(tmp_path)))
    (tmp_path / "wsj.mrg").write_text(first + 2_414 * "(S (X a))\n")
    assert "91.3" not in parsing.compare_with(parsing.open("wsj", str(tmp_path)))
    synthetic = parsing.compare_with(parsing.open("grammar:trees/dev"))
    assert "without published" in synthetic


def test_each_token_is_one_piece(tmp_path):
    (tmp_path / "wsj.mrg").write_text(30 * f"{DOG}\n(NP (NN cat) (, ,) (NN dog))\n")
    config = config_of()
    config.data.update(vocab_size=300, deduplicate=False)
    parsing = task_of(from_config_dict(config))
    vocabulary = parsing.vocabulary([parsing.open("wsj", str(tmp_path))])
    # The space before a line is a piece of its own.
    assert vocabulary.pieces(LINE)[1:] == tokens(LINE)
    (row,) = vocabulary.encode([LINE])
    assert vocabulary.decode([row]) == [LINE]
    # A model that goes on from another one's embeddings keeps its pieces.
    assert parsing.vocabulary([], vocabulary) is vocabulary
