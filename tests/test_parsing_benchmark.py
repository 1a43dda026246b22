"""Parsers that are no neural networks."""

from benchmarks.parsing import majority, pcfg, right_branching
from t2t_jax.grammar.trees import bracketed, parse_bracketed

PAIRS = [
    ("a b", "(S(NP=XX)NP=XX)S"),
    ("c d", "(S=XX=XX)S"),
    ("e f", "(S=XX=XX)S"),
    ("g h i j", "(NP(NP=XX=XX)NP=XX=.)NP"),
]


def parsed(parser, sentence):
    return bracketed(parser(sentence.split()))


def test_the_majority_tree_is_that_of_the_length_or_the_nearest():
    parser = majority(PAIRS)
    assert parsed(parser, "x y") == "(S (XX x) (XX y))"
    assert parsed(parser, "x") == "(S (XX x))"
    nearest = parsed(parser, "x y z w v")
    assert nearest == "(NP (NP (XX x) (XX y)) (XX z) (. w) (XX v))"


def test_right_branching_trees_have_the_most_frequent_label():
    parser = right_branching([*PAIRS, PAIRS[-1]])
    assert parsed(parser, "a") == "(NP (XX a))"
    assert parsed(parser, "a b") == "(NP (XX a) (XX b))"
    assert parsed(parser, "a b c") == "(NP (XX a) (NP (XX b) (XX c)))"


def test_a_sentence_without_a_tree_gets_a_flat_one():
    tree = "(S (NP (N dogs)) (VP (V bark)))"
    parser = pcfg([parse_bracketed(tree)])
    assert parsed(parser, "dogs bark") == tree
    assert parsed(parser, "dogs meow") == "(TOP (XX dogs) (XX meow))"
