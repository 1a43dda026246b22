"""The traced search is the search, and the tree says what happened in it."""

import functools
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


def traced(model, line=LINE, beam=4, nbest=2, stop=None, must=(), must_not=()):
    vocabulary, decode = model.vocabulary, model.config.decode
    options = {"beam": beam, "nbest": nbest, "stop": stop}
    algorithm = beam_search_algorithm(
        decode.override(beam=beam, stop=stop), vocabulary, nbest
    )
    (constraints,) = constraints_for(1, vocabulary, model.phrases, None, must, must_not)
    source = model.reader(1, False).sources([line])[0].ids
    search = model._search(algorithm)
    explained = Explained(model.members, vocabulary, model.phrases, search)
    steps = trace_search(explained, source, constraints)
    limit = longest_output(len(source), decode)
    wanted = model.translate([line], **options, must=must, must_not=must_not)[0]
    return [*steps], algorithm, limit, wanted


def tree_of(model, reference=None, **options):
    steps, algorithm, limit, wanted = traced(model, **options)
    tree = build_tree(
        steps,
        algorithm,
        model.vocabulary,
        limit,
        bool(options.get("must")),
        reference,
    )
    return tree, steps, wanted


WIDE = {"beam": 4, "nbest": 2}  # one algorithm, so that programs are compiled once
OPTIONS = {
    "greedy": {"beam": 1, "nbest": 1, "line": "a dog"},
    "beam": WIDE,
    "first": WIDE | {"stop": "first", "line": "a dog"},
    "must": WIDE | {"must": ["Hund sieht"], "line": "a dog"},
    "must not": {},
}


@pytest.fixture(scope="module", params=OPTIONS)
def searched(request):
    if request.param == "must not":
        return refusing()[1]
    return tree_of(translator(), **OPTIONS[request.param])


@functools.cache
def refusing():
    """A search, and one that must not find the same."""
    free = tree_of(translator(8))
    return free, tree_of(translator(8), must_not=[free[2].text])


def test_the_traced_search_is_the_search(searched):
    _, steps, wanted = searched
    result = steps[-1].result
    for n, hypothesis in enumerate(wanted.hypotheses):
        length = result.length_bn[n]
        assert tuple(result.tokens_bnt[n, :length].tolist()) == hypothesis.tokens
        assert float(result.score_bn[n]) == hypothesis.score
        assert float(result.log_prob_bn[n]) == hypothesis.log_prob
        assert bool(result.ended_bn[n]) == hypothesis.ended


def test_every_hypothesis_of_every_step_is_in_the_tree(searched):
    tree, steps, _ = searched
    for step in steps:
        rows = np.flatnonzero(step.after.log_prob_n > -np.inf)
        for row in rows:
            tokens = tuple(step.after.tokens_nt[row, : step.position + 1].tolist())
            node = tree.nodes[tokens]
            assert node.row is not None
            assert node.log_prob == step.after.log_prob_n[row]
            assert tokens[:-1] in tree.nodes


def test_fates_agree_with_the_tree(searched):
    tree, _, _ = searched
    with_children = {
        node.tokens[:-1]
        for node in tree.nodes.values()
        if node.row is not None and node.tokens
    }
    for node in tree.nodes.values():
        assert (node.fate == "alive") == (node.tokens in with_children)
        assert node.why or node.fate == "alive"
        if node.by is not None:
            taker = tree.nodes[node.by]
            assert taker.row is not None
            if node.fate == "outranked":
                better = taker.log_prob - node.log_prob
                assert better >= -1e-4 or node.row is not None
    assert {n.fate for n in tree.nodes.values()} & {"ended", "limit"}


def test_log_probabilities_beside_the_search_are_its_own(searched):
    """Extensions are computed by another program than those that are kept."""
    _, steps, _ = searched
    for before, after in itertools.pairwise(steps):
        for row, log_prob in enumerate(after.before.log_prob_n):
            if log_prob == -np.inf:
                continue
            *tokens, last = after.before.tokens_nt[row, : after.position].tolist()
            parents = before.before.tokens_nt[:, : before.position].tolist()
            alive = before.before.log_prob_n > -np.inf
            parent = next(n for n, p in enumerate(parents) if p == tokens and alive[n])
            beside = before.log_prob_nv[parent, last]
            np.testing.assert_allclose(beside, log_prob, rtol=1e-5)


def test_a_refused_word_is_forbidden():
    (free, _, wanted), (tree, _, other) = refusing()
    assert other.text != wanted.text
    forbidden = [n for n in tree.nodes.values() if n.fate == "forbidden"]
    assert forbidden
    assert "constraint" in forbidden[0].why
    assert not any(n.fate == "forbidden" for n in free.nodes.values())


def test_a_required_phrase_takes_places():
    tree, _, _ = tree_of(translator(), **OPTIONS["must"])
    taken = [n for n in tree.nodes.values() if n.fate == "phrase"]
    assert taken
    assert all(n.margin < 0 for n in taken if n.row is None)


def test_the_way_of_a_reference():
    model = translator()
    wanted = model.translate([LINE], **WIDE)[0]
    # The result itself is found.
    tree, _, _ = tree_of(model, wanted.best.tokens)
    score = judge_reference(tree, wanted.log_prob, wanted.score, model.vocabulary)
    assert tree.reference.verdict == "found"
    assert tree.reference.step is None
    np.testing.assert_allclose(score, wanted.score, rtol=1e-6)
    # Another text leaves the beam, and its node says so.
    ids = model.vocabulary.encode(["ein Hund"], end=True)[0]
    tree, _, _ = tree_of(model, ids)
    log_prob = model.score([(LINE, "ein Hund")])[0].log_prob
    judge_reference(tree, log_prob, wanted.score, model.vocabulary)
    reference = tree.reference
    assert reference.verdict == "model error"
    node = tree.nodes[reference.tokens[: reference.step]]
    assert node.row is None
    assert node.rank > 4
    assert node.fate == "outranked"
    judge_reference(tree, -0.001, wanted.score, model.vocabulary)
    assert reference.verdict == "search error"
