"""Beam search, plain and diverse; greedy search is a beam of 1.

Section 6.1 of "Attention Is All You Need" decodes with beam 4 and length penalty alpha
0.6, the penalty of Wu et al. 2016 (GNMT), equation 14. Shape suffixes: b batch, n beam
rows or hypotheses, c phrases, t target, v vocabulary; g groups, m all hypotheses of a
sentence.

The algorithm, which a slow reference in the tests follows line by line:

1. Of all one-token extensions of a sentence's alive hypotheses, the best `beam` by
   log-probability survive. Ties rank by beam row, then by token id.
2. Survivors that end in EOS have used a place in this step's beam and move to the
   finished list, which keeps the best `nbest` by log_prob / length penalty; of equal
   ones the earlier stays. The others stay alive, and the next step again picks `beam`
   extensions of them, so the width recovers. Beam 1 is therefore greedy search.
3. A sentence stops when none of its hypotheses is alive; or when `nbest` are finished
   and even the best alive one, if it reached the limit at no further cost, could not
   beat the worst of them (sound: log-probabilities only fall and the penalty only
   grows; `stop="first"` does not look for better ones); or at its limit. Nothing of it
   changes after that, however long the rest of the batch runs.
4. At the limit, hypotheses still alive count as unended: they fill the places of the
   result that no ended hypothesis takes.
5. Rules (`search/rules.py`) remove extensions and leave the log-probabilities of the
   others unchanged. If phrases are required, the beam is divided (as by Post and Vilar
   2018) into groups of hypotheses that lack equally many phrases and are equally far
   from the nearest one: the best extension of each group first, groups that lack least
   first, then the second best of each, and so on. Candidates are the best `beam`
   extensions, the best of each row, and in each row the best that comes closer to each
   phrase. At the limit, complete hypotheses come before those that lack a phrase.

Which hypotheses are alive does not depend on `nbest` (only how long the search runs
does), so with `stop="best"` the best of `nbest` = 4 is the result of `nbest` = 1.

Diverse beam search (Vijayakumar et al. 2018, algorithm 1, with Hamming diversity)
divides the `beam` into `groups` of equal width that avoid each other's tokens. Each
group is a beam search of its own by the rules above, but for one thing:

6. The groups advance in turn within a step. Group g selects its extensions by
   log-probability minus `diversity` times the number of hypotheses that the groups
   before it have extended by the same token at this step, for the same sentence.
7. The penalty counts for this selection alone, as in the paper's equation of a group's
   choice. Log-probabilities of hypotheses stay those of the model, so scores compare
   between groups, and with those of a plain beam. (fairseq and Hugging Face keep the
   penalties of all steps in the sum that ranks hypotheses later.)
8. Each group keeps as many finished hypotheses as it is wide, and stops by the rules of
   a plain beam that returns so many. A group that has stopped selects nothing, so it
   penalises later groups no more.
9. The result is the best `nbest` of all groups, by score without penalty; of equal ones
   that of the earlier group is first. A hypothesis that several groups contain takes
   one place; its copies fill places only if there are too few different ones.

So the first group is the plain beam search of its width, and one group is plain beam
search. With a diversity of 0 all groups are equal.
"""

import dataclasses
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.search.algorithm import (
    Algorithm,
    Hypotheses,
    Step,
    best_extensions,
    check_arguments,
    check_cache,
    check_logits,
    inverse_penalties,
    moved,
    take_rows,
    top_k,
    where_rows,
)
from t2t_jax.search.rules import Rules, advance_states, missing, start_states

STOPS = ("best", "first")
# Parents (beam rows), tokens and log-probabilities, each [batch, beam].
Selected = tuple[Array, Array, Array]
Tree = TypeVar("Tree")


class Sentences(NamedTuple):
    """The search's knowledge of each group of a sentence; frozen once it has stopped.

    A beam row whose log_prob is -inf holds no hypothesis; its tokens are meaningless.
    """

    tokens_bnt: Array  # the alive hypotheses; PAD where nothing is written yet
    token_bn: Array  # their last tokens: the next step's input
    log_prob_bn: Array
    state_bnc: Array  # progress of each phrase of the rules; no column without rules
    finished: Hypotheses
    stopped_b: Array


