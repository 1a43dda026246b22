"""ONNX Runtime computes our logits."""

import json

import jax
import numpy as np
import pytest

from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges.checks import agreement
from t2t_jax.tools.bridges.exports import to_onnx
from tests.bridges.exported import needs, run_peer, translator

pytestmark = pytest.mark.usefixtures("quick_compiler")

SOURCES = [[5, 9, 40, 2], [7, 2], [*range(30, 60), 2]]
TARGETS = [[1, 8, 9], [1], [1, *range(40, 80)]]
MODELS = [{}, {"positions": "relative"}]
MODELS += [{"kind": kind} for kind in ("conv", "bytenet", "neural_gpu")]


@needs("jax2onnx", "onnxruntime")
@pytest.mark.parametrize("model", MODELS)
def test_onnx_runtime_computes_our_logits(model, tmp_path):
    one = translator(**model)
    job = to_onnx.write(one, tmp_path, {})
    theirs = run_peer(
        "onnx", "logits", tmp_path, sources=SOURCES, targets=TARGETS, **job
    )
    ours = agreement.logits(one, SOURCES, TARGETS)
    for row, wanted in enumerate(ours):
        np.testing.assert_allclose(theirs[f"logits_{row}"], wanted, atol=1e-4)
    assert "not a search" in (tmp_path / "README.md").read_text()
    assert json.loads((tmp_path / "export.json").read_bytes())["length"] == 128


def test_the_function_that_is_converted_is_the_model():
    one = translator(dtype="float32")
    ids = np.full((2, 3, 44), 6, np.int32)
    for x, rows in zip(ids, (SOURCES, TARGETS), strict=True):
        for i, row in enumerate(rows):
            x[i, : len(row)] = row
    lengths = np.array([len(row) for row in SOURCES], np.int32)
    function = jax.jit(to_onnx.logits_function(one.model, one.parameters))
    found = np.asarray(function(ids[0], lengths, ids[1]))
    for row, wanted in enumerate(agreement.logits(one, SOURCES, TARGETS)):
        np.testing.assert_allclose(found[row, : len(wanted)], wanted, atol=1e-4)


@needs("jax2onnx")
def test_a_model_that_jax2onnx_cannot_convert_is_refused(tmp_path):
    with pytest.raises(UserError, match="kind='lstm'.*Reverse scan.*--to=stablehlo"):
        to_onnx.write(translator(kind="lstm"), tmp_path, {})


def test_without_the_library_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 't2t_jax\[peers\]'"):
        to_onnx.write(translator(), tmp_path, {})
    assert not [*tmp_path.iterdir()]
