"""Laws of beam search, held against a slow twin and exhaustive search.

The latter, and the tables that serve as models, are in
`tools/verify/references/search.py`.
"""

import functools
import itertools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies

from t2t_jax.search import beam
from t2t_jax.search.algorithm import best_extensions, extensions, top_k
from t2t_jax.tools.verify import numbers
from t2t_jax.tools.verify.references.search import (
    BOS,
    EOS,
    MAX_LENGTH,
    PAD,
    SPECIAL,
    STATES,
    Options,
    as_hypotheses,
    per_penalty,
    smooth_table,
    table_cache,
    table_log_probs,
    table_step,
)

BATCH = 4

OPTIONS = [
    Options(5, 1, 1, 0.6),
    Options(6, 3, 3, 0.6),
    Options(8, 4, 2, 3.0),
    Options(6, 3, 2, 1.0, "length"),
    Options(6, 4, 4, 1.0, "none"),
    Options(6, 4, 1, 0.6, "gnmt", "first"),
]


def exact_table(seed, vocabulary, grid):
    """Logits that are their own log-probabilities; one in ten is impossible.

    All but 1e-8 of the probability is on PAD, which is never generated: then a logit on
    a coarse dyadic grid IS its log-probability in float32, sums of them are exact, ties
    are real ties, and results can be compared bit by bit.
    """
    draw = np.random.default_rng(seed)
    table = -20 - grid * draw.integers(0, 5, (STATES, vocabulary)).astype(np.float32)
    table[draw.random(table.shape) < 0.1] = -np.inf
    table[:, BOS] = -20 + 1.5  # tempting, but never to be generated
    table[:, PAD] = 0
    return table


def search_with(options, step, limit_b):
    """`beam_search` with a table step and its cache."""
    cache, fields = table_cache(len(limit_b), options.beam), options._asdict()
    del fields["vocabulary"]
    return beam.beam_search(
        step, cache, limit_b, max_length=MAX_LENGTH, **fields, **SPECIAL
    )


@functools.partial(jax.jit, static_argnames="options")
def table_search(table, seed_b, limit_b, options):
    return search_with(options, table_step(table, seed_b), limit_b)


def assert_same(found, expected, tolerance=0.0):
    for name, actual, expected_values in zip(
        found._fields, found, expected, strict=True
    ):
        actual, expected_values = np.asarray(actual), np.asarray(expected_values)
        assert actual.dtype == expected_values.dtype, name
        if tolerance and actual.dtype == np.float32:
            np.testing.assert_allclose(
                actual, expected_values, tolerance, tolerance, err_msg=name
            )
        else:
            np.testing.assert_array_equal(actual, expected_values, err_msg=name)


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


class Free:
    """The rules of a sentence without any; those of `test_rules.py` are by hand."""

    def may_come(self, tokens, last):
        return True

    def distances(self, tokens):
        return []

    def is_whole(self, tokens):
        return True


FREE = Free()


