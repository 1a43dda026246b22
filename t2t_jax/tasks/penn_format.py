"""Reads bracketed trees, as the Penn treebank writes them.

A file has one tree a line, or the Penn treebank's layout, in which further lines of a
tree are indented:

    (S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .))
    ( (S
        (NP-SBJ (DT the) (NN dog))
        (VP (VBZ barks))))

Trees are read as PARSEVAL scores them: without traces (-NONE-), function labels (NP-SBJ
and NP=2 are NP) and an outer bracket that only marks the root.
"""

import re
from collections.abc import Iterable, Iterator

from t2t_jax.grammar.trees import ESCAPES, Tree, parse_bracketed
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.brackets import ROOTS

ROOT = "TOP"
TRACE = "-NONE-"
# More constituents inside one another than any sentence has: it bounds recursion.
DEEPEST = 100


def split_words(sentence: str) -> list[str]:
    """Splits a sentence at its spaces; -LRB- and -RRB- are brackets, as in trees."""
    for sign, escaped in ESCAPES.items():
        sentence = sentence.replace(escaped, sign)
    return sentence.split()


def read_trees(lines: Iterable[str], name: str) -> Iterator[tuple[int, Tree]]:
    """Reads bracketed trees, as they are written.

    Args:
      lines: without line ends.
      name: the file, for error messages.

    Yields:
      The line on which a tree begins, and the tree.

    Raises:
      UserError: brackets that are not balanced, text outside a tree, a word without a
        tag, a constituent without words; with the line.
    """
    first, written, opened = 0, [], 0

    def parsed() -> Tree:
        try:
            return parse_bracketed(" ".join(written))
        except UserError as e:
            raise UserError(
                f"{name}, line {first:,}: {e}. A file has one tree a line, or further "
                "lines of a tree are indented"
            ) from None

    for number, line in enumerate(lines, 1):
        # A line that is not indented begins a tree, so the last one is at fault.
        if opened > 0 and line.startswith("("):
            yield first, parsed()
            written.clear()
            opened = 0
        if not line.strip():
            continue
        if not written:
            first = number
        written.append(line)
        for sign in re.findall("[()]", line):
            opened += 1 if sign == "(" else -1
            if opened > DEEPEST:
                raise UserError(
                    f"{name}, line {number:,}: more than {DEEPEST} brackets are open; "
                    "close those of the trees before"
                )
        if opened <= 0:
            yield first, parsed()
            written.clear()
            opened = 0
    if written:
        yield first, parsed()


def cleaned(tree: Tree) -> Tree | None:
    """Removes traces, function labels and a root that only marks a tree.

    Returns:
      None if no word is left.
    """

    def without_traces(node: Tree) -> Tree | None:
        if node.is_word:
            return None if node.label == TRACE else node
        children = tuple(filter(None, map(without_traces, node.children)))
        return Tree(node.label, children) if children else None

    if (node := without_traces(tree)) is None:
        return None
    node = node.plain()
    while node.label in ROOTS and len(node.children) == 1 and not node.is_word:
        (node,) = node.children
    return Tree(ROOT, (node,)) if node.is_word else node
