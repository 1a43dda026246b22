"""Laws of greedy and beam search, held against a slow twin and exhaustive search.

Both, and the tables that serve as models, are in `tools/verify/references/search.py`.
"""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies

from t2t_jax.search.algorithm import PENALTIES, gnmt_penalty, top_k
from t2t_jax.search.beam import beam_search as search_by_beam
from t2t_jax.tools.verify.references.search import (
    BOS,
    EOS,
    MAX_LENGTH,
    PAD,
    SPECIAL,
    STATES,
    A,
    B,
    Options,
    as_hypotheses,
    exact_table,
    exhaustive,
    per_penalty,
    slow_search,
    smooth_table,
    table_cache,
    table_log_probs,
    table_step,
)

search_greedily = functools.partial(search_by_beam, beam=1)

pytestmark = pytest.mark.usefixtures("quick_compiler")

BATCH = 4

OPTIONS = [
    Options(5, 1, 1, 0.6),
    Options(5, 2, 2, 1.0),
    Options(6, 3, 1, 3.0),
    Options(6, 3, 3, 0.6),
    Options(5, 4, 1, 0.0),
    Options(8, 4, 2, 3.0),
    Options(4, 5, 5, 0.0),
    Options(5, 8, 4, 1.0),
    Options(6, 3, 2, 1.0, "length"),
    Options(6, 4, 1, 2.5, "length"),
    Options(6, 4, 4, 1.0, "none"),
    Options(6, 4, 1, 0.6, "gnmt", "first"),
    Options(6, 4, 3, 1.0, "length", "first"),
]


def whole(search):
    """A search as one program; called as it is, each of its operations is one."""

    def call(step, *arrays, **options):
        return jax.jit(lambda *arrays: search(step, *arrays, **options))(*arrays)

    return call


beam_search, greedy_search = whole(search_by_beam), whole(search_greedily)


# The product's search of a table


def search_with(options, step, limit_b):
    """`beam_search` with a table step and its cache."""
    return beam_search(
        step,
        table_cache(len(limit_b), options.beam),
        limit_b,
        max_length=MAX_LENGTH,
        beam=options.beam,
        nbest=options.nbest,
        alpha=options.alpha,
        penalty=options.penalty,
        stop=options.stop,
        **SPECIAL,
    )


@functools.partial(jax.jit, static_argnames="options")
def table_search(table, seed_b, limit_b, options):
    return search_with(options, table_step(table, seed_b), limit_b)


def constant_step(logits_v):
    """A step that says the same of every prefix."""

    def step(cache, token_bn, position):
        logits_v32 = jnp.asarray(logits_v, jnp.float32)
        return jnp.broadcast_to(logits_v32, (*token_bn.shape, len(logits_v))), cache

    return step


def assert_same(found, expected, tolerance=0.0):
    for name, got, wanted in zip(found._fields, found, expected, strict=True):
        got, wanted = np.asarray(got), np.asarray(wanted)
        assert got.dtype == wanted.dtype, name
        if tolerance and got.dtype == np.float32:
            np.testing.assert_allclose(got, wanted, tolerance, tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(got, wanted, err_msg=name)


def rows_of(hypotheses, index):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], hypotheses)


def draw_rows(seed):
    """Seeds and limits of the sentences of a batch."""
    draw = np.random.default_rng(seed)
    limit_b = draw.integers(1, MAX_LENGTH + 1, BATCH).astype(np.int32)
    return draw.integers(0, STATES, BATCH).astype(np.int32), limit_b


seeds = strategies.integers(0, 2**32 - 1)
grids = strategies.sampled_from([0.25, 2.0, 8.0])


def examples(count):
    return hypothesis.settings(max_examples=count, deadline=None)


# Against the twin


@examples(100)
@hypothesis.given(seeds, grids, strategies.sampled_from(OPTIONS))
def test_search_is_its_twin_bit_by_bit_where_ties_abound(seed, grid, options):
    check_against_the_twin(seed, grid, options)


def check_against_the_twin(seed, grid, options):
    # The twin never stops early here, so this also says that stopping early is sound.
    table = exact_table(seed, options.vocabulary, grid)
    np.testing.assert_array_equal(jax.nn.log_softmax(table), table)
    seed_b, limit_b = draw_rows(seed)
    twin = [
        slow_search(
            table_log_probs(table, s, np.float32), limit, options, np.float32, False
        )
        for s, limit in zip(seed_b, limit_b, strict=True)
    ]
    expected = as_hypotheses([result for result, _, _ in twin], options.nbest)
    assert_same(table_search(table, seed_b, limit_b, options), expected)


