"""Prefixes, required and forbidden phrases, held against a twin and exhaustive search.

Phrases here are of tokens, and small automata made by hand look for them. Some count as
said only once what follows is another token or the end, as a word does in text.
"""

import functools
import math
from typing import NamedTuple

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies

from t2t_jax.search import beam
from t2t_jax.search.rules import Rules
from t2t_jax.tools.verify.references.search import (
    EOS,
    MAX_LENGTH,
    SPECIAL,
    A,
    B,
    Options,
    as_hypotheses,
    exhaustive,
    smooth_table,
    table_cache,
    table_log_probs,
    table_step,
)
from tests.decoding.test_search import (
    BATCH,
    assert_same,
    draw_rows,
    exact_table,
    examples,
    grids,
    rows_of,
    seeds,
    slow_search,
)

C = 5
VOCABULARY = 6
LETTERS = (A, B, C)
ALPHA = 0.6


# Rules by hand


class Phrase(NamedTuple):
    """Tokens, and whether another token than the last (or the end) must follow."""

    tokens: tuple[int, ...]
    whole: bool = False

    def within(self, output):
        """The specification: whether an output holds it."""
        size = len(self.tokens)
        return any(
            output[i : i + size] == self.tokens
            and (not self.whole or output[i + size : i + size + 1] != self.tokens[-1:])
            for i in range(len(output) - size + 1)
        )


class Machine(NamedTuple):
    """next[state][token], and the least number of tokens to the last state."""

    next: list[list[int]]
    distance: list[int]

    @property
    def said(self):
        return len(self.next) - 1


@functools.cache
def machine(phrase):
    """Its states are the tokens of it that were read last; the last is "said"."""
    tokens, complete = phrase
    size = len(tokens)
    message = size + complete

    def read(state, token):
        if state == message:
            return message
        if complete and state == size and token != tokens[-1]:
            return message
        recent = (*tokens[:state], token)
        return max(
            n for n in range(size + 1) if recent[len(recent) - n :] == tokens[:n]
        )

    table = [[read(s, t) for t in range(VOCABULARY)] for s in range(message + 1)]
    distance = [math.inf] * message + [0]
    for _ in table:  # Longest ways first, until none gets shorter.
        for state in range(message):
            distances_after = [table[state][token] for token in LETTERS]
            distances_after += [message] * (table[state][EOS] == message)
            distance[state] = 1 + min(distance[case] for case in distances_after)
    return Machine(table, distance)


class Wanted(NamedTuple):
    """The rules of one sentence."""

    prefix: tuple[int, ...] = ()
    must: tuple[Phrase, ...] = ()
    must_not: tuple[Phrase, ...] = ()

    def distances(self, tokens):
        return [machine(phrase).distance[state(phrase, tokens)] for phrase in self.must]

    def is_whole(self, tokens):
        return all(said(self.must, (*tokens, EOS)))

    def may_come(self, tokens, last):
        """Whether the rules leave the last of these tokens."""
        prefix, ended = self.prefix[: len(tokens)], (*tokens, EOS)
        if tokens[: len(prefix)] != prefix:
            return False
        if any(said(self.must_not, ended if last else tokens)):
            return False
        return tokens[-1] != EOS or all(said(self.must, tokens))


def as_rules(wanted_b, states=64, columns=4):
    """One shape for all of them: a search is compiled once."""
    prefix_bt = np.full((len(wanted_b), MAX_LENGTH), -1, np.int32)
    start_bc = np.zeros((len(wanted_b), columns), np.int32)
    next_sv = np.zeros((states, VOCABULARY), np.int32)
    refused_sv = np.zeros((states, VOCABULARY), bool)
    distance_s = np.zeros(states, np.int32)
    count, places = 1, {}
    for b, expected in enumerate(wanted_b):
        prefix_bt[b, : len(expected.prefix)] = expected.prefix
        phrases = [(p, True) for p in expected.must]
        phrases += [(p, False) for p in expected.must_not]
        for c, (phrase, required) in enumerate(phrases):
            if (phrase, required) not in places:
                places[phrase, required] = count
                results = machine(phrase)
                after_sv = np.array(results.next)
                rows = np.s_[count : count + len(after_sv)]
                next_sv[rows] = after_sv + count
                if required:
                    refused_sv[rows, EOS] = after_sv[:, EOS] != results.said
                    distance_s[rows] = results.distance
                else:
                    refused_sv[rows] = after_sv == results.said
                count += len(after_sv)
            start_bc[b, c] = places[phrase, required]
    closer_sv = distance_s[next_sv] < distance_s[:, None]
    return Rules(prefix_bt, start_bc, next_sv, refused_sv, closer_sv, distance_s)


