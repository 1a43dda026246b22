"""The interface of a search algorithm, and what all algorithms share.

`Algorithm` is the base class, `Hypotheses` its result, `PENALTIES` the length penalties
that scores have. The algorithms are in `search/beam.py` and `search/sampling.py`.

Shape suffixes: b batch, n beam rows or hypotheses, t target, v vocabulary.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.search.rules import Rules, allowed
from t2t_jax.sections import at_address

Tree = TypeVar("Tree")
# (cache, token_bn int32, position int32 scalar) -> (logits_bnv, cache)
Step = Callable[[Any, Array, Array], tuple[Array, Any]]


class Hypotheses(NamedTuple):
    """The best hypotheses of every sentence, best first, ended before unended.

    If fewer hypotheses exist than were requested, the places left have length 0, score
    and log_prob -inf, ended False and tokens all PAD. Log-probabilities are natural
    logarithms of the model's own distribution over the full vocabulary.
    """

    tokens_bnt: Array  # int32 [batch, nbest, max_length]: no BOS, EOS if ended, PAD
    score_bn: Array  # float32: log_prob / PENALTIES[penalty](length, alpha)
    log_prob_bn: Array  # float32: sum over the hypothesis's tokens, EOS included
    length_bn: Array  # int32: in tokens, EOS included
    ended_bn: Array  # bool; False: reached its limit without EOS

    @classmethod
    def blank(cls, log_prob_bn: Array, max_length: int, pad: int) -> "Hypotheses":
        """Returns hypotheses without tokens, whose score is their log_prob."""
        shape = log_prob_bn.shape
        return cls(
            tokens_bnt=jnp.full((*shape, max_length), pad, jnp.int32),
            score_bn=log_prob_bn,
            log_prob_bn=log_prob_bn,
            length_bn=jnp.zeros(shape, jnp.int32),
            ended_bn=jnp.zeros(shape, bool),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A search in three parts, so that it can pause and its rows can be reused.

    The base class of all algorithms; types are declared here and not repeated in
    subclasses. Algorithms are hashable, since they are static arguments of compiled
    programs. States are pytrees whose leaves have leading axis [batch], with the
    attributes `cache` and `stopped_b`, and a method `stop(rows_b)`.

    Attributes:
      alpha, penalty: exponent of the length penalty, and its name in `PENALTIES`.
      divisor: the entry of that name when the algorithm was made, so that compiled
        programs are those of another one if the name has another entry later.
      bos: token id of the first input; never generated.
      eos: token id that ends a hypothesis.
      pad: token id that fills the result after the end; never generated.
      never: other tokens that are never generated.
      no_repeat_ngram, repetition_penalty: as in `extensions/search/repetition.py`.
    """

    alpha: float
    penalty: str
    bos: int
    eos: int
    pad: int
    never: tuple[int, ...] = ()
    no_repeat_ngram: int = 0  # 0 allows repetitions
    repetition_penalty: float = 1.0
    divisor: Callable = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        object.__setattr__(self, "divisor", PENALTIES.get(self.penalty))

    @property
    def rows(self) -> int:
        """The number of hypotheses of each sentence that a step extends."""
        raise NotImplementedError

    @property
    def banned(self) -> tuple[int, ...]:
        """The tokens that are never generated."""
        return never_generated(self)

    def start(
        self,
        cache: Any,
        limit_b: Array,
        rules: Rules | None = None,
        rng_b: Array | None = None,
        *,
        max_length: int,
    ) -> Any:
        """Returns the state before the first token.

        Args:
          cache: as for `beam_search`, with `rows` in place of the beam.
          limit_b: int32, the longest output of each sentence in tokens, EOS included.
          rules: constraints on the outputs, or None.
          rng_b: a `jax.random` key for each sentence.
          max_length: the width of the token arrays.
        """
        raise NotImplementedError

    def advance(
        self,
        step: Step,
        state: Any,
        position: Array | int,
        until: Array | int,
        rules: Rules | None = None,
        present_b: Array | None = None,
    ) -> Any:
        """Advances from `position` to `until`, or until all sentences have stopped.

        Args:
          step: as for `beam_search`.
          state: its cache has room for `until` positions.
          position, until: int32, the same for all sentences.
          present_b: bool; False for rows without a sentence, which keep no search
            running.
        """
        if present_b is not None:
            state = state.stop(~present_b)

        def running(loop):
            position, state = loop
            return (position < until) & ~jnp.all(state.stopped_b)

        def one_step(loop):
            position, state = loop
            return position + 1, self.extend(step, state, position, rules)

        loop = (jnp.int32(position), state)
        return jax.lax.while_loop(running, one_step, loop)[1]

    def extend(self, step: Step, state: Any, position: Array, rules: Rules | None):
        """Returns the state after one more token of every running hypothesis."""
        raise NotImplementedError

    def result(self, state: Any, rules: Rules | None = None) -> Hypotheses:
        """Returns the hypotheses; undefined for sentences that have not stopped."""
        raise NotImplementedError

    def unrepeated(self, logits_bnv: Array, *history: Any) -> Array:
        """Returns the logits as the options against repetitions change them.

        `history`: as for `extensions/search/repetition.py`.
        """
        if self.no_repeat_ngram == 0 and self.repetition_penalty == 1:
            return logits_bnv
        change = at_address("extensions.search.repetition.changed")
        return change(self, logits_bnv, *history)

    def next_log_probs(
        self,
        logits_bnv: Array,
        log_prob_bn: Array,
        state_bnc: Array,
        position: Array,
        limit_b: Array,
        rules: Rules | None,
    ) -> Array:
        """Returns the log-probabilities of all extensions, [b, n, v].

        -inf for tokens that are never generated or that the rules refuse, and in rows
        without a hypothesis.

        Args:
          log_prob_bn, state_bnc: of the hypotheses before the step.
        """
        next_bnv = extensions(logits_bnv, log_prob_bn, self.banned)
        if rules is None:
            return next_bnv
        allowed_bnv = allowed(rules, state_bnc, position, limit_b, self.eos)
        return jnp.where(allowed_bnv, next_bnv, -jnp.inf)


