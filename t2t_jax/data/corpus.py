"""Where pairs of lines come from.

A place is written in one string, everywhere the same (`config.data.train`, `dev`,
`test`, and `--test` of the commands):

    grammar:unseen     a split of the built-in corpus (`grammar/corpus.py`)
    news/train         the files `news/train.en` and `news/train.de`, or the same with
                       `.gz`; a relative prefix of the config starts at
                       `config.data.dir`, one of a command where it is started
    tfds:wmt14_translate/de-en:train
                       a split of TensorFlow Datasets (`data/tfds.py`)

Several places are separated by commas. In training text each may end in a weight, how
many times it is read in an epoch: `news@2,bt/synthetic@0.5` reads every pair of `news`
twice, and half the pairs of `bt/synthetic`, another half each epoch.

Text is UTF-8, one sentence a line; only a line feed ends a line (a carriage return
before it is dropped), so no other character of Unicode can put two files out of step.
"""

import dataclasses
import gzip
import hashlib
import itertools
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from t2t_jax.data.tfds import TfdsCorpus
from t2t_jax.grammar import corpus
from t2t_jax.terminal.errors import UserError, did_you_mean

Pair = tuple[str, str]


class Corpus(Protocol):
    """A place that pairs of lines are read from, in order, as often as wanted."""

    place: str
    name: str  # names the files of its scores
    weight: float  # how many times it is read in an epoch of training

    def pairs(self) -> Iterator[Pair]:
        """Yields (source line, target line), without line ends."""

    def fingerprint(self) -> str:
        """A hash that changes whenever a line does; the weight is no part of it."""


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
        return f"grammar:{self.split}"

    @property
    def name(self) -> str:
        return self.split

    def pairs(self) -> Iterator[Pair]:
        for english, german in corpus.pairs(self.split):
            yield (english, german) if self.source == "en" else (german, english)

    def fingerprint(self) -> str:
        direction = f"{self.source}-{self.target}"
        return _hash(corpus.fingerprint(self.split).encode(), direction.encode())


@dataclasses.dataclass(frozen=True)
class FileCorpus:
    """Two text files with one prefix, aligned by line."""

    prefix: Path
    source: str
    target: str
    weight: float = 1.0

    @property
    def place(self) -> str:
        return str(self.prefix)

    @property
    def name(self) -> str:
        return self.prefix.name

    def files(self) -> tuple[Path, Path]:
        """The source and the target file. Raises UserError where one is missing."""
        return _side(self.prefix, self.source), _side(self.prefix, self.target)

    def pairs(self) -> Iterator[Pair]:
        files = self.files()
        counts = [0, 0]
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
                f"{files[0]} and {files[1]} are empty; want a sentence a line"
            )

    def fingerprint(self) -> str:
        digests = []
        for file in self.files():
            with open(file, "rb") as f:
                digests.append(hashlib.file_digest(f, "sha256").digest())
        return _hash(*digests)


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def _side(prefix: Path, language: str) -> Path:
    """The file of one side, plain or gzipped."""
    plain, zipped = _files(prefix, language)
    for file in (plain, zipped):
        if file.is_file():
            return file
    there = sorted(f.name for f in prefix.parent.glob(prefix.name + "*"))
    hint = f"that folder has {', '.join(there[:6])}" if there else "nothing there fits"
    if not prefix.parent.is_dir():
        hint = f"there is no folder {prefix.parent}"
    raise UserError(
        f"{plain} does not exist, nor does {zipped.name}; {hint}. A place is a prefix: "
        "'news' stands for news.en and news.de (config.data.source and target)"
    )


def _files(prefix: Path, language: str) -> list[Path]:
    return [Path(f"{prefix}.{language}{end}") for end in ("", ".gz")]


def read_lines(file: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, gzipped if its name says so, without line ends."""
    open_file = gzip.open if file.name.endswith(".gz") else open
    with open_file(file, "rb") as f:
        try:
            yield from decode_lines(f, str(file))
        except (gzip.BadGzipFile, EOFError, zlib.error) as e:
            raise UserError(
                f"{file} is not a whole gzip file ({e}); write it again"
            ) from e


def decode_lines(raw_lines, name: str) -> Iterator[str]:
    """Decodes lines of bytes; `name` is what an error calls the file.

    Raises:
      UserError: bytes that are not UTF-8, naming the line and the byte in it.
    """
    for number, raw in enumerate(raw_lines, 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as e:
            raise UserError(
                f"{name}, line {number:,}: byte {e.start + 1} (0x{raw[e.start]:02x}) "
                "is not UTF-8; convert the file, e.g. iconv -f ISO-8859-1 -t UTF-8"
            ) from None
        if number == 1:
            line = line.removeprefix("\ufeff")  # a byte order mark is not text
        yield line.removesuffix("\n").removesuffix("\r")


def _prefix(place: str, folder: str) -> Path:
    return Path(folder).expanduser() / Path(place).expanduser()


def open_corpus(
    place: str, source: str, target: str, folder: str = "", weight: float = 1.0
) -> Corpus:
    """The corpus at one place; see the top of this file for how places are written."""
    scheme, colon, rest = place.partition(":")
    if colon and scheme == "grammar":
        return GrammarCorpus(rest, source, target, weight)
    if colon and scheme == "tfds":
        return TfdsCorpus(place, source, target, weight)
    return FileCorpus(_prefix(place, folder), source, target, weight)


def open_corpora(
    places: str, source: str, target: str, folder: str = "", weights: bool = False
) -> list[Corpus]:
    """The corpora at several places separated by commas.

    Args:
      places: as the top of this file says.
      source: the language to translate from, which the names of files end in.
      target: the language to translate into.
      folder: where relative prefixes start.
      weights: whether places may end in a weight, as those of training text.

    Raises:
      UserError: a weight that is none, or that is not wanted here; a place that is
        named twice or cannot be opened.
    """
    corpora: dict[str, Corpus] = {}
    for written in split_places(places):
        prefix = _prefix(written, folder)
        files = [f for language in (source, target) for f in _files(prefix, language)]
        there = any(file.is_file() for file in files)
        place, weight = _split_weight(written, weights, there)
        corpus = open_corpus(place, source, target, folder, weight)
        if corpus.place in corpora:
            mend = f"; for twice an epoch write {place}@2" if weights else ""
            raise UserError(f"{places!r} names {place} twice; want it once{mend}")
        corpora[corpus.place] = corpus
    return list(corpora.values())


def split_places(places: str) -> list[str]:
    """The places that are written in one string, each with its weight if it has one."""
    return [place for place in map(str.strip, places.split(",")) if place]


def _split_weight(written: str, weights: bool, there: bool) -> tuple[str, float]:
    """`news@2` -> `("news", 2.0)`, and `mail@home/news` -> itself with weight 1.

    Names of files may have an @ too: where weights are wanted, a number after the last
    one is a weight, and anything else is a mistake unless there are such files.
    """
    place, at, number = written.rpartition("@")
    if not at or "/" in number or (there and not weights):
        return written, 1.0
    weight = float(number) if re.fullmatch(r"\d+\.?\d*|\.\d+", number, re.A) else 0.0
    if not weights and weight:
        raise UserError(
            f"{written}: only training text has weights; a dev or test set is read "
            f"whole and once, so want {place}"
        )
    if place and weight:
        return place.rstrip(), weight
    if there or not weights:
        return written, 1.0
    place = place or "news"
    raise UserError(
        f"{written} is no place with a weight; want PLACE@NUMBER, a number above 0 of "
        f"times it is read in an epoch, such as {place}@2 or {place}@0.5"
    )
