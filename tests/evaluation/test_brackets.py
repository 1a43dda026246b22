"""Labelled brackets, against EVALB's published sample and cases counted by hand."""

import pytest

from t2t_jax.extensions.grammar.trees import parse_bracketed
from t2t_jax.extensions.tasks.treebank import cleaned
from t2t_jax.metrics import brackets
from t2t_jax.metrics.brackets import COLLINS, Counts, Scoring, count

GOLD = "(S (A (P one)) (B (Q two) (A (R three) (T four))))"
ELEVEN = "(S" + 11 * " (A (P one)) (B (Q two) (A (R three) (T four)))" + ")"
# The sample's parameter file differs from COLLINS.prm in what counts as equal.
SAMPLE = Scoring(COLLINS.left_out - {"."}, {"TT": "T"})
# EVALB's sample.gld, sample.tst, sample.rsl: the number of the sentence, the answer,
# matched brackets, those of gold and test, crossing, words, correct tags. The words
# are ours. Gold is GOLD but where named below.
PUBLISHED = [
    (1, "(S (A (P one)) (B (Q two) (A (R three) (T four))))", 4, 4, 4, 0, 4, 4),
    (2, "(S (A (P one)) (B (Q two) (C (R three) (T four))))", 3, 4, 4, 0, 4, 4),
    (3, "(S (A (P one)) (B (Q two) (A (R three) (U four))))", 4, 4, 4, 0, 4, 3),
    (4, "(S (C (P one)) (B (Q two) (A (R three) (U four))))", 3, 4, 4, 0, 4, 3),
    (5, "(S (A (P one)) (B (Q two) (R three) (A (T four))))", 3, 4, 4, 0, 4, 4),
    (6, "(S (A (P one) (Q two)) (A (R three) (T four)))", 2, 4, 3, 1, 4, 4),
    (7, "(S (P one) (Q two) (R three) (T four))", 1, 4, 1, 0, 4, 4),
    (8, "(TOP (P one) (Q two) (R three) (T four))", 0, 4, 0, 0, 4, 4),  # there a forest
    (9, "(S (A (P one)) (B (Q two) (A (A (R three) (T four)))))", 4, 4, 5, 0, 4, 4),
    (10, "(S (A (P one)) (B (Q two) (A (A (A (A (A (R three) (T four))))))))", 4, 4, 8)
    + (0, 4, 4),
    (15, f"(TOP {GOLD})", 4, 4, 4, 0, 4, 4),
    (18, "(S (A (P one)) (B (Q two) (A (R three) (TT four))))", 4, 4, 4, 0, 4, 4),
    (21, GOLD, 4, 4, 4, 0, 4, 4),
    (22, ELEVEN, 34, 34, 34, 0, 44, 44),
    (23, f"{GOLD[:-1]} (-NONE- *))", 4, 4, 4, 0, 4, 4),
    (24, f"{GOLD[:-1]} (: *))", 4, 4, 4, 0, 4, 4),
]
OTHER_GOLD = {
    21: "(S (A-SBJ-1 (P one)) (B-WHATEVER (Q two) (A (R three) (T four))))",
    22: ELEVEN,
    23: f"{GOLD[:-1]} (-NONE- *))",
    24: f"{GOLD[:-1]} (: *))",
}


def tree(line):
    return cleaned(parse_bracketed(line))


def test_evalbs_sample_gives_its_published_numbers():
    counted = []
    for number, answer, *numbers in PUBLISHED:
        c = count(tree(answer), tree(OTHER_GOLD.get(number, GOLD)), SAMPLE)
        row = [c.matched, c.reference, c.answer, c.crossing, c.words, c.tags]
        assert row == numbers, number
        counted.append(c)
    # Without sentence 19, where EVALB was told that two words are one.
    nineteen = count(tree(GOLD), tree(GOLD), SAMPLE)
    total = Counts(*map(sum, zip(*counted, nineteen, strict=True)))
    published = {
        brackets.recall: 87.76,
        brackets.precision: 90.53,
        brackets.f1: 89.12,
        brackets.complete_match: 52.94,
        brackets.crossing: 0.06,
        brackets.tagging_accuracy: 98.15,
    }
    assert {f: round(float(f(total)), 2) for f in published} == published
    # EVALB leaves sentences of other words out, which would make a score better.
    with pytest.raises(ValueError, match="words 'one two'; want .* 'one two thr"):
        count(tree("(S (X one) (X two))"), tree(GOLD))


def test_punctuation_is_removed_before_spans_are_counted():
    gold = tree('(S (NP (N a)) (, ,) (VP (V b) (: --)) (PRN (`` ")) (. .))')
    answer = tree('(S (NP (N a) (XX ,)) (VP (V b)) (XX --) (XX ") (XX .))')
    c = count(answer, gold)
    # By hand: S, NP and VP over two words; the PRN covers nothing.
    assert (c.matched, c.reference, c.answer, c.words, c.complete) == (3, 3, 3, 2, 1)
