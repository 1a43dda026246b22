"""Diverse beam search, held against a slow twin and against the plain beam."""

import functools
import re

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies

from t2t_jax.decoding.search_options import beam_search_algorithm
from t2t_jax.io.errors import UserError
from t2t_jax.search.beam import BeamSearch
from t2t_jax.tools.explain.explain import explain
from t2t_jax.tools.verify.references.search import (
    BOS,
    EOS,
    MAX_LENGTH,
    PAD,
    Options,
    as_hypotheses,
    exact_table,
    per_penalty,
    smooth_table,
    table_cache,
    table_log_probs,
    table_step,
)
from tests.decoding.small_translator import CONFIG, TEXT, translator
from tests.decoding.test_search import (
    BATCH,
    assert_same,
    draw_rows,
    grids,
    seeds,
    table_search,
)

pytestmark = pytest.mark.usefixtures("quick_compiler")

OPTIONS = [
    (Options(6, 4, 4, 0.6), 2),
    (Options(6, 6, 3, 1.0, "length"), 3),
    (Options(8, 4, 2, 0.0, "none", "first"), 4),
]


def diverse(options, groups, diversity):
    return BeamSearch(
        beam=options.beam,
        nbest=options.nbest,
        alpha=options.alpha,
        penalty=options.penalty,
        stop=options.stop,
        bos=BOS,
        eos=EOS,
        pad=PAD,
        groups=groups,
        diversity=diversity,
    )


@functools.partial(jax.jit, static_argnames=("options", "groups", "strides"))
def diverse_search(table, seed_b, limit_b, diversity, options, groups, strides=1):
    """Searches by table; in several strides, as batches of lines are."""
    algorithm = diverse(options, groups, diversity)
    step, cache = table_step(table, seed_b), table_cache(BATCH, options.beam)
    state = algorithm.start(cache, limit_b, max_length=MAX_LENGTH)
    for stride in range(strides):
        ends = (stride + np.arange(2)) * MAX_LENGTH // strides
        state = algorithm.advance(step, state, *ends)
    return algorithm.result(state), algorithm._results_of_groups(state, None)[0]


# The twin


def slow_diverse(log_probs, limit, options, groups, diversity):
    """One sentence, by the rules at the top of search/beam.py.

    Returns the n-best list, and that of each group: (score, log_prob, tokens, ended).
    """
    width, real = options.beam // groups, np.float32
    weight = functools.partial(
        per_penalty, alpha=options.alpha, dtype=real, penalty=options.penalty
    )
    alive = [[((), real(0))] for _ in range(groups)]
    finished = [[] for _ in range(groups)]
    stopped = [False] * groups
    for length in range(1, limit + 1):
        used = np.zeros(options.vocabulary)
        for group in range(groups):
            if stopped[group]:
                continue
            extensions = [
                ((*tokens, token), real(total + log_prob))
                for tokens, total in alive[group]
                for token, log_prob in enumerate(log_probs(tokens))
                if token not in (BOS, PAD) and log_prob > -np.inf
            ]
            extensions.sort(
                key=lambda extension: (
                    -(extension[1] - real(diversity) * real(used[extension[0][-1]]))
                )
            )
            survivors = extensions[:width]
            used += np.bincount(
                [tokens[-1] for tokens, _ in survivors], minlength=len(used)
            )
            alive[group] = [s for s in survivors if s[0][-1] != EOS]
            finished[group] += [
                (real(log_prob * weight(length)), log_prob, tokens, True)
                for tokens, log_prob in survivors
                if tokens[-1] == EOS
            ]
            finished[group].sort(key=lambda each: -each[0])
            finished[group] = finished[group][:width]
            full = len(finished[group]) == width
            best = max((total for _, total in alive[group]), default=-np.inf)
            stopped[group] = (
                best == -np.inf
                or (full and options.stop == "first")
                or (full and best * weight(limit) <= finished[group][-1][0])
                or length == limit
            )
            if length == limit:
                finished[group] += [
                    (real(log_prob * weight(limit)), log_prob, tokens, False)
                    for tokens, log_prob in alive[group]
                ]
    of_groups = [each[:width] for each in finished]
    union = [each for of_group in of_groups for each in of_group]
    union.sort(key=lambda each: (not each[3], -each[0]))
    tokens = [each[2] for each in union]
    first = [place for place, each in enumerate(tokens) if each not in tokens[:place]]
    copies = [place for place in range(len(union)) if place not in first]
    chosen = sorted((first + copies)[: options.nbest])
    return [union[place] for place in chosen], of_groups


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    seeds,
    grids,
    strategies.sampled_from(OPTIONS),
    strategies.sampled_from([0.0, 0.5, 2.0, 64.0]),
)
def test_search_is_its_twin_bit_by_bit(seed, grid, case, diversity):
    options, groups = case
    table = exact_table(seed, options.vocabulary, grid)
    seed_b, limit_b = draw_rows(seed)
    twin = [
        slow_diverse(
            table_log_probs(table, s, np.float32), limit, options, groups, diversity
        )
        for s, limit in zip(seed_b, limit_b, strict=True)
    ]
    expected = as_hypotheses([nbest for nbest, _ in twin], options.nbest)
    found, _ = diverse_search(table, seed_b, limit_b, diversity, options, groups)
    assert_same(found, expected)


# Laws


