"""Pieces of the vocabulary in a text: how many a word, and which cannot be spelled."""

import numpy as np

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.text.view import View


class Pieces:
    """Counts the pieces of lines.

    A piece is odd if it is the unknown piece, or a byte that spells a character which
    the vocabulary lacks.

    Args:
      vocabulary: of the run, or the one that it would have.

    Attributes:
      totals: for each side, [pieces, odd pieces, words] of all lines counted.
      seen: for each side, which ids occurred.
      usual: for each side, (median, robust deviation) of pieces a word.
    """

    def __init__(self, vocabulary: Vocabulary):
        self._sides = vocabulary.source, vocabulary
        self._odd = [_odd(side) for side in self._sides]
        self.totals = np.zeros((2, 3), np.int64)
        self.seen = [np.zeros(len(side), bool) for side in self._sides]
        self.usual = [(1.0, 1.0), (1.0, 1.0)]

    def learn(self, view: View) -> None:
        """Estimates what is usual, from a sample."""
        for number in (0, 1):
            pieces_p, _ = self._counts(view, number)
            rate = pieces_p / np.maximum(view.sides[number].word_counts_p, 1)
            middle = float(np.median(rate)) if len(rate) else 1.0
            deviation = float(np.median(np.abs(rate - middle))) if len(rate) else 1.0
            self.usual[number] = middle, max(1.4826 * deviation, 0.1)

    def counts(self, view: View, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Counts a side's pieces and odd pieces of each line, and adds to the totals.

        Returns:
          (pieces, odd pieces), int64 [pairs].
        """
        pieces_p, odd_p, ids = self._counts(view, number, ids=True)
        words = view.sides[number].word_counts_p.sum()
        self.totals[number] += [pieces_p.sum(), odd_p.sum(), words]
        self.seen[number][ids] = True
        return pieces_p, odd_p

    def unseen_share(self, view: View) -> float:
        """The share of a text's pieces that no line counted so far has had."""
        unseen = total = 0
        for number in (0, 1):
            *_, ids = self._counts(view, number, ids=True)
            unseen += int((~self.seen[number][ids]).sum())
            total += len(ids)
        return unseen / max(1, total)

    def _counts(self, view: View, number: int, ids: bool = False):
        rows = self._sides[number].encode(view.sides[number].lines)
        pieces_p = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = np.fromiter((i for row in rows for i in row), np.int64, pieces_p.sum())
        line = np.repeat(np.arange(len(rows)), pieces_p)
        odd = self._odd[number][flat]
        odd_p = np.bincount(line, odd, len(rows)).astype(np.int64)
        return (pieces_p, odd_p, flat) if ids else (pieces_p, odd_p)


def _odd(vocabulary: Vocabulary) -> np.ndarray:
    odd = np.array(
        [isinstance(vocabulary.spelling(i), bytes) for i in range(len(vocabulary))]
    )
    if vocabulary.unknown >= 0:
        odd[vocabulary.unknown] = True
    return odd
