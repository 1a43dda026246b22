"""Labelled text: examples of a sentence and its label.

A place is the prefix of a file PREFIX.tsv, plain or `.gz`, with a sentence, a tab and a
label in each line; or `grammar:SPLIT`, whose sentences are labelled by their last mark.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path

from t2t_jax.data.corpus import Pair, open_corpus
from t2t_jax.data.text_files import find_file, read_lines
from t2t_jax.data.wrapped_corpus import WrappedCorpus
from t2t_jax.io.errors import UserError

MARKS = {".": "statement", "?": "question"}


@dataclasses.dataclass(frozen=True)
class LabelledFile:
    """A file with a sentence, a tab and a label in each line."""

    prefix: Path
    weight: float = 1.0
    source: str = "text"
    target: str = "label"

    @property
    def place(self) -> str:
        """The prefix of the file."""
        return str(self.prefix)

    @property
    def name(self) -> str:
        """The last part of the prefix."""
        return self.prefix.name

    @property
    def file(self) -> Path:
        """The file, plain or gzipped; raises UserError if it is missing."""
        if file := find_file(self.prefix, "tsv"):
            return file
        raise UserError(
            f"{self.prefix}.tsv does not exist, nor does {self.name}.tsv.gz; want a "
            "file with a sentence, a tab and a label in each line. A place is its "
            f"prefix: 'reviews' stands for reviews.tsv{self._hint()}"
        )

    def _hint(self) -> str:
        """Names what the place may have been meant to be, for an error message."""
        given = self.name.removesuffix(".gz").removesuffix(".tsv")
        there = self.prefix.parent.glob("*.tsv*")
        names = sorted({f.name.removesuffix(".gz").removesuffix(".tsv") for f in there})
        if given in names:
            return f"; write {given!r}, without the ending"
        return f"; that folder has {', '.join(names[:6])}" if names else ""

    def pairs(self) -> Iterator[Pair]:
        """Yields (sentence, label).

        Raises:
          UserError: the file is missing, damaged, empty or not UTF-8, or a line is not
            a sentence, a tab and a label.
        """
        file, number = self.file, 0
        for number, line in enumerate(read_lines(file), 1):
            yield _parsed(line, f"{file}, line {number:,}", number == 1)
        if not number:
            raise UserError(
                f"{file} is empty; want a sentence, a tab and a label in each line"
            )

    def fingerprint(self) -> str:
        """A hash of the file as it is stored."""
        with open(self.file, "rb") as f:
            digest = hashlib.file_digest(f, "sha256").hexdigest()
        return hashlib.sha256(f"labelled {digest}".encode()).hexdigest()


def _parsed(line: str, where: str, first: bool) -> Pair:
    """Splits a line at its tab; raises UserError if it is not text, tab, label."""
    tabs = line.count("\t")
    if tabs != 1:
        mend = "add the label after a tab"
        if not line.strip():
            mend = "remove the empty line"
        elif tabs:
            mend = "neither contains a tab: replace the others by spaces"
        raise UserError(
            f"{where}: {tabs or 'no'} tab{'s' * (tabs != 1)} in {line[:60]!r}; want "
            f"one between the sentence and its label; {mend}"
        )
    text, label = line.split("\t")
    label = label.strip()  # "1 " and "1" are one class
    if not label:
        raise UserError(
            f"{where}: there is no label after the tab in {line[:60]!r}; write one, or "
            "remove the line"
        )
    if first and label.lower() == "label":
        raise UserError(f"{where}: {line!r} is a heading, not an example; remove it")
    return text, label


class LastMarks(WrappedCorpus):
    """Sentences of the built-in grammar without their last mark, which is the label."""

    source, target = "text", "label"

    def pairs(self) -> Iterator[Pair]:
        """Yields (sentence, "statement" or "question")."""
        for sentence, _ in self.corpus.pairs():
            yield sentence[:-1], MARKS[sentence[-1]]

    def fingerprint(self) -> str:
        """A hash of the sentences and of the labels' definition."""
        named = f"last marks {MARKS} {self.corpus.fingerprint()}"
        return hashlib.sha256(named.encode()).hexdigest()


def open_labelled(
    place: str, source: str, target: str, folder: str = "", weight: float = 1.0
) -> LabelledFile | LastMarks:
    """Opens the corpus at one place.

    Args:
      source, target: the languages of the grammar; sentences are of the first.
      folder, weight: as for `data/corpus.py: open_corpus`.

    Raises:
      UserError: the grammar has no such split, or the place holds no labels.
    """
    scheme, colon, _ = place.partition(":")
    if colon and scheme == "grammar":
        return LastMarks(open_corpus(place, source, target, folder, weight))
    if colon and scheme == "tfds":
        raise UserError(
            f"{place} holds pairs of sentences and no labels; want the prefix of a "
            "file PREFIX.tsv, or grammar:train"
        )
    return LabelledFile(Path(folder).expanduser() / Path(place).expanduser(), weight)
