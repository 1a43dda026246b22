"""The rules between our weights and another system's are read in two ways."""

import dataclasses
import re

import jax
import numpy as np
import pytest

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.weights import FAIRSEQ, SAME, TensorRule, layer_rules
from tests.bridges.exported import random_like

SIZES = {"layers": 1, "decoder_layers": 2, "width": 8, "heads": 2, "hidden": 12}
CONFIG = ModelConfig(**SIZES, attention_bias=True, output_bias=True)
PIECES = 11
MODEL = build(CONFIG, PIECES)


def rules(packed=False):
    names = FAIRSEQ._replace(prefix="model.")
    if packed:
        linears = {
            ours: re.sub(r"[qkv]_proj\.", "in_proj_", theirs)
            for ours, theirs in FAIRSEQ.linears.items()
        }
        names = names._replace(linears=linears)
    return [
        *layer_rules(CONFIG, names),
        TensorRule("shared", ("embedding.tokens",), SAME),
        TensorRule("bias", ("embedding.output_bias",), SAME),
    ]


def test_the_forms_are_those_of_pytorch():
    """y = x W^T + b there is what our einsum computes here."""
    ours = random_like(MODEL.shapes)
    theirs = weights.write(rules(packed=True), ours)
    back = weights.read(rules(packed=True), theirs, MODEL, "a file")
    jax.tree.map(np.testing.assert_array_equal, back, ours)
    attention = ours["encoder"][0]["attention"]
    x_d = np.random.default_rng(1).normal(size=CONFIG.width)
    packed = theirs["model.encoder.layers.0.self_attn.in_proj_weight"]
    k_hk = np.einsum("d,dhk->hk", x_d, attention["key"])
    np.testing.assert_allclose((packed @ x_d)[8:16], k_hk.reshape(-1), rtol=1e-5)
    out = theirs["model.encoder.layers.0.self_attn.out_proj.weight"]
    y_d = np.einsum("hk,hkd->d", k_hk, attention["out"])
    np.testing.assert_allclose(out @ k_hk.reshape(-1), y_d, rtol=1e-5)
    inner = theirs["model.decoder.layers.1.fc1.weight"]
    assert inner.shape == (CONFIG.hidden, CONFIG.width)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("shared"), "a file lacks shared; is it another kind"),
        (lambda t: t.update(shared=t["shared"][1:]), r"shape \[10, 8\].* \[11, 8\]"),
        (lambda t: t["bias"].__setitem__(0, np.nan), "bias has values that are not"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, message):
    theirs = weights.write(rules(), random_like(MODEL.shapes))
    change(theirs)
    with pytest.raises(UserError, match=message):
        weights.read(rules(), theirs, MODEL, "a file")


def test_added_biases_are_zero_and_all_else_stays():
    plain = dataclasses.replace(CONFIG, attention_bias=False, output_bias=False)
    ours = random_like(build(plain, PIECES).shapes)
    config, more = weights.with_biases(plain, ours, "attention_bias", "output_bias")
    assert config == CONFIG
    flat, before = weights.flatten(more), weights.flatten(ours)
    assert flat.keys() == weights.flatten(MODEL.shapes).keys()
    for name, x in flat.items():
        assert (x == before[name]).all() if name in before else not x.any()