@examples(60)
@hypothesis.given(seeds, strategies.sampled_from(OPTIONS))
def test_search_is_its_float64_twin_on_smooth_models(seed, options):
    table = smooth_table(seed, options.vocabulary)
    seed_b, limit_b = draw_rows(seed)
    twin = [
        slow_search(
            table_log_probs(table, s, np.float64), limit, options, np.float64, False
        )
        for s, limit in zip(seed_b, limit_b, strict=True)
    ]
    hypothesis.assume(min(margin for _, _, margin in twin) > 1e-4)
    expected = as_hypotheses([result for result, _, _ in twin], options.nbest)
    assert_same(table_search(table, seed_b, limit_b, options), expected, 1e-5)


def count_steps(step, positions):
    """The same step, which also notes every position it is asked about."""

    def counted(cache, token_bn, position):
        jax.debug.callback(lambda p: positions.append(int(p)), position)
        return step(cache, token_bn, position)

    return counted


@pytest.mark.parametrize(
    "options",
    [
        Options(6, 3, 1, 3.0),
        Options(8, 4, 2, 0.6),
        Options(6, 3, 1, 0.6, "length"),
        Options(6, 3, 3, 1.0, "none"),
        Options(6, 2, 2, 3.0, "gnmt", "first"),
    ],
)
def test_search_stops_as_soon_as_its_rules_allow(options):
    positions, early = [], 0

    @jax.jit
    def counted_search(table, seed_b, limit_b):
        step = count_steps(table_step(table, seed_b), positions)
        return search_with(options, step, limit_b)

    for seed in range(12):
        table = exact_table(seed, options.vocabulary, 8.0)
        log_probs = table_log_probs(table, seed % STATES, np.float32)
        limit = MAX_LENGTH - seed % 2
        _, steps, _ = slow_search(log_probs, limit, options, np.float32, True)
        early += steps < limit
        positions.clear()
        seed_b = np.array([seed % STATES], np.int32)
        jax.block_until_ready(counted_search(table, seed_b, np.array([limit])))
        jax.effects_barrier()
        assert sorted(positions) == list(range(steps))
    assert 0 < early < 12  # Both happen, or this says nothing.


# Against exhaustive search


@pytest.mark.parametrize("nbest", [1, 32])
@pytest.mark.parametrize(
    ("alpha", "penalty"),
    [(0.0, "gnmt"), (0.6, "gnmt"), (3.0, "gnmt")]
    + [(0.0, "length"), (1.0, "length"), (2.5, "length"), (0.6, "none")],
)
def test_a_wide_beam_is_exhaustive_search(alpha, penalty, nbest):
    # Two letters and EOS, 4 tokens at most: 24 extensions, 31 outputs, 1 empty place.
    options = Options(5, 32, nbest, alpha, penalty)
    for seed in range(4):
        table = smooth_table(seed, options.vocabulary)
        seed_b, limit_b = np.arange(4, dtype=np.int32), np.array([1, 2, 3, 4], np.int32)
        rows = [
            exhaustive(table_log_probs(table, s, np.float64), limit, 5, alpha, penalty)
            for s, limit in zip(seed_b, limit_b, strict=True)
        ]
        assert [len(row) for row in rows] == [3, 7, 15, 31]
        expected = as_hypotheses([row[:nbest] for row in rows], nbest)
        found = table_search(table, seed_b, limit_b, options)
        assert_same(found, expected, 1e-5)


# Laws


def test_beam_1_is_greedy():
    @jax.jit
    def table_greedy(table, seed_b, limit_b):
        step, cache = table_step(table, seed_b), table_cache(BATCH, 1)
        return greedy_search(step, cache, limit_b, max_length=MAX_LENGTH, **SPECIAL)

    options = Options(vocabulary=6, beam=1)
    for seed in range(8):
        table = smooth_table(seed, options.vocabulary)
        seed_b, limit_b = draw_rows(seed)
        greedy = rows_of(table_greedy(table, seed_b, limit_b), np.s_[:])
        assert_same(table_search(table, seed_b, limit_b, options), greedy)
        for b in range(BATCH):
            log_probs, tokens = table_log_probs(table, seed_b[b], np.float64), ()
            while len(tokens) < limit_b[b] and EOS not in tokens:
                tokens += (2 + int(np.argmax(log_probs(tokens)[2:])),)  # Not PAD, BOS.
            assert tuple(greedy.tokens_bnt[b, 0, : len(tokens)]) == tokens
            assert greedy.length_bn[b, 0] == len(tokens)
            assert greedy.ended_bn[b, 0] == (tokens[-1] == EOS)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 3.0])
