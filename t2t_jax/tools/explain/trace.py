"""Runs a beam search one step at a time and keeps its arrays after each step.

The programs are those of every search (`decoding/programs.py`), with the same shapes
and the same sizes of caches; only `until` differs, which is an argument and not a
shape. So a traced search is the untraced one, bit for bit.

Shape suffixes: b batch, n beam rows, t target, v vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.config import DecodeConfig
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.batch_decoding import STRIDE, block_of, room_for, rules_of
from t2t_jax.decoding.batches import groups, longest_output, place_blocks
from t2t_jax.decoding.constraints import Constraints, Phrases
from t2t_jax.decoding.inputs import Member, Source
from t2t_jax.decoding.programs import (
    Search,
    SearchState,
    ensemble_step,
    grow_caches,
    program,
)
from t2t_jax.search.algorithm import Hypotheses, extensions
from t2t_jax.search.beam import BeamSearch, Sentences
from t2t_jax.search.rules import Rules, allowed


class Explained(NamedTuple):
    """The models and the beam search that are explained."""

    members: Sequence[Member]
    vocabulary: Vocabulary
    phrases: Phrases
    search: Search

    @property
    def decode(self) -> DecodeConfig:
        """The config of the search."""
        return self.members[0].config.decode


class Beam(NamedTuple):
    """The search's arrays for one sentence.

    Attributes:
      tokens_nt: int32, the alive hypotheses.
      log_prob_n: float32; -inf in rows without an alive hypothesis.
      finished: the ended hypotheses that are kept; leaves [nbest, ...].
      stopped: True if the search has ended.
    """

    tokens_nt: np.ndarray
    log_prob_n: np.ndarray
    finished: Hypotheses
    stopped: bool


class TracedStep(NamedTuple):
    """One step of the search.

    Attributes:
      position: the length of the hypotheses of `before`, in tokens.
      before, after: the beam on both sides of the step.
      log_prob_nv: float32, the log-probability of each hypothesis of `before` extended
        by each token, refused ones included; -inf in rows without a hypothesis.
      allowed_nv: bool, the extensions that are not refused.
      result: the search's result, leaves [nbest, ...], if it stopped after this step.
    """

    position: int
    before: Beam
    log_prob_nv: np.ndarray
    allowed_nv: np.ndarray
    after: Beam
    result: Hypotheses | None


@program("definitions", "algorithm", common=2)
def all_extensions(
    parameters,
    position: Array,
    state: SearchState,
    rules: Rules | None,
    *,
    definitions,
    algorithm: BeamSearch,
) -> tuple[Array, Array]:
    """Returns the log-probability of every extension [b, n, v], and which are allowed.

    Advances nothing.
    """
    step = ensemble_step(definitions, parameters, state.memories)
    sentences, eos = _only_group(state), algorithm.eos
    logits_bnv, _ = step(state.search.cache, sentences.token_bn, position)
    log_prob_bnv = extensions(logits_bnv, sentences.log_prob_bn, banned=())
    allowed_v = np.ones(logits_bnv.shape[2], bool)
    allowed_v[list(algorithm.banned)] = False
    allowed_bnv = jnp.broadcast_to(allowed_v, log_prob_bnv.shape)
    if rules is not None:
        allowed_bnv &= allowed(
            rules, sentences.state_bnc, position, state.search.limit_b, eos
        )
    return log_prob_bnv, allowed_bnv


def trace_search(
    model: Explained, source: Sequence[int], constraints: Constraints
) -> Iterator[TracedStep]:
    """Yields the steps of the search for a source with EOS.

    The shapes are those of `decode_batch`.
    """
    search, decode = model.search, model.decode
    group = groups([len(source)], decode, search.mesh.size)[0]
    rules = rules_of(group, model.phrases, [constraints], decode)
    block = block_of(group, [Source([*source], 0)], rules, decode)
    block = place_blocks(block, search.mesh)
    present_b = np.arange(group.shape[0]) == 0
    max_length = longest_output(group.bucket, decode)
    room = room_for(min(STRIDE, max_length), max_length)
    state = search.begin(block, room, max_length)
    before = _first_beam(state)
    for position in range(max_length):
        # Caches grow where those of an untraced search do: once in a stride.
        stride_end = min((position // STRIDE + 1) * STRIDE, max_length)
        if room < (room := room_for(stride_end, max_length)):
            state = grow_caches(state, room=room, mesh=search.mesh)
        log_prob_bnv, allowed_bnv = all_extensions(
            search.parameters,
            np.int32(position),
            state,
            block.rules,
            definitions=search.definitions,
            algorithm=search.algorithm,
            mesh=search.mesh,
        )
        extended = _first_row((log_prob_bnv, allowed_bnv))
        # Donates `state`, whose arrays have been read by now.
        state, _, result = search.advance(
            state, position, position + 1, present_b, block.rules
        )
        after = _first_beam(state)
        ended = _first_row(result) if after.stopped else None
        yield TracedStep(position, before, *extended, after, ended)
        if after.stopped:
            return
        before = after


def _first_row(arrays: Any) -> Any:
    """The first row of arrays [b, ...], where the traced sentence is."""
    return jax.device_get(jax.tree.map(lambda leaf: leaf[0], arrays))


def _first_beam(state: SearchState) -> Beam:
    row = _first_row(_only_group(state))
    return Beam(row.tokens_bnt, row.log_prob_bn, row.finished, bool(row.stopped_b))


def _only_group(state: SearchState) -> Sentences:
    """The sentences of a plain beam, which has one group; leaves [b, ...]."""
    return jax.tree.map(lambda leaf: leaf[:, 0], state.search.sentences)
