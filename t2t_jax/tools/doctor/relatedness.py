"""Do the sides of a pair belong together? Learnt from a sample, without labels.

The lexicon of translations is learnt by IBM model 1 (Brown et al. 1993).

Frequent words are left out: "the" stands in every pair, so its translation is evidence
of nothing. So are words that occur once, which would explain whatever stands opposite.
"""

import math
from collections.abc import Sequence

import numpy as np

from t2t_jax.extensions.text.word_alignment import content_words, learn_both_ways
from t2t_jax.text.view import View

FREQUENT = 40  # words of each side that are left out
LEAST = 2  # occurrences together that make two words translations
PROBABLE = 0.1  # p(word | other word) that makes them translations
CELLS = 4_000_000  # of all pairs of words of all pairs of lines; bounds memory
ITERATIONS = 4

Words = Sequence[str]


class Lexicon:
    """Translations of words, symmetric: a word is one of its translations' translation.

    Attributes:
      translations: for each side, word -> its translations.
      weights: for each side, the information of each of its words in nats: -log of the
        share of lines that have it.
    """

    def __init__(self, pairs: Sequence[tuple[Words, Words]]):
        numbered_pairs, numbers, counts = content_words(pairs, FREQUENT, LEAST, CELLS)
        self.weights = [
            {w: math.log(len(pairs) / c) for w, c in count.items() if c >= LEAST}
            for count in counts
        ]
        self.translations: tuple[dict[str, set[str]], ...] = {}, {}
        names = [list(by_word) for by_word in numbers]
        for s, t in zip(*_translations(numbered_pairs, len(names[1])), strict=True):
            source, target = names[0][s], names[1][t]
            self.translations[0].setdefault(source, set()).add(target)
            self.translations[1].setdefault(target, set()).add(source)

    def evidence(self, source: Words, target: Words) -> tuple[float, ...]:
        """Weighs the words of two lines that have a translation opposite, or none.

        Returns:
          (found in the source, missing in the source, found in the target, missing in
          the target, shared words that the lexicon lacks), the first four in nats.
        """
        shared, nats = {*source} & {*target}, []
        for side, (words, opposite) in enumerate(((source, target), (target, source))):
            for group in self.split(words, opposite, side):
                # Exact: the order within a set differs from process to process.
                nats.append(math.fsum(self.weights[side][word] for word in group))
                shared -= group
        return *nats, len(shared)

    def split(
        self, words: Words, opposite: Words, side: int
    ) -> tuple[set[str], set[str]]:
        """Splits the words that it knows: with a translation opposite, and without.

        `side` is that of `words`: 0 the source, 1 the target.
        """
        translations, facing = self.translations[side], {*opposite}
        in_lexicon = {*words} & translations.keys()
        translated = {
            word
            for word in in_lexicon
            if word in facing or not translations[word].isdisjoint(facing)
        }
        return translated, in_lexicon - translated


def _translations(numbered_pairs, targets: int) -> tuple[list[int], list[int]]:
    """Learns both directions; returns the numbers of words that translate."""
    if not numbered_pairs:
        return [], []
    learned = learn_both_ways(numbered_pairs, targets, ITERATIONS)
    probable = np.maximum(learned.forward_k, learned.backward_k) >= PROBABLE
    reliable = probable & (np.bincount(learned.type_c) >= LEAST)
    return learned.source_k[reliable].tolist(), learned.target_k[reliable].tolist()


# ------------------------------------------------------------------------ relatedness
# Log-odds that the two sides of a pair belong together rather than to neighbours.
#
# A classifier of pairs as in Munteanu and Marcu (2005), which needs no labels: the
# pairs of a sample are its positive examples, and sources with the target of a
# neighbouring line the negative ones. It learns from this text what a translation has
# in common with its source (words of the lexicon, length, numbers, final punctuation),
# also if a few per cent of the text are wrong.

ROUNDS = 2  # of learning; the second one without pairs that the first one rejects
DOUBTED = -2.0  # log-odds below which a pair is rejected
LIMIT = 8.0  # of log-odds: no single pair outweighs a stretch of others
FEATURES = (
    *("constant", "found share, source", "found share, target", "found", "missing"),
    *("shared words", "length", "numbers same", "numbers differ", "ending same"),
)
_ENDINGS = {c: c for c in ".!?:;…)"} | {"。": ".", "！": "!", "？": "?", "…": "."}


