"""Texts in memory for the tests of the doctor."""

import itertools

from t2t_jax.data.corpus import Corpus
from t2t_jax.extensions.grammar import corpus


def corpus_of(pairs, spec="made up"):
    """Pairs in memory, as a corpus."""
    return Corpus(spec, "made-up", "en", "de", lambda: iter(pairs), lambda: "")


def grammar_pairs(count, split="train"):
    return [*itertools.islice(corpus.pairs(split), count)]
