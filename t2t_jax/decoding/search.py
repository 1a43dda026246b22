"""Greedy and beam search over any step function: pure, and knows no model.

Section 6.1 of "Attention Is All You Need" decodes with beam 4 and length penalty
alpha 0.6, the penalty of Wu et al. 2016 (GNMT), equation 14. Shape suffixes: b batch,
n beam rows or hypotheses, t target, v vocabulary.

The rules, which the tests' slow twin follows line by line:

1. Of all one-token extensions of a sentence's alive hypotheses, the best `beam` by
   log-probability survive. Equal ones rank by beam row, then by token id.
2. Survivors that end in EOS have used a place in this step's beam and move to the
   finished list, which keeps the best `nbest` by log_prob / length_penalty; of equal
   ones the earlier found stays. The others stay alive, and the next step again picks
   `beam` extensions of them: the width recovers. So beam 1 is greedy search.
3. A sentence stops when nothing of it is alive; or when it has `nbest` finished
   hypotheses and even its best alive one, were it to reach the limit at no further
   cost, could not beat the worst of them (sound, as log-probabilities only fall and the
   penalty only grows); or at its limit. Nothing of it changes after that, however long
   the rest of the batch runs.
4. At the limit what is still alive counts as unended hypotheses: they fill the places
   of the result that no ended hypothesis takes.

Which hypotheses are alive does not depend on `nbest` (only how long we look does), so
the best of `nbest` = 4 is the result of `nbest` = 1.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

# (cache, token_bn int32, position int32 scalar) -> (logits_bnv, cache)
Step = Callable[[Any, Array, Array], tuple[Array, Any]]


class Hypotheses(NamedTuple):
    """The best hypotheses of every sentence, best first, ended before unended.

    A place for which no hypothesis exists (fewer can be made than were asked for) has
    length 0, score and log_prob -inf, ended False and tokens all PAD. Log-probabilities
    are natural logarithms of the model's own distribution over the whole vocabulary.
    """

    tokens_bnt: Array  # int32 [batch, nbest, max_length]: no BOS, EOS if ended, PAD
    score_bn: Array  # float32: log_prob / length_penalty(length, alpha)
    log_prob_bn: Array  # float32: sum over the hypothesis's tokens, EOS included
    length_bn: Array  # int32: in tokens, EOS included
    ended_bn: Array  # bool; False: reached its limit without EOS


class _Sentences(NamedTuple):
    """What search knows of each sentence; frozen once the sentence has stopped.

    A beam row whose log_prob is -inf holds no hypothesis; its tokens mean nothing.
    """

    tokens_bnt: Array  # the alive hypotheses; PAD where nothing is written yet
    token_bn: Array  # their last tokens: the next step's input
    log_prob_bn: Array
    finished: Hypotheses
    stopped_b: Array


def length_penalty(length, alpha: float):
    """((5 + length) / 6) ** alpha, Wu et al. 2016, equation 14; alpha 0 is none.

    `length` is a number or an array (NumPy or JAX), in tokens, EOS included.
    """
    return ((5 + length) / 6) ** alpha


def greedy_search(
    step: Step,
    cache: Any,
    limit_b: Array,
    *,
    max_length: int,
    bos: int,
    eos: int,
    pad: int,
    alpha: float = 0.6,
) -> Hypotheses:
    """The most probable next token, again and again: `beam_search` with beam 1.

    Leaves of `cache` are [batch, 1, ...]; the result has nbest 1. `alpha` changes only
    the reported score. Arguments and errors are otherwise those of `beam_search`.
    """
    return beam_search(
        step,
        cache,
        limit_b,
        max_length=max_length,
        beam=1,
        nbest=1,
        alpha=alpha,
        bos=bos,
        eos=eos,
        pad=pad,
    )


def beam_search(
    step: Step,
    cache: Any,
    limit_b: Array,
    *,
    max_length: int,
    beam: int = 4,
    nbest: int = 1,
    alpha: float = 0.6,
    bos: int,
    eos: int,
    pad: int,
) -> Hypotheses:
    """The `nbest` best outputs of every sentence (section 6.1; rules: module's top).

    Args:
      step: `step(cache, token_bn, position) -> (logits_bnv, cache)`, one decoder step
        for every alive hypothesis. `position` is a scalar int32; at 0 the input is BOS.
        Logits may be of any float type; their log-softmax is taken in float32.
      cache: a pytree whose leaves all have leading axes [batch, beam]; rows of axis 1
        move with their hypotheses. What is the same for all hypotheses of a sentence
        (the encoder's output) belongs in `step`'s closure, not here. Rows that hold no
        hypothesis, and sentences that have stopped, still pass through `step`; what it
        gives for them is ignored.
      limit_b: int32 [batch], the longest output of each sentence in tokens, EOS
        included. Values outside 1..max_length are clipped to it.
      max_length: the width of the token arrays, static.
      beam: hypotheses to keep at each step, static; may exceed the vocabulary.
      nbest: hypotheses to return, static, at most `beam`.
      alpha: exponent of the length penalty, static, at least 0.
      bos: token id of the first input; never generated.
      eos: token id that ends a hypothesis.
      pad: token id that fills the result after the end; never generated.

    Returns:
      Hypotheses of [batch, nbest]. The probability of BOS and PAD is not given to the
      other tokens, so that log_prob is what scoring the same output would give.

    Raises:
      ValueError: an argument is out of its range, or the shapes of `cache`, `limit_b`
        or the logits do not fit.
    """
    limit_b = jnp.asarray(limit_b, jnp.int32)
    _check_arguments(cache, limit_b, max_length, beam, nbest, alpha, bos, eos, pad)
    limit_b = jnp.clip(limit_b, 1, max_length)
    # Scores multiply by a table made once in float64. A power or a division on the
    # device may round differently from place to place (XLA turns some divisions into
    # products), and stopping is sound only if no score can rise above its bound.
    penalty_t = length_penalty(np.arange(max_length + 1, dtype=np.float64), alpha)
    inverse_t = jnp.asarray(1 / penalty_t, jnp.float32)

    def running(loop):
        _, _, sentences = loop
        return ~jnp.all(sentences.stopped_b)

    def advance(loop):
        position, cache, before = loop
        logits_bnv, cache = step(cache, before.token_bn, position)
        _check_logits(logits_bnv, before.token_bn.shape, bos, eos, pad)
        parent_bn, token_bn, log_prob_bn = _best_extensions(
            logits_bnv, before.log_prob_bn, banned=(bos, pad)
        )
        if beam > 1:  # The only row of a beam of 1 is its own parent.
            cache = jax.tree.map(lambda leaf: _rows(leaf, parent_bn), cache)
        tokens_bnt = _rows(before.tokens_bnt, parent_bn)
        tokens_bnt = tokens_bnt.at[:, :, position].set(token_bn)
        length = position + 1

        ended_bn = (token_bn == eos) & (log_prob_bn != -jnp.inf)
        found = Hypotheses(
            tokens_bnt=tokens_bnt,
            score_bn=jnp.where(ended_bn, log_prob_bn * inverse_t[length], -jnp.inf),
            log_prob_bn=log_prob_bn,
            length_bn=jnp.full_like(token_bn, length),
            ended_bn=ended_bn,
        )
        finished = _best_finished(before.finished, found)
        log_prob_bn = jnp.where(ended_bn, -jnp.inf, log_prob_bn)
        # Nothing alive is -inf here, and fewer than nbest finished leaves -inf there.
        bound_b = jnp.max(log_prob_bn, axis=1) * inverse_t[limit_b]
        stopped_b = (bound_b <= finished.score_bn[:, -1]) | (length >= limit_b)
        after = _Sentences(tokens_bnt, token_bn, log_prob_bn, finished, stopped_b)
        return length, cache, _where(before.stopped_b, before, after)

    start = _start(limit_b.shape[0], max_length, beam, nbest, bos, pad)
    loop = (jnp.int32(0), cache, start)
    _, _, sentences = jax.lax.while_loop(running, advance, loop)
    return _result(sentences, limit_b, inverse_t)


def _best_extensions(
    logits_bnv: Array, log_prob_bn: Array, banned: tuple[int, ...]
) -> tuple[Array, Array, Array]:
    """The best one-token extensions: their parents' rows, tokens and log-probabilities.

    Best first. Where fewer than [beam] extensions exist, log_prob is -inf.
    """
    batch, beam, vocabulary = logits_bnv.shape
    allowed_v = np.ones(vocabulary, bool)
    allowed_v[list(banned)] = False
    # A row without a hypothesis is masked, not added to: the model may say NaN of it.
    allowed_bnv = allowed_v & (log_prob_bn != -jnp.inf)[:, :, None]
    next_bnv = jax.nn.log_softmax(logits_bnv.astype(jnp.float32))
    next_bnv = jnp.where(allowed_bnv, log_prob_bn[:, :, None] + next_bnv, -jnp.inf)

    # top_k prefers the lower index among equals: the earlier row, then the lower id.
    log_prob_bn, place_bn = jax.lax.top_k(next_bnv.reshape(batch, -1), beam)
    return place_bn // vocabulary, place_bn % vocabulary, log_prob_bn


def _best_finished(kept: Hypotheses, found: Hypotheses) -> Hypotheses:
    """The best of both lists by score, as many as were kept; of equals kept first."""
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), kept, found)
    _, best_bn = jax.lax.top_k(both.score_bn, kept.score_bn.shape[1])
    return jax.tree.map(lambda leaf: _rows(leaf, best_bn), both)


def _result(sentences: _Sentences, limit_b: Array, inverse_t: Array) -> Hypotheses:
    """The finished hypotheses, and in the places they leave the unended ones."""
    finished, log_prob_bn = sentences.finished, sentences.log_prob_bn
    # Of a sentence that stopped before its limit something may be alive too, but then
    # ended hypotheses take all its places. Both lists are sorted already.
    unended = Hypotheses(
        tokens_bnt=sentences.tokens_bnt,
        score_bn=log_prob_bn * inverse_t[limit_b][:, None],
        log_prob_bn=log_prob_bn,
        length_bn=jnp.broadcast_to(limit_b[:, None], log_prob_bn.shape),
        ended_bn=jnp.zeros(log_prob_bn.shape, bool),
    )
    both = jax.tree.map(
        lambda *leaves: jnp.concatenate(leaves, axis=1), finished, unended
    )
    rank_bn = jnp.where(both.ended_bn, 0, jnp.where(both.log_prob_bn != -jnp.inf, 1, 2))
    order_bn = jnp.argsort(rank_bn, axis=1, stable=True)
    best_bn = order_bn[:, : finished.score_bn.shape[1]]
    return jax.tree.map(lambda leaf: _rows(leaf, best_bn), both)


def _start(
    batch: int, max_length: int, beam: int, nbest: int, bos: int, pad: int
) -> _Sentences:
    """One hypothesis, empty, in the first row of every beam; none finished."""
    log_prob_n = jnp.where(jnp.arange(beam) == 0, 0.0, -jnp.inf).astype(jnp.float32)
    nothing_bn = jnp.full((batch, nbest), -jnp.inf, jnp.float32)
    return _Sentences(
        tokens_bnt=jnp.full((batch, beam, max_length), pad, jnp.int32),
        token_bn=jnp.full((batch, beam), bos, jnp.int32),
        log_prob_bn=jnp.broadcast_to(log_prob_n, (batch, beam)),
        finished=Hypotheses(
            tokens_bnt=jnp.full((batch, nbest, max_length), pad, jnp.int32),
            score_bn=nothing_bn,
            log_prob_bn=nothing_bn,
            length_bn=jnp.zeros((batch, nbest), jnp.int32),
            ended_bn=jnp.zeros((batch, nbest), bool),
        ),
        stopped_b=jnp.zeros(batch, bool),
    )


def _rows(leaf: Array, index_bn: Array) -> Array:
    """Rows `index_bn` of axis 1, each sentence its own."""
    index = index_bn.reshape(index_bn.shape + (1,) * (leaf.ndim - 2))
    return jnp.take_along_axis(leaf, index, axis=1, mode="promise_in_bounds")


def _where(condition_b: Array, yes: _Sentences, no: _Sentences) -> _Sentences:
    """`jnp.where` sentence by sentence, on every leaf."""

    def select(yes, no):
        return jnp.where(
            condition_b.reshape(condition_b.shape + (1,) * (yes.ndim - 1)), yes, no
        )

    return jax.tree.map(select, yes, no)


def _check_arguments(cache, limit_b, max_length, beam, nbest, alpha, bos, eos, pad):
    if max_length < 1:
        raise ValueError(f"max_length is {max_length}; it must be at least 1 token.")
    if beam < 1:
        raise ValueError(f"beam is {beam}; it must be at least 1 (1 is greedy search).")
    if not 1 <= nbest <= beam:
        raise ValueError(
            f"nbest is {nbest} and beam is {beam}; nbest must be between 1 and beam: "
            "widen the beam, or ask for fewer hypotheses."
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
    for path, leaf in jax.tree_util.tree_leaves_with_path(cache):
        if jnp.shape(leaf)[:2] != (limit_b.shape[0], beam):
            raise ValueError(
                f"cache{jax.tree_util.keystr(path)} has shape {jnp.shape(leaf)}; every "
                f"leaf must begin with [batch, beam] = [{limit_b.shape[0]}, {beam}]. "
                "What does not differ between hypotheses belongs in step's closure."
            )


def _check_logits(logits_bnv, rows, bos, eos, pad):
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