# ------------------------------------------------------------------------------ scores


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


def inverse_penalties(max_length: int, algorithm: Algorithm) -> Array:
    """float32 [max_length + 1]: the factor from log-probability to score, by length.

    The table is computed in float64, once. On the device a power or a division may
    round differently from place to place (XLA turns some divisions into products), and
    early stopping is only sound if no score can exceed its bound.
    """
    length_t = np.arange(max_length + 1, dtype=np.float64)
    length_t[0] = 1  # no hypothesis has length 0
    return jnp.asarray(1 / algorithm.divisor(length_t, algorithm.alpha), jnp.float32)


# ---------------------------------------------------------------------------- one step


def never_generated(tokens: Any) -> tuple[int, ...]:
    """Returns the tokens that are never generated, of an algorithm or a vocabulary.

    `eos` may also start the decoder.
    """
    return tuple(sorted({tokens.bos, tokens.pad, *tokens.never} - {tokens.eos}))


def extensions(logits_bnv: Array, log_prob_bn: Array, banned: tuple[int, ...]):
    """Returns the log-probabilities of all one-token extensions, [b, n, v].

    -inf for `banned` tokens, and in rows without a hypothesis.
    """
    allowed_v = np.ones(logits_bnv.shape[2], bool)
    allowed_v[list(banned)] = False
    # Rows without a hypothesis are masked, since -inf plus a logit of NaN is NaN.
    allowed_bnv = allowed_v & (log_prob_bn != -jnp.inf)[:, :, None]
    next_bnv = jax.nn.log_softmax(logits_bnv.astype(jnp.float32))
    return jnp.where(allowed_bnv, log_prob_bn[:, :, None] + next_bnv, -jnp.inf)


def top_k(x_bv: Array, k: int, group: int = 128) -> tuple[Array, Array]:
    """Returns what `jax.lax.top_k` returns, faster: first groups, then values.

    The k groups with the highest maxima contain the best k values: k maxima rank above
    that of any other group. The maximum of neighbouring values is fast, and only the
    values of k groups are then sorted. Of equal values, the lower index wins.
    """
    batch, size = x_bv.shape
    groups = size // group
    if groups <= 4 * k:
        return jax.lax.top_k(x_bv, k)  # two stages would save no time
    x_bgw = x_bv[:, : groups * group].reshape(batch, groups, group)
    _, best_bk = jax.lax.top_k(x_bgw.max(2), k)
    # In the order of indices, so that the second stage resolves ties like the first.
    best_bk = jnp.sort(best_bk, axis=1)
    first_bk = best_bk * group
    index_bm = (first_bk[:, :, None] + jnp.arange(group)).reshape(batch, -1)
    # The last values, too few for a group, always take part in the second stage.
    remainder_bm = jnp.broadcast_to(
        jnp.arange(groups * group, size), (batch, size % group)
    )
    index_bm = jnp.concatenate([index_bm, remainder_bm], axis=1)
    best_bk, at_bk = jax.lax.top_k(take_rows(x_bv, index_bm), k)
    return best_bk, take_rows(index_bm, at_bk)


