"""The traced search is the search, and its tree says what became of each hypothesis."""

import itertools

import numpy as np
import pytest

from t2t_jax.decoding.batches import longest_output
from t2t_jax.decoding.constraints import constraints_for
from t2t_jax.decoding.search_options import beam_search_algorithm
from t2t_jax.tools.explain.beam_tree import build_tree, judge_reference
from t2t_jax.tools.explain.trace import Explained, trace_search
from tests.decoding.small_translator import translator

LINE = "the cat sees the dog"


def tree_of(model, reference=None, line=LINE, stop=None, must=(), must_not=(), **sizes):
    vocabulary, decode = model.vocabulary, model.config.decode
    sizes = {"beam": 4, "nbest": 2} | sizes
    algorithm = beam_search_algorithm(
        decode.override(beam=sizes["beam"], stop=stop), vocabulary, sizes["nbest"]
    )
    (constraints,) = constraints_for(1, vocabulary, model.phrases, None, must, must_not)
    source = model.reader(1, False).sources([line])[0].ids
    search = model._search(algorithm)
    explained = Explained(model.members, vocabulary, model.phrases, search)
    steps = [*trace_search(explained, source, constraints)]
    limit = longest_output(len(source), decode)
    tree = build_tree(steps, algorithm, vocabulary, limit, bool(must), reference)
    options = sizes | {"stop": stop, "must": must, "must_not": must_not}
    return tree, steps, model.translate([line], **options)[0]


RULES = {"must": ["Hund sieht"], "must_not": ["Katze"], "line": "a dog"}


@pytest.mark.parametrize("options", [{"stop": "first"}, RULES])
def test_the_traced_search_is_the_search_and_the_tree_has_all_of_it(options):
    tree, steps, wanted = tree_of(translator(), **options)
    result = steps[-1].result
    for n, hypothesis in enumerate(wanted.hypotheses):
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
    model = translator()
    _, _, wanted = tree_of(model)
    # The result itself is found.
    tree, _, _ = tree_of(model, wanted.best.tokens)
    score = judge_reference(tree, wanted.log_prob, wanted.score, model.vocabulary)
    assert tree.reference.verdict == "found"
    np.testing.assert_allclose(score, wanted.score, rtol=1e-6)
    # Another text leaves the beam, and its node says so.
    ids = model.vocabulary.encode(["ein Hund"], end=True)[0]
    tree, _, _ = tree_of(model, ids)
    log_prob = model.score([(LINE, "ein Hund")])[0].log_prob
    judge_reference(tree, log_prob, wanted.score, model.vocabulary)
    reference = tree.reference
    assert reference.verdict == "model error"
    node = tree.nodes[reference.tokens[: reference.step]]
    assert node.fate == "outranked"
    judge_reference(tree, -0.001, wanted.score, model.vocabulary)
    assert reference.verdict == "search error"


@pytest.mark.parametrize("stop", ["best", "first"])
def test_fates_follow_from_the_beam(stop):
    fates, eos = set(), translator().vocabulary.eos
    lines = [LINE, "a dog", "the dog sleeps", "a cat sees", "sleeps the"]
    for seed, line in itertools.product(range(1, 4), lines):
        tree, steps, _ = tree_of(translator(seed), line=line, stop=stop)
        kept = [node for node in tree.nodes.values() if node.row is not None]
        with_children = {node.tokens[:-1] for node in kept if node.tokens}
        fates |= {node.fate for node in tree.nodes.values()}
        for node in tree.nodes.values():
            assert (node.fate == "alive") == (node.tokens in with_children)
            complete = node.tokens[-1:] == (eos,) and node.row is not None
            assert (node.fate in ("ended", "lost")) == complete
            assert (node.fate == "ended") == (complete and node.tokens in tree.finished)
            if node.fate == "outranked":
                taker, best = tree.nodes[node.by], node
                if node.row is not None:  # it dies as its best extension does
                    own = (
                        n for n in tree.nodes.values() if n.tokens[:-1] == node.tokens
                    )
                    best = max(own, key=lambda n: n.log_prob)
                gap = taker.log_prob - best.log_prob
                assert node.margin == pytest.approx(gap, abs=1e-4)
                assert taker.row == 3 < best.rank
            if node.fate == "lost":
                worst = tree.nodes[tree.finished[-1]]
                assert node.by == worst.tokens
                assert node.margin == pytest.approx(worst.score - node.score, abs=1e-6)
        assert tree.stop.step == len(steps)
    assert fates >= {"alive", "outranked", "ended", "lost", "limit", "stopped"}
