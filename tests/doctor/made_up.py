"""Texts in memory for the tests of the doctor."""

import itertools
from typing import NamedTuple

from t2t_jax.grammar import corpus


class MadeUp(NamedTuple):
    """Pairs in memory, as a corpus."""

    made: list
    spec: str = "made up"
    name: str = "made-up"
    source: str = "en"
    target: str = "de"
    weight: float = 1.0

    def pairs(self):
        return iter(self.made)


def grammar_pairs(count, split="train"):
    return [*itertools.islice(corpus.pairs(split), count)]
