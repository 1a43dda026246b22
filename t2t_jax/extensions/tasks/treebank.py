"""Treebanks: bracketed trees of files, and of the built-in grammar, as a corpus.

A prefix names a corpus: `wsj/23` stands for `wsj/23.mrg` or `wsj/23.trees`, plain or
`.gz`. Next to it, `wsj/23.txt` may have the sentences, one a line, which are then
compared with the trees. A file has one tree a line, or the Penn treebank's
layout, in which further lines of a tree are indented:

    (S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .))
    ( (S
        (NP-SBJ (DT the) (NN dog))
        (VP (VBZ barks))))

Trees are read as PARSEVAL scores them: without traces (-NONE-), function labels (NP-SBJ
and NP=2 are NP) and an outer bracket that only marks the root.
"""

import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from t2t_jax.data.corpus import (
    Corpus,
    Pair,
    built_in_grammar,
    in_folder,
    scheme_of,
)
from t2t_jax.data.text_files import (
    file_hash,
    find_file,
    not_empty,
    read_lines,
    similar_files,
)
from t2t_jax.extensions.grammar.trees import ESCAPES, Tree, parse_bracketed
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.brackets import ROOTS
from t2t_jax.text.languages import identify

ROOT = "TOP"
TRACE = "-NONE-"

# More constituents inside one another than any sentence has: it bounds recursion.
DEEPEST = 100
TREES, SENTENCES = ("mrg", "trees"), ("txt", "words")
Linearise = Callable[[Tree], str]


def open_treebank(
    spec: str, language: str, linearise: Linearise, folder: str = ""
) -> Corpus:
    """Opens the treebank at a spec: a prefix, or `grammar:trees/SPLIT`.

    Its pairs are (sentence, tree as `linearise` writes it). Raises UserError if it does
    not exist, or is none.
    """
    if (scheme := scheme_of(spec)) == "grammar":
        name = spec.removeprefix("grammar:")
        trees, _, split = name.partition("/")
        if trees != "trees":
            similar = name if name in built_in_grammar().SPLITS else "train"
            raise UserError(
                f"{spec} has no trees; want grammar:trees/SPLIT, such as "
                f"grammar:trees/{similar}"
            )
        return grammar_trees(split or "train", language, linearise)
    if scheme:
        raise UserError(
            f"{spec}: {scheme} has no trees; want a prefix, such as 'wsj/23' for "
            "wsj/23.mrg, or grammar:trees/SPLIT"
        )
    return tree_file(in_folder(spec, folder), linearise)


def tree_file(prefix: Path, linearise: Linearise) -> Corpus:
    """A file of bracketed trees, and perhaps one of their sentences.

    Raises UserError if there is no file of trees; reading it also for a mistake in a
    file, or sentences that differ from their trees.
    """
    _files(prefix)  # raises if there is none

    def pairs() -> Iterator[Pair]:
        for tree in _checked_trees(*_files(prefix)):
            yield " ".join(tree.words()), linearise(tree)

    return Corpus(
        str(prefix),
        prefix.name,
        "txt",
        "trees",
        pairs,
        lambda: _hash("TreeFile", linearise, *map(file_hash, _files(prefix))),
    )


def grammar_trees(split: str, language: str, linearise: Linearise) -> Corpus:
    """A split of the built-in corpus, in one of its languages."""
    spec = f"grammar:trees/{split}"
    grammar = built_in_grammar()
    grammar.check_split(split, spec)
    requested, language = language, identify(language).code
    if language not in ("en", "de"):
        raise UserError(
            f"{spec} has English and German trees; got config.data.target="
            f"{requested!r}; want 'en' or 'de'"
        )

    @functools.cache
    def pairs() -> list[Pair]:  # drawing them takes seconds
        trees = grammar.trees(split, language)
        return [(" ".join(tree.words()), linearise(tree)) for tree in trees]

    def fingerprint() -> str:
        tree_hash = grammar.tree_fingerprint(split, language)
        return _hash("GrammarTrees", linearise, tree_hash)

    return Corpus(
        spec, f"trees-{split}", "txt", "trees", lambda: iter(pairs()), fingerprint
    )


