"""Where pairs of lines come from.

A place is written in one string, everywhere the same (`config.data.train`, `dev`,
`test`, and `--test` of the commands):

    grammar:unseen     a split of the built-in corpus (`data/grammar.py`)
    news/train         the files `news/train.en` and `news/train.de`, or the same with
                       `.gz`; a relative prefix of the config starts at
                       `config.data.dir`, one of a command where it is started

Text is UTF-8, one sentence a line; only a line feed ends a line (a carriage return
before it is dropped), so no other character of Unicode can put two files out of step.
"""

import dataclasses
import gzip
import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from t2t_jax.data import grammar
from t2t_jax.errors import UserError, nearest

Pair = tuple[str, str]


class Corpus(Protocol):
    """A place that pairs of lines are read from, in order, as often as wanted."""

    place: str
    name: str  # names the files of its scores

    def pairs(self) -> Iterator[Pair]:
        """Yields (source line, target line), without line ends."""

    def fingerprint(self) -> str:
        """A hash that changes whenever a line does."""


@dataclasses.dataclass(frozen=True)
class GrammarCorpus:
    """A split of the built-in English-German corpus, in either direction."""

    split: str
    source: str
    target: str

    def __post_init__(self):
        if {self.source, self.target} != {"en", "de"}:
            raise UserError(
                f"{self.place} is English-German; got config.data.source="
                f"{self.source!r} and config.data.target={self.target!r}; want 'en' "
                "and 'de', in either order"
            )
        if self.split not in grammar.SPLITS:
            raise UserError(
                f"{self.place}: no such split" + nearest(self.split, grammar.SPLITS)
            )

    @property
    def place(self) -> str:
        return f"grammar:{self.split}"

    @property
    def name(self) -> str:
        return self.split

    def pairs(self) -> Iterator[Pair]:
        for english, german in grammar.pairs(self.split):
            yield (english, german) if self.source == "en" else (german, english)

    def fingerprint(self) -> str:
        direction = f"{self.source}-{self.target}"
        return _hash(grammar.fingerprint(self.split).encode(), direction.encode())


@dataclasses.dataclass(frozen=True)
class FileCorpus:
    """Two text files with one prefix, aligned by line."""

    prefix: Path
    source: str
    target: str

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
    plain, zipped = (Path(f"{prefix}.{language}{end}") for end in ("", ".gz"))
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


def read_lines(file: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, gzipped if its name says so, without line ends."""
    open_file = gzip.open if file.name.endswith(".gz") else open
    with open_file(file, "rb") as f:
        try:
            yield from decode_lines(f, str(file))
        except (gzip.BadGzipFile, EOFError) as e:
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


def open_corpus(place: str, source: str, target: str, folder: str = "") -> Corpus:
    """The corpus at one place; see the top of this file for how places are written."""
    scheme, colon, rest = place.partition(":")
    if colon and scheme == "grammar":
        return GrammarCorpus(rest, source, target)
    return FileCorpus(
        Path(folder).expanduser() / Path(place).expanduser(), source, target
    )


def open_corpora(
    places: str, source: str, target: str, folder: str = ""
) -> list[Corpus]:
    """The corpora at several places separated by commas."""
    names = [place.strip() for place in places.split(",") if place.strip()]
    return [open_corpus(name, source, target, folder) for name in names]
