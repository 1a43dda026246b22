"""Laws of parts of the model, what it refuses, and which laws an entry declines."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.config import ModelConfig
from t2t_jax.io import ideas
from t2t_jax.io.errors import UserError
from t2t_jax.model import attention
from t2t_jax.model.attention import ATTENTION
from t2t_jax.model.layers import DropoutRng, dropout, random_bits
from t2t_jax.model.model import build
from t2t_jax.sections import Options
from tests import mutants
from tests.model import cases, laws
from tests.model.cases import config_of
from tests.model.subject import Excused, Subject


@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_dropout_keeps_the_mean_in_bfloat16(rate):
    x = np.random.default_rng(0).uniform(1, 2, (400, 500)).astype(jnp.bfloat16)
    rng = DropoutRng(jax.random.key(0), jnp.arange(400))
    x, y = x.astype(float), np.asarray(dropout(jnp.asarray(x), rate, rng)).astype(float)
    # bfloat16(1 / 0.9) is 0.16% too small; products are rounded up and down.
    assert y.sum() / x[y != 0].sum() * (1 - rate) == pytest.approx(1, abs=1e-4)


def test_dropout_bits_are_as_good_as_random():
    """Every bit is even, and independent of its neighbours, of other keys and rows."""
    bits = {
        seed: np.asarray(
            random_bits(DropoutRng(jax.random.key(seed), jnp.arange(64)), (50, 80))
        )
        for seed in (0, 1)
    }
    bits_of = {seed: np.unpackbits(x.view(np.uint8)) for seed, x in bits.items()}
    expected = 3.9 / bits_of[0].size ** 0.5  # of a mean of +-1: once in 10,000 beyond
    assert abs(2 * bits_of[0].mean() - 1) < expected
    assert abs(2 * (bits_of[0] ^ bits_of[1]).mean() - 1) < expected
    for axis in range(3):  # rows, positions, features
        bits1, bits2 = (
            np.take(bits[0], range(start, bits[0].shape[axis] + start - 1), axis)
            for start in (0, 1)
        )
        differ = np.unpackbits((bits1 ^ bits2).view(np.uint8))
        assert abs(2 * differ.mean() - 1) < 3.9 / differ.size**0.5
    # The highest byte, which a rate is compared with: all values alike often.
    counts = np.bincount((bits[0] >> 24).ravel(), minlength=256)
    chi2 = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert chi2 < 255 + 3.9 * (2 * 255) ** 0.5


def test_choices_without_effect_and_tables_that_do_not_fit_are_refused():
    options = Options(sinusoid_layout="half")
    for sizes, changes, message in (
        ((29, 23), {"kind": "encoder_only"}, "23 tokens to read and 29 to predict"),
        ((23,), {"kind": "conv", "positions": "rotary"}, "'rotary' has no effect with"),
        ((23,), {"kind": "conv", "options": options}, "='half' has no effect with"),
    ):
        config = ModelConfig(layers=1, width=16, heads=4, hidden=24, **changes)
        with pytest.raises(UserError, match=message):
            build(config, *sizes)


# An idea of a user's.

SIGMOID = """
import jax
from t2t_jax.model.attention import *
from t2t_jax.model import attention


def weights(q_bthk, kv, mask, position):
    return jax.nn.sigmoid(attention.scores(q_bthk, kv, mask, position))


def sigmoid(q_bthk, kv, mask, position, drop):
    weights_bhts = drop(weights(q_bthk, kv, mask, position))
    weights_bhts = weights_bhts.astype(q_bthk.dtype)
    return attention.weighted_values(weights_bhts, kv, mask, position)


entry = attention.AttentionFunction(sigmoid, weights, normalized=False)
attention.ATTENTION["sigmoid"] = entry
"""


def weights_of_all(q_bthk, kv, mask, position):
    mask = dataclasses.replace(mask, causal=False)
    return jax.nn.sigmoid(attention.scores(q_bthk, kv, mask, position))


def test_an_idea_obeys_what_it_does_not_decline(monkeypatch, tmp_path):
    """Sigmoid attention, whose weights do not sum to 1; the twin does not know it."""
    monkeypatch.setitem(ATTENTION, "sigmoid", None)  # removed afterwards
    monkeypatch.setattr(ideas, "imported", {})
    file = tmp_path / "sigmoid_attention_of_a_test.py"
    file.write_text(SIGMOID)
    ideas.load(str(file))
    assert cases.own({"attention": "sigmoid"})
    assert laws.laws_of({"attention": "sigmoid"}) == [*laws.LAWS]
    subject = Subject(config_of(attention="sigmoid"))
    for law in (laws.weights_add_up, laws.weights_are_of_attention):
        assert law(subject) <= laws.LAWS[law]
    with pytest.raises(Excused, match="does not know attention=sigmoid"):
        laws.model_is_its_twin(subject)
    entry = ATTENTION["sigmoid"]
    for wrong in (
        entry._replace(normalized=True),
        entry._replace(weights=weights_of_all),  # also where a query may not look
    ):
        monkeypatch.setitem(ATTENTION, "sigmoid", wrong)
        assert laws.weights_add_up(Subject(config_of(attention="sigmoid"))) > 0.1


def test_every_law_has_a_defect_that_breaks_it():
    assert [law.__name__ for law in laws.LAWS] == [m.name for m in mutants.LAWS]