class SlowBeam:
    """A beam of one sentence, by the rules at the top of beam.py, one line for each.

    Attributes:
      alive, finished: (tokens, log_prob), and (score, log_prob, tokens); best first.
    """

    def __init__(self, log_probs, limit, options, rules=FREE):
        self.log_probs, self.limit, self.options = log_probs, limit, options
        self.rules, self.alive, self.finished = rules, [((), np.float32(0))], []
        self._no_cost = np.zeros(options.vocabulary, np.float32)
        self._weight = functools.partial(
            per_penalty,
            alpha=options.alpha,
            dtype=np.float32,
            penalty=options.penalty,
        )

    def advance(self, length, cost_v=None):
        """Extends the beam; returns the survivors. Costs only change the ranks."""
        cost_v = self._no_cost if cost_v is None else cost_v

        def rank(extension):
            return cost_v[extension[0][-1]] - extension[1]

        rows = [
            [
                ((*tokens, token), np.float32(total + log_prob))
                for token, log_prob in enumerate(self.log_probs(tokens))
                if token not in (BOS, PAD) and log_prob > -np.inf
                if self.rules.may_come((*tokens, token), length == self.limit)
            ]
            for tokens, total in self.alive
        ]
        candidates = sorted(itertools.chain(*rows), key=rank)[: self.options.beam]
        for (tokens, _), row in zip(self.alive, rows, strict=True):
            groups = [row]
            for i, distance in enumerate(self.rules.distances(tokens)):
                closer = [x for x in row if self.rules.distances(x[0])[i] < distance]
                groups.append(closer)
            candidates += [min(group, key=rank) for group in groups if group]
        survivors = self._dealt(sorted(dict.fromkeys(candidates), key=rank), rank)
        self.alive = [survivor for survivor in survivors if survivor[0][-1] != EOS]
        self.finished += [
            (np.float32(log_prob * self._weight(length)), log_prob, tokens)
            for tokens, log_prob in survivors
            if tokens[-1] == EOS
        ]
        self.finished.sort(key=lambda hypothesis: -hypothesis[0])
        self.finished = self.finished[: self.options.nbest]
        return survivors

    def _dealt(self, candidates, rank):
        """The beam, dealt out: the best of each bank, then the second best of each."""
        banks = {}
        for candidate in candidates:
            missing = [d for d in self.rules.distances(candidate[0]) if d]
            bank = len(missing), min(missing, default=0)
            banks.setdefault(bank, []).append(candidate)
        rounds = itertools.zip_longest(*(banks[lack] for lack in sorted(banks)))
        order = [item for bank in rounds for item in bank if item is not None]
        return sorted(order[: self.options.beam], key=rank)

    def has_stopped(self, early_stop=True):
        """True if no extension counts; `early_stop`: or can be among the best."""
        best = max((total for _, total in self.alive), default=-np.inf)
        is_full = len(self.finished) == self.options.nbest
        if best == -np.inf or not is_full or self.options.stop == "first":
            return best == -np.inf or is_full
        return early_stop and best * self._weight(self.limit) <= self.finished[-1][0]

    def result(self, length):
        """(score, log_prob, tokens, ended) of the best after so many steps."""
        result = [(*hypothesis, True) for hypothesis in self.finished]
        if length == self.limit:
            self.alive.sort(key=lambda item: not self.rules.is_whole(item[0]))
            for tokens, log_prob in self.alive:
                score = np.float32(log_prob * self._weight(length))
                result.append((score, log_prob, tokens, False))
        return result[: self.options.nbest]


def slow_search(log_probs, limit, options, early_stop, rules=FREE):
    """One sentence; returns the best, as `SlowBeam.result`, and the steps taken."""
    slow_beam = SlowBeam(log_probs, limit, options, rules)
    for length in range(1, limit + 1):
        slow_beam.advance(length)
        if slow_beam.has_stopped(early_stop):
            break
    return slow_beam.result(length), length


@examples(60)
@hypothesis.given(seeds, grids, strategies.sampled_from(OPTIONS))
def test_search_is_its_twin_bit_by_bit_where_ties_abound(seed, grid, options):
    check_against_the_twin(seed, grid, options)


def check_against_the_twin(seed, grid, options):
    """The twin never stops early here: stopping early changes nothing."""
    table, rows = exact_table(seed, options.vocabulary, grid), draw_rows(seed)
    np.testing.assert_array_equal(jax.nn.log_softmax(table), table)
    twin = [
        slow_search(table_log_probs(table, s, np.float32), limit, options, False)[0]
        for s, limit in zip(*rows, strict=True)
    ]
    expected = as_hypotheses(twin, options.nbest)
    assert_same(table_search(table, *rows, options), expected)


@pytest.mark.parametrize(
    "options", [Options(6, 3, 1, 3.0), Options(6, 2, 2, 3.0, "gnmt", "first")]
)
def test_search_stops_as_soon_as_its_rules_allow(options):
    positions, early = [], 0

    @jax.jit
    def counted_search(table, seed_b, limit_b):
        inner = table_step(table, seed_b)

        def step(cache, token_bn, position):
            jax.debug.callback(lambda p: positions.append(int(p)), position)
            return inner(cache, token_bn, position)

        return search_with(options, step, limit_b)

    for seed in range(12):
        table = exact_table(seed, options.vocabulary, 8.0)
        log_probs = table_log_probs(table, seed % STATES, np.float32)
        limit = MAX_LENGTH - seed % 2
        _, steps = slow_search(log_probs, limit, options, early_stop=True)
        early += steps < limit
        positions.clear()
        seed_b = np.array([seed % STATES], np.int32)
        jax.block_until_ready(counted_search(table, seed_b, np.array([limit])))
        jax.effects_barrier()
        assert sorted(positions) == list(range(steps))
    assert 0 < early < 12  # Both happen, or this says nothing.


# Against exhaustive search


@pytest.mark.parametrize(
    ("nbest", "alpha", "penalty"),
    [(1, 0.0, "gnmt"), (1, 0.6, "gnmt"), (32, 3.0, "gnmt")]
    + [(1, 2.5, "length"), (32, 1.0, "length"), (32, 0.6, "none")],
)
def test_a_wide_beam_is_exhaustive_search(nbest, alpha, penalty):
    # Two letters and EOS, 4 tokens at most: 24 extensions, 31 outputs, 1 empty place.
    options = Options(5, 32, nbest, alpha, penalty)
    search = numbers.table_search(options)
    for seed in range(4):
        differences = numbers.search_differences(search, options, seed)
        assert differences == (0, 4 * nbest)