def _hash(kind: str, linearise: Linearise, *parts: str) -> str:
    # The example stands for the linearisation.
    example = linearise(Tree("S", (Tree("NN", ("dog",)), Tree(".", (".",)))))
    return hashlib.sha256("\n".join([kind, example, *parts]).encode()).hexdigest()


def _files(prefix: Path) -> list[Path]:
    """The file of trees and, if there is one, that of sentences."""
    trees, sentences = (find_file(prefix, *endings) for endings in (TREES, SENTENCES))
    if trees is None:
        raise UserError(
            f"{prefix}.mrg does not exist, nor does {prefix.name}.trees; "
            f"{similar_files(prefix)}. A prefix names a corpus: 'wsj/23' stands for "
            "wsj/23.mrg, wsj/23.trees, or the same with .gz"
        )
    return [trees, *filter(None, [sentences])]


def _checked_trees(file: Path, text: Path | None = None) -> Iterator[Tree]:
    """Yields the cleaned trees of a file, each compared with its line of the text."""
    lines = list(read_lines(text)) if text else []
    trees = read_trees(read_lines(file), str(file))
    trees = not_empty(trees, f"{file} is empty; want bracketed trees")
    for count, (line, written) in enumerate(trees, 1):
        position = f"{file}, line {line:,}"
        if (tree := cleaned(written)) is None:
            raise UserError(f"{position}: the tree has traces but no words; remove it")
        if count <= len(lines):
            _check_words(tree, lines[count - 1], position, text, count)
        yield tree
    if text and len(lines) != count:
        raise UserError(
            f"{file} has {count:,} trees but {text} has {len(lines):,} lines; want a "
            "line for each tree, in the same order, or no such file"
        )


def _check_words(
    tree: Tree, sentence: str, position: str, text: Path, number: int
) -> None:
    """Raises UserError unless a tree has the words of its sentence."""
    sides = (map(repr, words) for words in (tree.words(), split_words(sentence)))
    word_pairs = itertools.zip_longest(*sides, fillvalue="none")
    for place, (word, expected) in enumerate(word_pairs, 1):
        if word != expected:
            raise UserError(
                f"{position}: a tree whose words differ from its sentence, {text}, "
                f"line {number:,}: word {place} is {word} in the tree and {expected} "
                "in the sentence; tokenize the sentence as the tree is, or delete "
                f"{text.name}"
            )


def split_words(sentence: str) -> list[str]:
    """Splits a sentence at its spaces; -LRB- and -RRB- are brackets, as in trees."""
    for sign, escaped in ESCAPES.items():
        sentence = sentence.replace(escaped, sign)
    return sentence.split()


def read_trees(lines: Iterable[str], name: str) -> Iterator[tuple[int, Tree]]:
    """Yields the line on which a bracketed tree begins, and the tree as it is written.

    Raises:
      UserError: brackets that are not balanced, text outside a tree, a word without a
        tag, a constituent without words; with the line.
    """
    first_line, written, opened = 0, [], 0

    def parsed() -> Tree:
        try:
            return parse_bracketed(" ".join(written))
        except UserError as e:
            raise UserError(
                f"{name}, line {first_line:,}: {e}. A file has one tree a line, or "
                "further lines of a tree are indented"
            ) from None

    for number, line in enumerate(lines, 1):
        # A line that is not indented begins a tree, so the last one is at fault.
        if opened > 0 and line.startswith("("):
            yield first_line, parsed()
            written.clear()
            opened = 0
        if not line.strip():
            continue
        if not written:
            first_line = number
        written.append(line)
        for sign in re.findall("[()]", line):
            opened += 1 if sign == "(" else -1
            if opened > DEEPEST:
                raise UserError(
                    f"{name}, line {number:,}: more than {DEEPEST} brackets are open; "
                    "close those of the trees before"
                )
        if opened <= 0:
            yield first_line, parsed()
            written.clear()
            opened = 0
    if written:
        yield first_line, parsed()


def cleaned(tree: Tree) -> Tree | None:
    """Removes traces, function labels and a root that only marks a tree.

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
