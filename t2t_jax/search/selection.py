"""Selection of the extensions and the finished hypotheses that a beam search keeps.

Shared by beam search and diverse beam search. Shape suffixes: as in `search/beam.py`.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.search.hypotheses import Hypotheses, take_rows, top_k
from t2t_jax.search.rules import Rules, advance_states, missing

Tree = TypeVar("Tree")
# Parents (beam rows), tokens and scores, each [batch, beam].
Selected = tuple[Array, Array, Array]


def select(next_bnv: Array, rules: Rules | None, state_bnc: Array) -> Selected:
    """Selects the extensions that survive a step, best first.

    Args:
      next_bnv: float32, the score of each extension; -inf for what must not come.
      rules: constraints on the outputs, or None.
      state_bnc: the progress of each phrase of the rules.
    """
    if rules is None:
        return _best(next_bnv)
    return _spread(next_bnv, rules, state_bnc)


def _best(next_bnv: Array) -> Selected:
    """Returns the best extensions, best first: parents, tokens and log-probabilities.

    If fewer than `beam` extensions exist, the log_prob of the others is -inf.
    """
    batch, beam, vocabulary = next_bnv.shape
    # Flat places rank rows before tokens, so `top_k` breaks ties by row, then by token.
    log_prob_bn, place_bn = top_k(next_bnv.reshape(batch, -1), beam)
    return place_bn // vocabulary, place_bn % vocabulary, log_prob_bn


def _spread(next_bnv: Array, rules: Rules, state_bnc: Array) -> Selected:
    """Returns the best extensions by missing phrases (item 5 of `search/beam.py`).

    Equals `_best` for sentences without required phrases. Suffix m: candidates.
    """
    batch, beam, vocabulary = next_bnv.shape
    parent_bn, token_bn, log_prob_bn = _best(next_bnv)
    if not rules.closer_sv.shape[0]:  # no sentence has a required phrase
        return parent_bn, token_bn, log_prob_bn
    # Candidates besides the best: for each row, its best extension, and the best of
    # those that come closer to each phrase.
    closer_bncv = rules.closer_sv[state_bnc]
    helpful_bnmv = jnp.where(closer_bncv, next_bnv[:, :, None], -jnp.inf)
    likely_bnmv = jnp.concatenate([next_bnv[:, :, None], helpful_bnmv], axis=2)
    row_bnm = jnp.broadcast_to(
        jnp.arange(beam)[:, None], (batch, beam, likely_bnmv.shape[2])
    )
    flat = (batch, -1)
    parent_bm = jnp.concatenate([parent_bn, row_bnm.reshape(flat)], axis=1)
    token_bm = jnp.concatenate([token_bn, likely_bnmv.argmax(3).reshape(flat)], axis=1)
    log_prob_bm = jnp.concatenate([log_prob_bn, likely_bnmv.max(3).reshape(flat)], 1)

    earlier_mm = np.tri(parent_bm.shape[1], k=-1, dtype=bool)  # [m, those before m]

    def pairs(test, x_bm, *more):
        return test(x_bm[:, :, None], x_bm[:, None, :], *more)

    place_bm = parent_bm * vocabulary + token_bm
    dead_bm = log_prob_bm == -jnp.inf
    # The same extension may be a candidate several times; only the first one counts.
    earlier_bmm = earlier_mm & ~dead_bm[:, None, :]
    duplicate_bm = jnp.any(pairs(jnp.equal, place_bm) & earlier_bmm, axis=2)
    log_prob_bm = jnp.where(duplicate_bm, -jnp.inf, log_prob_bm)
    after_bmc = advance_states(rules, take_rows(state_bnc, parent_bm), token_bm)
    missing_bm = missing(rules, after_bmc)
    # A candidate's rank in its group: the number of better ones that lack as much.
    before_bmm = pairs(jnp.less, log_prob_bm) | (
        pairs(jnp.equal, log_prob_bm) & earlier_mm
    )
    rank_bm = jnp.sum(before_bmm & pairs(jnp.equal, missing_bm), axis=2)
    dead_bm = log_prob_bm == -jnp.inf
    # `lexsort` sorts by its last key first: existing before dead, then the best of each
    # group, then the second best, ..., and groups that lack least first.
    order_bm = jnp.lexsort((missing_bm, rank_bm, dead_bm), axis=1)
    chosen_bn = order_bm[:, :beam]
    # Rows of the beam are in the order of log-probability, as `_best` returns them.
    better_bn = jnp.argsort(-take_rows(log_prob_bm, chosen_bn), axis=1, stable=True)
    chosen_bn = take_rows(chosen_bn, better_bn)
    return tuple(take_rows(x, chosen_bn) for x in (parent_bm, token_bm, log_prob_bm))


def best_finished(kept: Hypotheses, new: Hypotheses) -> Hypotheses:
    """Returns the best of two lists by score, as many as `kept` has; ties to `kept`."""
    joint = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), kept, new)
    _, best_bn = jax.lax.top_k(joint.score_bn, kept.score_bn.shape[1])
    return jax.tree.map(lambda leaf: take_rows(leaf, best_bn), joint)


def fill_places(
    finished: Hypotheses, unended: Hypotheses, lacks_bn: Array
) -> tuple[Hypotheses, Array]:
    """Puts unended hypotheses into the places that no ended one takes.

    Args:
      finished, unended: best first; a log_prob of -inf is no hypothesis.
      lacks_bn: bool, unended hypotheses that lack a required phrase.

    Returns:
      As many hypotheses as places of `finished`, and the rank of each, int32 [b, n]:
      0: ended; 1: unended; 2: unended and lacks a phrase; 3: no hypothesis.
    """
    candidates = jax.tree.map(
        lambda *leaves: jnp.concatenate(leaves, axis=1), finished, unended
    )
    unended_rank_bn = jnp.where(unended.log_prob_bn != -jnp.inf, 1 + lacks_bn, 3)
    finished_rank_bn = jnp.where(finished.ended_bn, 0, 3)
    rank_bn = jnp.concatenate([finished_rank_bn, unended_rank_bn], axis=1)
    order_bn = jnp.argsort(rank_bn, axis=1, stable=True)
    best_bn = order_bn[:, : finished.score_bn.shape[1]]
    return jax.tree.map(lambda leaf: take_rows(leaf, best_bn), (candidates, rank_bn))


def where_rows(condition_b: Array, yes: Tree, no: Tree) -> Tree:
    """Chooses rows of two trees: `jnp.where` on every leaf, by the first axis."""

    def select(yes, no):
        return jnp.where(
            condition_b.reshape(condition_b.shape + (1,) * (yes.ndim - 1)), yes, no
        )

    return jax.tree.map(select, yes, no)