def test_the_first_group_is_the_plain_beam_of_its_width():
    """Whatever the others do; and with a diversity of 0, so is every group."""
    options, groups = OPTIONS[1]
    width = options.beam // groups
    narrow = options._replace(beam=width, nbest=width)
    for seed in range(6):
        table = smooth_table(seed, options.vocabulary)
        rows = draw_rows(seed)
        plain = table_search(table, *rows, narrow)
        for diversity in (0.0, 0.7):
            _, found = diverse_search(table, *rows, diversity, options, groups)
            of_groups = jax.tree.map(
                lambda leaf: leaf.reshape(BATCH, groups, *leaf.shape[1:]), found
            )
            for group in range(1 if diversity else groups):
                first = jax.tree.map(lambda leaf, g=group: leaf[:, g], of_groups)
                assert_same(first, plain, 1e-6)


def test_groups_differ_more_the_higher_the_diversity_and_copies_come_last():
    options, groups = Options(6, 4, 4, 0.6), 4
    table, rows = smooth_table(3, options.vocabulary), draw_rows(3)
    rows = rows[0], np.full(BATCH, MAX_LENGTH, np.int32)
    different = []
    for diversity in (0.0, 0.4, 20.0):
        found, _ = diverse_search(table, *rows, diversity, options, groups)
        lists = [[tuple(t) for t in of_line] for of_line in np.array(found.tokens_bnt)]
        different.append(sum(len({*of_line}) for of_line in lists))
        assert (np.array(found.length_bn) > 0).all()  # copies fill the places left
        ended_bn, score_bn = np.array(found.ended_bn), np.array(found.score_bn)
        assert (ended_bn[:, :-1] >= ended_bn[:, 1:]).all()
        same_bn = ended_bn[:, :-1] == ended_bn[:, 1:]
        assert (score_bn[:, :-1] >= score_bn[:, 1:])[same_bn].all()
    assert different[0] == BATCH  # all groups alike
    assert different[0] < different[1] <= different[2] == 4 * BATCH


def test_a_search_in_strides_is_the_search():
    options, groups = OPTIONS[0]
    table, rows = smooth_table(5, options.vocabulary), draw_rows(5)
    whole, _ = diverse_search(table, *rows, 0.5, options, groups)
    parts, _ = diverse_search(table, *rows, 0.5, options, groups, strides=3)
    assert_same(parts, whole)


# Translators


@pytest.fixture(scope="module")
def one():
    return translator(1)


LINES = [*TEXT, "", "a cat sees the dog and the cat", "sieht"]


def test_translations_of_groups(one):
    """Of a model: what the first group finds is there; neighbours change nothing."""
    found = one.translate(LINES, beam=4, groups=2, diversity=1.0, nbest=4, warn=False)
    plain = one.translate(LINES, beam=2, nbest=2, warn=False)
    for line, ours, narrow in zip(LINES, found, plain, strict=True):
        assert len(ours.hypotheses) == (4 if line else 1)
        texts = {h.tokens for h in ours.hypotheses}
        assert ours.score >= narrow.score - 1e-4
        assert {h.tokens for h in narrow.hypotheses} <= texts
        assert all(
            a.score >= b.score or a.ended > b.ended
            for a, b in zip(ours.hypotheses, ours.hypotheses[1:], strict=False)
        )
    options = {"beam": 4, "groups": 2, "diversity": 1.0, "warn": False}
    again = one.translate(LINES[::-1], nbest=4, batch_size=3, **options)[::-1]
    assert again == found  # to the bit: a line does not see its neighbours
    with_groups = one.with_options(beam=4, groups=2, diversity=1.0)
    assert with_groups.translate(LINES, nbest=4, warn=False) == found


@pytest.mark.slow
def test_constraints_hold_in_every_group(one):
    lines = ["the cat sees the dog", "a dog sleeps"]
    options = {"beam": 4, "groups": 2, "diversity": 5.0, "nbest": 4, "warn": False}
    for translation in one.translate(lines, prefix="die Katze", **options):
        assert all(h.text.startswith("die Katze") for h in translation.hypotheses)
    for translation in one.translate(lines, must="Hund", **options):
        has = [bool(re.search(r"\bHund\b", h.text)) for h in translation.hypotheses]
        assert has[0], translation.hypotheses
        assert has == sorted(has, reverse=True)  # none ended: those that lack it, last


def test_one_group_is_the_plain_algorithm(one):
    def made(**more):
        options = CONFIG.decode.override(beam=4, **more)
        return beam_search_algorithm(options, one.vocabulary, nbest=2)

    assert type(made()) is type(made(groups=1)) is BeamSearch
    assert made() == made(groups=1)  # the same program, then, as before
    assert made(groups=2).diversity == 0.5
    assert "groups" not in one.decode_options()  # what was stored before still counts
    options = one.with_options(beam=4, groups=2, diversity=0.25).decode_options()
    assert (options["groups"], options["diversity"]) == (2, 0.25)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"groups": 2}, "groups=2 with beam=3; .* set beam=4"),
        ({"groups": 0}, "groups=0 is too small; want at least 1"),
        ({"beam": 4, "groups": 2, "diversity": -1}, "diversity=-1.*at least 0"),
        ({"beam": 4, "groups": 2, "diversity": float("nan")}, "diversity=nan"),
        ({"diversity": 0.5}, "diversity=0.5 acts between groups, .*groups=1"),
        ({"beam": 4, "groups": 2, "nbest": 5}, "nbest=5 with beam=4"),
    ],
)
def test_groups_that_cannot_be_are_refused(one, options, told):
    with pytest.raises(UserError, match=told):
        one.translate(["a dog"], **options)


def test_a_config_whose_beam_cannot_be_divided_is_refused(one):
    with pytest.raises(UserError, match="config.decode.groups=2 with beam=3"):
        one.with_options(groups=2)
    with pytest.raises(UserError, match="groups=2.*explain"):
        explain(one.with_options(beam=4, groups=2), "a dog")
