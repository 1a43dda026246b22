"""Ancestral sampling: draws hypotheses token by token.

Every hypothesis has a random key of its own, so the samples of a sentence do not depend
on its batch. Shape suffixes: as in `search/beam.py`.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.search.algorithm import (
    Algorithm,
    Hypotheses,
    check_logits,
    inverse_penalties,
    where_rows,
)
from t2t_jax.search.rules import advance_states, start_states


class SamplingState(NamedTuple):
    """Sampling in progress. All leaves have leading axis [batch]."""

    cache: Any
    limit_b: Array
    rng_bn: Array
    token_bn: Array  # the last ones: the next step's input
    state_bnc: Array  # progress of each phrase of the rules
    drawn: Hypotheses
    stopped_b: Array  # sentences whose hypotheses are all complete

    def stop(self, rows_b: Array) -> "SamplingState":
        """Stops the drawing for some sentences."""
        return self._replace(stopped_b=self.stopped_b | rows_b)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling(Algorithm):
    """Sampling; results are in the order of the hypotheses' rngs.

    If the rules allow no token, the place has no hypothesis (see `Hypotheses`). Score
    and log_prob are of the model's complete distribution, not of the truncated one.
    `SamplingOptions` has the bounds of its arguments.

    Attributes:
      samples: hypotheses of each sentence.
      temperature: logits are divided by it; above 0.
      top_k: draw from the k most probable tokens, ties to the lower ids; 0 means all.
      top_p: then from the fewest of these that together have this share of their
        probability (the nucleus, Holtzman et al. 2020); above 0 and at most 1.
      epsilon: no token with a smaller probability, at this temperature and before
        `top_k` and `top_p`, except the most probable one (Hewitt et al. 2022); at least
        0 and below 1.
    """

    samples: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    epsilon: float = 0.0

    @property
    def rows(self) -> int:
        """The number of hypotheses of each sentence that a step extends."""
        return self.samples

    def start(
        self, cache, limit_b, rules=None, rng_b=None, *, max_length
    ) -> SamplingState:
        """Returns a state with nothing drawn; each hypothesis gets its own rng."""
        number_n = jnp.arange(self.samples)
        rng_bn = jax.vmap(
            lambda rng: jax.vmap(partial(jax.random.fold_in, rng))(number_n)
        )(rng_b)
        return self._start(cache, limit_b, rules, rng_bn, max_length)

    def _start(self, cache, limit_b, rules, rng_bn, max_length: int) -> SamplingState:
        batch, rows = rng_bn.shape
        zeros_bn = jnp.zeros((batch, rows), jnp.float32)  # the probability is 1
        return SamplingState(
            cache=cache,
            limit_b=jnp.clip(limit_b, 1, max_length),
            rng_bn=rng_bn,
            token_bn=jnp.full((batch, rows), self.bos, jnp.int32),
            state_bnc=start_states(rules, batch, rows),
            drawn=Hypotheses.blank(zeros_bn, max_length, self.pad),
            stopped_b=jnp.zeros(batch, bool),
        )

    def extend(self, step, state, position, rules) -> SamplingState:
        """Draws one more token for every hypothesis that is not complete."""
        drawn = state.drawn
        max_length = drawn.tokens_bnt.shape[2]
        inverse_t = inverse_penalties(max_length, self)
        logits_bnv, cache = step(state.cache, state.token_bn, position)
        check_logits(logits_bnv, state.token_bn.shape, self.bos, self.eos, self.pad)
        history = drawn.tokens_bnt, position, rules, state.state_bnc
        next_bnv = self.next_log_probs(
            self.unrepeated(logits_bnv, *history),
            drawn.log_prob_bn,
            state.state_bnc,
            position,
            state.limit_b,
            rules,
        )
        # Draws from the truncated distribution; scores are of the complete one.
        likely_bnv = _likely(
            next_bnv / self.temperature, self.top_k, self.top_p, self.epsilon
        )
        # The rng depends on the position and not on a running state, so that pausing or
        # moving a sentence between batches does not change what it draws.
        rng_bn = jax.vmap(jax.vmap(lambda rng: jax.random.fold_in(rng, position)))(
            state.rng_bn
        )
        token_bn = jax.vmap(jax.vmap(jax.random.categorical))(rng_bn, likely_bnv)
        token_bn = token_bn.astype(jnp.int32)
        log_prob_bn1 = jnp.take_along_axis(next_bnv, token_bn[:, :, None], axis=2)
        log_prob_bn = log_prob_bn1[..., 0]
        state_bnc = state.state_bnc
        if rules is not None:
            state_bnc = advance_states(rules, state_bnc, token_bn)
        length_bn = jnp.full_like(token_bn, position + 1)
        extended = Hypotheses(
            tokens_bnt=drawn.tokens_bnt.at[:, :, position].set(token_bn),
            score_bn=log_prob_bn * inverse_t[length_bn],
            log_prob_bn=log_prob_bn,
            length_bn=length_bn,
            ended_bn=token_bn == self.eos,
        )
        # Complete hypotheses go through the step as well, since shapes are fixed. Their
        # old values are restored after it.
        complete_bn = _complete(drawn, state.limit_b) | state.stopped_b[:, None]
        drawn = where_rows(complete_bn, drawn, extended)
        return state._replace(
            cache=cache,
            token_bn=token_bn,
            state_bnc=state_bnc,
            drawn=drawn,
            stopped_b=state.stopped_b
            | jnp.all(_complete(drawn, state.limit_b), axis=1),
        )

    def result(self, state, rules=None) -> Hypotheses:
        """Returns the drawn hypotheses."""
        # If the rules allow no token, every token has probability 0 and one is drawn
        # anyway, with log-probability -inf. This becomes a place without a hypothesis.
        drawn = state.drawn
        empty_bn = drawn.log_prob_bn == -jnp.inf
        return drawn._replace(
            tokens_bnt=jnp.where(empty_bn[:, :, None], self.pad, drawn.tokens_bnt),
            length_bn=jnp.where(empty_bn, 0, drawn.length_bn),
            ended_bn=drawn.ended_bn & ~empty_bn,
        )


def _complete(drawn: Hypotheses, limit_b: Array) -> Array:
    """Returns bool [b, n]: True if a hypothesis has ended or reached its limit."""
    return drawn.ended_bn | (drawn.length_bn >= limit_b[:, None])


def _likely(
    log_prob_bnv: Array, top_k: int, top_p: float, epsilon: float = 0.0
) -> Array:
    """Truncates by `epsilon`, `top_k`, then `top_p`: -inf for tokens not drawn."""
    if epsilon:
        p_bnv = jax.nn.softmax(log_prob_bnv)
        # Among many tokens even the most probable one may be below epsilon.
        least_bn1 = jnp.minimum(epsilon, p_bnv.max(axis=2, keepdims=True))
        log_prob_bnv = jnp.where(p_bnv < least_bn1, -jnp.inf, log_prob_bnv)
    if 0 < top_k < log_prob_bnv.shape[2]:
        best_bnk, token_bnk = jax.lax.top_k(log_prob_bnv, top_k)
        unlikely_bnv = jnp.full_like(log_prob_bnv, -jnp.inf)
        log_prob_bnv = jnp.put_along_axis(
            unlikely_bnv, token_bnk, best_bnk, axis=2, inplace=False
        )
    if top_p < 1:
        p_bnv = jax.nn.softmax(log_prob_bnv)
        sorted_bnv = jnp.sort(p_bnv, axis=2, descending=True)
        # The probability of all more probable tokens; 0 for the first, which is
        # therefore always kept. Tokens as probable as the last one kept are kept too.
        before_bnv = jnp.cumsum(sorted_bnv, axis=2) - sorted_bnv
        last_bn1 = jnp.sum(before_bnv < top_p, axis=2, keepdims=True) - 1
        least_bn1 = jnp.take_along_axis(sorted_bnv, last_bn1, axis=2)
        # NaN compares False and stays, so that a broken model is not hidden.
        log_prob_bnv = jnp.where(p_bnv < least_bn1, -jnp.inf, log_prob_bnv)
    return log_prob_bnv
