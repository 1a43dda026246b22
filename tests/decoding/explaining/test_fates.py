"""Fates of hypotheses in searches over a table of probabilities, without a model."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.search.algorithm import extensions
from t2t_jax.search.beam import BeamSearch
from t2t_jax.tools.explain.beam_tree import build_tree, judge_reference
from t2t_jax.tools.explain.trace import Beam, TracedStep

PAD, START, EOS = 0, 1, 2
PIECES = SimpleNamespace(piece="_^$abc".__getitem__)
LIMIT = 6


def searching(**options) -> BeamSearch:
    options = {"beam": 3, "nbest": 2, "alpha": 0.6, "stop": "best"} | options
    return BeamSearch(**options, penalty="gnmt", bos=START, eos=EOS, pad=PAD)


def step_by(logits_vv):
    return lambda cache, token_bn, position: (logits_vv[token_bn], cache)


@functools.partial(jax.jit, static_argnames="algorithm")
def start(algorithm):
    return algorithm.start({}, jnp.array([LIMIT]), max_length=LIMIT)


@functools.partial(jax.jit, static_argnames="algorithm")
def advance(algorithm, logits_vv, state, position):
    sentences = jax.tree.map(lambda leaf: leaf[:, 0], state.sentences)
    logits_bnv = logits_vv[sentences.token_bn]
    log_prob_bnv = extensions(logits_bnv, sentences.log_prob_bn, banned=())
    after = algorithm.advance(step_by(logits_vv), state, position, position + 1)
    return log_prob_bnv, after, algorithm.result(after)


def beam_of(state):
    kept = jax.tree.map(lambda leaf: np.asarray(leaf[0, 0]), state.sentences)
    return Beam(kept.tokens_bnt, kept.log_prob_bn, kept.finished, bool(kept.stopped_b))


def steps_of(algorithm, logits_vv):
    """The steps of a search whose next token depends on the last one alone."""
    state = start(algorithm)
    allowed_nv = np.ones((algorithm.beam, len(logits_vv)), bool)
    allowed_nv[:, [PAD, START]] = False
    for position in range(LIMIT):
        before = beam_of(state)
        log_prob_bnv, state, result = advance(algorithm, logits_vv, state, position)
        result = jax.tree.map(lambda leaf: np.asarray(leaf[0]), result)
        after, log_prob_nv = beam_of(state), np.asarray(log_prob_bnv[0])
        yield TracedStep(position, before, log_prob_nv, allowed_nv, after, result)
        if after.stopped:
            return


def random_logits(seed, eos):
    logits_vv = np.random.default_rng(seed).normal(size=(6, 6)) * 1.5
    logits_vv[:, EOS] += eos
    logits_vv[:, [PAD, START]] = -9
    return np.float32(logits_vv)


def tree_of(algorithm, logits_vv, reference=None):
    steps = [*steps_of(algorithm, logits_vv)]
    return build_tree(steps, algorithm, PIECES, LIMIT, reference=reference), steps


@pytest.mark.parametrize("stop", ["best", "first"])
def test_the_tree_of_random_searches(stop):
    algorithm, met = searching(stop=stop), set()
    for seed in range(30):
        tree, steps = tree_of(algorithm, random_logits(seed, eos=seed % 4 - 1.5))
        kept = [node for node in tree.nodes.values() if node.row is not None]
        with_children = {node.tokens[:-1] for node in kept if node.tokens}
        met |= {node.fate for node in tree.nodes.values()}
        for node in tree.nodes.values():
            assert (node.fate == "alive") == (node.tokens in with_children)
            complete = node.tokens[-1:] == (EOS,) and node.row is not None
            assert (node.fate in ("ended", "lost")) == complete
            assert (node.fate == "ended") == (complete and node.tokens in tree.finished)
            assert (node.fate == "limit") == (
                len(node.tokens) == LIMIT and node.row is not None and not complete
            )
            if node.row is not None and node.tokens:
                assert node.rank == node.row + 1  # no phrase is required
            if node.fate == "outranked":
                taker = tree.nodes[node.by]
                assert taker.row == 2
                best = node
                if node.row is not None:  # it dies as its best extension does
                    own = [
                        n for n in tree.nodes.values() if n.tokens[:-1] == node.tokens
                    ]
                    best = max(own, key=lambda n: n.log_prob)
                gap = taker.log_prob - best.log_prob
                assert node.margin == pytest.approx(gap, abs=1e-5)
                assert best.rank > 3
            if node.fate == "lost":
                worst = tree.nodes[tree.finished[-1]]
                assert node.by == worst.tokens
                assert node.margin == pytest.approx(worst.score - node.score, abs=1e-6)
                assert worst.score >= node.score
        assert tree.stop.step == len(steps)
        left = steps[-1].after.log_prob_n
        if stop == "first" and (left > -np.inf).any() and len(steps) < LIMIT:
            assert "stop=first" in tree.stop.why
    assert met >= {"alive", "outranked", "ended", "lost", "limit", "stopped"}


def test_a_reference_that_was_completed_is_not_lost_by_the_search():
    algorithm, logits_vv = searching(), random_logits(1, eos=1.5)
    tree, _ = tree_of(algorithm, logits_vv)
    best, second = (tree.nodes[tokens] for tokens in tree.finished)
    lost = next(node for node in tree.nodes.values() if node.fate == "lost")
    for node, why in ((second, "number 2 of 2"), (lost, "below the worst of the 2")):
        found, _ = tree_of(algorithm, logits_vv, node.tokens)
        judge_reference(found, node.log_prob, best.score, PIECES)
        assert found.reference.step is None
        assert found.reference.verdict == "model error"
        assert found.reference.why.startswith("Complete")
        assert why in found.reference.why
    never = (PAD, EOS)
    found, _ = tree_of(algorithm, logits_vv, never)
    judge_reference(found, -99.0, best.score, PIECES)
    assert found.reference.step == 1
    assert "which is refused" in found.reference.why
    assert "never generates" in found.nodes[never[:1]].why
