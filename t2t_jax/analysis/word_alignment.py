"""Word alignment by IBM Model 1 (Brown et al. 1993), which needs no trained model.

The product of the models of both directions is maximized, times a preference for the
diagonal as in fast_align (Dyer et al. 2013), which decides between repeated words.
"""

from collections.abc import Sequence

import numpy as np

Words = Sequence[str]
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
        _translation_table(type_c, source_k, target_place_c, iterations)
        * _translation_table(type_c, target_k, source_place_c, iterations)
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


def _translation_table(type_c, given_k, explained_c, iterations: int) -> np.ndarray:
    """The probability of a type's one word given the other, by EM.

    Args:
      type_c: the type of each cell: which two words.
      given_k: the word of each type that the other one is a translation of.
      explained_c: the place in the text of each cell's other word.
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
