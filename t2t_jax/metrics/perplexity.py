"""Perplexity from a mean cross-entropy."""

import math


def perplexity(nats: float) -> float:
    """exp of a mean cross-entropy in nats; finite for any finite input.

    Cross-entropies above 700 count as 700.
    """
    # math.exp overflows above 709.
    return math.exp(min(nats, 700.0))
