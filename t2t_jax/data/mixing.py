"""Mixes corpora of different sizes by temperature: `config.data.temperature`.

With temperature T, an epoch draws pairs of a corpus in proportion to size^(1/T): T = 1
reads every pair once, and a large T reads all corpora equally often, so that a small
one is not drowned (Arivazhagan et al. 2019).
"""

import math
from collections.abc import Sequence


def tempered(
    sizes: Sequence[int], weights: Sequence[float], temperature: float
) -> tuple[float, ...]:
    """Computes how many times an epoch reads each corpus.

    An epoch draws sum(size * weight) pairs, whatever the temperature.

    Args:
      sizes: the number of pairs of each corpus.
      weights: those of the places. At T = 1 they are the answer; another temperature
        keeps them as factors.
      temperature: T > 0.
    """
    drawn = sum(size * weight for size, weight in zip(sizes, weights, strict=True))
    if temperature == 1 or not drawn:  # exactly the weights, without rounding errors
        return tuple(weights)
    # In logarithms: size^(1/T) overflows at low temperatures.
    logs = [
        math.log(weight) + math.log(size) / temperature if size * weight else -math.inf
        for size, weight in zip(sizes, weights, strict=True)
    ]
    shares = [math.exp(log - max(logs)) for log in logs]
    return tuple(
        drawn * share / sum(shares) / size if size else weight
        for size, weight, share in zip(sizes, weights, shares, strict=True)
    )