def test_the_best_one_is_the_first_of_the_best_four(alpha):
    for seed in range(10):
        table = exact_table(seed, 6, grid=[0.25, 8.0][seed % 2])
        seed_b, limit_b = draw_rows(seed)
        one = table_search(table, seed_b, limit_b, Options(6, 4, 1, alpha))
        four = table_search(table, seed_b, limit_b, Options(6, 4, 4, alpha))
        assert_same(one, rows_of(four, np.s_[:, :1]))


def finds(hypotheses, b):
    """The outputs of a sentence, and which of them ended."""
    found = rows_of(hypotheses, b)
    pairs = zip(map(tuple, outputs(found)), found.ended_bn.tolist(), strict=True)
    return [pair for pair in pairs if pair[0]]


def test_the_first_found_are_some_that_search_would_find_and_no_better():
    better = 0
    for seed in range(20):
        table = exact_table(seed, 6, grid=[0.25, 8.0][seed % 2])
        seed_b, limit_b = draw_rows(seed)
        first = table_search(
            table, seed_b, limit_b, Options(6, 4, 1, 0.6, "gnmt", "first")
        )
        best = table_search(table, seed_b, limit_b, Options(6, 4, 1, 0.6))
        every = [  # All that end in a beam of 4: none is beaten by 24 others.
            slow_search(
                table_log_probs(table, s, np.float32),
                limit,
                Options(6, 4, 24, 0.6),
                np.float32,
                False,
            )[0]
            for s, limit in zip(seed_b, limit_b, strict=True)
        ]
        for b in range(BATCH):
            found = finds(first, b)
            assert set(found) <= {(tokens, ended) for _, _, tokens, ended in every[b]}
            assert bool(found) == bool(finds(best, b))
            if found and found[0][1]:
                lengths = [len(tokens) for _, _, tokens, ended in every[b] if ended]
                assert len(found[0][0]) == min(lengths)
            # An unended one only where none ended.
            assert first.ended_bn[b, 0] == best.ended_bn[b, 0]
            assert first.score_bn[b, 0] <= best.score_bn[b, 0]
            better += bool(first.score_bn[b, 0] < best.score_bn[b, 0])
    assert better > 3  # They do differ.


def test_penalties():
    assert set(PENALTIES) == {"gnmt", "length", "none"}
    length_t = np.array([1, 2, 4, 8], np.float64)
    np.testing.assert_allclose(PENALTIES["length"](length_t, 1.0), length_t)
    np.testing.assert_allclose(PENALTIES["length"](length_t, 0.5), length_t**0.5)
    for alpha in (0.0, 0.6, 5.0):
        np.testing.assert_array_equal(PENALTIES["none"](length_t, alpha), 1)
        for penalty in PENALTIES.values():  # What early stopping relies on.
            assert (np.diff(penalty(length_t, alpha)) >= 0).all()
    for name in PENALTIES:
        np.testing.assert_array_equal(PENALTIES[name](length_t, 0.0), 1)


def test_a_penalty_chooses_between_short_and_long():
    # EOS at once costs 2, A EOS 2.86: for a mean it is 1.43 per token.
    first_v = [1 - 0.7 - np.exp(-2), 1e-30, np.exp(-2), 0.7, 1e-30]
    then_v = [1 - 0.5 - np.exp(-2.5), 1e-30, np.exp(-2.5), 0.5, 1e-30]
    logits = np.log([first_v, then_v])
    log_prob = {1: -2.0, 2: np.log(0.7) - 2.5}

    def step(cache, token_bn, position):
        logits_v = jnp.where(position == 0, logits[0], logits[1])
        return jnp.broadcast_to(logits_v, (*token_bn.shape, 5)), cache

    for penalty, alpha, expected in [
        ("none", 1.0, [EOS]),
        ("gnmt", 1.0, [EOS]),
        ("length", 0.0, [EOS]),
        ("length", 1.0, [A, EOS]),
    ]:
        found = beam_search(
            step,
            None,
            np.array([2]),
            max_length=2,
            alpha=alpha,
            penalty=penalty,
            **SPECIAL,
        )
        found = rows_of(found, 0)
        assert outputs(found) == [expected]
        score = log_prob[len(expected)] / PENALTIES[penalty](len(expected), alpha)
        np.testing.assert_allclose(found.score_bn[0], score, rtol=1e-5)


