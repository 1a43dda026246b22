"""The interface of noise: examples that change from epoch to epoch.

Noise is a pure function of (seed, epoch, number of the pair): a resumed run sees the
same examples, and any batch can be looked up again.
"""

import dataclasses
from typing import TYPE_CHECKING, Protocol

import numpy as np

from t2t_jax.data.filling import Ragged, fill
from t2t_jax.data.plan import Layout

if TYPE_CHECKING:
    from t2t_jax.data.pairs import Pairs


class Noise(Protocol):
    """Makes the examples of an epoch from stored pairs.

    The lengths must not depend on seed and epoch, because the shapes of batches and
    their plan follow from them.
    """

    def lengths(self, pairs: "Pairs") -> tuple[np.ndarray, np.ndarray]:
        """Returns the source and target lengths of the examples, int [pairs]."""

    def fill(
        self, layout: Layout, pairs: "Pairs", seed: int, epoch: int
    ) -> dict[str, np.ndarray]:
        """Builds the arrays of one batch, with the names of `filling.fill`."""


def take(sentences: Ragged, pair_p: np.ndarray) -> Ragged:
    """Copies some sentences, in the order of their numbers."""
    first_p = sentences.offsets[pair_p].astype(np.int64)
    offsets = np.append(0, np.cumsum(sentences.offsets[pair_p + 1] - first_p))
    # Token n of the copy is `n - offsets[p]` tokens after the first of sentence p.
    place = np.arange(offsets[-1]) + np.repeat(first_p - offsets[:-1], np.diff(offsets))
    return Ragged(sentences.tokens[place].astype(np.int32), offsets)


def fill_taken(layout: Layout, source: Ragged, target: Ragged) -> dict[str, np.ndarray]:
    """Fills a batch like `fill`, from the sentences of this batch alone."""
    numbered = np.arange(len(layout.pair_p), dtype=np.int32)
    return fill(dataclasses.replace(layout, pair_p=numbered), source, target)


def of_sentence(sentences: Ragged, value_p: np.ndarray) -> np.ndarray:
    """Repeats a value of each sentence for each of its tokens."""
    return np.repeat(value_p, sentences.lengths)


def positions(sentences: Ragged) -> np.ndarray:
    """Returns the position of each token in its sentence."""
    return np.arange(len(sentences.tokens)) - of_sentence(
        sentences, sentences.offsets[:-1]
    )
