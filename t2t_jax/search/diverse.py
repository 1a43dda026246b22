"""Diverse beam search: groups of hypotheses that avoid each other's tokens.

Vijayakumar et al. 2018, "Diverse Beam Search", algorithm 1, with Hamming diversity. The
`beam` is divided into `groups` of equal width. Each group is a beam search of its own
(`search/beam.py`), but for one thing:

1. The groups advance in turn within a step. Group g chooses its extensions by
   log-probability minus `diversity` times the number of hypotheses that the groups
   before it have extended by the same token at this step, for the same sentence.
2. The penalty counts for this choice alone, as in the paper's equation of a group's
   choice. Log-probabilities of hypotheses stay those of the model, so scores compare
   between groups, and with those of a plain beam. (fairseq and Hugging Face keep the
   penalties of all steps in the sum that ranks hypotheses later.)
3. Each group keeps as many finished hypotheses as it is wide, and stops by the rules of
   a plain beam that returns so many. A group that has stopped chooses nothing, so it
   penalises later groups no more.
4. The result is the best `nbest` of all groups, by score without penalty; of equal ones
   that of the earlier group is first. A hypothesis that several groups have found takes
   one place; its copies fill places only if too few different ones were found.

So the first group is the plain beam search of its width, and one group is plain beam
search. With a diversity of 0 all groups are equal. Suffixes: as in `search/beam.py`,
and g groups, m all hypotheses of a sentence.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.search.algorithm import Hypotheses, Step, moved, take_rows
from t2t_jax.search.beam import BeamSearch, Selected, Sentences, select
from t2t_jax.search.beam import State as BeamState
from t2t_jax.search.rules import Rules


class State(NamedTuple):
    """A search in progress.

    Attributes:
      cache: leaves [batch, beam, ...], group by group.
      limit_b: int32, the longest output of each sentence.
      groups: the beam search of each group; leaves [batch, groups, ...].
    """

    cache: Any
    limit_b: Array
    groups: Sentences

    @property
    def stopped_b(self) -> Array:
        """Sentences whose result is final: all groups have stopped."""
        return jnp.all(self.groups.stopped_b, axis=1)


@dataclasses.dataclass(frozen=True)
class DiverseBeamSearch:
    """The `Algorithm` of diverse beam search; arguments are not checked.

    Attributes:
      beam: hypotheses of all groups together, divisible by `groups`.
      diversity: strength of the penalty, lambda in the paper; at least 0.
      others: as for `beam_search`.
    """

    beam: int
    nbest: int
    groups: int
    diversity: float
    alpha: float
    penalty: str
    stop: str
    bos: int
    eos: int
    pad: int
    never: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """The number of hypotheses of each sentence that a step extends."""
        return self.beam

    @property
    def _search(self) -> "_Groups":
        """The search of all groups; each group is one of its sentences."""
        width = self.beam // self.groups
        return _Groups(
            *(width, width, self.alpha, self.penalty, self.stop),
            *(self.bos, self.eos, self.pad, self.never),
            groups=self.groups,
            diversity=self.diversity,
        )

    def start(
        self,
        cache: Any,
        limit_b: Array,
        rules: Rules | None = None,
        rng_b: Array | None = None,
        *,
        max_length: int,
    ) -> State:
        """Returns a state with one empty hypothesis in the first row of every group."""
        limits, rules = self._of_groups(limit_b), self._rules(rules)
        state = self._search.start(None, limits, rules, max_length=max_length)
        limit_b = jnp.clip(limit_b, 1, max_length)
        return State(cache, limit_b, self._by_sentence(state.sentences))

    def advance(
        self,
        step: Step,
        state: State,
        position: Array | int,
        until: Array | int,
        rules: Rules | None = None,
        present_b: Array | None = None,
    ) -> State:
        """Searches from `position` to `until`, or until all sentences have stopped."""
        shape = state.limit_b.shape[0], self.beam

        def step_groups(cache, token_bn, position):
            logits_bnv, cache = step(cache, token_bn.reshape(shape), position)
            return logits_bnv.reshape(*token_bn.shape, -1), cache

        after = self._search.advance(
            step_groups,
            self._beam_state(state),
            position,
            until,
            self._rules(rules),
            None if present_b is None else self._of_groups(present_b),
        )
        return State(after.cache, state.limit_b, self._by_sentence(after.sentences))

    def result(self, state: State, rules: Rules | None = None) -> Hypotheses:
        """Returns the best hypotheses of all groups (item 4 above).

        Undefined for sentences that have not stopped.
        """
        of_groups = self._search.ranked_result(
            self._beam_state(state), self._rules(rules)
        )
        batch = state.limit_b.shape[0]
        found, rank_bm = jax.tree.map(
            lambda leaf: leaf.reshape(batch, self.beam, *leaf.shape[2:]), of_groups
        )
        # `lexsort` sorts by its last key first, and is stable.
        order_bm = jnp.lexsort((-found.score_bn, rank_bm), axis=1)
        found, rank_bm = jax.tree.map(
            lambda leaf: take_rows(leaf, order_bm), (found, rank_bm)
        )
        tokens_bmt = found.tokens_bnt
        equal_bmm = jnp.all(tokens_bmt[:, :, None] == tokens_bmt[:, None], axis=3)
        earlier_mm = np.tri(self.beam, k=-1, dtype=bool)  # [m, those before m]
        copy_bm = jnp.any(equal_bmm & earlier_mm, axis=2)
        # 0: the first of its kind; 1: a copy; 2: no hypothesis.
        class_bm = jnp.where(rank_bm == 3, 2, copy_bm.astype(jnp.int32))
        chosen_bn = jnp.argsort(class_bm, axis=1, stable=True)[:, : self.nbest]
        # A copy comes right after its twin, so that scores stay in order.
        chosen_bn = jnp.sort(chosen_bn, axis=1)
        return jax.tree.map(lambda leaf: take_rows(leaf, chosen_bn), found)

    def _of_groups(self, x_b: Array) -> Array:
        """Repeats each sentence's row for its groups."""
        return jnp.repeat(jnp.asarray(x_b), self.groups, axis=0)

    def _rules(self, rules: Rules | None) -> Rules | None:
        """The rules of all groups; their tables of states are shared."""
        return rules and rules._replace(
            prefix_bt=self._of_groups(rules.prefix_bt),
            start_bc=self._of_groups(rules.start_bc),
        )

    def _by_sentence(self, groups: Sentences) -> Sentences:
        return jax.tree.map(lambda leaf: _split(leaf, self.groups), groups)

    def _beam_state(self, state: State) -> BeamState:
        """The state of `_search`: each group is a row."""
        rows = len(state.limit_b) * self.groups
        groups = jax.tree.map(
            lambda leaf: leaf.reshape(rows, *leaf.shape[2:]), state.groups
        )
        return BeamState(state.cache, self._of_groups(state.limit_b), groups)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Groups(BeamSearch):
    """A beam search whose row b * groups + g is group g of sentence b.

    Only its cache has the shape of the sentences, [batch, groups * beam, ...].
    """

    groups: int
    diversity: float

    def _select(
        self, next_bnv: Array, before: Sentences, rules: Rules | None
    ) -> Selected:
        """Selects the extensions of one group after the other."""
        vocabulary = next_bnv.shape[2]
        next_bgnv, state_bgnc, running_bg = (
            _split(leaf, self.groups)
            for leaf in (next_bnv, before.state_bnc, ~before.stopped_b)
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
            flat_bv = next_bnv.reshape(len(next_bnv), -1)
            log_prob_bn = take_rows(flat_bv, place_bn)
            selected.append((parent_bn, token_bn, log_prob_bn))
            chosen_bn = running_bg[:, group, None] & (score_bn != -jnp.inf)
            rows_b1 = jnp.arange(len(token_bn))[:, None]
            used_bv = used_bv.at[rows_b1, token_bn].add(chosen_bn)
        return tuple(
            jnp.stack(of_groups, axis=1).reshape(-1, self.beam)
            for of_groups in zip(*selected, strict=True)
        )

    def _moved(self, cache: Any, parent_bn: Array) -> Any:
        """Moves the rows of the cache within their groups."""
        if self.beam == 1:
            return cache
        parent_bgn = parent_bn.reshape(-1, self.groups, self.beam)
        first_g1 = np.arange(self.groups)[:, None] * self.beam
        return moved(cache, (parent_bgn + first_g1).reshape(len(parent_bgn), -1))


def _split(leaf: Array, groups: int) -> Array:
    """Reshapes [batch * groups, ...] to [batch, groups, ...]."""
    # Not -1, which is undefined for arrays without elements (states of no phrase).
    return leaf.reshape(len(leaf) // groups, groups, *leaf.shape[1:])
