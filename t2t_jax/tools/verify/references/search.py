"""Beam search a second time, by trying every output.

The models here are tables: the logits of a prefix are the row its hash picks, and the
hash is of the whole prefix as the cache remembers it, so a cache that moves wrongly is
another model.

Shape suffixes: b batch, n hypotheses, t target, v vocabulary.
"""

import itertools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from t2t_jax.search.algorithm import Hypotheses

PAD, BOS, EOS, A, B = 0, 1, 2, 3, 4
SPECIAL = {"bos": BOS, "eos": EOS, "pad": PAD}
STATES = 61  # rows of a table
MAX_LENGTH = 6
WEIGHTS = np.array([7, 11, 13, 17, 19, 23, 29, 31])  # of a prefix's tokens in its hash


class Options(NamedTuple):
    """A search: the size of the vocabulary, and the options of `beam_search`."""

    vocabulary: int = 5
    beam: int = 4
    nbest: int = 1
    alpha: float = 0.6
    penalty: str = "gnmt"
    stop: str = "best"


def smooth_table(seed, vocabulary):
    """Logits without structure: no ties, and all probabilities matter."""
    draw = np.random.default_rng(seed)
    return draw.normal(0, 1.5, (STATES, vocabulary)).astype(np.float32)


def table_step(table, seed_b):
    """A step whose cache is the prefix: a leaf of two axes and one of three."""

    def step(cache, token_bn, position):
        prefix_bnt = cache["prefix"].at[:, :, position].set(token_bn + 1)
        count_bn = cache["odd"] + token_bn % 2
        terms_bnt = prefix_bnt * WEIGHTS[: prefix_bnt.shape[2]]
        state_bn = seed_b[:, None] + jnp.sum(terms_bnt, axis=2) + 37 * count_bn
        return table[state_bn % STATES], {"prefix": prefix_bnt, "odd": count_bn}

    return step


def table_cache(batch, beam):
    """The cache of `table_step` before the first step: an empty prefix."""
    prefix_bnt = jnp.zeros((batch, beam, MAX_LENGTH), jnp.int32)
    return {"prefix": prefix_bnt, "odd": jnp.zeros((batch, beam), jnp.int32)}


def table_log_probs(table, seed, dtype):
    """The same model for the twin: tokens without BOS -> log-probabilities [v]."""
    table = table.astype(dtype)
    highest = table.max(axis=1, keepdims=True)
    total = np.exp(table - highest).sum(axis=1, keepdims=True, dtype=dtype)
    table = table - highest - np.log(total)

    def log_probs(tokens):
        prefix = np.array((BOS, *tokens))
        terms = (prefix + 1) * WEIGHTS[: len(prefix)]
        return table[(seed + terms.sum() + 37 * (prefix % 2).sum()) % STATES]

    return log_probs


def per_penalty(length, alpha, dtype, penalty="gnmt"):
    """The factor of scores: rounded once, as the table of hypotheses.py is."""
    base = {"gnmt": (5 + length) / 6, "length": length, "none": 1}[penalty]
    return dtype(1 / base**alpha)


def as_hypotheses(rows, nbest):
    """The twin's results, a list for each sentence, as the arrays search returns."""
    shape = (len(rows), nbest)
    expected = Hypotheses(
        tokens_bnt=np.full((*shape, MAX_LENGTH), PAD, np.int32),
        score_bn=np.full(shape, -np.inf, np.float32),
        log_prob_bn=np.full(shape, -np.inf, np.float32),
        length_bn=np.zeros(shape, np.int32),
        ended_bn=np.zeros(shape, bool),
    )
    for b, row in enumerate(rows):
        for n, (score, log_prob, tokens, ended) in enumerate(row):
            expected.tokens_bnt[b, n, : len(tokens)] = tokens
            expected.score_bn[b, n] = score
            expected.log_prob_bn[b, n] = log_prob
            expected.length_bn[b, n] = len(tokens)
            expected.ended_bn[b, n] = ended
    return expected


def exhaustive(log_probs, limit, vocabulary, alpha, penalty):
    """Every output there is: the ended by score, then the unended by score."""
    letters = [t for t in range(vocabulary) if t not in (PAD, BOS, EOS)]
    outputs = []
    for length in range(1, limit + 1):
        for tokens in itertools.product(letters, repeat=length):
            ended = (*tokens[:-1], EOS)
            outputs += [ended] if tokens[-1] == letters[0] else []
            outputs += [tokens] if length == limit else []
    scored = []
    for tokens in outputs:
        log_prob = sum(log_probs(tokens[:t])[tokens[t]] for t in range(len(tokens)))
        score = log_prob * per_penalty(len(tokens), alpha, float, penalty)
        scored.append((score, log_prob, tokens, tokens[-1] == EOS))
    return sorted(scored, key=lambda output: (-output[3], -output[0]))
