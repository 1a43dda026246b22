"""What a search does on a GPU alone, traced and run on this machine."""

import types

import jax
import numpy as np
import pytest

from t2t_jax.decoding import searcher
from t2t_jax.model import decoder_cache
from t2t_jax.model.attention import KV
from t2t_jax.model.products import Converted
from tests.bridges.exported import translator

LINES = ["the cat sees the dog", "a dog"]


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_a_cache_stores_one_position_and_only_a_cpu_meets_a_condition(
    platform, monkeypatch
):
    device = types.SimpleNamespace(platform=platform)
    monkeypatch.setattr(decoder_cache, "target_device", lambda: device)
    rng = np.random.default_rng(0)
    old = KV(*rng.normal(size=(2, 2, 3, 4, 6, 5)))  # [b, h, n, t, k] each
    new = KV(*rng.normal(size=(2, 2, 4, 3, 5)))  # [b, n, h, k]

    def append(position):
        return decoder_cache.LayerCache(old, position).append(new)[1]

    for stored, previous, added in zip(append(2), old, new, strict=True):
        want = previous.astype(stored.dtype)
        want[:, :, :, 2] = added.swapaxes(1, 2)
        np.testing.assert_array_equal(stored, want)
    assert (" cond[" in str(jax.make_jaxpr(append)(2))) == (platform == "cpu")


def test_converted_weights_translate_as_the_weights_do(monkeypatch):
    plain, other = (translator(dtype="bfloat16").with_options(beam=3) for _ in range(2))
    plain.search_parameters = tuple(member.parameters for member in plain.members)
    monkeypatch.setattr(searcher.jax, "default_backend", lambda: "gpu")
    leaves = jax.tree.leaves(
        other.search_parameters, is_leaf=lambda x: isinstance(x, Converted)
    )
    assert any(isinstance(leaf, Converted) for leaf in leaves)
    monkeypatch.undo()
    translations = (t.translate(LINES, warn=False) for t in (plain, other))
    for plain, converted in zip(*translations, strict=True):
        assert plain.hypotheses == converted.hypotheses
