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
    MAX_LENGTH,
    SPECIAL,
    Options,
    as_hypotheses,
    table_cache,
    table_log_probs,
    table_step,
)
from tests.decoding.small_translator import TEXT
from tests.decoding.test_search import (
    BATCH,
    SlowBeam,
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
    fields = options._asdict() | SPECIAL | {"groups": groups, "diversity": diversity}
    del fields["vocabulary"]
    algorithm = BeamSearch(**fields)
    step, cache = table_step(table, seed_b), table_cache(BATCH, options.beam)
    state = algorithm.start(cache, limit_b, max_length=MAX_LENGTH)
    for position, until in ((0, 3), (3, MAX_LENGTH)):
        state = algorithm.advance(step, state, position, until)
    return algorithm.result(state), algorithm._results_of_groups(state, None)[0]


# The twin


def slow_diverse(log_probs, limit, options, groups, diversity):
    """One sentence: groups in turn, each of which avoids the tokens of those before."""
    width = options.beam // groups
    narrow = options._replace(beam=width, nbest=width)
    beams = [SlowBeam(log_probs, limit, narrow) for _ in range(groups)]
    steps = dict.fromkeys(beams, 0)
    for length in range(1, limit + 1):
        used_v = np.zeros(options.vocabulary, np.float32)
        for slow_beam in beams:
            if not slow_beam.has_stopped():
                cost_v = np.float32(diversity) * used_v
                for tokens, _ in slow_beam.advance(length, cost_v):
                    used_v[tokens[-1]] += 1
                steps[slow_beam] = length
    union = [row for slow_beam in beams for row in slow_beam.result(steps[slow_beam])]
    union.sort(key=lambda row: (not row[3], -row[0]))
    tokens = [row[2] for row in union]
    is_copy = [row in tokens[:place] for place, row in enumerate(tokens)]
    places = sorted(range(len(union)), key=is_copy.__getitem__)[: options.nbest]
    return [union[place] for place in sorted(places)]


@examples(40)
@hypothesis.given(
    seeds,
    grids,
    strategies.sampled_from(OPTIONS),
    strategies.sampled_from([0.0, 0.5, 64.0]),
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
    results, group_results = diverse_search(table, seed_b, limit_b, diversity, *case)
    assert_same(results, as_hypotheses(twin, options.nbest))
    # The first group is the plain beam of its width; without diversity, all groups are.
    width = options.beam // groups
    narrow = options._replace(beam=width, nbest=width)
    plain = table_search(table, seed_b, limit_b, narrow)
    for group in range(1 if diversity else groups):
        assert_same(rows_of(group_results, np.s_[group::groups]), plain)


# Translators


def test_the_translations_of_a_narrow_beam_are_among_those_of_groups(tiny):
    options = {"beam": 4, "groups": 2, "diversity": 1.0}
    results = tiny.translate(TEXT, **options, nbest=4, warn=False)
    plain = tiny.translate(TEXT, beam=2, nbest=2, warn=False)
    for file_text, narrow in zip(results, plain, strict=True):
        assert {h.tokens for h in narrow.hypotheses} <= {
            h.tokens for h in file_text.hypotheses
        }


@pytest.mark.slow
def test_constraints_hold_in_every_group(tiny):
    lines = ["the cat sees the dog", "a dog sleeps"]
    options = {"beam": 4, "groups": 2, "diversity": 5.0, "nbest": 4, "warn": False}
    for translation in tiny.translate(lines, prefix="die Katze", **options):
        assert all(h.text.startswith("die Katze") for h in translation.hypotheses)
    for translation in tiny.translate(lines, must="Hund", **options):
        has = [bool(re.search(r"\bHund\b", h.text)) for h in translation.hypotheses]
        assert has[0], translation.hypotheses
        assert has == sorted(has, reverse=True)  # none ended: those that lack it, last


def test_groups_that_cannot_be_are_refused(tiny):
    with pytest.raises(UserError, match="groups=2 with beam=3; .* set beam=4"):
        tiny.translate(["a dog"], groups=2)
    with pytest.raises(
        UserError, match="diversity=0.5 acts between groups, .*groups=1"
    ):
        tiny.translate(["a dog"], diversity=0.5)
