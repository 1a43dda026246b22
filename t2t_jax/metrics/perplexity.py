"""Perplexity."""

import math


def perplexity(nats: float) -> float:
    """exp of a mean cross-entropy; finite however large that is."""
    return math.exp(min(nats, 700.0))
