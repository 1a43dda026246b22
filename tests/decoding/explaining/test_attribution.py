"""Attributions against finite differences: the embedding of one piece is scaled."""

import itertools

import jax
import numpy as np
import pytest

from t2t_jax.decoding import programs
from t2t_jax.decoding.scoring import run_batches
from t2t_jax.model.embedding import Embedding
from t2t_jax.tools.explain.attribution import attribute, can_attribute
from tests.decoding.small_translator import translator

# No token is read twice, so that the row of a token in the table is one place.
PAIR = [270, 265, 281, 275, 2], [288, 261, 272, 279, 264, 2]
POSITIONS = [0, 3, 5]


def softened(**options):
    """A model whose probabilities are smooth enough for differences."""
    small = translator(3, **options)
    (member,) = small.members
    parameters = jax.tree.map(lambda x: x / 3, member.parameters)
    return small.vocabulary, member._replace(parameters=parameters)


def scaled_log_probs(vocabulary, member, monkeypatch):
    """A function of a token and a factor: log p of each target token.

    The embedding of the token is scaled where it is read, not in the output layer.
    """
    embed = Embedding._embed

    @jax.jit
    def compute(batch, token, factor):
        def scaled(self, matrix, *arguments):
            return embed(self, matrix[...].at[token].multiply(factor), *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(Embedding, "_embed", scaled)
            return programs.target_log_probs.__wrapped__(
                (member.parameters,),
                batch,
                definitions=(member.model.definition,),
                mesh=member.mesh,
            )

    def log_probs(token, factor):
        def computed(parameters, batch, **_):
            return compute(batch, token, factor)

        ((_, log_probs_t),) = run_batches(
            computed, vocabulary, [member], [PAIR], divided=True
        )
        return log_probs_t[: len(PAIR[1])]

    return log_probs


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({}, {0: 270, 4: 2, 5: 1, 6: 288, 8: 272}),
        pytest.param(
            {"kind": "lstm", "tied": "target"},
            {0: 270, 5: 1, 7: 261},
            marks=pytest.mark.slow,
        ),
        pytest.param({"tied": "none"}, {1: 265, 6: 288}, marks=pytest.mark.slow),
    ],
)
def test_attributions_are_finite_differences(options, read, monkeypatch):
    vocabulary, member = softened(**options)
    assert can_attribute(member)
    tokens = [PAIR[1][t] for t in POSITIONS]
    attribution = attribute(vocabulary, member, PAIR, POSITIONS, tokens)
    start = attribution.start[:, None]
    attributed = np.concatenate([attribution.source, start, attribution.target], axis=1)
    scaled, e = scaled_log_probs(vocabulary, member, monkeypatch), 0.002
    for column, token in read.items():
        above, below = scaled(token, 1 + e), scaled(token, 1 - e)
        slopes = ((above - below) / (2 * e))[POSITIONS]
        np.testing.assert_allclose(
            attributed[:, column], slopes, rtol=0.02, atol=0.01 * abs(attributed).max()
        )
    np.testing.assert_allclose(
        attribution.log_probs, ((above + below) / 2)[POSITIONS], atol=0.01
    )


def test_later_pieces_count_for_nothing_and_a_contrast_is_a_difference():
    vocabulary, member = softened()
    tokens = [PAIR[1][t] for t in POSITIONS]
    attribution, rival = (
        attribute(vocabulary, member, PAIR, POSITIONS, predicted)
        for predicted in (tokens, [278, 278, 278])
    )
    for row, position in itertools.product(range(3), POSITIONS):
        later_p = attribution.target[row, position:]
        assert later_p.any() == (position < POSITIONS[row])
    contrast = attribution.minus(rival)
    np.testing.assert_array_equal(contrast.source, attribution.source - rival.source)
    # A row does not depend on the rows beside it.
    alone = attribute(vocabulary, member, PAIR, [3], tokens[1:2])
    np.testing.assert_array_equal(alone.source[0], attribution.source[1])
