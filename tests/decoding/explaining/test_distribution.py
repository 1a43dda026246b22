"""Distributions and the logit lens, against probabilities computed one by one."""

import jax
import numpy as np
import pytest
from flax import nnx

from t2t_jax.decoding.translator import Translator
from t2t_jax.model.architecture import logits
from t2t_jax.model.transformer import teacher_forcing
from t2t_jax.tools.explain import distribution
from t2t_jax.tools.explain.distribution import TOP, distributions
from tests.decoding.small_translator import translator

PAIRS = [("the cat", "die Katze"), ("a dog sleeps", "ein Hund, der Hund")]


def pairs_of(small, pairs=PAIRS):
    encode = small.vocabulary.encode
    sides = (encode(side, end=True) for side in zip(*pairs, strict=True))
    return list(zip(*sides, strict=True))


def probabilities(small, pair):
    """Of each position, [t, v], in float64, of one row without padding."""
    batch = {}
    for side, ids in zip(("source", "target"), pair, strict=True):
        batch[side] = np.array([ids], np.int32)
        batch[f"{side}_segment"] = np.ones_like(batch[side])
        batch[f"{side}_position"] = np.arange(len(ids), dtype=np.int32)[None]
    forced = teacher_forcing(batch, small.vocabulary.bos)

    @jax.jit
    def compute(parameters):
        return logits(nnx.merge(small.model.definition, parameters), forced)[0]

    exp_tv = np.exp(np.float64(compute(small.parameters)))
    return exp_tv / exp_tv.sum(1, keepdims=True)


def test_distributions_are_those_of_the_softmax():
    models = [translator(1, layers=2), translator(2, layers=2)]
    joint = Translator.ensemble(models)
    pairs = pairs_of(joint)[1:]
    computed = distributions(joint.vocabulary, joint.members, pairs)
    for pair, (log_probs, entropy, rank, top_ids, top_log_probs) in zip(
        pairs, computed, strict=True
    ):
        p_tv = np.mean([probabilities(model, pair) for model in models], axis=0)
        places = np.arange(len(pair[1])), pair[1]
        # The logits of these models are large: float32 leaves 1e-3 nats, by machine.
        close = {"rtol": 1e-3, "atol": 1e-3}
        np.testing.assert_allclose(log_probs, np.log(p_tv[places]), **close)
        np.testing.assert_allclose(
            entropy, -(p_tv * np.log2(p_tv)).sum(1), rtol=1e-3, atol=1e-4
        )
        assert rank.tolist() == [
            1 + sum(p_v > p_v[i]) for p_v, i in zip(p_tv, pair[1], strict=True)
        ]
        best_tk = np.argsort(-p_tv, axis=1)[:, :TOP]
        assert top_ids.tolist() == best_tk.tolist()
        expected = np.take_along_axis(p_tv, best_tk, axis=1)
        np.testing.assert_allclose(top_log_probs, np.log(expected), **close)


@pytest.mark.parametrize(
    "options", [{"norm": "pre"}, pytest.param({"kind": "lstm"}, marks=pytest.mark.slow)]
)
def test_the_last_layer_of_the_lens_is_the_model(options):
    small = translator(1, layers=2, **options)
    pairs = pairs_of(small)
    lenses = distribution.lenses(small.vocabulary, small.members[0], pairs)
    expected_all = distributions(small.vocabulary, small.members, pairs)
    for lens, expected in zip(lenses, expected_all, strict=True):
        np.testing.assert_allclose(
            lens.probs[-1], np.exp(expected.log_probs), rtol=1e-5
        )
        np.testing.assert_array_equal(lens.rank[-1], expected.rank)
        best = expected.top_ids[:, : distribution.LAYER_TOP]
        np.testing.assert_array_equal(lens.top_ids[-1], best)
        assert lens.top_probs.shape == (2, len(expected.rank), distribution.LAYER_TOP)


def test_the_first_layer_of_the_lens_is_a_model_without_the_second():
    """Its norm is that of the whole stack."""
    two_layers = translator(1, layers=2, norm="pre")
    one_layer = translator(1, layers=2, norm="pre", decoder_layers=1)
    pairs = pairs_of(two_layers)
    lens = distribution.lenses(two_layers.vocabulary, two_layers.members[0], pairs)[0]
    decoder = {"decoder": {0: two_layers.parameters["decoder"][0]}}
    (member,) = one_layer.members
    member = member._replace(parameters=two_layers.parameters | decoder)
    (expected, _) = distributions(two_layers.vocabulary, [member], pairs)
    np.testing.assert_allclose(
        lens.top_probs[0],
        np.exp(expected.top_log_probs[:, : distribution.LAYER_TOP]),
        rtol=1e-3,
    )
