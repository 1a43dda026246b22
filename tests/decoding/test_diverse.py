"""Diverse beam search, held against a slow twin and against the plain beam."""

import functools
import re

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies

from t2t_jax.io.errors import UserError
from t2t_jax.search.beam import BeamSearch
from t2t_jax.tools.verify.references.search import (
    BOS,
    EOS,
    MAX_LENGTH,
    PAD,
    SPECIAL,
    Options,
    as_hypotheses,
    per_penalty,
    table_cache,
    table_log_probs,
    table_step,
)
from tests.decoding.small_translator import TEXT
from tests.decoding.test_search import (
    BATCH,
    assert_same,
    draw_rows,
    exact_table,
    examples,
    grids,
    rows_of,
    seeds,
    table_search,
)

OPTIONS = [
    (Options(6, 4, 4, 0.6), 2),
    (Options(6, 6, 3, 1.0, "length"), 3),
    (Options(8, 4, 2, 0.0, "none", "first"), 4),
]


@functools.partial(jax.jit, static_argnames=("options", "groups"))
def diverse_search(table, seed_b, limit_b, diversity, options, groups):
    """Searches by table, in two strides, as batches of lines are."""
    chosen = options._asdict() | SPECIAL | {"groups": groups, "diversity": diversity}
    del chosen["vocabulary"]
    algorithm = BeamSearch(**chosen)
    step, cache = table_step(table, seed_b), table_cache(BATCH, options.beam)
    state = algorithm.start(cache, limit_b, max_length=MAX_LENGTH)
    for position, until in ((0, 3), (3, MAX_LENGTH)):
        state = algorithm.advance(step, state, position, until)
    return algorithm.result(state), algorithm._results_of_groups(state, None)[0]


# The twin


def slow_diverse(log_probs, limit, options, groups, diversity):
    """One sentence, by the rules at the top of search/beam.py."""
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
    return [union[place] for place in chosen]


@examples(40)
@hypothesis.given(
    seeds,
    grids,
    strategies.sampled_from(OPTIONS),
    strategies.sampled_from([0.0, 0.5, 64.0]),
)
def test_search_is_its_twin_bit_by_bit(seed, grid, case, diversity):
    options, groups = case
    table, (seed_b, limit_b) = (
        exact_table(seed, options.vocabulary, grid),
        draw_rows(seed),
    )
    twin = [
        slow_diverse(
            table_log_probs(table, s, np.float32), limit, options, groups, diversity
        )
        for s, limit in zip(seed_b, limit_b, strict=True)
    ]
    found, of_groups = diverse_search(table, seed_b, limit_b, diversity, *case)
    assert_same(found, as_hypotheses(twin, options.nbest))
    # The first group is the plain beam of its width; without diversity, all groups are.
    width = options.beam // groups
    narrow = options._replace(beam=width, nbest=width)
    plain = table_search(table, seed_b, limit_b, narrow)
    for group in range(1 if diversity else groups):
        assert_same(rows_of(of_groups, np.s_[group::groups]), plain)


# Translators


def test_the_translations_of_a_narrow_beam_are_among_those_of_groups(one):
    options = {"beam": 4, "groups": 2, "diversity": 1.0}
    found = one.translate(TEXT, **options, nbest=4, warn=False)
    plain = one.translate(TEXT, beam=2, nbest=2, warn=False)
    for ours, narrow in zip(found, plain, strict=True):
        assert {h.tokens for h in narrow.hypotheses} <= {
            h.tokens for h in ours.hypotheses
        }


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


def test_groups_that_cannot_be_are_refused(one):
    with pytest.raises(UserError, match="groups=2 with beam=3; .* set beam=4"):
        one.translate(["a dog"], groups=2)
    with pytest.raises(
        UserError, match="diversity=0.5 acts between groups, .*groups=1"
    ):
        one.translate(["a dog"], diversity=0.5)
