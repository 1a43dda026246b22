"""Parsing: linearised trees and back, repairs, scores; treebanks and their mistakes."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax import config as fields
from t2t_jax.config import from_config_dict
from t2t_jax.extensions.grammar.trees import bracketed, parse_bracketed
from t2t_jax.extensions.tasks.parsing import (
    REPAIRED,
    answer,
    linearise,
    read_answer,
    repair,
    tokens,
    without_tags,
)
from t2t_jax.extensions.tasks.treebank import cleaned, open_treebank, read_trees
from t2t_jax.io.errors import UserError
from t2t_jax.tasks.table import task_of
from tests.data.test_grammar import trees

DOG = "(S (NP (DT the) (NN dog)) (VP (VBZ barks) (, ,) (ADVP (RB loudly))) (. !))"
WORDS = ["the", "dog", "barks", ",", "loudly", "!"]
LINE = "(S(NP=XX=XX)NP(VP=XX=.(ADVP=XX)ADVP)VP=.)S"

labels = st.sampled_from(["S", "NP", "VP", "TOP", "X|Y", "NNP", "XX"])
tags = st.sampled_from(["NN", ",", ".", "-LRB-", "``", "=", "PRP$", "XX"])
words = st.sampled_from(["a", "b", "(", ")", "-", "'s", "é", "=XX"])


def config_of(**data):
    config = fields.defaults()
    config.task.kind = "parsing"
    config.data.update(data)
    return config


def scores_of(answers, pairs):
    return task_of(from_config_dict(config_of())).quick_scores(answers, pairs)


def test_a_tree_becomes_a_line():
    tree = parse_bracketed(DOG)
    assert linearise(without_tags(tree)) == LINE
    assert "".join(tokens(LINE)) == LINE
    assert len(tokens(LINE)) == 2 * 4 + 6
    assert bracketed(repair(linearise(tree), WORDS)) == DOG


@given(trees(labels, tags, words).map(cleaned))
def test_an_intact_line_is_the_tree_and_not_repaired(tree):
    sentence = " ".join(tree.words())
    for line in (linearise(tree), linearise(without_tags(tree))):
        parsed = answer(line, sentence)
        assert not parsed.endswith(REPAIRED)
        assert linearise(read_answer(parsed)) == line
        assert read_answer(parsed).spans() == tree.spans()
        assert read_answer(parsed).words() == tree.words()


pieces = st.lists(
    st.sampled_from(
        [*"()= ", "(S", ")S", "(NP", ")NP", "=XX", "=.", ")VP", "=-NONE-", "(TOP"]
    )
).map("".join)


@given(pieces | st.text(), st.lists(words, min_size=1, max_size=6))
def test_any_string_is_repaired_to_a_tree_over_the_words(line, sentence):
    parsed = answer(line, " ".join(sentence))
    tree = read_answer(parsed)
    assert tree.words() == sentence
    assert parsed == answer(line, " ".join(sentence))


@pytest.mark.parametrize(
    ("line", "tree"),
    [
        ("", "(TOP (XX a) (XX b) (XX c))"),
        ("(S(NP=XX=XX(VP=XX)VP)S", "(S (NP (XX a) (XX b) (VP (XX c))))"),
        ("(S(NP=XX=XX)VP=XX)NP)S", "(S (NP (XX a) (XX b) (XX c)))"),
        ("(S(NP=XX=XX=XX=XX)NP(VP=XX)VP)S", "(S (NP (XX a) (XX b) (XX c)))"),
        ("(S=XX)S(S=XX)S=.", "(TOP (S (XX a)) (S (XX b)) (. c))"),
        ("(S(NP=XX)(VP=XX=XX)", "(S (NP (XX a)) (VP (XX b) (XX c)))"),
    ],
)
def test_repairs(line, tree):
    assert answer(line, "a b c") == tree + REPAIRED
    # Deep lines, too.
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
    # Other systems may write the treebank's trees.
    treebank_answer = f"(TOP {DOG})".replace("(NP ", "(NP-SBJ ")
    assert scores_of([treebank_answer], pairs[:1])["f1"] == 100


def test_answers_over_other_words_are_an_error():
    pairs = [("a", "(S=XX)S"), ("a b", "(S=XX=XX)S")]
    with pytest.raises(UserError, match="answer 2: the tree has the words 'a c'; want"):
        scores_of(["(S (X a))", "(S (X a) (X c))"], pairs)
    with pytest.raises(UserError, match="answer 1: .* not closed"):
        scores_of(["(S (X a)", "(S (X a) (X b))"], pairs)


def test_each_token_is_one_piece(tmp_path):
    (tmp_path / "wsj.mrg").write_text(30 * f"{DOG}\n(NP (NN cat) (, ,) (NN dog))\n")
    parsing = task_of(from_config_dict(config_of(vocab_size=300, deduplicate=False)))
    vocabulary = parsing.vocabulary([parsing.open("wsj", str(tmp_path))])
    # The space before a line is a piece of its own.
    assert vocabulary.pieces(LINE)[1:] == tokens(LINE)


# ------------------------------------------------------------------------- treebanks

PENN = """
( (S
    (NP-SBJ-1 (DT The) (NN dog) )
    (VP (VBZ seems)
      (S (NP-SBJ (-NONE- *-1) )
        (VP (TO to) (VP (VB bark)))))
    (. .) ))

