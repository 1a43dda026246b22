"""Searches that avoid repetitions, held against slow loops over tokens."""

import functools

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies

from t2t_jax.search.beam import BeamSearch
from t2t_jax.tools.verify.references.search import (
    BOS,
    EOS,
    MAX_LENGTH,
    PAD,
    SPECIAL,
    Options,
    as_hypotheses,
    smooth_table,
    table_cache,
    table_log_probs,
    table_step,
)
from tests.decoding.small_translator import TEXT
from tests.decoding.test_diverse import slow_diverse
from tests.decoding.test_rules import VOCABULARY, Wanted, as_rules, draw_wanted
from tests.decoding.test_search import (
    BATCH,
    assert_same,
    draw_rows,
    exact_table,
    examples,
    grids,
    seeds,
    slow_search,
)


@functools.partial(
    jax.jit, static_argnames=("beam", "groups", "no_repeat_ngram", "repetition_penalty")
)
def table_search(table, seed_b, limit_b, rules=None, beam=4, **options):
    """Searches by table, in two strides, as batches of lines are."""
    fields = Options(VOCABULARY, beam, min(beam, 3))._asdict() | SPECIAL
    fields |= {"diversity": 0.5, **options}
    del fields["vocabulary"]
    search, step = BeamSearch(**fields), table_step(table, seed_b)
    state = search.start(
        table_cache(BATCH, beam), limit_b, rules, max_length=MAX_LENGTH
    )
    for position, until in ((0, 3), (3, MAX_LENGTH)):
        state = search.advance(step, state, position, until, rules)
    return search.result(state, rules)


def repeated_ngrams(tokens, size):
    """The places at which an n-gram ends that is also earlier in the tokens."""
    grams = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
    return [i + size - 1 for i, gram in enumerate(grams) if gram in grams[:i]]


def without_repetitions(logits, wanted, no_repeat_ngram, penalty):
    """The logits of a model, changed token by token."""

    def changed(tokens):
        row = np.array(logits(tokens))
        if len(tokens) < len(wanted.prefix):
            return row
        for token in {*tokens}:
            row[token] *= penalty if row[token] < 0 else 1 / penalty
        before = wanted.distances(tokens)
        for token in range(len(row) if no_repeat_ngram else 0):
            longer = (*tokens, token)
            after = wanted.distances(longer)
            closer = any(np.less(after, before))
            if len(tokens) in repeated_ngrams(longer, no_repeat_ngram) and not closer:
                row[token] = -np.inf
        return row

    return changed


CASES = [(1, 1, 1.0, 1), (4, 2, 2.0, 2), (4, 3, 1.0, 1)]  # beam, size, penalty, groups


@examples(30)
@hypothesis.given(seeds, grids, strategies.sampled_from(CASES))
def test_search_is_its_twin_bit_by_bit(seed, grid, case):
    """PAD has all the probability, so that changed logits are log-probabilities."""
    beam, size, penalty, groups = case
    table, rows = exact_table(seed, VOCABULARY, grid), draw_rows(seed)
    options = {"no_repeat_ngram": size, "repetition_penalty": penalty}
    asked, free, ruled = Options(VOCABULARY, beam, min(beam, 3)), [], []
    wanted_b = draw_wanted(seed)
    for row, limit, wanted in zip(*rows, wanted_b, strict=True):
        model = table_log_probs(table, row, np.float32)
        changed = without_repetitions(model, Wanted(), size, np.float32(penalty))
        free.append(slow_diverse(changed, limit, asked, groups, 0.5))
        changed = without_repetitions(model, wanted, size, np.float32(penalty))
        ruled.append(slow_search(changed, limit, asked, True, wanted)[0])
    results = table_search(table, *rows, None, beam, groups=groups, **options)
    assert_same(results, as_hypotheses(free, asked.nbest))
    results = table_search(table, *rows, as_rules(wanted_b), beam, **options)
    assert_same(results, as_hypotheses(ruled, asked.nbest))


@pytest.mark.parametrize("penalty", [0.7, 1.5])
def test_the_changed_logits_are_a_distribution(penalty):
    """By hand: logits of both signs, and their softmax after the change."""
    table, (seed_b, limit_b) = smooth_table(5, VOCABULARY), draw_rows(5)
    table[:, EOS] -= 2.0
    normal = np.asarray(jax.nn.log_softmax(table))
    options = {"no_repeat_ngram": 2, "repetition_penalty": penalty}
    results = table_search(normal + 2.0, seed_b, limit_b, beam=1, **options)
    repeated = table_search(normal + 2.0, seed_b, limit_b, beam=1)
    assert (np.asarray(results.tokens_bnt) != np.asarray(repeated.tokens_bnt)).any()
    for b, (seed, limit) in enumerate(zip(seed_b, limit_b, strict=True)):
        logits = table_log_probs(normal, seed, np.float64)
        positive = functools.partial(lambda model, tokens: model(tokens) + 2.0, logits)
        changed = without_repetitions(positive, Wanted(), 2, penalty)
        tokens, log_prob = (), 0.0
        while len(tokens) < limit and tokens[-1:] != (EOS,):
            row = changed(tokens)
            row -= np.log(np.exp(row).sum())
            row[[BOS, PAD]] = -np.inf
            tokens, log_prob = (*tokens, int(row.argmax())), log_prob + row.max()
        assert tuple(results.tokens_bnt[b, 0, : len(tokens)].tolist()) == tokens
        np.testing.assert_allclose(results.log_prob_bn[b, 0], log_prob, rtol=1e-5)


def test_translations_have_no_ngram_twice(tiny):
    searches = (
        functools.partial(tiny.sample, samples=3),
        functools.partial(tiny.translate, prefix="the dog the dog "),
    )
    for search in searches:
        free = search(TEXT, warn=False)
        results = search(TEXT, warn=False, no_repeat_ngram=2)
        assert results[:1] == search(TEXT[:1], warn=False, no_repeat_ngram=2)
        given = len(tiny.vocabulary.encode([search.keywords.get("prefix", "")])[0])
        counts = [
            sum(
                place >= given
                for translation in translations
                for hypothesis in translation.hypotheses
                for place in repeated_ngrams(hypothesis.tokens, 2)
            )
            for translations in (free, results)
        ]
        assert counts[0] > counts[1] == 0, search


def test_nothing_is_computed_where_repetitions_are_allowed():
    search = BeamSearch(
        beam=4, nbest=1, alpha=0, penalty="none", stop="best", **SPECIAL
    )
    logits = np.zeros((1, 4, 5))
    assert search.unrepeated(logits, None, None, None, None) is logits