@functools.partial(jax.jit, static_argnames=("width", "nbest", "stop"))
def ruled_search(table, seed_b, limit_b, rules, width, nbest, stop="best"):
    return beam.beam_search(
        table_step(table, seed_b),
        table_cache(len(limit_b), width),
        limit_b,
        max_length=MAX_LENGTH,
        beam=width,
        nbest=nbest,
        alpha=ALPHA,
        stop=stop,
        rules=rules,
        **SPECIAL,
    )


# The twin


@functools.cache
def state(phrase, tokens):
    """The state of its machine after these tokens."""
    return machine(phrase).next[state(phrase, tokens[:-1])][tokens[-1]] if tokens else 0


def said(phrases, tokens):
    return [machine(phrase).said == state(phrase, tokens) for phrase in phrases]


def draw_wanted(seed):
    """Rules for each sentence of a batch, of every kind, and none for some."""
    draw = np.random.default_rng(seed)

    def phrase(size):
        tokens = tuple(draw.choice(LETTERS, size).tolist())
        return Phrase(tokens, bool(draw.integers(2)))

    wanted_b = []
    for _ in range(BATCH):
        prefix = tuple(draw.choice(LETTERS, draw.choice([0, 0, 0, 1, 2])).tolist())
        must = [phrase(draw.integers(1, 3)) for _ in range(draw.choice(3))]
        must_not = [phrase(draw.integers(1, 4)) for _ in range(draw.choice(2))]
        wanted_b.append(Wanted(prefix, tuple(must), tuple(must_not)))
    if draw.integers(2):
        wanted_b[draw.integers(BATCH)] = Wanted()
    return wanted_b


SHAPES = strategies.sampled_from([(1, 1), (3, 3), (4, 2)])


@examples(50)
@hypothesis.given(seeds, grids, SHAPES, strategies.sampled_from(["best", "first"]))
def test_search_is_its_twin_bit_by_bit(seed, grid, shape, stop):
    check_rules_against_the_twin(seed, grid, shape, stop)


def check_rules_against_the_twin(seed, grid, shape, stop):
    table, (seed_b, limit_b) = exact_table(seed, VOCABULARY, grid), draw_rows(seed)
    wanted_b, options = draw_wanted(seed), Options(VOCABULARY, *shape, ALPHA, stop=stop)
    rows = [
        slow_search(
            table_log_probs(table, s, np.float32), limit, options, True, expected
        )[0]
        for s, limit, expected in zip(seed_b, limit_b, wanted_b, strict=True)
    ]
    rules = as_rules(wanted_b)
    results = ruled_search(table, seed_b, limit_b, rules, *shape, stop=stop)
    assert_same(results, as_hypotheses(rows, shape[1]))


# Against exhaustive search


def lawful(wanted, output):
    """Whether an output, ended or at its limit, keeps the rules."""
    return (
        output[: len(wanted.prefix)] == wanted.prefix[: len(output)]
        and not any(phrase.within(output) for phrase in wanted.must_not)
        and (output[-1] != EOS or all(phrase.within(output) for phrase in wanted.must))
    )


def lawful_outputs(log_probs, limit, wanted):
    """Lawful outputs: ended, then unended that hold what they must, then the others."""
    every = exhaustive(log_probs, limit, VOCABULARY, ALPHA, "gnmt")
    results = [output for output in every if lawful(wanted, output[2])]
    results.sort(key=lambda output: not all(p.within(output[2]) for p in wanted.must))
    return results


