"""One-sided text: examples without a source, for language models.

A place is a text file, plain or `.gz`, one example a line; or a place of sentence pairs
(`data/corpus.py`) with a scheme, such as `grammar:train`, of which the target is read.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path

from t2t_jax.data.corpus import Corpus, Pair, open_corpus
from t2t_jax.data.text_files import read_lines
from t2t_jax.data.wrapped_corpus import WrappedCorpus
from t2t_jax.io.errors import UserError


@dataclasses.dataclass(frozen=True)
class LineFile:
    """A text file; its examples are ("", line)."""

    file: Path
    weight: float = 1.0
    source: str = ""
    target: str = "lines"

    @property
    def place(self) -> str:
        """The name of the file."""
        return str(self.file)

    @property
    def name(self) -> str:
        """The last part of the name, without `.gz`."""
        return self.file.name.removesuffix(".gz")

    def pairs(self) -> Iterator[Pair]:
        """Yields ("", line).

        Raises:
          UserError: The file is damaged, empty or not UTF-8.
        """
        empty = True
        for line in read_lines(self.file):
            empty = False
            yield "", line
        if empty:
            raise UserError(f"{self.file} is empty; want one sentence a line")

    def fingerprint(self) -> str:
        """A hash of the file as it is stored."""
        with open(self.file, "rb") as f:
            digest = hashlib.file_digest(f, "sha256").hexdigest()
        return hashlib.sha256(f"lines {digest}".encode()).hexdigest()


class TargetLines(WrappedCorpus):
    """The target side of a corpus of pairs; its examples are ("", target)."""

    source, target = "", "lines"

    def pairs(self) -> Iterator[Pair]:
        """Yields ("", target line)."""
        for _, target in self.corpus.pairs():
            yield "", target

    def fingerprint(self) -> str:
        """A hash of that of the corpus of pairs."""
        of_pairs = self.corpus.fingerprint()
        return hashlib.sha256(f"targets {of_pairs}".encode()).hexdigest()


def open_lines(
    place: str, source: str, target: str, folder: str = "", weight: float = 1.0
) -> Corpus:
    """Opens the one-sided text at a place.

    Args:
      place: See the top of this file.
      source, target: The languages of a corpus of pairs, whose target is read.
      folder: The folder where relative names of files start.
      weight: How many times an epoch of training reads it.

    Raises:
      UserError: There is no such file or corpus.
    """
    scheme, colon, _ = place.partition(":")
    if colon and scheme in ("grammar", "tfds"):
        return TargetLines(open_corpus(place, source, target, folder, weight))
    file = Path(folder).expanduser() / Path(place).expanduser()
    if not file.is_file() and Path(f"{file}.gz").is_file():
        file = Path(f"{file}.gz")
    if not file.is_file():
        similar = sorted(f.name for f in file.parent.glob(file.name + "*"))
        hint = f"that folder has {', '.join(similar[:6])}" if similar else ""
        raise UserError(
            f"{file} does not exist{'; ' + hint if hint else ''}. One-sided text is "
            "named by its file, such as news.en"
        )
    return LineFile(file, weight)
