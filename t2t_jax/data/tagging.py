"""Corpora for several tasks in one model: a tag before each source; copies of text."""

import dataclasses
import hashlib
from collections.abc import Iterator

from t2t_jax.data.corpus import Pair
from t2t_jax.data.wrapped_corpus import WrappedCorpus


@dataclasses.dataclass(frozen=True)
class TaggedCorpus(WrappedCorpus):
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


class CopiedLines(WrappedCorpus):
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
