"""Ancestral sampling over any step function: pure, and knows no model.

Every hypothesis has a random key of its own, so that what is drawn for a sentence does
not depend on the batch it is in. Shape suffixes: as in `decoding/search.py`.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.decoding.hypotheses import (
    Hypotheses,
    Step,
    check_arguments,
    check_cache,
    check_logits,
    extensions,
    inverse_penalties,
)
from t2t_jax.decoding.rules import Rules, advanced, allowed, start_states


class State(NamedTuple):
    """Drawing on its way. All leaves have leading axis [batch]."""

    cache: Any
    limit_b: Array
    key_bn: Array
    token_bn: Array  # the last ones: the next step's input
    state_bnc: Array  # how far each phrase of the rules is
    drawn: Hypotheses
    stopped_b: Array  # sentences of which all hypotheses are whole


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

    Where the rules leave nothing to draw there is no hypothesis (see `Hypotheses`).

    Args:
      step, cache, limit_b, max_length, alpha, penalty, rules, bos, eos, pad: as for
        `beam_search`, with n hypotheses in the place of the beam. Score and log_prob
        are of the model's whole distribution, not of what is drawn from.
      key_bn: a `jax.random` key for each hypothesis.
      temperature: logits are divided by it; above 0, static.
      top_k: draw from the k most probable tokens, of equal ones the lower ids; 0 is
        all of them, static.
      top_p: then from the fewest that have this share of the probability that is left
        (the nucleus, Holtzman et al. 2020); above 0 and at most 1, static.

    Raises:
      ValueError: an argument is out of its range.
    """
    limit_b = jnp.asarray(limit_b, jnp.int32)
    if key_bn.ndim != 2 or key_bn.shape[:1] != limit_b.shape[:1]:
        raise ValueError(
            f"key_bn has shape {key_bn.shape}; it must be [batch, hypotheses] = "
            f"[{limit_b.size}, ...], one key of `jax.random.key` for each."
        )
    rows = key_bn.shape[1]
    check_arguments(limit_b, max_length, rows, alpha, penalty, bos, eos, pad)
    check_cache(cache, len(limit_b), rows)
    check_sampling(temperature, top_k, top_p)
    rules = jax.tree.map(jnp.asarray, rules)
    special = {"bos": bos, "pad": pad}
    state = start(cache, limit_b, key_bn, rules, max_length=max_length, **special)
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    options |= {"alpha": alpha, "penalty": penalty, "eos": eos, **special}
    return result(advance(step, state, 0, max_length, rules, **options), pad=pad)


def start(
    cache: Any,
    limit_b: Array,
    key_bn: Array,
    rules: Rules | None = None,
    *,
    max_length: int,
    bos: int,
    pad: int,
) -> State:
    """Nothing drawn yet. Arguments as for `sample`, unchecked."""
    batch, rows = key_bn.shape
    zeros_bn = jnp.zeros((batch, rows), jnp.float32)
    return State(
        cache=cache,
        limit_b=jnp.clip(limit_b, 1, max_length),
        key_bn=key_bn,
        token_bn=jnp.full((batch, rows), bos, jnp.int32),
        state_bnc=start_states(rules, batch, rows),
        drawn=Hypotheses(
            tokens_bnt=jnp.full((batch, rows, max_length), pad, jnp.int32),
            score_bn=zeros_bn,
            log_prob_bn=zeros_bn,
            length_bn=jnp.zeros((batch, rows), jnp.int32),
            ended_bn=jnp.zeros((batch, rows), bool),
        ),
        stopped_b=jnp.zeros(batch, bool),
    )


def advance(
    step: Step,
    state: State,
    position: Array | int,
    until: Array | int,
    rules: Rules | None = None,
    there_b: Array | None = None,
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    alpha: float,
    penalty: str,
    bos: int,
    eos: int,
    pad: int,
) -> State:
    """Draws on from `position` to `until`; arguments as for `search.advance`."""
    limit_b, key_bn = state.limit_b, state.key_bn
    inverse_t = inverse_penalties(state.drawn.tokens_bnt.shape[2], alpha, penalty)

    def over(drawn):
        return drawn.ended_bn | (drawn.length_bn >= limit_b[:, None])

    def running(loop):
        position, *_, stopped_b = loop
        return (position < until) & ~jnp.all(stopped_b)

    def one_step(loop):
        position, cache, token_bn, state_bnc, drawn, stopped_b = loop
        over_bn = over(drawn) | stopped_b[:, None]
        logits_bnv, cache = step(cache, token_bn, position)
        check_logits(logits_bnv, token_bn.shape, bos, eos, pad)
        next_bnv = extensions(logits_bnv, drawn.log_prob_bn, banned=(bos, pad))
        if rules is not None:
            allowed_bnv = allowed(rules, state_bnc, position, limit_b, eos)
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
        stopped_b |= jnp.all(over(drawn), axis=1)
        return position + 1, cache, token_bn, state_bnc, drawn, stopped_b

    stopped_b = state.stopped_b if there_b is None else state.stopped_b | ~there_b
    changing = state.cache, state.token_bn, state.state_bnc, state.drawn, stopped_b
    loop = (jnp.int32(position), *changing)
    _, cache, *after = jax.lax.while_loop(running, one_step, loop)
    return State(cache, limit_b, key_bn, *after)


def result(state: State, *, pad: int) -> Hypotheses:
    """What was drawn for the sentences that have stopped."""
    drawn = state.drawn
    nothing_bn = drawn.log_prob_bn == -jnp.inf
    return drawn._replace(
        tokens_bnt=jnp.where(nothing_bn[:, :, None], pad, drawn.tokens_bnt),
        length_bn=jnp.where(nothing_bn, 0, drawn.length_bn),
        ended_bn=drawn.ended_bn & ~nothing_bn,
    )


def _likely(log_prob_bnv: Array, top_k: int, top_p: float) -> Array:
    """The log-probabilities that may be drawn; -inf for the others."""
    if 0 < top_k < log_prob_bnv.shape[2]:
        best_bnk, token_bnk = jax.lax.top_k(log_prob_bnv, top_k)
        nothing_bnv = jnp.full_like(log_prob_bnv, -jnp.inf)
        log_prob_bnv = jnp.put_along_axis(
            nothing_bnv, token_bnk, best_bnk, axis=2, inplace=False
        )
    if top_p < 1:
        p_bnv = jax.nn.softmax(log_prob_bnv)
        sorted_bnv = jnp.sort(p_bnv, axis=2, descending=True)
        before_bnv = jnp.cumsum(sorted_bnv, axis=2) - sorted_bnv
        # The first is always in; of equal ones all are.
        last_bn1 = jnp.sum(before_bnv < top_p, axis=2, keepdims=True) - 1
        least_bn1 = jnp.take_along_axis(sorted_bnv, last_bn1, axis=2)
        # NaN, which is not less, stays: a broken model is not hidden.
        log_prob_bnv = jnp.where(p_bnv < least_bn1, -jnp.inf, log_prob_bnv)
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
