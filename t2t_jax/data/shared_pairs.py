"""Counts the pairs that a training text shares with a dev or test set."""

import numpy as np

from t2t_jax.data.pairs import Pairs
from t2t_jax.text.counter_random import mixed


def shared(pairs: Pairs, heldout: Pairs) -> int:
    """Counts the held-out pairs, such as those of dev, that a training text has."""

    def keys(text: Pairs) -> np.ndarray:
        """Hashes lengths and a few tokens: quick on arrays mapped from disk."""
        key_p = np.zeros(len(text), np.uint64)
        for side in (text.source, text.target):
            begin, length = side.offsets[:-1], side.lengths
            key_p = mixed(key_p ^ length.astype(np.uint64))
            nonempty_p = length > 0
            for place in (begin, begin + length // 2, begin + length * 3 // 4):
                key_p[nonempty_p] ^= side.tokens[place[nonempty_p]].astype(np.uint64)
                key_p = mixed(key_p)
        return key_p

    def row(text: Pairs, n: int) -> tuple[list[int], ...]:
        return tuple(tuple(side[n].tolist()) for side in (text.source, text.target))

    alike = np.flatnonzero(np.isin(keys(pairs), keys(heldout))).tolist()
    training_rows = {row(pairs, n) for n in alike}
    return sum(row(heldout, n) in training_rows for n in range(len(heldout)))
