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


def pairs_of(one, pairs=PAIRS):
    encode = one.vocabulary.encode
    sides = (encode(side, end=True) for side in zip(*pairs, strict=True))
    return list(zip(*sides, strict=True))


def probabilities(one, pair):
    """Of each position, [t, v], in float64, of one row without padding."""
    batch = {}
    for side, ids in zip(("source", "target"), pair, strict=True):
        batch[side] = np.array([ids], np.int32)
        batch[f"{side}_segment"] = np.ones_like(batch[side])
        batch[f"{side}_position"] = np.arange(len(ids), dtype=np.int32)[None]
    forced = teacher_forcing(batch, one.vocabulary.bos)

    @jax.jit
    def compute(parameters):
        return logits(nnx.merge(one.model.definition, parameters), forced)[0]

    exp_tv = np.exp(np.float64(compute(one.parameters)))
    return exp_tv / exp_tv.sum(1, keepdims=True)


def test_distributions_are_those_of_the_softmax():
    models = [translator(1, layers=2), translator(2, layers=2)]
    joint = Translator.ensemble(models)
    pairs = pairs_of(joint)[1:]
    found = distributions(joint.vocabulary, joint.members, pairs)
    for pair, (log_probs, entropy, rank, top_ids, top_log_probs) in zip(
        pairs, found, strict=True
    ):
        p_tv = np.mean([probabilities(one, pair) for one in models], axis=0)
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
        wanted = np.take_along_axis(p_tv, best_tk, axis=1)
        np.testing.assert_allclose(top_log_probs, np.log(wanted), **close)


@pytest.mark.parametrize(
    "options", [{"norm": "pre"}, pytest.param({"kind": "lstm"}, marks=pytest.mark.slow)]
)
def test_the_last_layer_of_the_lens_is_the_model(options):
    one = translator(1, layers=2, **options)
    pairs = pairs_of(one)
    found = distribution.lenses(one.vocabulary, one.members[0], pairs)
    whole = distributions(one.vocabulary, one.members, pairs)
    for lens, wanted in zip(found, whole, strict=True):
        np.testing.assert_allclose(lens.probs[-1], np.exp(wanted.log_probs), rtol=1e-5)
        np.testing.assert_array_equal(lens.rank[-1], wanted.rank)
        best = wanted.top_ids[:, : distribution.LAYER_TOP]
        np.testing.assert_array_equal(lens.top_ids[-1], best)
        assert lens.top_probs.shape == (2, len(wanted.rank), distribution.LAYER_TOP)


def test_the_first_layer_of_the_lens_is_a_model_without_the_second():
    """Its norm is that of the whole stack."""
    two = translator(1, layers=2, norm="pre")
    one = translator(1, layers=2, norm="pre", decoder_layers=1)
    pairs = pairs_of(two)
    lens = distribution.lenses(two.vocabulary, two.members[0], pairs)[0]
    first = {"decoder": {0: two.parameters["decoder"][0]}}
    (member,) = one.members
    member = member._replace(parameters=two.parameters | first)
    (wanted, _) = distributions(two.vocabulary, [member], pairs)
    np.testing.assert_allclose(
        lens.top_probs[0],
        np.exp(wanted.top_log_probs[:, : distribution.LAYER_TOP]),
        rtol=1e-3,
    )