# Laws


def test_a_sentence_does_not_depend_on_its_neighbours():
    options = OPTIONS[1]
    for seed in range(6):
        make = [functools.partial(exact_table, grid=2.0), smooth_table][seed % 2]
        table = make(seed, options.vocabulary)
        seed_b, limit_b = draw_rows(seed)
        limit_b[0], limit_b[-1] = 1, MAX_LENGTH  # Some stop long before others.
        together = table_search(table, seed_b, limit_b, options)
        order = np.random.default_rng(seed).permutation(BATCH)
        permuted = table_search(table, seed_b[order], limit_b[order], options)
        assert_same(permuted, rows_of(together, order))
        for rows in ([1] * BATCH, [2]):  # Among copies of itself, and alone.
            copies = table_search(table, seed_b[rows], limit_b[rows], options)
            assert_same(copies, rows_of(together, rows))


def test_a_model_that_says_nan_is_not_hidden():
    table, row_b = np.full((STATES, 5), np.nan, np.float32), np.array([3])
    for width in (1, 3):
        results = table_search(table, row_b, row_b, Options(5, width))
        assert np.isnan(results.score_bn).all()


REFUSED = [
    ({"nbest": 5}, "nbest is 5 and beam is 4"),
    ({"alpha": float("nan")}, "alpha is nan"),
    ({"penalty": "mean"}, "penalty is 'mean'; it must be one of gnmt, length, none"),
    ({"eos": 5}, "vocabulary of 5"),
    ({"limit_b": jnp.array(3)}, r"limit_b has shape \(\)"),
    ({"cache": {"k": jnp.zeros((2, 3))}}, r"cache\['k'\] has shape \(2, 3\)"),
]
ARGUMENTS = {
    "step": lambda cache, token_bn, _: (jnp.zeros((*token_bn.shape, 5)), cache),
    "cache": {"k": jnp.zeros((2, 4))},
    "limit_b": jnp.array([3, 3]),
    "max_length": 3,
    **SPECIAL,
}


@pytest.mark.parametrize(("changed", "message"), REFUSED)
def test_bad_arguments_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        beam.beam_search(**ARGUMENTS | changed)


@pytest.mark.parametrize("size", [128 * 33 + 77, 1_000])
def test_top_k_in_two_stages_is_top_k(size):
    rng = np.random.default_rng(size)
    many_ties = rng.integers(0, 5, (3, size)).astype(np.float32)
    few_ties = rng.normal(size=(3, size)).astype(np.float32).round(2)
    hardly_any = np.where(rng.random((3, size)) < 2 / size, few_ties, -np.inf)
    sorted_values = np.sort(
        few_ties, axis=1
    )  # the best are in what is left of the groups
    for x_bv in (many_ties, few_ties, hardly_any, sorted_values):
        for k in (1, 8):
            actual, want = top_k(jnp.asarray(x_bv), k), jax.lax.top_k(x_bv, k)
            jax.tree.map(np.testing.assert_array_equal, tuple(actual), tuple(want))


@pytest.mark.parametrize("size", [1_000, 6_000])
@pytest.mark.parametrize("k", [1, 5])
def test_the_best_extensions_are_those_among_all(size, k):
    """Values to the bit, and of equal ones the first; where few are alive, too."""
    rng = np.random.default_rng(size + k)
    banned = (0, 1, 3, size - 1)
    file_text = jax.jit(best_extensions, static_argnums=(2, 3))
    for digits, alive in itertools.product((0, 1, 9, None), (1, 3)):
        if digits is None:  # equal ones in groups whose best differ
            logits_bnv = 1.0 * (rng.random((4, 3, size)) < 0.3)
            logits_bnv += rng.random((4, 3, size)) < 2 / size
            digits = 0
        else:
            logits_bnv = (9 * rng.normal(size=(4, 3, size))).round(digits)
        logits_bnv = logits_bnv.astype(np.float32)
        logits_bnv[0, :, [*banned]] = 99  # what is banned would be the best
        log_prob_bn = rng.normal(size=(4, 3)).round(digits).astype(np.float32)
        log_prob_bn[:, alive:] = -np.inf
        all_bnv = extensions(logits_bnv, log_prob_bn, banned)
        want, place_bk = top_k(all_bnv.reshape(4, -1), k)
        actual, ours_bk = file_text(logits_bnv, log_prob_bn, k, banned)
        np.testing.assert_array_equal(actual, want)
        np.testing.assert_array_equal(ours_bk, place_bk)