def best_extensions(
    logits_bnv: Array, log_prob_bn: Array, k: int, banned: tuple[int, ...]
) -> tuple[Array, Array]:
    """Returns `top_k` of the flat `extensions`, [b, k] each, without computing all.

    Within a row, log-probabilities never fall as logits rise, rounding included. So the
    highest logits of groups of neighbouring tokens tell which groups may contain the
    best, and only the extensions of k groups are computed. Indices of places without a
    hypothesis are undefined.
    """
    b, n, v = logits_bnv.shape
    width = max(w for w in range(1, 129) if v % w == 0)
    groups = v // width
    if width < 32 or groups <= 4 * k:  # it would save no time
        next_bnv = extensions(logits_bnv, log_prob_bn, banned)
        return top_k(next_bnv.reshape(b, -1), k)
    logits_bnv = logits_bnv.astype(jnp.float32)
    allowed_v = np.ones(v, bool)
    allowed_v[list(banned)] = False
    allowed_gw = allowed_v.reshape(groups, width)
    # The logits are read twice: for the maxima of groups, whose maximum is that of the
    # row, and for the sum of `log_softmax`.
    logits_bngw = logits_bnv.reshape(b, n, groups, width)
    highest_bng = logits_bngw.max(3)
    max_bn = jax.lax.optimization_barrier(highest_bng).max(2)
    log_sum_bn = jnp.log(jnp.exp(logits_bnv - max_bn[..., None]).sum(2))
    for g in np.flatnonzero(~allowed_gw.all(1)):
        part_bnw = jnp.where(allowed_gw[g], logits_bngw[:, :, g], -jnp.inf)
        highest_bng = highest_bng.at[:, :, g].set(part_bnw.max(2))

    def scores(logits: Array, highest: Array, log_sum: Array, log_prob: Array) -> Array:
        """As `extensions` computes them, to the bit."""
        next_ = logits - highest[..., None] - log_sum[..., None] + log_prob[..., None]
        return jnp.where(log_prob[..., None] != -jnp.inf, next_, -jnp.inf)

    row_terms = max_bn, log_sum_bn, log_prob_bn
    highest_bng = scores(highest_bng, *row_terms)
    _, group_bk = jax.lax.top_k(highest_bng.reshape(b, -1), k)
    # In the order of indices, so that the second stage resolves ties like the first.
    group_bk = jnp.sort(group_bk, axis=1)
    logits_bkw = take_rows(logits_bngw.reshape(b, -1, width), group_bk)
    # Not // and %, which XLA makes of ten operations for negative numbers.
    div, rem = jax.lax.div, jax.lax.rem
    row_bk = div(group_bk, groups)
    next_bkw = scores(logits_bkw, *(take_rows(x, row_bk) for x in row_terms))
    allowed_bkw = jnp.asarray(allowed_gw)[rem(group_bk, groups)]
    next_bkw = jnp.where(allowed_bkw, next_bkw, -jnp.inf)
    best_bk, at_bk = jax.lax.top_k(next_bkw.reshape(b, -1), k)
    group_bk = take_rows(group_bk, div(at_bk, width))
    return best_bk, group_bk * width + rem(at_bk, width)


def take_rows(leaf: Array, index_bn: Array) -> Array:
    """Takes rows of axis 1: row n of sentence b becomes row `index_bn[b, n]`."""
    index = index_bn.reshape(index_bn.shape + (1,) * (leaf.ndim - 2))
    # All indices come from a search, so a check of their bounds is not needed.
    return jnp.take_along_axis(leaf, index, axis=1, mode="promise_in_bounds")


def where_rows(condition: Array, yes: Tree, no: Tree) -> Tree:
    """Selects rows of two trees: `jnp.where` on every leaf, by its first axes.

    Args:
      condition: bool, [batch] for sentences or [batch, n] for hypotheses.
    """

    def select(yes, no):
        more_axes = (1,) * (yes.ndim - condition.ndim)
        return jnp.where(condition.reshape(condition.shape + more_axes), yes, no)

    return jax.tree.map(select, yes, no)


def moved(cache: Any, parent_bn: Array) -> Any:
    """Moves the hypotheses of rows `parent_bn` of a cache to rows 0, 1, ...

    Parts with a method `moved` move themselves. All other leaves are [batch, beam,
    ...], and their rows are copied.
    """

    def move(part):
        if _moves_itself(part):
            return part.moved(parent_bn)
        return take_rows(part, parent_bn)

    return jax.tree.map(move, cache, is_leaf=_moves_itself)


def _moves_itself(part: Any) -> bool:
    return hasattr(part, "moved")


# ------------------------------------------------------------------------------ checks


def check_arguments(limit_b, max_length, beam, alpha, penalty, bos, eos, pad):
    """Raises ValueError for arguments that are invalid in every search."""
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
    if eos == pad:
        raise ValueError(
            f"eos and pad are both {eos}; they must differ, since pad is never "
            "generated and no hypothesis could end."
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