class LengthModel:
    """Lengths of translations, as Gale and Church (1993) model them.

    A target has `ratio` characters for each of the source, with a variance that grows
    with the length. Both are medians, so that damaged pairs do not shape them.
    """

    def __init__(self, view: View):
        s, t = (side.lengths_p.astype(float) for side in view.sides)
        enough = (s >= 4) & (t >= 4)
        self.ratio = float(np.median(t[enough] / s[enough])) if enough.any() else 1.0
        self.deviation = 1.0
        z = np.abs(self.z_p(view)[enough])
        # 1.4826: the median of absolute deviations, as a standard deviation.
        self.deviation = max(1.4826 * float(np.median(z)) if len(z) else 1.0, 0.1)

    def z_p(self, view: View) -> np.ndarray:
        """Standard deviations by which targets are longer than expected."""
        s, t = (side.lengths_p.astype(float) for side in view.sides)
        mean = np.maximum((s * self.ratio + t) / 2, 1)
        return (t - self.ratio * s) / (np.sqrt(mean) * self.deviation)


class Relatedness:
    """The classifier, learnt from a sample.

    Args:
      neighbours: for each pair of the sample, the pair whose target is its negative
        example, an index; itself if there is none.
      lexicon: learnt from other pairs, or it would know these by heart.
    """

    def __init__(
        self,
        view: View,
        neighbours: Sequence[int],
        lexicon: Lexicon,
        lengths: LengthModel,
    ):
        self._lexicon, self._lengths = lexicon, lengths
        self._weights = np.zeros(len(FEATURES))
        usable = [i for i, n in enumerate(neighbours) if n != i]
        if not usable:
            return
        crossed = [(view.pairs[i][0], view.pairs[neighbours[i]][1]) for i in usable]
        true = View([view.pairs[i] for i in usable])
        positive, negative = self._features(true), self._features(View(crossed))
        accepted = np.ones(len(usable), bool)
        for _ in range(ROUNDS):
            inputs = np.concatenate([positive[accepted], negative])
            labels = np.repeat([1.0, 0.0], [accepted.sum(), len(usable)])
            # The classes weigh the same, although some positives are left out.
            weights = np.where(labels > 0, len(usable) / max(1, accepted.sum()), 1.0)
            self._weights = _logistic_regression(inputs, labels, weights)
            # Pairs that are wrong themselves teach that translations share little.
            accepted = positive @ self._weights > DOUBTED

    def log_odds_p(self, view: View) -> np.ndarray:
        """Log-odds of each pair, in nats, between -LIMIT and LIMIT; float64 [pairs]."""
        return np.clip(self._features(view) @ self._weights, -LIMIT, LIMIT)

    def _features(self, view: View) -> np.ndarray:
        source, target = view.sides
        rows = [
            self._lexicon.evidence(s, t)
            for s, t in zip(source.words, target.words, strict=True)
        ]
        s_found, s_missing, t_found, t_missing, shared = (
            np.array(rows, np.float64).reshape(-1, 5).T
        )
        numbers = list(zip(source.numbers, target.numbers, strict=True))
        ends = [_ending(s) == _ending(t) for s, t in view.pairs]
        return np.stack(
            [
                np.ones(len(view)),
                # Shares are drawn to one half where few words are known.
                (s_found + 2) / (s_found + s_missing + 4) - 0.5,
                (t_found + 2) / (t_found + t_missing + 4) - 0.5,
                np.log1p(s_found + t_found),
                np.log1p(s_missing + t_missing),
                np.log1p(shared),
                np.minimum(np.abs(self._lengths.z_p(view)), 6.0),
                [float(s == t and bool(s)) for s, t in numbers],
                [float(s != t) for s, t in numbers],
                np.array(ends, np.float64),
            ],
            axis=1,
        )


def _ending(line: str) -> str:
    return _ENDINGS.get(line.rstrip()[-1:], "")


def _logistic_regression(inputs, labels, importance) -> np.ndarray:
    """Weights that maximize the likelihood, by Newton's method, with a small ridge."""
    weights = np.zeros(inputs.shape[1])
    ridge = 1e-3 * len(labels) * np.eye(len(weights))
    ridge[0, 0] = 1e-6
    for _ in range(15):
        p = 1 / (1 + np.exp(-np.clip(inputs @ weights, -30, 30)))
        gradient = inputs.T @ (importance * (labels - p)) - ridge @ weights
        curvature = (inputs * (importance * p * (1 - p))[:, None]).T @ inputs + ridge
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < 1e-6:
            break
    return weights
