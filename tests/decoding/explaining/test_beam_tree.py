"""The traced search is the search, and its tree says what became of each hypothesis."""

import functools
import itertools

import numpy as np
import pytest

from t2t_jax.decoding.batches import longest_output
from t2t_jax.decoding.constraints import constraints_for
from t2t_jax.decoding.search_options import SearchRequest, beam_search_algorithm
from t2t_jax.decoding.translator import Translator
from t2t_jax.tools.explain.beam_tree import build_tree, judge_reference
from t2t_jax.tools.explain.trace import Explained, trace_search
from tests.decoding.small_translator import translator

LINE = "the cat sees the dog"
SIZES = {"beam": 4, "nbest": 2, "warn": False}
RULES = {"must": ["Hund sieht"], "must_not": ["Katze"], "line": "a dog"}


@functools.cache
def ending(seed=1):
    """A small model that ends some of its outputs, as other random ones do not."""
    small = translator(seed, output_bias=True)
    embedding = dict(small.parameters["embedding"])
    bias_v = embedding["output_bias"].at[small.vocabulary.eos].add(30)
    parameters = small.parameters | {"embedding": embedding | {"output_bias": bias_v}}
    return Translator(
        small.config, small.vocabulary, small.model, parameters, small.steps
    )


def tree_of(model, reference=None, line=LINE, stop=None, must=(), must_not=()):
    vocabulary, decode = model.vocabulary, model.config.decode
    algorithm = beam_search_algorithm(
        decode.override(beam=SIZES["beam"], stop=stop), vocabulary, SIZES["nbest"]
    )
    request = SearchRequest(must=must, must_not=must_not)
    (constraints,) = constraints_for(1, vocabulary, model.phrases, request)
    source = model.reader(1, False).sources([line])[0].ids
    search = model._search(algorithm)
    explained = Explained(model.members, vocabulary, model.phrases, search)
    steps = [*trace_search(explained, source, constraints)]
    limit = longest_output(len(source), decode)
    tree = build_tree(steps, algorithm, vocabulary, limit, bool(must), reference)
    return tree, steps


@pytest.mark.parametrize("options", [{"line": LINE}, RULES])
def test_the_traced_search_is_the_search_and_the_tree_has_all_of_it(options):
    (tree, steps), options = tree_of(ending(), **options), dict(options)
    (expected,) = ending().translate([options.pop("line")], **options, **SIZES)
    result = steps[-1].result
    for n, hypothesis in enumerate(expected.hypotheses):
        length = result.length_bn[n]
        assert tuple(result.tokens_bnt[n, :length].tolist()) == hypothesis.tokens
        assert float(result.score_bn[n]) == hypothesis.score
    for step in steps:
        for row in np.flatnonzero(step.after.log_prob_n > -np.inf):
            tokens = tuple(step.after.tokens_nt[row, : step.position + 1].tolist())
            assert tree.nodes[tokens].row is not None
            assert tree.nodes[tokens].log_prob == step.after.log_prob_n[row]
            assert tokens[:-1] in tree.nodes
    fates = {n.fate for n in tree.nodes.values()}
    assert fates & {"ended", "limit"}
    assert (fates >= {"phrase", "forbidden"}) == ("must" in options)


def test_the_way_of_a_reference():
    model = ending()
    (translation,) = model.translate([LINE], **SIZES)
    # The result itself is found.
    tree, _ = tree_of(model, translation.best.tokens)
    score = judge_reference(
        tree, translation.log_prob, translation.score, model.vocabulary
    )
    assert tree.reference.verdict == "found"
    np.testing.assert_allclose(score, translation.score, rtol=1e-6)
    # Another text leaves the beam, and its node says so.
    ids = model.vocabulary.encode(["ein Hund"], end=True)[0]
    tree, _ = tree_of(model, ids)
    log_prob = model.score([(LINE, "ein Hund")])[0].log_prob
    judge_reference(tree, log_prob, translation.score, model.vocabulary)
    reference = tree.reference
    assert reference.verdict == "model error"
    node = tree.nodes[reference.tokens[: reference.step]]
    assert node.fate == "outranked"
    judge_reference(tree, -0.001, translation.score, model.vocabulary)
    assert reference.verdict == "search error"


@pytest.mark.parametrize("stop", ["best", "first"])
def test_fates_follow_from_the_beam(stop):
    fates, eos = set(), ending().vocabulary.eos
    for seed, line in itertools.product((1, 2), (LINE, "a dog", "a cat sees")):
        tree, steps = tree_of(ending(seed), line=line, stop=stop)
        in_beam = [node for node in tree.nodes.values() if node.row is not None]
        with_children = {node.tokens[:-1] for node in in_beam if node.tokens}
        fates |= {node.fate for node in tree.nodes.values()}
        for node in tree.nodes.values():
            assert (node.fate == "alive") == (node.tokens in with_children)
            complete = node.tokens[-1:] == (eos,) and node.row is not None
            assert (node.fate in ("ended", "lost")) == complete
            assert (node.fate == "ended") == (complete and node.tokens in tree.finished)
            if node.fate == "outranked":
                taker, best = tree.nodes[node.by], node
                if node.row is not None:  # it dies as its best extension does
                    children = (
                        n for n in tree.nodes.values() if n.tokens[:-1] == node.tokens
                    )
                    best = max(children, key=lambda n: n.log_prob)
                gap = taker.log_prob - best.log_prob
                assert node.margin == pytest.approx(gap, abs=1e-4)
                assert taker.row == 3 < best.rank
            if node.fate == "lost":
                worst = tree.nodes[tree.finished[-1]]
                assert node.by == worst.tokens
                assert node.margin == pytest.approx(worst.score - node.score, abs=1e-6)
        assert tree.stop.step == len(steps)
    assert fates >= {"alive", "outranked", "ended", "lost", "limit", "stopped"}