@pytest.mark.parametrize(
    "make", [functools.partial(exact_table, grid=2.0), smooth_table]
)
def test_a_sentence_does_not_depend_on_its_neighbours(make):
    options = Options(6, 3, 3, 0.6)
    for seed in range(6):
        table = make(seed, options.vocabulary)
        seed_b, limit_b = draw_rows(seed)
        limit_b[0], limit_b[-1] = 1, MAX_LENGTH  # Some stop long before others.
        together = table_search(table, seed_b, limit_b, options)
        order = np.random.default_rng(seed).permutation(BATCH)
        permuted = table_search(table, seed_b[order], limit_b[order], options)
        assert_same(permuted, rows_of(together, order))
        for b in range(BATCH):  # Each among copies of itself.
            same = np.full(BATCH, b)
            copies = table_search(table, seed_b[same], limit_b[same], options)
            assert_same(copies, rows_of(together, same))


def test_a_sentence_alone_is_the_sentence_in_a_batch():
    options = Options(6, 3, 3, 0.6)
    table = exact_table(0, options.vocabulary, 2.0)
    seed_b, limit_b = draw_rows(0)
    together = table_search(table, seed_b, limit_b, options)
    for b in range(BATCH):
        alone = table_search(table, seed_b[b : b + 1], limit_b[b : b + 1], options)
        assert_same(alone, rows_of(together, np.s_[b : b + 1]))


def test_results_are_well_formed():
    for seed in range(len(OPTIONS)):
        options = OPTIONS[seed]
        table = smooth_table(seed, options.vocabulary)
        seed_b, limit_b = draw_rows(seed)
        found = jax.tree.map(np.asarray, table_search(table, seed_b, limit_b, options))
        for b, n in np.ndindex(BATCH, options.nbest):
            length, tokens_t = found.length_bn[b, n], found.tokens_bnt[b, n]
            assert (tokens_t[length:] == PAD).all()
            assert not np.isin(tokens_t[:length], [PAD, BOS]).any()
            if length:
                assert EOS not in tokens_t[: length - 1]
                assert (tokens_t[length - 1] == EOS) == found.ended_bn[b, n]
                assert found.ended_bn[b, n] or length == limit_b[b]
                weight = per_penalty(length, options.alpha, float, options.penalty)
                expected = found.log_prob_bn[b, n] * weight
                np.testing.assert_allclose(found.score_bn[b, n], expected, rtol=1e-6)
        assert (np.diff(found.ended_bn.astype(int), axis=1) <= 0).all()


# Ties


def search_one(step, *, beam, nbest, alpha, limit, cache=None):
    limit_b = jnp.array([limit])
    found = beam_search(
        step,
        cache,
        limit_b,
        max_length=limit,
        beam=beam,
        nbest=nbest,
        alpha=alpha,
        **SPECIAL,
    )
    return rows_of(found, 0)


def outputs(found):
    pairs = zip(found.tokens_bnt, found.length_bn, strict=True)
    return [tokens_t[:length].tolist() for tokens_t, length in pairs]


def test_equal_extensions_rank_by_beam_row_then_by_token():
    # Eight equal tokens. First EOS, 3, 4, 5 survive; from then on only the first row's
    # EOS, 3, 4, 5 do. alpha 0: shorter is better.
    step = constant_step(np.zeros(8))
    found = search_one(step, beam=4, nbest=4, alpha=0.0, limit=8)
    assert outputs(found) == [[EOS], [3, EOS], [3, 3, EOS], [3, 3, 3, EOS]]
    np.testing.assert_array_equal(
        found.log_prob_bn, -np.log(np.float32(8)) * np.arange(1, 5, dtype=np.float32)
    )
    # alpha 3: longer is better (up to the 8 tokens that the limit allows).
    found = search_one(step, beam=4, nbest=2, alpha=3.0, limit=8)
    assert outputs(found) == [[3] * 7 + [EOS], [3] * 6 + [EOS]]


