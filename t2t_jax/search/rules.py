"""Constraints for search, as arrays: prefixes, required and forbidden phrases.

An automaton over tokens matches a phrase (`decoding/constraints.py` builds them). The
automata of a batch are stacked into one table of states, and each hypothesis has one
current state for each of its phrases. Shape suffixes: b batch, n hypotheses, c phrases,
t target, s states, v vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Rules(NamedTuple):
    """Constraints on the outputs of every sentence of a batch.

    Attributes:
      prefix_bt: int32 [batch, max_length], the tokens of the prefix; -1 after it.
      start_bc: int32, the start states of each sentence's phrases. A sentence with
        fewer phrases than others is padded with state 0, which never changes.
      next_sv: int32, the state after a token.
      refused_sv: bool, tokens that may not come next: they complete a forbidden phrase,
        or end the output while a required phrase is missing.
      closer_sv: bool, tokens that reduce the distance to a required phrase; has no
        states if no phrase is required.
      distance_s: int32, the least number of tokens that complete the required phrase; 0
        once it is complete, and for forbidden phrases.
    """

    prefix_bt: Array
    start_bc: Array
    next_sv: Array
    refused_sv: Array
    closer_sv: Array
    distance_s: Array


def concatenate_rules(batches: Sequence[Rules | None]) -> Rules | None:
    """Concatenates the rules of batches on the first axis, padded to equal shapes.

    So the first axis of every array can be divided among devices, each with the rules
    of its own batch. Padding with zeros is inert, since state 0 belongs to no phrase.
    """
    example = next((rules for rules in batches if rules is not None), None)
    if example is None or len(batches) == 1:
        return example
    unconstrained = example._replace(
        prefix_bt=np.full_like(example.prefix_bt, -1),
        start_bc=np.zeros_like(example.start_bc),
    )

    def join(*leaves: np.ndarray) -> np.ndarray:
        shape = np.max([leaf.shape for leaf in leaves], axis=0)
        padding = [[(0, n) for n in shape - leaf.shape] for leaf in leaves]
        return np.concatenate([*map(np.pad, leaves, padding)])

    return jax.tree.map(
        join, *(unconstrained if rules is None else rules for rules in batches)
    )


def start_states(rules: Rules | None, batch: int, rows: int) -> Array:
    """Returns the states before the first token, [b, n, c]; c is 0 without rules."""
    if rules is None:
        return jnp.zeros((batch, rows, 0), jnp.int32)
    return jnp.repeat(rules.start_bc[:, None], rows, axis=1)


def allowed(
    rules: Rules, state_bnc: Array, position: Array, limit_b: Array, eos: int
) -> Array:
    """Returns the tokens that may come at `position`, bool [b, n, v]."""
    # An output that reaches its limit ends without EOS. This completes a forbidden
    # phrase in the states in which EOS would. (There, the distance is 0; in states of a
    # required phrase that refuse EOS, it is not.)
    completed_by_end_s = rules.refused_sv[:, eos] & (rules.distance_s == 0)
    last_b111 = (position + 1 >= limit_b)[:, None, None, None]
    refused_bncv = rules.refused_sv[state_bnc]
    refused_bncv |= last_b111 & completed_by_end_s[rules.next_sv[state_bnc]]
    allowed_bnv = ~jnp.any(refused_bncv, axis=2)
    forced_b11 = rules.prefix_bt[:, position, None, None]
    tokens_v = jnp.arange(allowed_bnv.shape[2])
    return allowed_bnv & ((forced_b11 < 0) | (tokens_v == forced_b11))


def missing(rules: Rules, state_bnc: Array) -> Array:
    """Ranks hypotheses by the phrases they lack, int32 [b, n]; lowest if none.

    The order is that of the number of missing phrases, then of the distance to the
    nearest one. Some token always lowers the rank. The sum of all distances lacks this
    property: a token that comes closer to one phrase may lose the beginning of another.
    """
    distance_bnc = rules.distance_s[state_bnc]
    farther = jnp.max(rules.distance_s) + 1
    nearest_bn = jnp.min(distance_bnc, axis=2, where=distance_bnc > 0, initial=farther)
    return jnp.sum(distance_bnc > 0, axis=2) * farther + nearest_bn


def advance_states(rules: Rules, state_bnc: Array, token_bn: Array) -> Array:
    """Returns the states after one more token of each hypothesis."""
    return rules.next_sv[state_bnc, token_bn[:, :, None]]
