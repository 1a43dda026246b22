"""Parsers that are not learned."""

from benchmarks.parsing import majority, right_branching
from t2t_jax.grammar.trees import bracketed
from t2t_jax.tasks.linearised import repair

PAIRS = [
    ("a b", "(S(NP=XX)NP=XX)S"),
    ("c d", "(S=XX=XX)S"),
    ("e f", "(S=XX=XX)S"),
    ("g h i j", "(NP(NP=XX=XX)NP=XX=.)NP"),
]


def test_the_majority_tree_is_that_of_the_length_or_the_nearest():
    guess = majority(PAIRS)
    assert guess(2) == guess(1) == "(S=XX=XX)S"
    assert guess(4) == guess(9) == PAIRS[-1][1]


def test_right_branching_trees_have_the_most_frequent_label():
    guess = right_branching([*PAIRS, PAIRS[-1]])
    for words, tree in (
        ("a", "(NP (XX a))"),
        ("a b", "(NP (XX a) (XX b))"),
        ("a b c", "(NP (XX a) (NP (XX b) (XX c)))"),
    ):
        words = words.split()
        assert bracketed(repair(guess(len(words)), words)) == tree