def test_equal_unended_hypotheses_rank_by_beam_row_then_by_token():
    step = constant_step([-np.inf, -np.inf, -np.inf, 0, 0])
    found = search_one(step, beam=3, nbest=3, alpha=0.6, limit=2)
    assert outputs(found) == [[A, A], [A, B], [B, A]]
    assert not found.ended_bn.any()


def test_of_equal_finished_hypotheses_the_earlier_found_is_first():
    # EOS, A and B are equally likely, and after a letter EOS is certain: three outputs
    # of one log-probability, and alpha 0 makes the scores equal too.
    first_v = jnp.array([-np.inf, -np.inf, 0, 0, 0])
    then_v = jnp.array([-np.inf, -np.inf, 0, -np.inf, -np.inf])

    def step(cache, token_bn, position):
        logits_v = jnp.where(position == 0, first_v, then_v)
        return jnp.broadcast_to(logits_v, (*token_bn.shape, 5)), cache

    for nbest in (1, 2, 3):
        positions = []
        counted = count_steps(step, positions)
        found = search_one(counted, beam=3, nbest=nbest, alpha=0.0, limit=4)
        assert outputs(found) == [[EOS], [A, EOS], [B, EOS]][:nbest]
        assert len(set(found.score_bn.tolist())) == 1
        jax.effects_barrier()
        assert len(positions) == min(nbest, 2)  # What can only equal is not waited for.


# Ends, limits and empty places


def test_a_hypothesis_that_never_ends_is_whole():
    step = constant_step([0, 0, -np.inf, 1, 0])
    for beam in (1, 4):
        found = beam_search(
            step, None, jnp.array([5, 3]), max_length=5, beam=beam, **SPECIAL
        )
        assert outputs(rows_of(found, 0)) == [[A] * 5]
        assert outputs(rows_of(found, 1)) == [[A] * 3]
        assert not found.ended_bn.any()
        log_prob = jax.nn.log_softmax(jnp.array([0.0, 0, -np.inf, 1, 0]))[A]
        length_bn = np.array([[5], [3]])
        np.testing.assert_allclose(found.log_prob_bn, log_prob * length_bn, rtol=1e-6)
        penalty_bn = gnmt_penalty(length_bn, 0.6)
        np.testing.assert_allclose(
            found.score_bn, found.log_prob_bn / penalty_bn, rtol=1e-6
        )


def test_an_ended_hypothesis_ranks_before_a_better_unended_one():
    step = constant_step([-np.inf, -np.inf, -5, 0, 0])
    found = search_one(step, beam=4, nbest=4, alpha=0.6, limit=1)
    assert outputs(found) == [[EOS], [A], [B], []]
    assert found.ended_bn.tolist() == [True, False, False, False]
    assert found.score_bn[0] < found.score_bn[1] == found.score_bn[2]


def test_places_without_a_hypothesis_are_empty():
    # One letter, two tokens at most: EOS, A EOS and A A are all there is.
    step = constant_step([0.0, 0, 0, 1])
    found = search_one(step, beam=8, nbest=8, alpha=0.6, limit=2)
    assert outputs(found) == [[EOS], [A, EOS], [A, A]] + [[]] * 5
    assert found.ended_bn.tolist() == [True, True] + [False] * 6
    assert (found.score_bn[3:] == -np.inf).all()
    assert (found.log_prob_bn[3:] == -np.inf).all()
    assert (found.tokens_bnt[3:] == PAD).all()
    assert np.isfinite(found.score_bn[:3]).all()


def test_limits_are_clipped_to_what_fits():
    step = constant_step([0.0, 0, -np.inf, 1])
    found = beam_search(step, None, jnp.array([0, -3, 99]), max_length=3, **SPECIAL)
    assert found.length_bn[:, 0].tolist() == [1, 1, 3]


def test_bos_may_be_pad():
    step = constant_step([9.0, -np.inf, 0, 1])
    found = greedy_search(
        step, None, jnp.array([2]), max_length=2, bos=PAD, eos=EOS, pad=PAD
    )
    assert outputs(rows_of(found, 0)) == [[A, A]]


def test_log_probabilities_are_over_the_whole_vocabulary_in_float32():
    logits_v = jnp.array([3, 2, -1, 1.5, 0.25], jnp.bfloat16)

    def step(cache, token_bn, position):
        return jnp.broadcast_to(logits_v, (*token_bn.shape, 5)), cache

    found = search_one(step, beam=1, nbest=1, alpha=0.6, limit=1)
    expected = jax.nn.log_softmax(logits_v.astype(jnp.float32))[A]
    np.testing.assert_allclose(found.log_prob_bn[0], expected, rtol=1e-6)


