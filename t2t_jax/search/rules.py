"""What an output must begin with, must hold and must not hold, as arrays for search.

A phrase is looked for by an automaton that reads tokens (`decoding/phrases.py` makes
them); those of a batch lie one after the other in one table of states. Shape suffixes:
b batch, n hypotheses, c phrases, t target, s states, v vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Rules(NamedTuple):
    """The rules of every sentence of a batch.

    Attributes:
      prefix_bt: int32 [batch, max_length], the first tokens; -1 where it is free.
      start_bc: int32, the states in which a sentence's phrases begin. A sentence with
        fewer phrases than others has states that nothing changes.
      next_sv: int32, the state after a token.
      refused_sv: bool, a token that says what must not be said, or that ends the
        output while a required phrase is missing.
      closer_sv: bool, a token that comes closer to a required phrase; of no states if
        no phrase is required.
      distance_s: int32, the least number of tokens to a required phrase; 0 once said.
    """

    prefix_bt: Array
    start_bc: Array
    next_sv: Array
    refused_sv: Array
    closer_sv: Array
    distance_s: Array


def concatenate_rules(batches: Sequence[Rules | None]) -> Rules | None:
    """The rules of batches, one after the other on first axes of one size each.

    So each device can have those of its own batch. Zeros change nothing: state 0 is
    that of no phrase.
    """
    some = next((rules for rules in batches if rules is not None), None)
    if some is None or len(batches) == 1:
        return some
    free = some._replace(
        prefix_bt=np.full_like(some.prefix_bt, -1),
        start_bc=np.zeros_like(some.start_bc),
    )

    def join(*leaves: np.ndarray) -> np.ndarray:
        shape = np.max([leaf.shape for leaf in leaves], axis=0)
        spare = [[(0, n) for n in shape - leaf.shape] for leaf in leaves]
        return np.concatenate([*map(np.pad, leaves, spare)])

    return jax.tree.map(join, *(free if rules is None else rules for rules in batches))


def start_states(rules: Rules | None, batch: int, rows: int) -> Array:
    """[b, n, c], the states before the first token; no column without rules."""
    if rules is None:
        return jnp.zeros((batch, rows, 0), jnp.int32)
    return jnp.repeat(rules.start_bc[:, None], rows, axis=1)


def allowed(
    rules: Rules, state_bnc: Array, position: Array, limit_b: Array, eos: int
) -> Array:
    """bool [b, n, v]: the tokens that may come at `position`."""
    # The last token ends the text too: what must not be said may end there.
    says_s = rules.refused_sv[:, eos] & (rules.distance_s == 0)
    last_b111 = (position + 1 >= limit_b)[:, None, None, None]
    refused_bncv = rules.refused_sv[state_bnc]
    refused_bncv |= last_b111 & says_s[rules.next_sv[state_bnc]]
    allowed_bnv = ~jnp.any(refused_bncv, axis=2)
    forced_b11 = rules.prefix_bt[:, position, None, None]
    tokens_v = jnp.arange(allowed_bnv.shape[2])
    return allowed_bnv & ((forced_b11 < 0) | (tokens_v == forced_b11))


def missing(rules: Rules, state_bnc: Array) -> Array:
    """int32 [b, n]: less, the fewer phrases are missing and the nearer the nearest is.

    Always some token makes it less. That is not so of the sum of their distances, as
    what comes closer to one may lose the beginning of another.
    """
    distance_bnc = rules.distance_s[state_bnc]
    far = jnp.max(rules.distance_s) + 1
    nearest_bn = jnp.min(distance_bnc, axis=2, where=distance_bnc > 0, initial=far)
    return jnp.sum(distance_bnc > 0, axis=2) * far + nearest_bn


def advance_states(rules: Rules, state_bnc: Array, token_bn: Array) -> Array:
    """The states after one more token of each hypothesis."""
    return rules.next_sv[state_bnc, token_bn[:, :, None]]
