"""Hypotheses, and operations on them that all searches share.

Shape suffixes: b batch, n beam rows or hypotheses, t target,
v vocabulary.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.search.length_penalty import PENALTIES

# (cache, token_bn int32, position int32 scalar) -> (logits_bnv, cache)
Step = Callable[[Any, Array, Array], tuple[Array, Any]]


class Hypotheses(NamedTuple):
    """The best hypotheses of every sentence, best first, ended before unended.

    A place for which no hypothesis exists (fewer can be made than were asked for) has
    length 0, score and log_prob -inf, ended False and tokens all PAD. Log-probabilities
    are natural logarithms of the model's own distribution over the whole vocabulary.
    """

    tokens_bnt: Array  # int32 [batch, nbest, max_length]: no BOS, EOS if ended, PAD
    score_bn: Array  # float32: log_prob / PENALTIES[penalty](length, alpha)
    log_prob_bn: Array  # float32: sum over the hypothesis's tokens, EOS included
    length_bn: Array  # int32: in tokens, EOS included
    ended_bn: Array  # bool; False: reached its limit without EOS


def extensions(logits_bnv: Array, log_prob_bn: Array, banned: tuple[int, ...]):
    """Log-probabilities of all one-token extensions, -inf where there is none."""
    allowed_v = np.ones(logits_bnv.shape[2], bool)
    allowed_v[list(banned)] = False
    # A row without a hypothesis is masked, not added to: the model may say NaN of it.
    allowed_bnv = allowed_v & (log_prob_bn != -jnp.inf)[:, :, None]
    next_bnv = jax.nn.log_softmax(logits_bnv.astype(jnp.float32))
    return jnp.where(allowed_bnv, log_prob_bn[:, :, None] + next_bnv, -jnp.inf)


def top_k(x_bv: Array, k: int, group: int = 128) -> tuple[Array, Array]:
    """`jax.lax.top_k`: of equal values the lower indices.

    In two stages where that saves time. A value among the best k is in one of the k
    groups of the highest maxima, as each of k others would hold a better one; a maximum
    of neighbours is quick to find, and sorting then is of few.
    """
    batch, size = x_bv.shape
    groups = size // group
    if groups <= 4 * k:
        return jax.lax.top_k(x_bv, k)
    x_bgw = x_bv[:, : groups * group].reshape(batch, groups, group)
    _, best_bk = jax.lax.top_k(x_bgw.max(2), k)
    best_bk = jnp.sort(best_bk, axis=1)  # so that the order is still that of indices
    first_bk = best_bk * group
    index_bm = (first_bk[:, :, None] + jnp.arange(group)).reshape(batch, -1)
    rest = jnp.broadcast_to(jnp.arange(groups * group, size), (batch, size % group))
    index_bm = jnp.concatenate([index_bm, rest], axis=1)
    best_bk, at_bk = jax.lax.top_k(rows_of(x_bv, index_bm), k)
    return best_bk, rows_of(index_bm, at_bk)


def rows_of(leaf: Array, index_bn: Array) -> Array:
    """Rows `index_bn` of axis 1, each sentence its own."""
    index = index_bn.reshape(index_bn.shape + (1,) * (leaf.ndim - 2))
    return jnp.take_along_axis(leaf, index, axis=1, mode="promise_in_bounds")


def moved(cache: Any, parent_bn: Array) -> Any:
    """A cache, the hypotheses of rows `parent_bn` in the rows 0, 1, ...

    Parts that know how to move do it themselves; leaves of others are [batch, beam,
    ...].
    """

    def move(part):
        if _moves_itself(part):
            return part.moved(parent_bn)
        return rows_of(part, parent_bn)

    return jax.tree.map(move, cache, is_leaf=_moves_itself)


def _moves_itself(part: Any) -> bool:
    return hasattr(part, "moved")


def check_arguments(limit_b, max_length, beam, alpha, penalty, bos, eos, pad):
    """Raises ValueError for what no search takes."""
    if max_length < 1:
        raise ValueError(f"max_length is {max_length}; it must be at least 1 token.")
    if beam < 1:
        raise ValueError(f"beam is {beam}; it must be at least 1 (1 is greedy search).")
    if penalty not in PENALTIES:
        raise ValueError(
            f"penalty is {penalty!r}; it must be one of {', '.join(PENALTIES)}."
        )
    if not (math.isfinite(alpha) and alpha >= 0):
        raise ValueError(
            f"alpha is {alpha}; it must be at least 0 (0 is no length penalty): early "
            "stopping is only right for a penalty that does not fall with length."
        )
    if eos in (bos, pad):
        raise ValueError(
            f"eos is {eos}, bos {bos} and pad {pad}; eos must differ from both, since "
            "bos and pad are never generated and no hypothesis could end."
        )
    if limit_b.ndim != 1:
        raise ValueError(
            f"limit_b has shape {limit_b.shape}; it must be [batch], one limit in "
            "tokens a sentence."
        )


def check_cache(cache, batch: int, beam: int):
    """Raises ValueError for a cache that cannot be `moved`."""
    leaves = jax.tree_util.tree_leaves_with_path(cache, is_leaf=_moves_itself)
    for path, leaf in leaves:
        if not _moves_itself(leaf) and jnp.shape(leaf)[:2] != (batch, beam):
            raise ValueError(
                f"cache{jax.tree_util.keystr(path)} has shape {jnp.shape(leaf)}; every "
                f"leaf must begin with [batch, beam] = [{batch}, {beam}]. "
                "What does not differ between hypotheses belongs in step's closure."
            )


def check_logits(logits_bnv, rows, bos, eos, pad):
    """Raises ValueError for logits that do not fit the search."""
    if logits_bnv.ndim != 3 or logits_bnv.shape[:2] != rows:
        raise ValueError(
            f"step gave logits of shape {logits_bnv.shape}; they must be [batch, beam, "
            f"vocabulary] with [batch, beam] = {list(rows)}."
        )
    if not all(0 <= token < logits_bnv.shape[2] for token in (bos, eos, pad)):
        raise ValueError(
            f"bos is {bos}, eos {eos} and pad {pad}, but step gave logits for a "
            f"vocabulary of {logits_bnv.shape[2]}: token ids must be within it."
        )
