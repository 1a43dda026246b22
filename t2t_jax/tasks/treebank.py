"""Treebanks: bracketed trees of files, and of the built-in grammar, as a corpus.

A place is a prefix: `wsj/23` stands for `wsj/23.mrg` or `wsj/23.trees`, plain or `.gz`.
Beside it, `wsj/23.txt` may have the sentences, one a line, which are then compared with
the trees. `penn_format.py` reads the trees.
"""

import functools
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from t2t_jax.data.corpus import Corpus, Pair, in_folder
from t2t_jax.data.text_files import file_hash, find_file, read_lines, similar_files
from t2t_jax.grammar import corpus as grammar
from t2t_jax.grammar.trees import Tree
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.tasks.penn_format import cleaned, read_trees, split_words

TREES, SENTENCES = ("mrg", "trees"), ("txt", "words")
Linearise = Callable[[Tree], str]


def open_treebank(
    place: str, language: str, linearise: Linearise, folder: str = ""
) -> Corpus:
    """Opens the treebank at a place: a prefix, or `grammar:trees/SPLIT`.

    Args:
      language: of the built-in grammar.
      linearise: makes the target line of a tree.
      folder: where relative prefixes start.

    Returns:
      Pairs (sentence, linearised tree).

    Raises:
      UserError: it does not exist, or is none.
    """
    scheme, colon, rest = place.partition(":")
    if colon and scheme == "grammar":
        trees, _, split = rest.partition("/")
        if trees != "trees":
            raise UserError(
                f"{place} has no trees; want grammar:trees/SPLIT, such as "
                f"grammar:trees/{rest if rest in grammar.SPLITS else 'train'}"
            )
        return grammar_trees(split or "train", language, linearise)
    if colon and scheme == "tfds":
        raise UserError(
            f"{place}: trees are not read from TensorFlow Datasets; want a prefix, "
            "such as 'wsj/23' for wsj/23.mrg, or grammar:trees/SPLIT"
        )
    return tree_file(in_folder(place, folder), linearise)


def tree_file(prefix: Path, linearise: Linearise) -> Corpus:
    """A file of bracketed trees, and perhaps one of their sentences.

    Raises:
      UserError: there is no file of trees. Reading it: a mistake in a file, or
        sentences that differ from their trees.
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
    place = f"grammar:trees/{split}"
    if split not in grammar.SPLITS:
        raise UserError(f"{place}: no such split" + did_you_mean(split, grammar.SPLITS))
    if language not in ("en", "de"):
        raise UserError(
            f"{place} has English and German trees; got config.data.target="
            f"{language!r}; want 'en' or 'de'"
        )

    @functools.cache
    def pairs() -> list[Pair]:  # drawing them takes seconds
        trees = grammar.trees(split, language)
        return [(" ".join(tree.words()), linearise(tree)) for tree in trees]

    def fingerprint() -> str:
        of_trees = grammar.tree_fingerprint(split, language)
        return _hash("GrammarTrees", linearise, of_trees)

    return Corpus(
        place, f"trees-{split}", "txt", "trees", lambda: iter(pairs()), fingerprint
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
            f"{similar_files(prefix)}. A place is a prefix: 'wsj/23' stands for "
            "wsj/23.mrg, wsj/23.trees, or the same with .gz"
        )
    return [trees, *filter(None, [sentences])]


def _checked_trees(file: Path, text: Path | None = None) -> Iterator[Tree]:
    """Yields the cleaned trees of a file, each compared with its line of the text."""
    lines = list(read_lines(text)) if text else []
    count = 0
    for line, written in read_trees(read_lines(file), str(file)):
        if (tree := cleaned(written)) is None:
            raise UserError(
                f"{file}, line {line:,}: the tree has traces but no words; remove it"
            )
        if count < len(lines):
            _check_words(
                tree.words(),
                split_words(lines[count]),
                f"{file}, line {line:,}",
                text,
                count + 1,
            )
        count += 1
        yield tree
    if not count:
        raise UserError(f"{file} is empty; want bracketed trees")
    if text and len(lines) != count:
        raise UserError(
            f"{file} has {count:,} trees but {text} has {len(lines):,} lines; want a "
            "line for each tree, in the same order, or no such file"
        )


def _check_words(
    words: list[str], expected: list[str], where: str, text: Path, number: int
) -> None:
    """Raises UserError unless a tree has the words of its sentence."""
    if words == expected:
        return
    place = next(
        (i for i, (a, b) in enumerate(zip(words, expected, strict=False)) if a != b),
        min(len(words), len(expected)),
    )
    a, b = (repr(w[place]) if place < len(w) else "none" for w in (words, expected))
    raise UserError(
        f"{where}: a tree whose words differ from its sentence, {text}, line "
        f"{number:,}: word {place + 1} is {a} in the tree and {b} in the sentence; "
        f"tokenise the sentence as the tree is, or delete {text.name}"
    )
