"""Ancestral sampling over any step function: pure, and knows no model.

Every hypothesis has a random key of its own, so that what is drawn for a sentence does
not depend on the batch it is in. Shape suffixes: as in `decoding/search.py`.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.decoding.hypotheses import (
    Hypotheses,
    Step,
    check_arguments,
    check_logits,
    extensions,
    inverse_penalties,
)
from t2t_jax.decoding.rules import Rules, advanced, allowed, start_states


def sample(
    step: Step,
    cache: Any,
    limit_b: Array,
    key_bn: Array,
    *,
    max_length: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    alpha: float = 0.6,
    penalty: str = "gnmt",
    rules: Rules | None = None,
    bos: int,
    eos: int,
    pad: int,
) -> Hypotheses:
    """Draws hypotheses token by token, in the order of their keys.

    Args:
      step, cache, limit_b, max_length, alpha, penalty, rules, bos, eos, pad: as for
        `beam_search`, with n hypotheses in the place of the beam. Score and log_prob
        are of the model's whole distribution, not of what is drawn from.
      key_bn: a `jax.random` key for each hypothesis.
      temperature: logits are divided by it; above 0, static.
      top_k: draw from the k most probable tokens; 0 is all of them, static.
      top_p: then from the fewest that have this share of the probability that is left
        (the nucleus, Holtzman et al. 2020); above 0 and at most 1, static.

    Raises:
      ValueError: an argument is out of its range.
    """
    limit_b = jnp.asarray(limit_b, jnp.int32)
    batch, rows = key_bn.shape
    check_arguments(cache, limit_b, max_length, rows, alpha, penalty, bos, eos, pad)
    check_sampling(temperature, top_k, top_p)
    limit_b = jnp.clip(limit_b, 1, max_length)
    inverse_t = inverse_penalties(max_length, alpha, penalty)

    def running(loop):
        _, _, _, _, drawn = loop
        return ~jnp.all(drawn.ended_bn | (drawn.length_bn >= limit_b[:, None]))

    def advance(loop):
        position, cache, token_bn, state_bnc, drawn = loop
        over_bn = drawn.ended_bn | (drawn.length_bn >= limit_b[:, None])
        logits_bnv, cache = step(cache, token_bn, position)
        check_logits(logits_bnv, token_bn.shape, bos, eos, pad)
        next_bnv = extensions(logits_bnv, drawn.log_prob_bn, banned=(bos, pad))
        if rules is not None:
            allowed_bnv = allowed(rules, state_bnc, position)
            next_bnv = jnp.where(allowed_bnv, next_bnv, -jnp.inf)
        likely_bnv = _likely(next_bnv / temperature, top_k, top_p)
        at_bn = jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, position)))(
            key_bn
        )
        token_bn = jax.vmap(jax.vmap(jax.random.categorical))(at_bn, likely_bnv)
        token_bn = token_bn.astype(jnp.int32)
        log_prob_bn = jnp.take_along_axis(next_bnv, token_bn[:, :, None], axis=2)[
            ..., 0
        ]
        if rules is not None:
            state_bnc = advanced(rules, state_bnc, token_bn)
        length_bn = jnp.full_like(token_bn, position + 1)
        after = Hypotheses(
            tokens_bnt=drawn.tokens_bnt.at[:, :, position].set(token_bn),
            score_bn=log_prob_bn * inverse_t[length_bn],
            log_prob_bn=log_prob_bn,
            length_bn=length_bn,
            ended_bn=token_bn == eos,
        )
        drawn = jax.tree.map(
            lambda old, new: jnp.where(
                over_bn.reshape(over_bn.shape + (1,) * (old.ndim - 2)), old, new
            ),
            drawn,
            after,
        )
        return position + 1, cache, token_bn, state_bnc, drawn

    zeros_bn = jnp.zeros((batch, rows), jnp.float32)
    start = Hypotheses(
        tokens_bnt=jnp.full((batch, rows, max_length), pad, jnp.int32),
        score_bn=zeros_bn,
        log_prob_bn=zeros_bn,
        length_bn=jnp.zeros((batch, rows), jnp.int32),
        ended_bn=jnp.zeros((batch, rows), bool),
    )
    token_bn = jnp.full((batch, rows), bos, jnp.int32)
    loop = (jnp.int32(0), cache, token_bn, start_states(rules, batch, rows), start)
    return jax.lax.while_loop(running, advance, loop)[-1]


def _likely(log_prob_bnv: Array, top_k: int, top_p: float) -> Array:
    """The log-probabilities that may be drawn; -inf for the others."""
    if 0 < top_k < log_prob_bnv.shape[2]:
        least_bn1 = jax.lax.top_k(log_prob_bnv, top_k)[0][:, :, -1:]
        log_prob_bnv = jnp.where(log_prob_bnv >= least_bn1, log_prob_bnv, -jnp.inf)
    if top_p < 1:
        p_bnv = jax.nn.softmax(log_prob_bnv)
        sorted_bnv = jnp.sort(p_bnv, axis=2, descending=True)
        before_bnv = jnp.cumsum(sorted_bnv, axis=2) - sorted_bnv
        # The first is always in; of equal ones all are.
        last_bn1 = jnp.sum(before_bnv < top_p, axis=2, keepdims=True) - 1
        least_bn1 = jnp.take_along_axis(sorted_bnv, last_bn1, axis=2)
        log_prob_bnv = jnp.where(p_bnv >= least_bn1, log_prob_bnv, -jnp.inf)
    return log_prob_bnv


def check_sampling(temperature: float, top_k: int, top_p: float) -> None:
    """Raises ValueError for what nothing can be drawn with."""
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(
            f"temperature={temperature}; want a number above 0 (towards 0 it is greedy "
            "search: use a beam of 1)"
        )
    if top_k < 0:
        raise ValueError(f"top_k={top_k}; want at least 1, or 0 for all tokens")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p}; want above 0, and 1 for all tokens")
