"""Constituency trees, and Penn's brackets: (S (NP (DT the) (NN dog)) (VP (VBZ barks)))

A leaf is a word, and a node above a word is its part of speech. What follows a dash in
a label is a function tag or a feature (NP-SBJ), which `Tree.plain` removes.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from t2t_jax.io.errors import UserError

# Brackets in words would be read as brackets of the tree; Penn writes them like this.
ESCAPES = {"(": "-LRB-", ")": "-RRB-"}


class Label(str):
    """A label that knows what its node puts into words, such as a `Clause`."""

    def __new__(cls, label: str, meaning: object):
        self = super().__new__(cls, label)
        self.meaning = meaning
        return self


class Tree(NamedTuple):
    """A label and the constituents below it; those of a part of speech is one word."""

    label: str
    children: tuple["Tree | str", ...]

    @property
    def is_word(self) -> bool:
        """True if the node is a part of speech with its word."""
        return len(self.children) == 1 and isinstance(self.children[0], str)

    def nodes(self) -> Iterator["Tree"]:
        """Yields all nodes, each before those below it, from left to right."""
        waiting = [self]
        while waiting:
            tree = waiting.pop()
            yield tree
            if not tree.is_word:
                waiting.extend(reversed(tree.children))

    def words(self) -> list[str]:
        """The words from left to right."""
        return [tree.children[0] for tree in self.nodes() if tree.is_word]

    def tags(self) -> list[str]:
        """The part of speech of each word."""
        return [tree.label for tree in self.nodes() if tree.is_word]

    def spans(self) -> list[tuple[str, int, int]]:
        """The constituents above parts of speech: (label, first word, word after)."""
        constituents = []

        def visit(tree: Tree, start: int) -> int:
            if tree.is_word:
                return start + 1
            place, end = len(constituents), start
            constituents.append(None)
            for child in tree.children:
                end = visit(child, end)
            constituents[place] = (tree.label, start, end)
            return end

        visit(self, 0)
        return constituents

    def plain(self) -> "Tree":
        """The tree without function tags and features: NP for NP-SBJ and NP=2."""
        if self.is_word:
            return Tree(plain_label(self.label), self.children)
        children = tuple(child.plain() for child in self.children)
        return Tree(plain_label(self.label), children)

    def __str__(self) -> str:
        return bracketed(self)


def plain_label(label: str) -> str:
    """The label before its first dash or equals sign; -LRB- and -NONE- stay whole."""
    return re.split("[-=]", label)[0] or label


def bracketed(tree: Tree) -> str:
    """Writes a tree on one line."""
    if tree.is_word:
        word = re.sub("[()]", lambda match: ESCAPES[match[0]], tree.children[0])
        return f"({tree.label} {word})"
    return f"({tree.label} {' '.join(bracketed(child) for child in tree.children)})"


def parse_bracketed(line: str) -> Tree:
    """Reads one tree; a bracket around it without a label is dropped, as Penn has it.

    Raises UserError if the line is not one tree; whoever reads a file adds it and the
    line.
    """
    # The label and the children of each bracket that is open; the first is the line.
    stack: list[tuple[str, list]] = [("", [])]
    for token in re.findall(r"\(\s*[^\s()]*|\)|[^\s()]+", line):
        if token[0] == "(":
            stack.append((token[1:].strip(), []))
        elif token != ")":
            stack[-1][1].append(token.replace("-LRB-", "(").replace("-RRB-", ")"))
        elif len(stack) == 1:
            raise UserError("a ')' closes no '('; remove it, or open its bracket")
        else:
            label, children = stack.pop()
            stack[-1][1].append(_node(label, children))
    if len(stack) > 1:
        raise UserError(f"{len(stack) - 1} of the brackets '(' are not closed; add ')'")
    trees = stack[0][1]
    if len(trees) != 1 or isinstance(trees[0], str):
        raise UserError(f"want one tree such as (S (NP I) (VP run)); got {line[:60]!r}")
    return trees[0]


def _node(label: str, children: list) -> Tree:
    """The node that a closing bracket completes; raises UserError if it is not one."""
    words = [child for child in children if isinstance(child, str)]
    if not children:
        raise UserError(f"({label}) has no word; want (TAG word) or (LABEL (TAG word))")
    if not label and len(children) == 1 and not words:
        return children[0]
    if not label:
        raise UserError("a bracket has no label; want (LABEL (TAG word) ...)")
    if words and len(children) > 1:
        raise UserError(
            f"({label} ...) has the word {words[0]!r} beside other children; "
            "want each word in its own bracket, (TAG word)"
        )
    return Tree(label, tuple(children))
