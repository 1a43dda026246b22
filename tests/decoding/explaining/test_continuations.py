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
    tokens, found = np.array(top).transpose(2, 0, 1)
    with np.errstate(divide="ignore"):
        return Distribution(None, None, None, tokens.astype(np.int32), np.log(found))


def test_likely_tokens_that_were_not_chosen():
    ours = vocabulary()
    probabilities = [
        {10: 0.5, 11: 0.3, ours.pad: 0.2},
        {12: 0.4, 10: 0.25, 13: 0.15, 14: 0.11, 15: 0.09},  # 15 is the fifth
        {ours.eos: 0.9, 10: 0.08, 11: 0.01},
    ]
    ids = [10, 13, 10]
    distribution = predicting(ids, probabilities)
    found = likely_alternatives(ids, distribution, ours)
    wanted = [(2, ours.eos), (1, 12), (0, 11), (1, 10), (1, 14)]
    assert found == wanted
    forced = likely_alternatives(ids, distribution, ours, forced=1)
    assert forced == [each for each in wanted if each[0]]


def test_the_search_goes_on_from_an_alternative():
    one = translator(2)
    ours, eos = one.vocabulary, one.vocabulary.eos
    best, other = one.translate([LINE], nbest=2, warn=False)[0].hypotheses
    at = next(t for t, token in enumerate(best.tokens) if other.tokens[t] != token)
    source = [*ours.encode([LINE])[0], eos]
    limit = len(other.tokens)
    assert limit == len(source) + 5
    probabilities = [{}] * at + [{best.tokens[at]: 0.6, eos: 0.4}] + [{}] * limit
    probabilities[limit - 1] = {77: 0.3, eos: 0.2}
    algorithm = beam_search_algorithm(one.config.decode, ours)

    def found(constraints):
        return continuations(
            Explained(one.members, ours, one.phrases, one._search(algorithm)),
            *(Source(source, 0), other.tokens),
            predicting(other.tokens, probabilities[:limit]),
            constraints,
        )

    as_best, ended, full = found(Constraints())  # nothing can follow 77
    assert (as_best.position, as_best.token) == (at, best.tokens[at])
    assert as_best.hypothesis.tokens == best.tokens
    assert as_best.hypothesis.log_prob == pytest.approx(best.log_prob, rel=1e-5)
    for position, each in ((at, ended), (limit - 1, full)):
        ids = (*other.tokens[:position], eos)
        assert (each.position, each.token) == (position, eos)
        assert each.hypothesis.tokens == ids
        (score,) = one.score([(LINE, Hypothesis("", 0.0, 0.0, True, ids))])
        assert each.hypothesis.log_prob == pytest.approx(score.log_prob, rel=1e-4)
    # What was forced stays so; what is forbidden is not offered.
    for forced in (
        Constraints(prefix=other.tokens[: at + 1]),
        Constraints(prefix=other.tokens[:at], begun="a"),
    ):
        assert found(forced) == [full]