def test_a_wide_beam_is_exhaustive_search_among_lawful_outputs():
    # 27 unended of 3 tokens, 4 extensions of each: a beam of 108 drops nothing.
    limits = np.array([4, 4, 4, 3], np.int32)
    for seed in range(4):
        table = smooth_table(seed, VOCABULARY)
        seed_b = np.arange(4, dtype=np.int32) + seed
        wanted_b = draw_wanted(seed)
        rows = [
            lawful_outputs(table_log_probs(table, s, np.float64), limit, expected)
            for s, limit, expected in zip(seed_b, limits, wanted_b, strict=True)
        ]
        rules = as_rules(wanted_b)
        for nbest in (1, 16):
            results = ruled_search(table, seed_b, limits, rules, 108, nbest)
            expected = as_hypotheses([row[:nbest] for row in rows], nbest)
            assert_same(results, expected, 1e-5)


# Promises


def all_outputs(found):
    """(sentence, tokens, ended) of every hypothesis."""
    found = rows_of(found, np.s_[:])
    for b, n in np.ndindex(found.length_bn.shape):
        tokens = tuple(found.tokens_bnt[b, n, : found.length_bn[b, n]].tolist())
        if tokens:
            yield b, tokens, bool(found.ended_bn[b, n])


@examples(30)
@hypothesis.given(seeds, strategies.sampled_from([(1, 1), (4, 2)]))
def test_every_hypothesis_keeps_its_rules_and_none_is_there_twice(seed, shape):
    table = smooth_table(seed, VOCABULARY)
    seed_b, limit_b = draw_rows(seed)
    wanted_b = draw_wanted(seed)
    results = ruled_search(table, seed_b, limit_b, as_rules(wanted_b), *shape)
    every = list(all_outputs(results))
    assert len(set(every)) == len(every)
    assert all(lawful(wanted_b[b], tokens) for b, tokens, _ in every)
    # `closer_sv` of no states where no phrase is required: another program.
    rules = as_rules([expected._replace(must=()) for expected in wanted_b])
    short = rules._replace(closer_sv=rules.closer_sv[:0])
    longer, shorter = (
        ruled_search(table, seed_b, limit_b, rules_variant, *shape)
        for rules_variant in (rules, short)
    )
    assert_same(shorter, longer)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("dislike", [0.0, 30.0])
def test_what_must_be_said_is_said_where_there_is_room(beam, dislike):
    # The model dislikes B and C, and would rather not end.
    pairs = [
        (Phrase((B, C)),),
        (Phrase((A, B)), Phrase((C, A))),
        (Phrase((B, C)), Phrase((C, B))),
        (Phrase((A, B), True), Phrase((A, C), True)),
    ]
    limits = np.full(BATCH, MAX_LENGTH, np.int32)
    for seed, must in enumerate(pairs):
        table = smooth_table(seed, VOCABULARY)
        table[:, [B, C]] -= dislike
        table[:, EOS] -= 30.0
        seed_b = np.arange(BATCH, dtype=np.int32) + seed
        rules = as_rules([Wanted(must=must)] * BATCH)
        results = ruled_search(table, seed_b, limits, rules, beam, 1)
        for _, tokens, _ in all_outputs(results):
            assert all(phrase.within(tokens) for phrase in must), (must, tokens)
        assert (np.asarray(results.length_bn) > 0).all()


def test_rules_that_nothing_can_keep_leave_nothing():
    table, seed_b, limit_b = smooth_table(0, VOCABULARY), np.arange(2), np.array([3, 3])
    must_not = tuple(Phrase((letter,)) for letter in LETTERS)
    rules = as_rules([Wanted(must=must_not[:1], must_not=must_not), Wanted()])
    results = ruled_search(table, seed_b, limit_b, rules, 2, 2)
    free = ruled_search(table, seed_b, limit_b, None, 2, 2)
    assert_same(rows_of(results, np.s_[1:]), rows_of(free, np.s_[1:]))
    results = rows_of(results, 0)
    assert not results.length_bn.any()
    assert (results.score_bn == -np.inf).all()
