"""Trees as lines that a model writes, and back (Vinyals et al. 2015).

A linearised tree is a string of tokens without spaces: `(NP` opens a constituent, `)NP`
closes it, and each word is one terminal `=TAG`, because the words are known:

    (S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. !))
    (S(NP=XX=XX)NP(VP=XX)VP=.)S

Tags are not scored, so all are XX, as in that paper. But punctuation is a full stop:
the scores leave it out, and need nothing but a line and its sentence. No label contains
the signs ( ) =, so tokens need no spaces between them, and each can be one piece of the
vocabulary.
"""

import re
from collections.abc import Sequence

from t2t_jax.grammar.trees import Tree
from t2t_jax.metrics.brackets import PUNCTUATION
from t2t_jax.tasks.penn_format import DEEPEST, ROOT, TRACE

WORD, STOP = "XX", "."

_tokens = re.compile(r"([()=])([^()=\s]*)").findall


def linearise(tree: Tree) -> str:
    """Writes a tree as a line, without its words."""
    if tree.is_word:
        return f"={_signless(tree.label)}"
    inside, label = "".join(map(linearise, tree.children)), _signless(tree.label)
    return f"({label}{inside}){label}"


def _signless(label: str) -> str:
    """Replaces what would be read as another token, such as the tag of an =."""
    return label.replace("=", "~")


def tokens(linearised: str) -> list[str]:
    """Splits a line into its tokens; what is no token is dropped."""
    return [sign + label for sign, label in _tokens(linearised)]


def without_tags(tree: Tree) -> Tree:
    """Replaces the tags of words by XX, and those of punctuation by a full stop."""
    if tree.is_word:
        return Tree(STOP if tree.label in PUNCTUATION else WORD, tree.children)
    return Tree(tree.label, tuple(map(without_tags, tree.children)))


def repair(linearised: str, words: Sequence[str]) -> Tree:
    """Makes a tree over exactly these words from any string.

    From left to right, a closing bracket ends the innermost open constituent with its
    label, and those inside it; without a label it ends the innermost one. It is ignored
    if there is none. At the end all are closed. Terminals beyond the number of words
    are ignored. Words beyond the number of terminals become the last children of the
    root. Constituents without a word are dropped. Several trees, or words outside a
    tree, become children of a root without meaning (TOP, which is not scored).

    The tree of an intact line is the one that was linearised. So a line was intact if
    `linearise` gives it back.

    Args:
      linearised: the output of a model.
      words: of the sentence; at least one.
    """
    top: list = []
    open_nodes: list[tuple[str, list]] = [(ROOT, top)]
    rest = iter(words)

    def close():
        label, children = open_nodes.pop()
        if children:
            open_nodes[-1][1].append(Tree(label, tuple(children)))

    for sign, label in _tokens(linearised):
        if sign == "(":
            if len(open_nodes) <= DEEPEST:
                open_nodes.append((label or WORD, []))
        elif sign == "=":
            if (word := next(rest, None)) is not None:
                tag = WORD if label in ("", TRACE) else label
                open_nodes[-1][1].append(Tree(tag, (word,)))
        else:
            labels = [opened for opened, _ in open_nodes]
            if not label or label in labels[1:]:
                while len(open_nodes) > 1:
                    opened, _ = open_nodes[-1]
                    close()
                    if label in ("", opened):
                        break
    while len(open_nodes) > 1:
        close()
    left_over = tuple(Tree(WORD, (word,)) for word in rest)
    if len(top) == 1 and not top[0].is_word:
        return Tree(top[0].label, top[0].children + left_over)
    return Tree(ROOT, (*top, *left_over))
