"""Word alignment by IBM Model 1 (Brown et al. 1993), which needs no trained model.

The product of the models of both directions is maximized, times a preference for the
diagonal as in fast_align (Dyer et al. 2013), which decides between repeated words.
"""

from collections.abc import Sequence

import numpy as np

Words = Sequence[str]
EMPTY = -1  # the number of the empty word, which explains what no other does
DIAGONAL = 4.0  # fast_align's: exp(-4) for words at opposite ends


def align_words(
    pairs: Sequence[tuple[Words, Words]], aligned: int, iterations: int = 5
) -> list[list[int]]:
    """Links each target word to a source word.

    Args:
      pairs: (source words, target words), from which the models learn.
      aligned: the number of pairs, from the first one, to align.

    Returns:
      For each of these pairs, the index of the source word of each target word; -1 if
      there is none.
    """
    numbers: dict[str, int] = {}
    # A cell is a source word and a target word of one pair.
    cells = [_cells(pair, numbers) for pair in pairs]
    source_c, target_c = (np.concatenate(side) for side in zip(*cells, strict=True))
    types_k, type_c = np.unique(source_c * len(numbers) + target_c, return_inverse=True)
    source_k, target_k = np.divmod(types_k, len(numbers))
    source_place_c, target_place_c = _places(pairs)
    score_c = (
        translation_table(type_c, source_k, target_place_c, iterations)
        * translation_table(type_c, target_k, source_place_c, iterations)
    )[type_c]
    links, start = [], 0
    for source, target in pairs[:aligned]:
        shape = len(target), len(source)
        score_ts = score_c[start : start + len(source) * len(target)].reshape(shape)
        start += score_ts.size
        best_t = (score_ts * _near_diagonal(*shape)).argmax(1) if source else ()
        links.append([int(s) for s in best_t] or [-1] * len(target))
    return links


def _near_diagonal(targets: int, sources: int) -> np.ndarray:
    """The preference for pairs of places, [t, s]."""
    along_t, along_s = np.arange(targets) / targets, np.arange(sources) / sources
    return np.exp(-DIAGONAL * np.abs(along_t[:, None] - along_s))


def _cells(pair: tuple[Words, Words], numbers: dict[str, int]):
    """The source word and the target word of each cell, as numbers."""
    source, target = (
        np.array([numbers.setdefault(w, len(numbers)) for w in side], np.int64)
        for side in pair
    )
    return np.tile(source, len(target)), np.repeat(target, len(source))


def _places(pairs: Sequence[tuple[Words, Words]]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers the source word and the target word of each cell in the whole text."""
    source_places, target_places, sources, targets = [], [], 0, 0
    for source, target in pairs:
        places = np.arange(sources, sources + len(source))
        source_places.append(np.tile(places, len(target)))
        places = np.arange(targets, targets + len(target))
        target_places.append(np.repeat(places, len(source)))
        sources, targets = sources + len(source), targets + len(target)
    return np.concatenate(source_places), np.concatenate(target_places)


def translation_table(type_c, given_k, explained_c, iterations: int) -> np.ndarray:
    """Computes the probability of a type's one word given the other, by EM.

    Args:
      type_c: the type of each cell: which two words.
      given_k: the word of each type that the other one is a translation of.
      explained_c: the place in the text of each cell's other word.
      iterations: of EM.
    """
    table_k = np.ones(len(given_k))
    for _ in range(iterations):
        # Expectation: each place is explained by one of the words of the other side.
        weight_c = table_k[type_c]
        weight_c /= np.bincount(explained_c, weight_c)[explained_c]
        # Maximization: relative frequencies.
        count_k = np.bincount(type_c, weight_c, minlength=len(given_k))
        table_k = count_k / np.bincount(given_k, count_k)[given_k]
    return table_k


class Lexicon:
    """Translation probabilities of words, t(target | source), by IBM Model 1.

    Each source sentence also has an empty word, which takes the target words that no
    other explains (Brown et al. 1993, section 4.1).

    Args:
      pairs: (source words, target words), from which the model learns.
      iterations: of EM.
      least: how often a target word must occur for the model to judge it.
    """

    def __init__(
        self, pairs: Sequence[tuple[Words, Words]], iterations: int = 5, least: int = 3
    ):
        self._numbers: dict[str, int] = {}
        sources, targets = (
            np.array(
                [
                    self._numbers.setdefault(word, len(self._numbers))
                    for pair in pairs
                    for word in pair[side]
                ],
                np.int64,
            )
            for side in (0, 1)
        )
        # A cell is a target word and a source word of its pair, or the empty word.
        lengths = np.array([(len(s), len(t)) for s, t in pairs], np.int64)
        lengths = lengths.reshape(-1, 2)
        sizes, first = lengths[:, 0], np.cumsum(lengths[:, 0]) - lengths[:, 0]
        # Of each target word: the length of its source, and where that begins.
        size_t, first_t = (np.repeat(x, lengths[:, 1]) for x in (sizes, first))
        place_c = np.repeat(np.arange(len(targets)), size_t + 1)
        start_t = np.cumsum(size_t + 1) - size_t - 1
        within_c = np.arange(len(place_c)) - start_t[place_c]  # the empty word is last
        source_c = np.full(len(place_c), EMPTY)
        filled_c = within_c < size_t[place_c]
        source_c[filled_c] = sources[(first_t[place_c] + within_c)[filled_c]]
        type_c = (source_c + 1) * len(self._numbers) + targets[place_c]
        self._types_k, type_c = np.unique(type_c, return_inverse=True)
        given_k = self._types_k // max(len(self._numbers), 1)
        self._table_k = translation_table(type_c, given_k, place_c, iterations)
        self._judged_w = np.bincount(targets, minlength=len(self._numbers)) >= least

    def support(self, source: Words, target: Words) -> np.ndarray:
        """Finds how well each target word is explained by a word of its source.

        Returns:
          float64 [t]: the largest t(target | source) over the words of the source, 0
          if no source word has been seen beside it; NaN for target words that the
          training text hardly has, which the model cannot judge.
        """
        source_s, target_t = (
            np.array([self._numbers.get(word, -1) for word in side], np.int64)
            for side in (source, target)
        )
        if not len(self._types_k):
            return np.full(len(target), np.nan)
        type_ts = (source_s + 1) * len(self._numbers) + target_t[:, None]
        place_ts = np.searchsorted(self._types_k, type_ts)
        place_ts = np.minimum(place_ts, len(self._types_k) - 1)
        known_ts = (self._types_k[place_ts] == type_ts) & (source_s >= 0)
        best_t = np.where(known_ts, self._table_k[place_ts], 0).max(1, initial=0)
        judged_t = (target_t >= 0) & self._judged_w[np.maximum(target_t, 0)]
        return np.where(judged_t, best_t, np.nan)
