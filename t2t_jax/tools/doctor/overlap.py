"""Lines of the dev and test sets in the training text: equal, or nearly.

The sets are small, so they are indexed, and the training text streams past. Equal is
meant without case, punctuation and spacing. Candidates for nearly equal pairs are found
by MinHash (Broder 1997) with locality-sensitive hashing in bands, and compared in full.
"""

import itertools
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.data.corpus import Pair
from t2t_jax.text.counter_random import mixed
from t2t_jax.text.view import View

BANDS, ROWS = 10, 4  # found: 1 - (1 - J^4)^10; 94% of pairs with J = 0.7
HASHES = BANDS * ROWS
_PRIMES = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class ReferenceSet(NamedTuple):
    """A dev or test set."""

    place: str
    pairs: list[Pair]


class Overlap:
    """An index of reference sets.

    Attributes:
      ids: for each side, the number of each of its words, from 1.
      seen: for each side and number, True once training text had the word.
    """

    def __init__(self, references: Sequence[ReferenceSet]):
        self._cached = weakref.WeakKeyDictionary()  # of the chunk in hand
        self._pairs = [
            (f"{r.place}, line {n}", pair)
            for r in references
            for n, pair in enumerate(r.pairs, 1)
        ]
        view = View([pair for _, pair in self._pairs])
        self.ids: list[dict[str, int]] = [{}, {}]
        for numbers, side in zip(self.ids, view.sides, strict=True):
            for word in itertools.chain.from_iterable(side.words):
                numbers.setdefault(word, len(numbers) + 1)  # 0: any other word
        self.seen = [np.zeros(len(numbers) + 1, bool) for numbers in self.ids]
        self._lines: list[dict[str, int]] = [{}, {}]
        for numbers, side in zip(self._lines, view.sides, strict=True):
            for n, key in enumerate(side.keys):
                numbers.setdefault(key, n)
        self._words = [side.word_counts_p for side in view.sides]
        shingles = self._hashed(view)
        self._shingles = _shingle_sets(*shingles, range(len(view)))
        self._bands: list[dict[int, list[int]]] = [{} for _ in range(BANDS)]
        keys_b = self._band_keys(*shingles, len(view)).T
        for band_of, keys in zip(self._bands, keys_b, strict=True):
            for n, key in enumerate(keys.tolist()):
                band_of.setdefault(key, []).append(n)

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def mark_seen(self, view: View) -> None:
        """Notes which words of the references a chunk of training text has."""
        for number, flags in enumerate(self.seen):
            flags[self._tokens(view, number)] = True

    def equal(self, view: View, least_words: int) -> Iterator[tuple[int, float, str]]:
        """Finds pairs with a side that is a line of a reference, on the same side.

        If only one is, it needs `least_words`: different texts may both have "Yes.".
        Yields (place in the chunk, 1.0 for both sides, else 0.5; which).
        """
        keys = zip(*(side.keys for side in view.sides), strict=True)
        for place, sides in enumerate(keys):
            lines = [
                numbers.get(key)
                for numbers, key in zip(self._lines, sides, strict=True)
            ]
            if lines == [None, None] or not all(sides):
                continue
            s, t = lines
            if s is not None and t is not None:
                yield place, 1.0, f"both sides: {self._pairs[s][0]}"
                continue
            side, name = (0, "source") if t is None else (1, "target")
            line = lines[side]
            if self._words[side][line] >= least_words:
                yield place, 0.5, f"the {name}: {self._pairs[line][0]}"

    def near(self, view: View, minimum: float) -> Iterator[tuple[int, float, str]]:
        """Finds pairs that share most words and word pairs with a reference.

        Yields (place in the chunk, Jaccard index of both sides together, which one).
        """
        shingles = self._hashed(view)
        candidates: dict[int, set[int]] = {}
        keys_b = self._band_keys(*shingles, len(view)).T
        for band_of, keys in zip(self._bands, keys_b, strict=True):
            for place, key in enumerate(keys.tolist()):
                if key in band_of:
                    candidates.setdefault(place, set()).update(band_of[key])
        sets = _shingle_sets(*shingles, candidates)
        for (place, lines), shingled in zip(candidates.items(), sets, strict=True):
            # Of equally near lines the first.
            index, line = max(
                (_jaccard(shingled, self._shingles[n]), -n) for n in lines
            )
            if index >= minimum and shingled:
                yield place, index, self._pairs[-line][0]

    def _tokens(self, view: View, number: int) -> np.ndarray:
        """The reference ids of all words of a side."""
        side, get = view.sides[number], self.ids[number].get
        if side not in self._cached:
            words = itertools.chain.from_iterable(side.words)
            self._cached[side] = np.array([get(word, 0) for word in words], np.int64)
        return self._cached[side]

    def _hashed(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """The words and word pairs of both sides, as hashes, and the line of each.

        In the order of the lines.
        """
        values, lines = [], []
        for number, side in enumerate(view.sides):
            ids, counts = self._tokens(view, number), side.word_counts_p
            line = np.repeat(np.arange(len(counts)), counts)
            # Words that no reference has differ from all: their place stands for them.
            within = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
            hashes = np.where(ids > 0, ids, -1 - within).astype(np.uint64)
            hashes = mixed(hashes + np.uint64(number) * _PRIMES[1] + _PRIMES[0])
            in_line = line[1:] == line[:-1]
            pairs = mixed(hashes[:-1] * _PRIMES[0] + hashes[1:])[in_line]
            values += [hashes, pairs]
            lines += [line, line[1:][in_line]]
        joined, line_v = np.concatenate(values), np.concatenate(lines)
        order = np.argsort(line_v, kind="stable")
        return joined[order], line_v[order]

    def _band_keys(self, values, line_v, lines: int) -> np.ndarray:
        """MinHash signatures, each band as one number; uint64 [lines, BANDS]."""
        starts = np.searchsorted(line_v, np.arange(lines))
        empty = np.bincount(line_v, minlength=lines) == 0
        keys = np.zeros((lines, BANDS), np.uint64)
        # A line without words is like no other.
        keys[empty] = np.arange(BANDS, dtype=np.uint64)
        if empty.all():
            return keys
        full = starts[~empty]
        for index in range(HASHES):
            salted = mixed(values ^ np.uint64(_SALTS[index]))
            minimum = np.minimum.reduceat(salted, full)
            band = index // ROWS
            keys[~empty, band] = mixed(keys[~empty, band] * _PRIMES[0] + minimum)
        return keys


_SALTS = np.random.Philox(1).random_raw(HASHES).tolist()


def _shingle_sets(values, line_v, lines: Iterable[int]) -> list[frozenset[int]]:
    """The shingles of some lines."""
    ends = [np.searchsorted(line_v, [line, line + 1]) for line in lines]
    return [frozenset(values[a:b].tolist()) for a, b in ends]


def _jaccard(a: frozenset, b: frozenset) -> float:
    return len(a & b) / max(1, len(a | b))
