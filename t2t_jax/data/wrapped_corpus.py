"""A corpus that is made from another one."""

import dataclasses

from t2t_jax.data.corpus import Corpus


@dataclasses.dataclass(frozen=True)
class WrappedCorpus:
    """What a corpus made from another one has of it, unless it is overridden.

    Its pairs and their fingerprint are its own.
    """

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