class BeamState(NamedTuple):
    """A search in progress.

    All leaves have leading axis [batch]; rows may be mixed with those of another state
    at the same position.
    """

    cache: Any  # leaves [batch, beam, ...], group by group
    limit_b: Array  # int32, the longest output of each sentence
    sentences: Sentences  # leaves [batch, groups, ...]

    @property
    def stopped_b(self) -> Array:
        """Sentences whose result is final: all groups have stopped."""
        return jnp.all(self.sentences.stopped_b, axis=1)

    def stop(self, rows_b: Array) -> "BeamState":
        """Stops the search of some sentences."""
        stopped_b = self.sentences.stopped_b | rows_b[:, None]
        return self._replace(sentences=self.sentences._replace(stopped_b=stopped_b))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearch(Algorithm):
    """Beam search; arguments as for `beam_search`, unchecked.

    Inside, each group of a sentence is a row of its own: row b * groups + g. Only the
    cache, which `step` knows, has the shape of the sentences.
    """

    beam: int  # hypotheses of all groups together, divisible by `groups`
    nbest: int
    stop: str
    groups: int = 1  # 1 is the plain beam
    # Strength of the penalty, lambda in the paper of diverse beam search; at least 0.
    diversity: float = 0.0

    @property
    def rows(self) -> int:
        """The number of hypotheses of each sentence that a step extends."""
        return self.beam

    @property
    def width(self) -> int:
        """The number of hypotheses of a group."""
        return self.beam // self.groups

    def start(self, cache, limit_b, rules=None, rng_b=None, *, max_length) -> BeamState:
        """Returns a state with one empty hypothesis in the first row of every group."""
        batch, width = limit_b.shape[0] * self.groups, self.width
        places = self.nbest if self.groups == 1 else width  # finished ones, by rule 8
        # Only one row: equal hypotheses would fill the beam with equal extensions.
        log_prob_n = jnp.where(jnp.arange(width) == 0, 0.0, -jnp.inf)
        log_prob_n = log_prob_n.astype(jnp.float32)
        no_score_bn = jnp.full((batch, places), -jnp.inf, jnp.float32)
        sentences = Sentences(
            tokens_bnt=jnp.full((batch, width, max_length), self.pad, jnp.int32),
            token_bn=jnp.full((batch, width), self.bos, jnp.int32),
            log_prob_bn=jnp.broadcast_to(log_prob_n, (batch, width)),
            state_bnc=start_states(self._rules_of_groups(rules), batch, width),
            finished=Hypotheses.blank(no_score_bn, max_length, self.pad),
            stopped_b=jnp.zeros(batch, bool),
        )
        limit_b = jnp.clip(limit_b, 1, max_length)
        return BeamState(cache, limit_b, self._by_sentence(sentences))

    def extend(self, step, state, position, rules) -> BeamState:
        """Extends every alive hypothesis by one token."""
        sentences = self._by_group(state.sentences)
        limit_b, rules = self._repeat(state.limit_b), self._rules_of_groups(rules)
        # The caches of stopped sentences change too, but nothing reads them again.
        cache, extended = self._step(
            step, state.cache, sentences, position, limit_b, rules
        )
        extended = where_rows(sentences.stopped_b, sentences, extended)
        return BeamState(cache, state.limit_b, self._by_sentence(extended))

    def _step(
        self,
        step: Step,
        cache: Any,
        sentences: Sentences,
        position: Array,
        limit_b: Array,
        rules: Rules | None,
    ) -> tuple[Any, Sentences]:
        """The cache, and each group as if none had stopped before."""
        max_length = sentences.tokens_bnt.shape[2]
        inverse_t = inverse_penalties(max_length, self)
        token_bm = sentences.token_bn.reshape(-1, self.beam)
        logits_bmv, cache = step(cache, token_bm, position)
        check_logits(logits_bmv, token_bm.shape, self.bos, self.eos, self.pad)
        logits_bnv = logits_bmv.reshape(-1, self.width, logits_bmv.shape[2])
        history = sentences.tokens_bnt, position, rules, sentences.state_bnc
        logits_bnv = self.unrepeated(logits_bnv, *history)
        if self.groups == 1 and rules is None:
            log_prob_bn, place_bn = best_extensions(
                logits_bnv, sentences.log_prob_bn, self.beam, self.banned
            )
            vocabulary = logits_bnv.shape[2]
            # Not // and %, which XLA makes of ten operations for negative numbers.
            parent_bn = jax.lax.div(place_bn, vocabulary)
            token_bn = jax.lax.rem(place_bn, vocabulary)
        else:
            next_bnv = self.next_log_probs(
                logits_bnv,
                sentences.log_prob_bn,
                sentences.state_bnc,
                position,
                limit_b,
                rules,
            )
            parent_bn, token_bn, log_prob_bn = self._select(next_bnv, sentences, rules)
        cache = self._move_cache(cache, parent_bn)
        tokens_bnt = take_rows(sentences.tokens_bnt, parent_bn)
        tokens_bnt = tokens_bnt.at[:, :, position].set(token_bn)
        state_bnc = take_rows(sentences.state_bnc, parent_bn)
        if rules is not None:
            state_bnc = advance_states(rules, state_bnc, token_bn)
        length = position + 1

        ended_bn = (token_bn == self.eos) & (log_prob_bn != -jnp.inf)
        ended = Hypotheses(
            tokens_bnt=tokens_bnt,
            score_bn=jnp.where(ended_bn, log_prob_bn * inverse_t[length], -jnp.inf),
            log_prob_bn=log_prob_bn,
            length_bn=jnp.full_like(token_bn, length),
            ended_bn=ended_bn,
        )
        finished = best_finished(sentences.finished, ended)
        log_prob_bn = jnp.where(ended_bn, -jnp.inf, log_prob_bn)
        # The best score that alive hypotheses can still reach: log-probabilities only
        # fall, and the penalty that divides them is largest at the limit. The bound is
        # -inf if none is alive; the score compared is -inf if fewer than nbest have
        # finished.
        bound_b = jnp.max(log_prob_bn, axis=1) * inverse_t[limit_b]
        stopped_b = (bound_b <= finished.score_bn[:, -1]) | (length >= limit_b)
        if self.stop == "first":
            stopped_b |= finished.ended_bn[:, -1]
        return cache, Sentences(
            tokens_bnt, token_bn, log_prob_bn, state_bnc, finished, stopped_b
        )

    def _select(
        self, next_bnv: Array, sentences: Sentences, rules: Rules | None
    ) -> Selected:
        """Selects the extensions that survive, group after group (rule 6)."""
        vocabulary = next_bnv.shape[2]
        next_bgnv, state_bgnc, running_bg = self._by_sentence(
            (next_bnv, sentences.state_bnc, ~sentences.stopped_b)
        )
        used_bv = jnp.zeros((next_bgnv.shape[0], vocabulary), jnp.float32)
        selected = []
        for group in range(self.groups):
            next_bnv = next_bgnv[:, group]
            scores_bnv = next_bnv - self.diversity * used_bv[:, None]
            parent_bn, token_bn, score_bn = select(
                scores_bnv, rules, state_bgnc[:, group]
            )
            place_bn = parent_bn * vocabulary + token_bn
            log_prob_bn = take_rows(next_bnv.reshape(next_bnv.shape[0], -1), place_bn)
            # Where too few extensions exist, a place has none, or one a second time.
            log_prob_bn = jnp.where(score_bn == -jnp.inf, -jnp.inf, log_prob_bn)
            selected.append((parent_bn, token_bn, log_prob_bn))
            extended_bn = running_bg[:, group, None] & (score_bn != -jnp.inf)
            rows_b1 = jnp.arange(token_bn.shape[0])[:, None]
            used_bv = used_bv.at[rows_b1, token_bn].add(extended_bn)
        return tuple(
            jnp.stack(group_parts, axis=1).reshape(-1, self.width)
            for group_parts in zip(*selected, strict=True)
        )

    def _move_cache(self, cache: Any, parent_bn: Array) -> Any:
        """Moves the rows of the cache with their hypotheses, within their groups."""
        if self.width == 1:
            return cache  # the only row of a group is its own parent
        first_g1 = np.arange(self.groups)[:, None] * self.width
        parent_bgn = self._by_sentence(parent_bn) + first_g1
        return moved(cache, parent_bgn.reshape(-1, self.beam))

    def result(self, state, rules=None) -> Hypotheses:
        """Returns the finished hypotheses, and unended ones in the places left."""
        batch, results = state.limit_b.shape[0], self._results_of_groups(state, rules)
        if self.groups == 1:
            return results[0]  # in order, and all different
        every, rank_bm = jax.tree.map(
            lambda leaf: leaf.reshape(batch, -1, *leaf.shape[2:]), results
        )
        # The best hypotheses of all groups (rule 9).
        # `lexsort` sorts by its last key first, and is stable.
        order_bm = jnp.lexsort((-every.score_bn, rank_bm), axis=1)
        every, rank_bm = jax.tree.map(
            lambda leaf: take_rows(leaf, order_bm), (every, rank_bm)
        )
        tokens_bmt = every.tokens_bnt
        equal_bmm = jnp.all(tokens_bmt[:, :, None] == tokens_bmt[:, None], axis=3)
        earlier_mm = np.tri(rank_bm.shape[1], k=-1, dtype=bool)  # [m, those before m]
        copy_bm = jnp.any(equal_bmm & earlier_mm, axis=2)
        # 0: the first of its kind; 1: a copy; 2: no hypothesis.
        class_bm = jnp.where(rank_bm == 3, 2, copy_bm.astype(jnp.int32))
        best_bn = jnp.argsort(class_bm, axis=1, stable=True)[:, : self.nbest]
        # A copy comes right after its twin, so that scores stay in order.
        best_bn = jnp.sort(best_bn, axis=1)
        return jax.tree.map(lambda leaf: take_rows(leaf, best_bn), every)

    def _results_of_groups(
        self, state: BeamState, rules: Rules | None
    ) -> tuple[Hypotheses, Array]:
        """The hypotheses of each group, a row each, and the ranks of `fill_places`."""
        sentences = self._by_group(state.sentences)
        limit_b, rules = self._repeat(state.limit_b), self._rules_of_groups(rules)
        finished, log_prob_bn = sentences.finished, sentences.log_prob_bn
        max_length = sentences.tokens_bnt.shape[2]
        inverse_t = inverse_penalties(max_length, self)
        lacks_bn = jnp.zeros(log_prob_bn.shape, bool)
        # A state that refuses EOS lacks a required phrase. (`allowed` keeps hypotheses
        # from reaching the limit in a state in which EOS completes a forbidden one.)
        if rules is not None:
            lacks_bn = jnp.any(rules.refused_sv[sentences.state_bnc, self.eos], axis=2)
        unended = Hypotheses(
            tokens_bnt=sentences.tokens_bnt,
            score_bn=log_prob_bn * inverse_t[limit_b][:, None],
            log_prob_bn=log_prob_bn,
            length_bn=jnp.broadcast_to(limit_b[:, None], log_prob_bn.shape),
            ended_bn=jnp.zeros(log_prob_bn.shape, bool),
        )
        # A sentence that stopped before its limit may have alive hypotheses too, but
        # then ended ones take all its places.
        return fill_places(finished, unended, lacks_bn)

    # ---------------------------------------------------------------- rows of groups

    def _by_sentence(self, tree: Tree) -> Tree:
        """Reshapes leaves [batch groups, ...] to [batch, groups, ...]."""
        # Not -1, undefined for arrays without elements (states of no phrase).
        return jax.tree.map(
            lambda leaf: leaf.reshape(
                leaf.shape[0] // self.groups, self.groups, *leaf.shape[1:]
            ),
            tree,
        )

    def _by_group(self, tree: Tree) -> Tree:
        """Reshapes leaves [batch, groups, ...] to [batch groups, ...]."""
        return jax.tree.map(
            lambda leaf: leaf.reshape(leaf.shape[0] * self.groups, *leaf.shape[2:]),
            tree,
        )

    def _repeat(self, x_b: Array) -> Array:
        """Repeats each sentence's row for its groups."""
        return jnp.repeat(x_b, self.groups, axis=0)

    def _rules_of_groups(self, rules: Rules | None) -> Rules | None:
        """The rules of all groups; their tables of states are shared."""
        return rules and rules._replace(
            prefix_bt=self._repeat(rules.prefix_bt),
            start_bc=self._repeat(rules.start_bc),
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
    penalty: str = "gnmt",
    stop: str = "best",
    rules: Rules | None = None,
    bos: int,
    eos: int,
    pad: int,
) -> Hypotheses:
    """Finds the `nbest` best outputs of every sentence (section 6.1).

    Args:
      step: `step(cache, token_bn, position) -> (logits_bnv, cache)`, one decoder step
        for every alive hypothesis. `position` is a scalar int32; at 0 the input is BOS.
        Logits may be of any float type; their log-softmax is taken in float32.
      cache: a pytree whose leaves all have leading axes [batch, beam]; rows of axis 1
        move with their hypotheses. Parts with a method `moved(parent_bn)` move
        themselves. Whatever all hypotheses of a sentence share (the encoder's output)
        belongs in `step`'s closure, not here. Rows without a hypothesis, and sentences
        that have stopped, still pass through `step`; the outcome is ignored.
      limit_b: int32 [batch], the longest output of each sentence in tokens, EOS
        included. Values outside 1..max_length are clipped to it.
      max_length: the width of the token arrays, static.
      beam: hypotheses to keep at each step, static; may exceed the vocabulary.
      nbest: hypotheses to return, static, at most `beam`.
      alpha: exponent of the length penalty, static, at least 0.
      penalty: a name in `PENALTIES`, static.
      stop: static; `best` searches while a better hypothesis is possible, `first` ends
        with the first `nbest` ended ones.
      rules: constraints on the outputs; None for none.
      bos: token id of the first input; never generated.
      eos: token id that ends a hypothesis.
      pad: token id that fills the result after the end; never generated.

    Returns:
      Hypotheses of [batch, nbest]. The probability of BOS and PAD is not redistributed
      to the other tokens, so log_prob equals the score of forcing the same output.

    Raises:
      ValueError: an argument is out of its range, or the shapes of `cache`, `limit_b`
        or the logits do not fit.
    """
    limit_b = jnp.asarray(limit_b, jnp.int32)
    check_arguments(limit_b, max_length, beam, alpha, penalty, bos, eos, pad)
    check_cache(cache, len(limit_b), beam)
    if not 1 <= nbest <= beam:
        raise ValueError(
            f"nbest is {nbest} and beam is {beam}; nbest must be between 1 and beam: "
            "widen the beam, or ask for fewer hypotheses."
        )
    if stop not in STOPS:
        raise ValueError(f"stop is {stop!r}; it must be one of {', '.join(STOPS)}.")
    rules = jax.tree.map(jnp.asarray, rules)
    algorithm = BeamSearch(
        beam=beam,
        nbest=nbest,
        alpha=alpha,
        penalty=penalty,
        stop=stop,
        bos=bos,
        eos=eos,
        pad=pad,
    )
    state = algorithm.start(cache, limit_b, rules, max_length=max_length)
    state = algorithm.advance(step, state, 0, max_length, rules)
    return algorithm.result(state, rules)


