"""Word alignment by IBM Model 1 (Brown et al. 1993), which needs no trained model.

Shape suffixes: t target words, s source words, c cells, k types of cells.
"""

import collections
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Words = Sequence[str]
EMPTY = -1  # the number of the empty word, which explains what no other does
DIAGONAL = 4.0  # fast_align's: exp(-4) for words at opposite ends
EMPTY_SHARE = 0.08  # fast_align's: the words that the empty word is expected to explain
# Of a link, as (target word, source word); the diagonal ones are last, as in Moses.
NEIGHBOURS = (-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)


def align_words(
    pairs: Sequence[tuple[Words, Words]], aligned: int
) -> list[set[tuple[int, int]]]:
    """Links the words of the first `aligned` pairs, by an `Aligner` of all pairs.

    Returns:
      For each of these pairs, (source word, target word), as numbers from 0.
    """
    numbers: dict[str, int] = {}
    numbered = [tuple(_numbered(pair, numbers)) for pair in pairs]
    links = [set() for _ in range(aligned)]
    link_rows = Aligner(numbered, len(numbers)).links(numbered[:aligned])
    for pair, target, source in link_rows.tolist():
        links[pair].add((source, target))
    return links


def _numbered(lines: Sequence[Words], numbers: dict[str, int]) -> list[np.ndarray]:
    """The words of lines as numbers; new words get the next ones."""
    return [
        np.array([numbers.setdefault(w, len(numbers)) for w in line], np.int64)
        for line in lines
    ]


class BothWays(NamedTuple):
    """IBM Model 1 of both directions, without the empty word.

    Attributes:
      type_c: the type of each cell, a source and a target word of a pair: which words.
      source_k, target_k: the words of each type, as numbers.
      forward_k, backward_k: t(target | source) and t(source | target).
    """

    type_c: np.ndarray
    source_k: np.ndarray
    target_k: np.ndarray
    forward_k: np.ndarray
    backward_k: np.ndarray


def learn_both_ways(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], targets: int, iterations: int
) -> BothWays:
    """Learns the models of both directions.

    Args:
      pairs: (source words, target words), as numbers.
      targets: the number of different target words.
      iterations: of EM.
    """
    cells = _cells(pairs)
    types_k, type_c = np.unique(
        cells.source_c * targets + cells.target_c, return_inverse=True
    )
    source_k, target_k = np.divmod(types_k, max(targets, 1))
    return BothWays(
        type_c,
        source_k,
        target_k,
        _run_em(type_c, source_k, cells.target_place_c, iterations),
        _run_em(type_c, target_k, cells.source_place_c, iterations),
    )


