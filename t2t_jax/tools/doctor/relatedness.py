"""Log-odds that the two sides of a pair belong together rather than to neighbours.

A classifier of pairs as in Munteanu and Marcu (2005), which needs no labels: the
pairs of a sample are its positive examples, and sources with the target of a
neighbouring line the negative ones. It learns from this text what a translation has in
common with its source (words of `lexicon.py`, length, numbers, final punctuation),
also if a few per cent of the text are wrong.
"""

from collections.abc import Sequence

import numpy as np

from t2t_jax.text.view import View
from t2t_jax.tools.doctor.lexicon import Lexicon

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
        long = (s >= 4) & (t >= 4)
        self.ratio = float(np.median(t[long] / s[long])) if long.any() else 1.0
        self.deviation = 1.0
        z = np.abs(self.z_p(view)[long])
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
      view: the sample.
      neighbours: for each pair of the sample, the pair whose target is its negative
        example, an index; itself if there is none.
      lexicon: learnt from other pairs, or it would know these by heart.
      lengths: the model of lengths.
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
        kept = np.ones(len(usable), bool)
        for _ in range(ROUNDS):
            inputs = np.concatenate([positive[kept], negative])
            labels = np.repeat([1.0, 0.0], [kept.sum(), len(usable)])
            # The classes weigh the same, although some positives are left out.
            weights = np.where(labels > 0, len(usable) / max(1, kept.sum()), 1.0)
            self._weights = _logistic_regression(inputs, labels, weights)
            # Pairs that are wrong themselves teach that translations share little.
            kept = positive @ self._weights > DOUBTED

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
