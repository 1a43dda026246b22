"""Alternatives that are offered, and the translations that go on from them."""

import numpy as np
import pytest

from t2t_jax.decoding.constraints import Constraints
from t2t_jax.decoding.inputs import Source
from t2t_jax.decoding.results import Hypothesis
from t2t_jax.decoding.search_options import beam_search_algorithm
from t2t_jax.tools.explain.distribution import Distribution
from t2t_jax.tools.explain.readings import continuations, likely_alternatives
from t2t_jax.tools.explain.trace import Explained
from tests.decoding.small_translator import translator, vocabulary

LINE = "the cat sees"


def predicting(ids, probabilities):
    """A distribution with these tokens: a dict for each position."""
    top = [sorted(p.items(), key=lambda item: -item[1]) for p in probabilities]
    top = [[*row, *[(99, 0.0)] * (10 - len(row))] for row in top]
    tokens, values = np.array(top).transpose(2, 0, 1)
    with np.errstate(divide="ignore"):
        return Distribution(None, None, None, tokens.astype(np.int32), np.log(values))


def test_likely_tokens_that_were_not_chosen():
    small_vocabulary = vocabulary()
    probabilities = [
        {10: 0.5, 11: 0.3, small_vocabulary.pad: 0.2},
        {12: 0.4, 10: 0.25, 13: 0.15, 14: 0.11, 15: 0.09},  # 15 is the fifth
        {small_vocabulary.eos: 0.9, 10: 0.08, 11: 0.01},
    ]
    ids = [10, 13, 10]
    distribution = predicting(ids, probabilities)
    alternatives = likely_alternatives(ids, distribution, small_vocabulary)
    expected = [(2, small_vocabulary.eos), (1, 12), (0, 11), (1, 10), (1, 14)]
    assert alternatives == expected
    forced = likely_alternatives(ids, distribution, small_vocabulary, forced=1)
    assert forced == [alternative for alternative in expected if alternative[0]]


def test_the_search_goes_on_from_an_alternative():
    small = translator(2)
    small_vocabulary, eos = small.vocabulary, small.vocabulary.eos
    best, second = small.translate([LINE], nbest=2, warn=False)[0].hypotheses
    position = next(
        t for t, token in enumerate(best.tokens) if second.tokens[t] != token
    )
    source = [*small_vocabulary.encode([LINE])[0], eos]
    limit = len(second.tokens)
    assert limit == len(source) + 5
    probabilities = (
        [{}] * position + [{best.tokens[position]: 0.6, eos: 0.4}] + [{}] * limit
    )
    probabilities[limit - 1] = {77: 0.3, eos: 0.2}
    algorithm = beam_search_algorithm(small.config.decode, small_vocabulary)

    def searched(constraints):
        return continuations(
            Explained(
                small.members, small_vocabulary, small.phrases, small._search(algorithm)
            ),
            *(Source(source, 0), second.tokens),
            predicting(second.tokens, probabilities[:limit]),
            constraints,
        )

    as_best, ended, full = searched(Constraints())  # nothing can follow 77
    assert (as_best.position, as_best.token) == (position, best.tokens[position])
    assert as_best.found.tokens == best.tokens
    assert as_best.found.log_prob == pytest.approx(best.log_prob, rel=1e-5)
    for place, continuation in ((position, ended), (limit - 1, full)):
        ids = (*second.tokens[:place], eos)
        assert (continuation.position, continuation.token) == (place, eos)
        assert continuation.found.tokens == ids
        (score,) = small.score([(LINE, Hypothesis("", 0.0, 0.0, True, ids))])
        assert continuation.found.log_prob == pytest.approx(score.log_prob, rel=1e-4)
    # What was forced stays so; what is forbidden is not offered.
    for forced in (
        Constraints(prefix=second.tokens[: position + 1]),
        Constraints(prefix=second.tokens[:position], begun="a"),
    ):
        assert searched(forced) == [full]
