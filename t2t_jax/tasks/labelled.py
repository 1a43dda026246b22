"""Labelled text: examples of a sentence and its label.

A place is the prefix of a file PREFIX.tsv, plain or `.gz`, with a sentence, a tab and a
label in each line; or `grammar:SPLIT`, whose sentences are labelled by their last mark.
"""

from collections.abc import Iterator
from pathlib import Path

from t2t_jax.data.corpus import (
    Corpus,
    Pair,
    derived,
    in_folder,
    named_hash,
    open_corpus,
)
from t2t_jax.data.text_files import file_hash, find_file, read_lines
from t2t_jax.io.errors import UserError

MARKS = {".": "statement", "?": "question"}


def open_labelled(place: str, source: str, target: str, folder: str = "") -> Corpus:
    """Opens the corpus at one place.

    Args:
      source, target: the languages of the grammar; sentences are of the first.
      folder: as for `data/corpus.py: open_corpus`.

    Raises:
      UserError: the grammar has no such split, or the place holds no labels.
    """
    scheme, colon, _ = place.partition(":")
    if colon and scheme == "grammar":
        return derived(
            open_corpus(place, source, target, folder),
            f"last marks {MARKS}",
            lambda pairs: ((line[:-1], MARKS[line[-1]]) for line, _ in pairs),
            source="text",
            target="label",
        )
    if colon and scheme == "tfds":
        raise UserError(
            f"{place} holds pairs of sentences and no labels; want the prefix of a "
            "file PREFIX.tsv, or grammar:train"
        )
    return labelled_file(in_folder(place, folder))


def labelled_file(prefix: Path) -> Corpus:
    """A file with a sentence, a tab and a label in each line.

    Reading it raises UserError if the file is missing, damaged, empty or not UTF-8, or
    a line is not a sentence, a tab and a label.
    """

    def pairs() -> Iterator[Pair]:
        file, number = _file(prefix), 0
        for number, line in enumerate(read_lines(file), 1):
            yield _parsed(line, f"{file}, line {number:,}", number == 1)
        if not number:
            raise UserError(
                f"{file} is empty; want a sentence, a tab and a label in each line"
            )

    return Corpus(
        str(prefix),
        prefix.name,
        "text",
        "label",
        pairs,
        lambda: named_hash("labelled", file_hash(_file(prefix))),
    )


def _file(prefix: Path) -> Path:
    """The file, plain or gzipped; raises UserError if it is missing."""
    if file := find_file(prefix, "tsv"):
        return file
    name = prefix.name.removesuffix(".gz").removesuffix(".tsv")
    there = prefix.parent.glob("*.tsv*")
    names = sorted({f.name.removesuffix(".gz").removesuffix(".tsv") for f in there})
    hint = f"; that folder has {', '.join(names[:6])}" if names else ""
    if name in names:
        hint = f"; write {name!r}, without the ending"
    raise UserError(
        f"{prefix}.tsv does not exist, nor does {prefix.name}.tsv.gz; want a file with "
        "a sentence, a tab and a label in each line. A place is its prefix: 'reviews' "
        f"stands for reviews.tsv{hint}"
    )


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
