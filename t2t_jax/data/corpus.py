"""Corpora of sentence pairs: text files, the built-in grammar, TensorFlow Datasets.

A place is a string that names a corpus. `config.data.train`, `dev` and `test`, and
`--test` of the commands, all use the same syntax:

    news/train         the files `news/train.en` and `news/train.de`, or the same with
                       `.gz`. Relative prefixes start at `config.data.dir` in a config,
                       and at the current folder on a command line
    grammar:unseen     a split of the built-in corpus (`grammar/corpus.py`)
    tfds:wmt14_translate/de-en:train
                       a split of TensorFlow Datasets (`data/tfds.py`)

Commas separate several places. A place of training text may end in a weight: how many
times an epoch reads it. `news@2,bt/synthetic@0.5` reads every pair of `news` twice, and
half the pairs of `bt/synthetic`; the next epoch reads the other half.
"""

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from t2t_jax.data.text_files import (
    HASHES_ENDING,
    check_hashes,
    find_file,
    pair_hasher,
    read_lines,
)
from t2t_jax.data.tfds import TfdsCorpus
from t2t_jax.grammar import corpus
from t2t_jax.io.atomic import read_checked_json
from t2t_jax.io.errors import UserError, did_you_mean

Pair = tuple[str, str]


class Corpus(Protocol):
    """Sentence pairs in a fixed order, which can be read again and again."""

    place: str
    name: str  # part of the names of its score files
    source: str  # what the source is, such as a language
    target: str  # the same for the target; ends the name of the file of answers
    weight: float  # how many times an epoch of training reads it

    def pairs(self) -> Iterator[Pair]:
        """Yields (source line, target line), without line ends."""

    def fingerprint(self) -> str:
        """A hash that changes whenever a line changes; it excludes the weight."""


@dataclasses.dataclass(frozen=True)
class GrammarCorpus:
    """A split of the built-in English-German corpus, in either direction."""

    split: str
    source: str
    target: str
    weight: float = 1.0

    def __post_init__(self):
        if {self.source, self.target} != {"en", "de"}:
            raise UserError(
                f"{self.place} is English-German; got config.data.source="
                f"{self.source!r} and config.data.target={self.target!r}; want 'en' "
                "and 'de', in either order"
            )
        if self.split not in corpus.SPLITS:
            raise UserError(
                f"{self.place}: no such split" + did_you_mean(self.split, corpus.SPLITS)
            )

    @property
    def place(self) -> str:
        """The string that names this corpus."""
        return f"grammar:{self.split}"

    @property
    def name(self) -> str:
        """The split."""
        return self.split

    def pairs(self) -> Iterator[Pair]:
        """Yields (source line, target line)."""
        for english, german in corpus.pairs(self.split):
            yield (english, german) if self.source == "en" else (german, english)

    def fingerprint(self) -> str:
        """A hash of the grammar's source, the split and the direction."""
        direction = f"{self.source}-{self.target}"
        return _hash(corpus.fingerprint(self.split).encode(), direction.encode())


@dataclasses.dataclass(frozen=True)
class FileCorpus:
    """Two text files with the same prefix, aligned by line."""

    prefix: Path
    source: str
    target: str
    weight: float = 1.0

    @property
    def place(self) -> str:
        """The prefix of the two files."""
        return str(self.prefix)

    @property
    def name(self) -> str:
        """The last part of the prefix."""
        return self.prefix.name

    def files(self) -> tuple[Path, Path]:
        """The source and the target file; raises UserError if one is missing."""
        return _side(self.prefix, self.source), _side(self.prefix, self.target)

    def pairs(self) -> Iterator[Pair]:
        """Yields (source line, target line), without line ends.

        Raises:
          UserError: A file is missing, damaged, empty or not UTF-8; the two files
            differ in their number of lines (raised at the end); or there is a file of
            hashes (`data/text_files.py`), and a pair is not the one it is of.
        """
        files = self.files()
        pairs = self._aligned(files)
        if hashes := find_file(self.prefix, HASHES_ENDING):
            pairs = check_hashes(
                pairs,
                read_lines(hashes),
                pair_hasher(self.source, self.target),
                (str(files[0]), str(files[1])),
                str(hashes),
            )
        yield from pairs

    def _aligned(self, files: tuple[Path, Path]) -> Iterator[Pair]:
        """Yields the pairs of two files; raises the errors of the files themselves."""
        counts = [0, 0]
        # zip_longest, so that the error can give both numbers of lines.
        for pair in itertools.zip_longest(*map(read_lines, files)):
            for side in range(2):
                counts[side] += pair[side] is not None
            if None not in pair:
                yield pair
        if counts[0] != counts[1]:
            raise UserError(
                f"{files[0]} has {counts[0]:,} lines but {files[1]} has {counts[1]:,}; "
                "want one sentence a line, the two files aligned by line"
            )
        if not counts[0]:
            raise UserError(
                f"{files[0]} and {files[1]} are empty; want one sentence a line"
            )

    def symbols(self) -> tuple[str, ...]:
        """The symbols that pairs made by machine have, such as a tag.

        `PREFIX.json` names them, if `translate --pairs` wrote it; another file of this
        name is not looked into.
        """
        try:
            record = read_checked_json(Path(f"{self.prefix}.json"))
        except (OSError, ValueError):
            return ()
        return tuple(record.get("symbols", ()))

    def fingerprint(self) -> str:
        """A hash of the two files as they are stored."""
        digests = []
        for file in self.files():
            with open(file, "rb") as f:
                digests.append(hashlib.file_digest(f, "sha256").digest())
        return _hash(*digests)


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        # A hash of hashes: ("ab", "c") and ("a", "bc") differ.
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def _side(prefix: Path, language: str) -> Path:
    """The file of one language, plain or gzipped; raises UserError if missing."""
    if file := find_file(prefix, language):
        return file
    plain = Path(f"{prefix}.{language}")
    similar = sorted(f.name for f in prefix.parent.glob(prefix.name + "*"))
    hint = f"that folder has no file {prefix.name}*"
    if similar:
        hint = f"that folder has {', '.join(similar[:6])}"
    if not prefix.parent.is_dir():
        hint = f"there is no folder {prefix.parent}"
    raise UserError(
        f"{plain} does not exist, nor does {plain.name}.gz; {hint}. A place is a "
        "prefix: 'news' stands for news.en and news.de (config.data.source and target)"
    )