# What step says of rows that nobody asked about


def test_rows_that_hold_nothing_cannot_harm():
    table = smooth_table(0, 5)
    seed_b, limit_b = np.arange(BATCH, dtype=np.int32), np.array([1, 2, 4, 6])
    inner = table_step(jnp.asarray(table), seed_b)

    def step(cache, token_bn, position):
        logits_bnv, cache = inner(cache, token_bn, position)
        over_bn = (token_bn == EOS) | (position >= limit_b)[:, None]
        return jnp.where(over_bn[:, :, None], jnp.nan, logits_bnv), cache

    options = Options(5, 4, 4, 0.6)
    clean = table_search(table, seed_b, limit_b, options)
    poisoned = search_with(options, step, limit_b)
    assert np.isfinite(poisoned.score_bn[2:]).all()
    assert_same(poisoned, clean, 1e-6)


def test_a_model_that_says_nan_is_not_hidden():
    step = constant_step(np.full(5, np.nan))
    for beam in (1, 3):
        found = search_one(step, beam=beam, nbest=1, alpha=0.6, limit=3)
        assert np.isnan(found.score_bn).all()


# Arguments


def test_length_penalty():
    assert gnmt_penalty(1, 0.6) == 1
    assert gnmt_penalty(7, 1.0) == 2
    np.testing.assert_allclose(gnmt_penalty(np.array([1, 7, 19]), 0.5), [1, 2**0.5, 2])
    found = gnmt_penalty(jnp.array([1, 7, 19]), 0.5)
    assert isinstance(found, jax.Array)
    np.testing.assert_allclose(found, [1, 2**0.5, 2], rtol=1e-6)
    np.testing.assert_array_equal(gnmt_penalty(np.arange(9), 0.0), 1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"beam": 0}, "beam is 0"),
        ({"nbest": 0}, "nbest is 0"),
        ({"nbest": 5}, "nbest is 5 and beam is 4"),
        ({"max_length": 0}, "max_length is 0"),
        ({"alpha": -0.1}, "alpha is -0.1"),
        ({"alpha": float("nan")}, "alpha is nan"),
        (
            {"penalty": "mean"},
            "penalty is 'mean'; it must be one of gnmt, length, none",
        ),
        ({"stop": "early"}, "stop is 'early'; it must be one of best, first"),
        ({"eos": PAD}, "they must differ"),
        ({"eos": 5}, "vocabulary of 5"),
        ({"pad": -1}, "vocabulary of 5"),
        ({"limit_b": jnp.array(3)}, r"limit_b has shape \(\)"),
        ({"cache": {"k": jnp.zeros((2, 3))}}, r"cache\['k'\] has shape \(2, 3\)"),
        ({"cache": [jnp.zeros(())]}, r"cache\[0\] has shape \(\)"),
        ({"step": lambda c, t, p: (jnp.zeros((2, 5)), c)}, r"shape \(2, 5\)"),
    ],
)
def test_bad_arguments_are_refused(changed, message):
    arguments = {
        "step": constant_step(np.zeros(5)),
        "cache": {"k": jnp.zeros((2, 4))},
        "limit_b": jnp.array([3, 3]),
        "max_length": 3,
        **SPECIAL,
    }
    with pytest.raises(ValueError, match=message):
        beam_search(**arguments | changed)


@pytest.mark.parametrize("size", [128 * 40, 128 * 33 + 77, 1_000])
def test_top_k_in_two_stages_is_top_k(size):
    rng = np.random.default_rng(size)
    many_ties = rng.integers(0, 5, (3, size)).astype(np.float32)
    few_ties = rng.normal(size=(3, size)).astype(np.float32).round(2)
    hardly_any = np.where(rng.random((3, size)) < 2 / size, few_ties, -np.inf)
    last = np.sort(few_ties, axis=1)  # the best are in what is left of the groups
    for x_bv in (many_ties, few_ties, hardly_any, last):
        for k in (1, 4, 8):
            got, want = top_k(jnp.asarray(x_bv), k), jax.lax.top_k(x_bv, k)
            jax.tree.map(np.testing.assert_array_equal, tuple(got), tuple(want))
