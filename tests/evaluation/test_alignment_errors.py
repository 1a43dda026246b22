"""Scores of word alignments, against the formulas of Och and Ney 2003."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.metrics.alignment_errors import ALIGNMENT_MEASURES
from t2t_jax.metrics.measures import measured

links = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=6)


@given(st.lists(st.tuples(links, links, links), min_size=1, max_size=3))
def test_scores_are_those_of_the_formulas(sentences):
    found, gold = [a for a, *_ in sentences], [(s, s | p) for _, s, p in sentences]
    a, s, p = (
        {(n, link) for n, each in enumerate(side) for link in each}
        for side in (found, *zip(*gold, strict=True))
    )
    wrong = len(a) + len(s) - len(a & s) - len(a & p)
    right = wrong / (len(a) + len(s) or 1), len(a & p) / (len(a) or 1)
    shares = [*right, len(a & s) / (len(s) or 1)]
    for share, measure in zip(shares, ALIGNMENT_MEASURES.values(), strict=True):
        score = measured(measure, measure.statistics(found, gold))
        assert score == pytest.approx(100 * share)
