"""The chart parser is exact, and refuses what agrees badly."""

import collections
import itertools
import math

import pytest

from benchmarks.chart import Chart
from t2t_jax.extensions.grammar.trees import parse_bracketed

# Ambiguous, with rules of one, two and three children, and a cycle (A to C to A).
TREEBANK = [
    "(S (A (a x)) (B (b y)))",
    "(S (A (a x)) (S (A (C (A (a x)))) (B (b y))))",
    "(S (B (b z)) (C (A (a x))))",
    "(S (A (a x) (b y) (a x)) (B (b y)))",
    "(S (S (A (a x)) (B (b y))) (B (b z)))",
    "(A (a x) (A (a x)))",
]


def probabilities(trees):
    """The log probability of each rule, tag of a word and root of a treebank."""
    counts, totals = collections.Counter(), collections.Counter()
    for tree in trees:
        for left, right in rules_of(tree):
            counts[left, right] += 1
            totals[left] += 1
    return {rule: math.log(n / totals[rule[0]]) for rule, n in counts.items()}


def rules_of(tree):
    """The rules that a tree uses, with that of its root."""
    yield None, tree.label
    for node in tree.nodes():
        children = node.children
        yield node.label, children if node.is_word else tuple(c.label for c in children)


def best_scores(words, log_p):
    """The best log probability of each label over all words: tries every division.

    Rules of one child are applied as often as there are labels, which is enough for the
    best tree: a longer chain would repeat a label.
    """
    labels = {left for left, _ in log_p if left}

    def sequence(right, part):
        if len(right) == 1:
            return best(part).get(right[0], -math.inf)
        return max(
            (
                best(part[:i]).get(right[0], -math.inf) + sequence(right[1:], part[i:])
                for i in range(1, len(part))
            ),
            default=-math.inf,
        )

    cache = {}

    def best(part):
        if part in cache:
            return cache[part]
        scores = {}
        for (left, right), p in log_p.items():
            if left and (right == part if len(part) == 1 else len(right) > 1):
                total = p + (0 if right == part else sequence(right, part))
                scores[left] = max(scores.get(left, -math.inf), total)
        for _ in labels:
            for (left, right), p in log_p.items():
                if left and len(right) == 1 and right[0] in scores:
                    total = p + scores[right[0]]
                    scores[left] = max(scores.get(left, -math.inf), total)
        cache[part] = scores
        return scores

    return best(tuple(words))


def test_it_finds_what_a_search_of_all_trees_finds():
    tiny = [parse_bracketed(line) for line in TREEBANK]
    chart, log_p = Chart(tiny), probabilities(tiny)
    accepted = 0
    for size in range(1, 6):
        for words in itertools.product("xyz", repeat=size):
            scores = best_scores(words, log_p)
            best = max(
                scores.get(label, -math.inf) + log_p[None, label] for label in "SA"
            )
            tree = chart.parse(words)
            assert chart.recognizes(words) == (best > -math.inf) == (tree is not None)
            if tree:
                accepted += 1
                assert tuple(tree.words()) == words
                score = sum(log_p[rule] for rule in rules_of(tree))
                assert score == pytest.approx(best)
    assert 20 < accepted < 180  # of 363: neither none nor all
    assert chart.parse([]) is None
    assert not chart.recognizes([])
    assert chart.parse(["x", "w"]) is None
