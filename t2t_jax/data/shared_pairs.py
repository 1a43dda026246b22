"""Counts the pairs that a training text shares with a dev or test set."""

import numpy as np

from t2t_jax.data.pairs import Pairs
from t2t_jax.text.counter_random import mixed


def shared(pairs: Pairs, others: Pairs) -> int:
    """The number of `others`, such as dev pairs, that a training text has, too."""

    def keys(of: Pairs) -> np.ndarray:
        """Hashes lengths and a few tokens: quick on arrays mapped from disk."""
        key_p = np.zeros(len(of), np.uint64)
        for side in (of.source, of.target):
            begin, length = side.offsets[:-1], side.lengths
            key_p = mixed(key_p ^ length.astype(np.uint64))
            some = length > 0
            for place in (begin, begin + length // 2, begin + length * 3 // 4):
                key_p[some] ^= side.tokens[place[some]].astype(np.uint64)
                key_p = mixed(key_p)
        return key_p

    def row(of: Pairs, n: int) -> tuple[list[int], ...]:
        return tuple(tuple(side[n].tolist()) for side in (of.source, of.target))

    alike = np.flatnonzero(np.isin(keys(pairs), keys(others))).tolist()
    found = {row(pairs, n) for n in alike}
    return sum(row(others, n) in found for n in range(len(others)))