( (S (NP=2 (-LRB- -LRB-) (NN cat) (-RRB- -RRB-)) (VP (VBZ sleeps) (NP (-NONE- *)))))
"""
PLAIN = [
    "(S (NP (DT The) (NN dog)) (VP (VBZ seems) (S (VP (TO to) (VP (VB bark))))) (. .))",
    "(S (NP (-LRB- -LRB-) (NN cat) (-RRB- -RRB-)) (VP (VBZ sleeps)))",
]


def opened(folder, name="wsj"):
    return open_treebank(name, "en", bracketed, str(folder))


def test_the_penn_layout_is_read_without_traces_and_functions():
    numbered = list(read_trees(PENN.splitlines(), "wsj"))
    assert [line for line, _ in numbered] == [2, 9]
    assert [bracketed(cleaned(tree)) for _, tree in numbered] == PLAIN
    # Roots that only mark a tree are removed.
    for line, clean in (
        ("(TOP (S (NP (NN a))))", "(S (NP (NN a)))"),
        ("(ROOT (S1 (NN a)))", "(TOP (NN a))"),
        ("(TOP (NN a) (NN b))", "(TOP (NN a) (NN b))"),
    ):
        ((_, tree),) = read_trees([line], "a file")
        assert bracketed(cleaned(tree)) == clean


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("(S (A a))\n\n(S (A a)))", 3, "closes no"),
        ("(S (A a))\n(S\n  (A a)\n", 2, "1 of the brackets"),
        # The two mistakes together would be one tree.
        ("(S (A a)\n(S (A a)))", 1, "1 of the brackets"),
        ("(S (A a))\nhello\n", 2, "'hello'"),
        ("(S (A a) (NP ))\n", 1, r"\(NP\) has no word"),
        ("(S (A a))\n(S (NP (-NONE- *)))\n", 2, "has traces but no words"),
        ("", 0, "empty; want bracketed trees"),
        ("(S (A a))\n" + 101 * "(S " + "a" + 101 * ")", 2, "more than 100"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, text, line, message):
    (tmp_path / "wsj.trees").write_text(text)
    place = f"wsj.trees, line {line}: " if line else "wsj.trees"
    with pytest.raises(UserError, match=f"{place}.*{message}"):
        list(opened(tmp_path).pairs())


def test_sentences_are_compared_with_their_trees(tmp_path):
    with gzip.open(tmp_path / "wsj.mrg.gz", "wt") as f:
        f.write(PENN)
    text = tmp_path / "wsj.txt"
    text.write_text("The dog seems to bark .\n( cat -RRB- sleeps\n")
    sentences = [sentence for sentence, _ in opened(tmp_path).pairs()]
    assert sentences == ["The dog seems to bark .", "( cat ) sleeps"]
    text.write_text("The dog seems to bark .\n( cat ) slept\n")
    message = "line 9: .*differ.*wsj.txt, line 2: word 4 is 'sleeps' in the tree"
    with pytest.raises(UserError, match=message):
        list(opened(tmp_path).pairs())
    text.write_text("The dog seems to bark .\n")
    with pytest.raises(UserError, match="2 trees but .*wsj.txt has 1 lines"):
        list(opened(tmp_path).pairs())
    with pytest.raises(UserError, match="grammar:trees/dev"):
        opened(tmp_path, "grammar:dev")
