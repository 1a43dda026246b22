"""Laws of sampling: what is drawn, how often, and from which key."""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies

from t2t_jax.decoding.search_options import SamplingOptions
from t2t_jax.io.errors import UserError
from t2t_jax.search import sampling
from t2t_jax.sections import checked_options
from t2t_jax.tools.verify.references.search import (
    BOS,
    EOS,
    MAX_LENGTH,
    PAD,
    SPECIAL,
    STATES,
    A,
    B,
    as_hypotheses,
    per_penalty,
    smooth_table,
    table_cache,
    table_log_probs,
    table_step,
)
from tests.decoding.test_rules import (
    VOCABULARY,
    C,
    Phrase,
    Wanted,
    all_outputs,
    as_rules,
    draw_wanted,
    lawful,
)
from tests.decoding.test_search import (
    BATCH,
    assert_same,
    draw_rows,
    examples,
    rows_of,
    seeds,
)


@functools.partial(
    jax.jit,
    static_argnames=("temperature", "top_k", "top_p", "epsilon", "alpha", "penalty"),
)
def table_sample(table, seed_b, limit_b, rng_bn, rules=None, **options):
    """Samples with a key for each hypothesis."""
    options = {"alpha": 0.6, "penalty": "gnmt"} | options
    search = sampling.Sampling(samples=rng_bn.shape[1], **options, **SPECIAL)
    cache, limit_b = table_cache(*rng_bn.shape), jnp.asarray(limit_b)
    state = search._start(cache, limit_b, rules, rng_bn, MAX_LENGTH)
    step = table_step(jnp.asarray(table), seed_b)
    return search.result(search.advance(step, state, 0, MAX_LENGTH, rules))


def keys(seed, *shape):
    return jax.random.split(jax.random.key(seed % 2**32), shape)


# From which key


def test_a_draw_depends_on_its_sentence_and_its_key_alone():
    for seed in range(4):
        table = smooth_table(seed, VOCABULARY)
        seed_b, limit_b = draw_rows(seed)
        limit_b[0], limit_b[-1] = 1, MAX_LENGTH  # Some stop long before others.
        rng_bn = keys(seed, BATCH, 4)
        together = table_sample(table, seed_b, limit_b, rng_bn, top_p=0.9)
        order = np.random.default_rng(seed).integers(0, BATCH, BATCH)
        row = np.random.default_rng(seed).permutation(4)
        results = table_sample(
            table, seed_b[order], limit_b[order], rng_bn[order][:, row], top_p=0.9
        )
        assert_same(results, rows_of(rows_of(together, order), np.s_[:, row]))
        # Alone, and with fewer draws.
        row, some_keys = np.s_[2:3], rng_bn[2:3, :3]
        results = table_sample(table, seed_b[row], limit_b[row], some_keys, top_p=0.9)
        assert_same(results, rows_of(rows_of(together, row), np.s_[:, :3]))
        other_keys = keys(seed + 9, BATCH, 4)
        results = table_sample(table, seed_b, limit_b, other_keys, top_p=0.9)
        assert {*all_outputs(results)} != {*all_outputs(together)}


# The law


def reference(log_prob_v, temperature, top_k, top_p, epsilon):
    """The probabilities that tokens are drawn with, in float64, token by token."""
    logits = {
        token: log_prob / temperature
        for token, log_prob in enumerate(log_prob_v)
        if token not in (PAD, BOS) and log_prob > -np.inf
    }
    ranked = sorted(logits, key=lambda token: (-logits[token], token))
    total = sum(np.exp(logits[token]) for token in ranked)
    likely = [token for token in ranked if np.exp(logits[token]) / total >= epsilon]
    ranked = (likely or ranked[:1])[: top_k or None]
    share = {token: np.exp(logits[token]) for token in ranked}
    total = sum(share.values())
    remaining, reached = [], 0.0
    for token in ranked:
        if reached >= top_p:
            break
        remaining.append(token)
        reached += share[token] / total
    total = sum(share[token] for token in remaining)
    return {token: share[token] / total for token in remaining}


LAWS = [
    {},
    {"top_k": 3, "temperature": 2.0},
    {"top_p": 0.05},
    {"top_p": 0.6, "top_k": 3},
    {"epsilon": 0.15, "temperature": 2.0, "top_p": 0.9},
]


@pytest.mark.parametrize("options", LAWS)
def test_draws_are_as_frequent_as_the_model_says(options):
    draws, limit = 8000, 2
    full_options = {
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "epsilon": 0.0,
    } | options
    for seed in range(2):
        table = smooth_table(seed, VOCABULARY)
        log_probs = table_log_probs(table, seed, np.float64)
        expected = {}
        for token, p in reference(log_probs(()), **full_options).items():
            if token == EOS:
                expected[(EOS,)] = p
                continue
            for next_token, q in reference(log_probs((token,)), **full_options).items():
                expected[token, next_token] = p * q
        seed_b = np.array([seed], np.int32)
        results = table_sample(
            table, seed_b, np.array([limit]), keys(seed, 1, draws), **options
        )
        outputs = [tokens for _, tokens, _ in all_outputs(results)]
        assert set(outputs) <= set(expected)
        chi = 0
        for tokens, p in expected.items():
            deviation = outputs.count(tokens) - draws * p
            assert abs(deviation) <= 4.5 * (draws * p * (1 - p)) ** 0.5 + 1e-9
            chi += deviation**2 / (draws * p)
        freedom = len(expected) - 1
        assert chi <= freedom + 4.5 * (2 * freedom) ** 0.5 + 4