def select(next_bnv: Array, rules: Rules | None, state_bnc: Array) -> Selected:
    """Selects the extensions that survive a step, best first.

    If fewer than `beam` extensions exist, the log_prob of the others is -inf.

    Args:
      next_bnv: float32, the score of each extension; -inf for what must not come.
    """
    batch, beam, vocabulary = next_bnv.shape
    # Flat places rank rows before tokens, so `top_k` breaks ties by row, then by token.
    log_prob_bn, place_bn = top_k(next_bnv.reshape(batch, -1), beam)
    best = place_bn // vocabulary, place_bn % vocabulary, log_prob_bn
    if rules is None or not rules.closer_sv.shape[0]:  # no phrase is required
        return best
    return select_by_missing(next_bnv, best, rules, state_bnc)


def select_by_missing(
    next_bnv: Array, best: Selected, rules: Rules, state_bnc: Array
) -> Selected:
    """Returns the extensions that survive where phrases are required (rule 5).

    Equals `best` for sentences without required phrases. Suffix m: candidates.
    """
    batch, beam, vocabulary = next_bnv.shape
    parent_bn, token_bn, log_prob_bn = best
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

    def pairs(test, x_bm, *arguments):
        return test(x_bm[:, :, None], x_bm[:, None, :], *arguments)

    place_bm = parent_bm * vocabulary + token_bm
    dead_bm = log_prob_bm == -jnp.inf
    # The same extension may be a candidate several times; only the first one counts.
    earlier_bmm = earlier_mm & ~dead_bm[:, None, :]
    duplicate_bm = jnp.any(pairs(jnp.equal, place_bm) & earlier_bmm, axis=2)
    log_prob_bm = jnp.where(duplicate_bm, -jnp.inf, log_prob_bm)
    after_bmc = advance_states(rules, take_rows(state_bnc, parent_bm), token_bm)
    missing_bm = missing(rules, after_bmc)
    # A candidate's rank in its group: the number of better ones that lack as much.
    better_bmm = pairs(jnp.less, log_prob_bm) | (
        pairs(jnp.equal, log_prob_bm) & earlier_mm
    )
    rank_bm = jnp.sum(better_bmm & pairs(jnp.equal, missing_bm), axis=2)
    dead_bm = log_prob_bm == -jnp.inf
    # `lexsort` sorts by its last key first: existing before dead, then the best of each
    # group, then the second best, ..., and groups that lack least first.
    order_bm = jnp.lexsort((missing_bm, rank_bm, dead_bm), axis=1)
    selected_bn = order_bm[:, :beam]
    # Rows of the beam are in the order of log-probability, as `top_k` returns them.
    better_bn = jnp.argsort(-take_rows(log_prob_bm, selected_bn), axis=1, stable=True)
    selected_bn = take_rows(selected_bn, better_bn)
    return tuple(take_rows(x, selected_bn) for x in (parent_bm, token_bm, log_prob_bm))


def best_finished(finished: Hypotheses, ended: Hypotheses) -> Hypotheses:
    """Returns the best of both by score, as many as `finished` has, which wins ties."""
    joint = jax.tree.map(
        lambda *leaves: jnp.concatenate(leaves, axis=1), finished, ended
    )
    _, best_bn = jax.lax.top_k(joint.score_bn, finished.score_bn.shape[1])
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
