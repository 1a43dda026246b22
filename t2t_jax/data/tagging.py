"""Corpora for several tasks in one model: a tag before each source; text to be copied.

Both wrap another corpus.
"""

import dataclasses
import hashlib
from collections.abc import Iterator

from t2t_jax.data.corpus import Corpus, Pair


@dataclasses.dataclass(frozen=True)
class _Wrapped:
    """A corpus made from another one; by default it has the same pairs."""

    corpus: Corpus

    @property
    def place(self) -> str:
        """The string that names this corpus."""
        return self.corpus.place

    @property
    def name(self) -> str:
        """Part of the names of its score files."""
        return self.corpus.name

    @property
    def source(self) -> str:
        """What the source is, such as a language."""
        return self.corpus.source

    @property
    def target(self) -> str:
        """The same for the target; ends the name of the file of answers."""
        return self.corpus.target

    @property
    def weight(self) -> float:
        """How many times an epoch of training reads it."""
        return self.corpus.weight


@dataclasses.dataclass(frozen=True)
class TaggedCorpus(_Wrapped):
    """The corpus of a subtask; each source begins with the subtask's tag."""

    subtask: str
    tag: str

    @property
    def place(self) -> str:
        """`SUBTASK:PLACE`."""
        return f"{self.subtask}:{self.corpus.place}"

    @property
    def name(self) -> str:
        """`SUBTASK.NAME`: several subtasks may have a set called "test"."""
        return f"{self.subtask}.{self.corpus.name}"

    def pairs(self) -> Iterator[Pair]:
        """Yields (tag and source line, target line)."""
        for source, target in self.corpus.pairs():
            yield f"{self.tag} {source}", target

    def fingerprint(self) -> str:
        """A hash of that of the wrapped corpus and the tag."""
        return _hash(self.tag, self.corpus.fingerprint())


class CopiedLines(_Wrapped):
    """One-sided text, whose source is its target."""

    def pairs(self) -> Iterator[Pair]:
        """Yields (line, line)."""
        for _, line in self.corpus.pairs():
            yield line, line

    def fingerprint(self) -> str:
        """A hash of that of the wrapped corpus."""
        return _hash("copy", self.corpus.fingerprint())


def _hash(kind: str, fingerprint: str) -> str:
    return hashlib.sha256(f"{kind} {fingerprint}".encode()).hexdigest()