def content_words(
    pairs: Sequence[tuple[Words, Words]], frequent: int, min_lines: int, cells: int
):
    """The words of each side that are in `min_lines` lines, as numbers.

    The most `frequent` words are left out if they are in over 2% of the lines. Every
    n-th pair is returned, with n such that they have at most `cells` cells.

    Returns:
      (pairs of arrays of numbers, for each side word -> number, and word -> lines).
    """
    counts, numbers = [], []
    for n in (0, 1):
        count = collections.Counter()
        for pair in pairs:
            # In the order of the text, which decides among equally frequent words.
            count.update([*dict.fromkeys(pair[n])])
        common = {w for w, c in count.most_common(frequent) if 50 * c > len(pairs)}
        counts.append(count)
        # In alphabetical order: the order within a set differs from run to run.
        listed = sorted(
            w for w, c in count.items() if c >= min_lines and w not in common
        )
        numbers.append({w: n for n, w in enumerate(listed)})
    numbered_pairs = [
        tuple(
            np.array(sorted({ids[w] for w in words if w in ids}), np.int64)
            for words, ids in zip(pair, numbers, strict=True)
        )
        for pair in pairs
    ]
    # Every n-th pair, and not the first ones: they may be of one domain.
    all_cells = sum(len(s) * len(t) for s, t in numbered_pairs)
    return numbered_pairs[:: max(1, -(-all_cells // cells))], numbers, counts


class _Cells(NamedTuple):
    """The words of each cell, and their places in all words of their side.

    `distance_c` is that from the diagonal: 1 is from corner to corner. `at_3c` is the
    pair, and the places of the target and the source word in it.
    """

    source_c: np.ndarray
    target_c: np.ndarray
    source_place_c: np.ndarray
    target_place_c: np.ndarray
    distance_c: np.ndarray
    at_3c: np.ndarray


def _cells(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], empty_word: bool = False
) -> _Cells:
    # With an empty word, each target also meets it, after its source words.
    lengths = np.array([(len(s), len(t)) for s, t in pairs], np.int64).reshape(-1, 2)
    # The empty word is behind the last source, so its place, -1, finds it.
    sources = np.concatenate([*(s for s, _ in pairs), [EMPTY]]).astype(np.int64)
    targets = np.concatenate([*(t for _, t in pairs), []]).astype(np.int64)
    counts = (lengths[:, 0] + empty_word) * lengths[:, 1]
    pair_c = np.repeat(np.arange(len(pairs)), counts)
    cell_c = np.arange(len(pair_c)) - (counts.cumsum() - counts)[pair_c]
    sizes_c, targets_c = lengths[pair_c].T
    t_c, s_c = np.divmod(cell_c, sizes_c + empty_word)
    first_s_c, first_t_c = (lengths.cumsum(0) - lengths)[pair_c].T
    source_place_c = np.where(s_c < sizes_c, first_s_c + s_c, EMPTY)
    target_place_c = first_t_c + t_c
    return _Cells(
        sources[source_place_c],
        targets[target_place_c],
        source_place_c,
        target_place_c,
        np.abs(s_c / np.maximum(sizes_c, 1) - t_c / targets_c),
        np.stack([pair_c, t_c, s_c]).astype(np.int32),
    )


def _run_em(
    type_c, given_k, explained_c, iterations: int, prior_c: np.ndarray | float = 1.0
) -> np.ndarray:
    """The probability of each type's other word, given its word `given_k`.

    `explained_c` is the place in the text of each cell's other word.
    """
    table_k = np.ones(len(given_k))
    for _ in range(iterations):
        # Expectation: each place is explained by one of the words of the other side.
        weight_c = table_k[type_c] * prior_c
        weight_c /= np.bincount(explained_c, weight_c)[explained_c]
        # Maximization: relative frequencies.
        count_k = np.bincount(type_c, weight_c, minlength=len(given_k))
        table_k = count_k / np.bincount(given_k, count_k)[given_k]
    return table_k


class _Direction:
    """t(target | source) with an empty source word; words are numbers below `words`.

    `diagonal`: words are expected near the diagonal.
    """

    def __init__(self, pairs, words: int, iterations: int, diagonal: bool = False):
        cells, self._words = _cells(pairs, empty_word=True), words
        types_c = (cells.source_c + 1) * words + cells.target_c
        self._types_k, type_c = np.unique(types_c, return_inverse=True)
        given_k = np.unique(self._types_k // max(words, 1), return_inverse=True)[1]
        prior_c = _prior(cells) if diagonal else 1.0
        self._table_k = _run_em(
            type_c, given_k, cells.target_place_c, iterations, prior_c
        )

    def __call__(self, source: np.ndarray | int, target: np.ndarray) -> np.ndarray:
        """The probabilities, 0 for what was never seen; the arguments broadcast."""
        types = (source + 1) * self._words + target
        if not len(self._types_k):
            return np.zeros(types.shape)
        place = np.searchsorted(self._types_k, types)
        place = np.minimum(place, len(self._types_k) - 1)
        return np.where(self._types_k[place] == types, self._table_k[place], 0)

    def links(self, pairs) -> np.ndarray:
        """The most probable source word of each target word, unless the empty one.

        Returns:
          int64 [links, 3]: (pair, target word, source word), as places.
        """
        cells = _cells(pairs, empty_word=True)
        weight_c = self(cells.source_c, cells.target_c) * _prior(cells)
        target_c = cells.target_place_c
        order_c = np.lexsort((-weight_c, target_c))
        best_t = order_c[np.diff(target_c, prepend=-1) > 0]
        best_t = best_t[(weight_c[best_t] > 0) & (cells.source_c[best_t] != EMPTY)]
        return cells.at_3c[:, best_t].T.astype(np.int64)


def _prior(cells: _Cells) -> np.ndarray:
    """The prior probability of each cell among those of its target word."""
    empty_c = cells.source_c == EMPTY
    near_c = np.where(empty_c, 0, np.exp(-DIAGONAL * cells.distance_c))
    total_t = np.maximum(np.bincount(cells.target_place_c, near_c), 1e-30)
    near_c *= (1 - EMPTY_SHARE) / total_t[cells.target_place_c]
    return np.where(empty_c, EMPTY_SHARE, near_c)


class Aligner:
    """Links words by the models of both directions, symmetrized by `grow_diagonal`.

    Words are expected near the diagonal, as in fast_align (Dyer et al. 2013).

    Args:
      pairs: (source words, target words), as numbers below `words`, to learn from.
      iterations: of EM.
    """

    def __init__(self, pairs: Sequence, words: int, iterations: int = 5):
        swapped = [pair[::-1] for pair in pairs]
        self._forward = _Direction(pairs, words, iterations, diagonal=True)
        self._backward = _Direction(swapped, words, iterations, diagonal=True)

    def links(self, pairs: Sequence) -> np.ndarray:
        """Aligns pairs, not only those learned from; returns what `grow_diagonal` does.

        Words are those of the pairs, by their places from 0.
        """
        backward = self._backward.links([pair[::-1] for pair in pairs])
        return grow_diagonal(self._forward.links(pairs), backward[:, [0, 2, 1]])


def grow_diagonal(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """Joins the links of two directions: grow-diag (Koehn et al. 2003).

    Links of both are kept. Again and again those of either are added that are next to a
    link, diagonally too, if one of their words has none.

    Args:
      forward, backward: int64 [links, 3], (pair, target word, source word), none twice.

    Returns:
      The same, sorted.
    """
    links = np.concatenate([forward, backward])
    # A table of all words. Between two pairs an empty row and an empty column: their
    # words are no neighbours.
    _, height, width = links.max(0, initial=0) + 2
    cell_l = links @ (height * width, width, 1)
    cell_l, first_l, count_l = np.unique(cell_l, return_index=True, return_counts=True)
    pair_l, t_l, s_l = links[first_l].T
    t_l, s_l = pair_l * height + t_l, pair_l * width + s_l
    linked_l, linked_before = count_l == 2, -1
    while linked_before != (linked_before := linked_l.sum()):
        # One neighbour after the other, so that a word gets one link at a time.
        for down, right in NEIGHBOURS:
            near = np.isin(cell_l + down * width + right, cell_l[linked_l])
            both_linked = np.isin(t_l, t_l[linked_l]) & np.isin(s_l, s_l[linked_l])
            linked_l |= near & ~both_linked
    return links[first_l[linked_l]]


class TranslationTable:
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
            _numbered([pair[side] for pair in pairs], self._numbers) for side in (0, 1)
        )
        pairs = list(zip(sources, targets, strict=True))
        self._probability = _Direction(pairs, len(self._numbers), iterations)
        words = np.concatenate([*targets, []]).astype(np.int64)
        self._judged_w = np.bincount(words, minlength=len(self._numbers)) >= least

    def support(self, source: Words, target: Words) -> np.ndarray:
        """Finds how well each target word is explained by a word of its source.

        Returns:
          float64 [t]: the largest t(target | source) over the words of the source, 0
          if no source word has been seen with it; NaN for target words that the
          training text hardly has, which the model cannot judge.
        """
        source_s, target_t = (
            np.array([self._numbers.get(word, -1) for word in side], np.int64)
            for side in (source, target)
        )
        if not len(self._judged_w):
            return np.full(len(target), np.nan)
        source_s = source_s[source_s >= 0]
        best_t = self._probability(source_s, target_t[:, None]).max(1, initial=0)
        judged_t = (target_t >= 0) & self._judged_w[np.maximum(target_t, 0)]
        return np.where(judged_t, best_t, np.nan)
