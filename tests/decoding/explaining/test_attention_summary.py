"""Heads in numbers, and rollout: computed one path at a time."""

import itertools

import numpy as np
import pytest

from t2t_jax.decoding.alignment import rollout, summarize
from t2t_jax.decoding.results import AttentionMaps


def maps_of(layers, heads, s, t, seed=0):
    rng = np.random.default_rng(seed)

    def weights(queries, keys, causal=False):
        w = rng.random((layers, heads, queries, keys)).astype(np.float32)
        w = np.tril(w) if causal else w
        return w / w.sum(-1, keepdims=True)

    names = tuple("abcdefg"[:s]), tuple("ABCDEFG"[:t])
    return AttentionMaps(*names, weights(s, s), weights(t, t, True), weights(t, s))


def test_heads_that_are_known():
    maps = maps_of(1, 2, s=4, t=3)
    maps.encoder[0, 0] = 1 / 4  # even: two bits, and no offset on the whole
    maps.encoder[0, 1] = np.eye(4)[[1, 2, 3, 3]]  # the next one, and the end itself
    maps.decoder[0, 1] = np.eye(3)[[0, 0, 1]]  # the one before
    maps.cross[0, 0] = np.eye(4)[[3, 3, 0]]
    found = summarize(maps)
    assert found["encoder"].entropy[0] == pytest.approx([2, 0])
    assert found["encoder"].offset[0] == pytest.approx([0, 3 / 4])
    assert found["decoder"].offset[0, 1] == pytest.approx(-2 / 3)
    assert found["cross"].peak[0, 0] == pytest.approx(2 / 3)
    assert found["cross"].offset is found["encoder"].peak is None


def test_rollout_sums_over_all_paths():
    """Each sub-layer goes on with its input or, as probably, where a head looks."""
    layers, s, t = 2, 3, 4
    maps = maps_of(layers, 2, s, t)
    encoder, decoder, cross = (
        getattr(maps, name).mean(1) for name in ("encoder", "decoder", "cross")
    )

    def step(weights, i, j):
        return weights[i, j] / 2 + (i == j) / 2

    want_ss = np.zeros((s, s))
    for i, j, k in itertools.product(range(s), repeat=3):
        want_ss[i, k] += step(encoder[1], i, j) * step(encoder[0], j, k)
    want_ts = np.zeros((t, s))
    for i, j, k in itertools.product(range(t), range(s), range(s)):
        want_ts[i, k] += cross[1][i, j] / 2 * want_ss[j, k]
        for middle in range(t):
            went = step(decoder[1], i, middle) / 2  # from the first layer's output
            want_ts[i, k] += went * cross[0][middle, j] / 2 * want_ss[j, k]
    found = rollout(maps)
    np.testing.assert_allclose(found.encoder, want_ss, rtol=1e-5)
    np.testing.assert_allclose(found.cross, want_ts / (3 / 4), rtol=1e-5)
    assert not np.triu(found.decoder, 1).any()
    for weights in found:
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)


def test_models_without_self_attention_have_no_rollout():
    maps = maps_of(1, 1, s=2, t=2)
    none = np.zeros((0, 1, 2, 2), np.float32)
    without = AttentionMaps(maps.source, maps.target, none, none, maps.cross)
    assert rollout(without) is None
    assert summarize(without)["encoder"].entropy.shape == (0, 1)