def likely(logits, **options):
    options = {"top_k": 0, "top_p": 1.0} | options
    results = sampling._likely(jnp.asarray(logits, jnp.float32)[None, None], **options)
    return np.flatnonzero(np.asarray(results[0, 0]) > -np.inf).tolist()


def test_what_may_be_drawn_at_the_edges():
    halves = np.log([0.5, 0.25, 0.125, 0.125])
    assert likely(halves, top_k=3) == [0, 1, 2]  # Of equals the lower.
    assert likely(halves, top_p=0.76) == [0, 1, 2, 3]  # Of equals all.
    # The share is of what is left: here 4/5 and 1/5.
    assert likely(np.log([0.4, 0.1, 0.05, 0.05]), top_k=2, top_p=0.79) == [0]
    assert likely(halves, epsilon=0.6) == [0]  # None is as probable as that.
    # The probability is that of the whole distribution, not of the best two.
    assert likely(np.log([0.5, 0.2, 0.2, 0.1]), top_k=2, epsilon=0.25) == [0]
    assert likely([-np.inf] * 3, top_k=2, top_p=0.9) == []


@examples(20)
@hypothesis.given(
    seeds, strategies.sampled_from([("gnmt", LAWS[-1]), ("length", LAWS[0])])
)
def test_what_was_drawn_is_scored_by_the_whole_model(seed, how):
    penalty, options = how
    table = smooth_table(seed, VOCABULARY)
    seed_b, limit_b = draw_rows(seed)
    options = options | {"penalty": penalty, "alpha": 0.5}
    results = table_sample(table, seed_b, limit_b, keys(seed, BATCH, 3), **options)
    rows = []
    for b, tokens, ended in all_outputs(results):
        assert ended == (tokens[-1] == EOS)
        assert EOS not in tokens[:-1]
        assert ended or len(tokens) == limit_b[b]
        log_probs = table_log_probs(table, seed_b[b], np.float64)
        log_prob = sum(log_probs(tokens[:t])[tokens[t]] for t in range(len(tokens)))
        score = log_prob * per_penalty(len(tokens), 0.5, float, penalty)
        rows.append((score, log_prob, tokens, ended))
    expected = as_hypotheses([rows[b : b + 3] for b in range(0, 3 * BATCH, 3)], 3)
    assert_same(results, expected, 1e-5)


# Rules


@examples(20)
@hypothesis.given(seeds)
def test_samples_keep_their_rules(seed):
    table = smooth_table(seed, VOCABULARY)
    seed_b, limit_b = draw_rows(seed)
    wanted_b = [w._replace(must=()) for w in draw_wanted(seed)]
    rules = as_rules(wanted_b)
    rng_bn = keys(seed, BATCH, 4)
    results = table_sample(table, seed_b, limit_b, rng_bn, rules)
    for b, tokens, _ in all_outputs(results):
        assert lawful(wanted_b[b], tokens)
    free = np.array([expected == Wanted() for expected in wanted_b])
    plain = table_sample(table, seed_b, limit_b, rng_bn)
    assert_same(rows_of(results, free), rows_of(plain, free))


def test_a_prefix_is_scored_by_the_whole_model_and_what_follows_is_drawn():
    logits_v = np.array([1.0, 0, 0, -9, 2, 1])
    log_probs = np.asarray(jax.nn.log_softmax(jnp.asarray(logits_v)))
    rules = as_rules([Wanted(prefix=(A, A), must_not=(Phrase((C,)),))])
    table, limit_b = np.tile(np.float32(logits_v), (STATES, 1)), np.array([3])
    options = {"top_k": 2, "top_p": 0.9, "temperature": 0.5}
    results = table_sample(table, limit_b, limit_b, keys(0, 1, 64), rules, **options)
    tokens_nt = np.asarray(results.tokens_bnt[0])
    assert (tokens_nt[:, :2] == A).all()
    assert B in tokens_nt[:, 2]
    assert {*tokens_nt[:, 2].tolist()} <= {EOS, A, B}
    expected = 2 * log_probs[A] + log_probs[tokens_nt[:, 2]]
    np.testing.assert_allclose(results.log_prob_bn[0], expected, rtol=1e-6)


def test_bad_arguments_are_refused():
    for name, value in (("top_k", -1), ("top_p", 0.0), ("epsilon", 1.0)):
        with pytest.raises(UserError, match=f"{name}={value} is too (small|large); "):
            checked_options(SamplingOptions, {name: value})
