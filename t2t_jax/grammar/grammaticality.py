"""Judges whether a line could be a sentence of the built-in corpus.

The judge is a chart parser over the rules of the training trees, with the features of
their labels. So agreement, word order and what verbs take are checked; meaning is not.
"""

import functools
import re

from t2t_jax.grammar import corpus
from t2t_jax.grammar.chart import Chart
from t2t_jax.grammar.trees import Tree


def tokenize(line: str) -> list[str]:
    """The words of a line as trees have them: sleeps . , Anna 's , can not."""
    return re.findall(r"'s|\w+|[^\w\s]", line.replace("cannot", "can not"))


@functools.cache
def chart(language: str) -> Chart:
    """The chart parser of the training trees in "en" or "de"."""
    trees = corpus.trees("train", language, features=True)
    return Chart(without_end(tree) for tree in trees)


def without_end(tree: Tree) -> Tree:
    """The tree with its end, "." or "?", above its first label instead of below.

    So clauses that are joined to a sentence have the rules of those that are one.
    """
    label, (*children, end) = tree
    return Tree("TOP", (Tree(label, tuple(children)), end))


def grammatical(line: str, language: str) -> bool:
    """True if the chart parser has a tree for the line."""
    return chart(language).recognizes(tokenize(line))
