"""Treebanks: bracketed trees of files, and of the built-in grammar, as a corpus.

A place is a prefix: `wsj/23` stands for `wsj/23.mrg` or `wsj/23.trees`, plain or `.gz`.
Beside it, `wsj/23.txt` may have the sentences, one a line, which are then compared with
the trees. `penn_format.py` reads the trees.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from t2t_jax.data.corpus import Pair
from t2t_jax.data.text_files import find_file, read_lines
from t2t_jax.grammar import corpus
from t2t_jax.grammar.trees import Tree
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.tasks.penn_format import cleaned, read_trees, split_words

TREES, SENTENCES = ("mrg", "trees"), ("txt", "words")


class TreeCorpus:
    """Pairs (sentence, linearised tree) of a treebank.

    Attributes:
      linearise: makes the target line of a tree.
    """

    place: str
    name: str
    weight: float
    linearise: Callable[[Tree], str]
    source, target = "txt", "trees"

    def trees(self) -> Iterator[Tree]:
        """Yields the cleaned trees."""
        raise NotImplementedError

    def pairs(self) -> Iterator[Pair]:
        """Yields (sentence, linearised tree)."""
        for tree in self.trees():
            yield " ".join(tree.words()), self.linearise(tree)

    def _hash(self, *parts: str) -> str:
        # The example stands for the linearisation.
        example = self.linearise(Tree("S", (Tree("NN", ("dog",)), Tree(".", (".",)))))
        text = "\n".join([type(self).__name__, example, *parts])
        return hashlib.sha256(text.encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class TreeFile(TreeCorpus):
    """A file of bracketed trees, and perhaps one of their sentences."""

    prefix: Path
    linearise: Callable[[Tree], str]
    weight: float = 1.0

    @property
    def place(self) -> str:
        """The prefix of the file."""
        return str(self.prefix)

    @property
    def name(self) -> str:
        """The last part of the prefix."""
        return self.prefix.name

    def files(self) -> list[Path]:
        """The file of trees and, if there is one, that of sentences.

        Raises:
          UserError: there is no file of trees.
        """
        trees, sentences = (find_file(self.prefix, *e) for e in (TREES, SENTENCES))
        if trees is None:
            similar = sorted(f.name for f in self.prefix.parent.glob(f"{self.name}*"))
            has = f"; that folder has {', '.join(similar[:6])}" if similar else ""
            raise UserError(
                f"{self.prefix}.mrg does not exist, nor does {self.name}.trees{has}. A "
                "place is a prefix: 'wsj/23' stands for wsj/23.mrg, wsj/23.trees, or "
                "the same with .gz"
            )
        return [trees, *filter(None, [sentences])]

    def trees(self) -> Iterator[Tree]:
        """Yields the cleaned trees.

        Raises:
          UserError: a mistake in a file, or sentences that differ from their trees.
        """
        file, *sentence_files = self.files()
        sentences = [list(read_lines(text)) for text in sentence_files]
        count = 0
        for line, written in read_trees(read_lines(file), str(file)):
            if (tree := cleaned(written)) is None:
                raise UserError(
                    f"{file}, line {line:,}: the tree has traces but no words; remove "
                    "it"
                )
            for lines in sentences:
                if count < len(lines):
                    self._check(tree, line, lines[count], count + 1)
            count += 1
            yield tree
        if not count:
            raise UserError(f"{file} is empty; want bracketed trees")
        for text, lines in zip(sentence_files, sentences, strict=True):
            if len(lines) != count:
                raise UserError(
                    f"{file} has {count:,} trees but {text} has {len(lines):,} lines; "
                    "want a line for each tree, in the same order, or no such file"
                )

    def _check(self, tree: Tree, line: int, sentence: str, number: int) -> None:
        """Checks that a tree has the words of its sentence."""
        words, wanted = tree.words(), split_words(sentence)
        if words == wanted:
            return
        file, text = self.files()
        place = next(
            (i for i, (a, b) in enumerate(zip(words, wanted, strict=False)) if a != b),
            min(len(words), len(wanted)),
        )
        a, b = (repr(w[place]) if place < len(w) else "none" for w in (words, wanted))
        raise UserError(
            f"{file}, line {line:,}: a tree whose words differ from its sentence, "
            f"{text}, line {number:,}: word {place + 1} is {a} in the tree and {b} in "
            f"the sentence; tokenise the sentence as the tree is, or delete {text.name}"
        )

    def fingerprint(self) -> str:
        """A hash of the files as they are stored, and of the linearisation."""
        digests = []
        for file in self.files():
            with open(file, "rb") as f:
                digests.append(hashlib.file_digest(f, "sha256").hexdigest())
        return self._hash(*digests)


@dataclasses.dataclass(frozen=True)
class GrammarTrees(TreeCorpus):
    """A split of the built-in corpus, in one of its languages."""

    split: str
    language: str
    linearise: Callable[[Tree], str]
    weight: float = 1.0

    def __post_init__(self):
        if self.split not in corpus.SPLITS:
            raise UserError(
                f"{self.place}: no such split" + did_you_mean(self.split, corpus.SPLITS)
            )
        if self.language not in ("en", "de"):
            raise UserError(
                f"{self.place} has English and German trees; got "
                f"config.data.target={self.language!r}; want 'en' or 'de'"
            )

    @property
    def place(self) -> str:
        """The string that names this corpus."""
        return f"grammar:trees/{self.split}"

    @property
    def name(self) -> str:
        """The split, as part of file names."""
        return f"trees-{self.split}"

    def trees(self) -> Iterator[Tree]:
        """Yields the trees, which have no traces."""
        yield from corpus.trees(self.split, self.language)

    @functools.cached_property
    def _pairs(self) -> list[Pair]:
        return list(super().pairs())

    def pairs(self) -> Iterator[Pair]:
        """Yields (sentence, linearised tree)."""
        yield from self._pairs  # drawing them takes seconds

    def fingerprint(self) -> str:
        """A hash of the grammar's source, the split and the linearisation."""
        return self._hash(corpus.tree_fingerprint(self.split, self.language))


def open_treebank(
    place: str,
    language: str,
    linearise: Callable[[Tree], str],
    folder: str = "",
    weight: float = 1.0,
) -> TreeCorpus:
    """Opens the treebank at a place: a prefix, or `grammar:trees/SPLIT`.

    Args:
      language: of the built-in grammar.
      linearise: makes the target line of a tree.
      folder: where relative prefixes start.

    Raises:
      UserError: it does not exist, or is none.
    """
    scheme, colon, rest = place.partition(":")
    if colon and scheme == "grammar":
        trees, _, split = rest.partition("/")
        if trees != "trees":
            raise UserError(
                f"{place} has no trees; want grammar:trees/SPLIT, such as "
                f"grammar:trees/{rest if rest in corpus.SPLITS else 'train'}"
            )
        return GrammarTrees(split or "train", language, linearise, weight)
    if colon and scheme == "tfds":
        raise UserError(
            f"{place}: trees are not read from TensorFlow Datasets; want a prefix, "
            "such as 'wsj/23' for wsj/23.mrg, or grammar:trees/SPLIT"
        )
    path = Path(folder).expanduser() / Path(place).expanduser()
    found = TreeFile(path, linearise, weight)
    found.files()
    return found
