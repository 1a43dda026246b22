"""Which words translate which, learnt from a sample by IBM model 1 (Brown et al. 1993).

Frequent words are left out: "the" stands in every pair, so its translation is evidence
of nothing. So are words that occur once, which would explain whatever stands opposite.
"""

import collections
import math
from collections.abc import Sequence

import numpy as np

from t2t_jax.text.word_alignment import translation_table

FREQUENT = 40  # words of each side that are left out
LEAST = 2  # occurrences together that make two words translations
PROBABLE = 0.1  # p(word | other word) that makes them translations
CELLS = 4_000_000  # of all pairs of words of all pairs of lines; bounds memory
ITERATIONS = 4

Words = Sequence[str]


class Lexicon:
    """Translations of words, symmetric: a word is one of its translations' translation.

    Attributes:
      forward: source word -> its translations.
      backward: target word -> its translations.
      weights: for each side, the information of each of its words in nats: -log of the
        share of lines that have it.
    """

    def __init__(self, pairs: Sequence[tuple[Words, Words]]):
        chosen, numbers, counts = _content_words(pairs)
        self.weights = [
            {w: math.log(len(pairs) / c) for w, c in count.items() if c >= LEAST}
            for count in counts
        ]
        self.forward: dict[str, set[str]] = {}
        self.backward: dict[str, set[str]] = {}
        names = [list(of_side) for of_side in numbers]
        for s, t in zip(*_translations(chosen, len(names[1])), strict=True):
            self.forward.setdefault(names[0][s], set()).add(names[1][t])
            self.backward.setdefault(names[1][t], set()).add(names[0][s])

    def evidence(self, source: Words, target: Words) -> tuple[float, ...]:
        """Weighs the words of two lines that have a translation opposite, or none.

        Returns:
          (found in the source, missing in the source, found in the target, missing in
          the target, shared words that the lexicon lacks), the first four in nats.
        """
        s_set, t_set = set(source), set(target)
        s_known, t_known = s_set & self.forward.keys(), t_set & self.backward.keys()
        forward, backward = self.forward, self.backward
        s_found = {w for w in s_known if not forward[w].isdisjoint(t_set)}
        t_found = {w for w in t_known if not backward[w].isdisjoint(s_set)}
        shared = s_set & t_set
        s_found |= shared & s_known
        t_found |= shared & t_known
        s_weight, t_weight = (of.__getitem__ for of in self.weights)
        return (
            sum(map(s_weight, s_found)),
            sum(map(s_weight, s_known - s_found)),
            sum(map(t_weight, t_found)),
            sum(map(t_weight, t_known - t_found)),
            len(shared - s_known - t_known),
        )

    def found(self, words: Words, opposite: Words, number: int) -> tuple[int, int]:
        """Counts the words of a line with a translation opposite, and those without.

        Args:
          words: of a line, or of a part of it.
          opposite: the words of the other side.
          number: the side of `words`: 0 the source, 1 the target.
        """
        translations = (self.forward, self.backward)[number]
        known = set(words) & translations.keys()
        others = set(opposite)
        found = sum(
            word in others or not translations[word].isdisjoint(others)
            for word in known
        )
        return found, len(known) - found


def _content_words(pairs):
    """The words of each side that occur often enough, and not too often, as numbers.

    Returns:
      (pairs of arrays of numbers, for each side word -> number, and word -> lines).
    """
    counts, numbers = [], []
    for n in (0, 1):
        count = collections.Counter()
        for pair in pairs:
            count.update({*pair[n]})
        frequent = {w for w, c in count.most_common(FREQUENT) if 50 * c > len(pairs)}
        counts.append(count)
        # In alphabetical order: the order within a set differs from run to run.
        kept = sorted(w for w, c in count.items() if c >= LEAST and w not in frequent)
        numbers.append({w: n for n, w in enumerate(kept)})
    chosen = [
        tuple(
            np.array(sorted({of[w] for w in words if w in of}), np.int64)
            for words, of in zip(pair, numbers, strict=True)
        )
        for pair in pairs
    ]
    # Every n-th pair, and not the first ones: they may be of one domain.
    cells = sum(len(s) * len(t) for s, t in chosen)
    return chosen[:: max(1, -(-cells // CELLS))], numbers, counts


def _translations(chosen, targets: int) -> tuple[list[int], list[int]]:
    """Runs EM in both directions; returns the numbers of words that translate."""
    if not chosen:
        return [], []
    sizes = [(len(s), len(t)) for s, t in chosen]
    type_c = np.concatenate(
        [np.repeat(s, len(t)) * targets + np.tile(t, len(s)) for s, t in chosen]
    )
    types, type_c, together = np.unique(type_c, return_inverse=True, return_counts=True)
    source_k, target_k = np.divmod(types, max(targets, 1))
    # Places: the words of each side, numbered through the whole sample.
    s_place_c, t_place_c, s_at, t_at = [], [], 0, 0
    for s_size, t_size in sizes:
        s_place_c.append(np.repeat(np.arange(s_at, s_at + s_size), t_size))
        t_place_c.append(np.tile(np.arange(t_at, t_at + t_size), s_size))
        s_at, t_at = s_at + s_size, t_at + t_size
    probable = np.zeros(len(types), bool)
    for place_c, given_k in (
        (np.concatenate(t_place_c), source_k),
        (np.concatenate(s_place_c), target_k),
    ):
        table_k = translation_table(type_c, given_k, place_c, ITERATIONS)
        probable |= table_k >= PROBABLE
    kept = probable & (together >= LEAST)
    return source_k[kept].tolist(), target_k[kept].tolist()