def _prefix(place: str, folder: str) -> Path:
    """The prefix of two files; an absolute `place` ignores the folder."""
    return Path(folder).expanduser() / Path(place).expanduser()


def open_corpus(
    place: str, source: str, target: str, folder: str = "", weight: float = 1.0
) -> Corpus:
    """Opens the corpus at one place.

    Args:
      place: See the top of this file.
      source, target: The languages to translate from and into.
      folder: The folder where relative prefixes start.
      weight: How many times an epoch of training reads it.

    Raises:
      UserError: An unknown split or data set, or languages that it does not have.
    """
    scheme, colon, rest = place.partition(":")
    if colon and scheme == "grammar":
        return GrammarCorpus(rest, source, target, weight)
    if colon and scheme == "tfds":
        return TfdsCorpus(place, source, target, weight)
    return FileCorpus(_prefix(place, folder), source, target, weight)


def open_corpora(
    places: str, source: str, target: str, folder: str = "", weights: bool = False
) -> list[Corpus]:
    """Opens the parallel corpora at several places.

    Args:
      source: The language to translate from; file names end in it.
      target: The language to translate into; file names end in it.
      others: As for `open_places`.
    """

    def open_one(place: str, folder: str, weight: float) -> Corpus:
        return open_corpus(place, source, target, folder, weight)

    return open_places(places, open_one, folder, weights)


def open_places(
    places: str,
    open_one: Callable[[str, str, float], Corpus],
    folder: str = "",
    weights: bool = False,
) -> list[Corpus]:
    """Opens the corpora at several places.

    Args:
      places: Places separated by commas; see the top of this file.
      open_one: (place, folder, weight) -> the corpus.
      folder: The folder where relative prefixes start.
      weights: True if places may end in a weight, as in training text.

    Returns:
      The corpora, in the order of the places.

    Raises:
      UserError: A weight that is not a number above 0, or that is not allowed here; a
        place that is given twice or cannot be opened.
    """
    corpora: dict[str, Corpus] = {}
    for written in split_places(places):
        # Files may have a name such as "news@2.en"; then "@2" need not be a weight.
        exists = "@" in written and _has_files(_prefix(written, folder))
        place, weight = _split_weight(written, weights, exists)
        corpus = open_one(place, folder, weight)
        if corpus.place in corpora:
            fix = f"; for twice an epoch write {place}@2" if weights else ""
            raise UserError(f"{places!r} names {place} twice; want it once{fix}")
        corpora[corpus.place] = corpus
    return list(corpora.values())


def _has_files(prefix: Path) -> bool:
    """True if there is a file of this name, or of this name and an ending."""
    names = [file.name for file in prefix.parent.glob("*") if file.is_file()]
    return any(n == prefix.name or n.startswith(f"{prefix.name}.") for n in names)


def split_places(places: str) -> list[str]:
    """Splits a string into its places; weights, if any, stay part of them."""
    return [place for place in map(str.strip, places.split(",")) if place]


def _split_weight(written: str, weights: bool, exists: bool) -> tuple[str, float]:
    """Splits `news@2` into ("news", 2.0); `mail@home/news` keeps its @, with weight 1.

    File names may have an @ too. If weights are allowed, a number after the last @ is a
    weight, and anything else is an error unless such files exist.

    Args:
      written: A place, perhaps with a weight.
      weights: True if a weight is allowed.
      exists: True if there are files with `written` as their prefix.
    """
    place, at, number = written.rpartition("@")
    if not at or "/" in number or (exists and not weights):
        return written, 1.0
    # re.A: `\d` would also match the digits of other scripts.
    weight = float(number) if re.fullmatch(r"\d+\.?\d*|\.\d+", number, re.A) else 0.0
    if not weights and weight:
        raise UserError(
            f"{written}: only training text has weights; a dev or test set is read "
            f"completely and once, so want {place}"
        )
    if place and weight:
        return place.rstrip(), weight
    if exists or not weights:
        return written, 1.0
    place = place or "news"
    raise UserError(
        f"{written} is not a place with a weight; want PLACE@NUMBER, where NUMBER > 0 "
        f"says how many times an epoch reads PLACE, such as {place}@2 or {place}@0.5"
    )
