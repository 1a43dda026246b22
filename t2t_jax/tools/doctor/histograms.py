"""Histograms of a text, filled chunk by chunk."""

import numpy as np

from t2t_jax.text.view import View
from t2t_jax.tools.doctor.relatedness import LIMIT

# Edges of bins. Lengths and ratios are on a logarithmic scale.
LENGTHS = np.unique(np.round(np.geomspace(1, 2_000, 41)))
RATIOS = np.exp(np.linspace(-np.log(8), np.log(8), 49))
ODDS = np.linspace(-LIMIT, LIMIT, 33)


class Histograms:
    """Counts of pairs by length, by ratio of lengths, by evidence, and by score.

    Values beyond the edges count in the outermost bins.
    """

    def __init__(self):
        self.counts = {
            "source": _Counts("Characters of a source line", LENGTHS, True),
            "target": _Counts("Characters of a target line", LENGTHS, True),
            "ratio": _Counts(
                "Characters of the target for one of the source", RATIOS, True
            ),
            "odds": _Counts("Log-odds that the sides belong together", ODDS, False),
        }

    def add(self, view: View) -> None:
        """Counts the pairs of a chunk."""
        s, t = (side.lengths_p for side in view.sides)
        self.counts["source"].add(s)
        self.counts["target"].add(t)
        both = (s > 0) & (t > 0)
        self.counts["ratio"].add(t[both] / s[both])
        self.counts["odds"].add(view.log_odds_p)

    def add_scores(self, name: str, score_p: np.ndarray) -> None:
        """Counts the scores of all pairs by a model, in a histogram of their own."""
        low, high = np.quantile(score_p, (0.001, 0.999))
        edges = np.linspace(low, max(high, low + 1e-3), 41)
        self.counts[name] = _Counts(f"{name}, nats a piece", edges, False)
        self.counts[name].add(score_p)

    def to_json(self) -> list[dict]:
        """Returns the histograms as JSON can hold them."""
        return [{"name": name} | of.to_json() for name, of in self.counts.items()]


class _Counts:
    def __init__(self, title: str, edges: np.ndarray, log: bool):
        self._title, self._edges, self._log = title, edges, log
        self._counts = np.zeros(len(edges) - 1, np.int64)

    def add(self, values: np.ndarray) -> None:
        bins = np.searchsorted(self._edges, values, side="right") - 1
        bins = np.clip(bins, 0, len(self._counts) - 1)
        self._counts += np.bincount(bins, minlength=len(self._counts))

    def to_json(self) -> dict:
        return {
            "title": self._title,
            "log": self._log,
            "edges": self._edges.tolist(),
            "counts": self._counts.tolist(),
        }
