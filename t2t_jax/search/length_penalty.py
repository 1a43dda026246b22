"""Length penalties: a hypothesis's score is its log-probability / penalty."""

import jax.numpy as jnp
import numpy as np
from jax import Array


def gnmt_penalty(length, alpha: float):
    """((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14; section 6.1).

    `length` is a number or an array (NumPy or JAX), in tokens, EOS included. Alpha 0 is
    no penalty.
    """
    return ((5 + length) / 6) ** alpha


def length_penalty(length, alpha: float):
    """length ** alpha; alpha 1 ranks by the mean log-probability of a token."""
    return length**alpha


def no_penalty(length, alpha: float):
    """1: ranks by the log-probability itself."""
    return length**0


# Add a penalty here. It must not fall as length grows: early stopping relies on that.
PENALTIES = {"gnmt": gnmt_penalty, "length": length_penalty, "none": no_penalty}


def inverse_penalties(max_length: int, alpha: float, penalty: str) -> Array:
    """float32 [max_length + 1]: the factor from log-probability to score, by length.

    The table is computed in float64, once. On the device a power or a division may
    round differently from place to place (XLA turns some divisions into products), and
    early stopping is only sound if no score can exceed its bound.
    """
    length_t = np.arange(max_length + 1, dtype=np.float64)
    length_t[0] = 1  # no hypothesis has length 0
    return jnp.asarray(1 / PENALTIES[penalty](length_t, alpha), jnp.float32)
