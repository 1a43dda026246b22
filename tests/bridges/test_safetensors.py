"""Our own format: import(export(w)) = w."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from t2t_jax.config import TaskConfig
from t2t_jax.data.tokenizers.table import pack
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.tools.bridges.exports import to_safetensors
from t2t_jax.tools.bridges.formats import Request
from t2t_jax.tools.bridges.importing import chosen_format
from t2t_jax.tools.bridges.tensor_files import write_safetensors
from tests.bridges.exported import run_peer, translator
from tests.decoding.small_translator import CONFIG, vocabulary


def bits(parameters):
    return [
        (jax.tree_util.keystr(path), x.dtype, x.shape, np.asarray(x).tobytes())
        for path, x in jax.tree.leaves_with_path(parameters)
    ]


@pytest.mark.parametrize("model", [{}, {"own_source": True}, {"kind": "lstm"}])
def test_import_undoes_export(model, tmp_path):
    one = translator(**model)
    to_safetensors.write(one, tmp_path, {})
    name, form = chosen_format(tmp_path, "")
    assert name == "t2t_jax-safetensors"
    read = form.read(Request(tmp_path))
    assert bits(read.parameters) == bits(one.parameters)
    assert read.config == one.config
    for mine, other in zip(one.vocabulary.sides, read.vocabulary.sides, strict=True):
        assert mine.model == other.model


def test_a_classifier_is_imported_with_its_labels(tmp_path):
    labels = pack("labels", labels=["bad", "good"])
    ours = Vocabulary(labels, "labels", vocabulary())
    data = dataclasses.replace(CONFIG.data, joint_vocabulary=False)
    model = dataclasses.replace(CONFIG.model, kind="classifier")
    task = TaskConfig(kind="classification")
    config = dataclasses.replace(CONFIG, data=data, model=model, task=task)
    built = build(model, *ours.sizes)
    parameters = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), built.shapes)
    to_safetensors.write(Translator(config, ours, built, parameters), tmp_path, {})
    read = chosen_format(tmp_path, "")[1].read(Request(tmp_path))
    assert read.config == config
    assert bits(read.parameters) == bits(parameters)
    assert read.vocabulary.piece(1) == "good"
    assert read.vocabulary.source.model == vocabulary().model
    assert (tmp_path / "README.md").read_text().startswith("# classification: a model")


def about(model=(), **changes):
    """Changes fields of config.json; those of the model too."""

    def damage(folder):
        file = folder / "config.json"
        content = json.loads(file.read_bytes())
        content["config"]["model"] |= dict(model)
        file.write_text(json.dumps(content | changes))

    return damage


def weights(change):
    def damage(folder):
        file = folder / "model.safetensors"
        file.write_bytes(change(file.read_bytes()))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (about(model={"layers": 2}), "lacks decoder.1.attention.key"),
        (about(format_version=2), "format_version=2.*upgrade t2t_jax"),
        (
            weights(lambda content: content[:-1] + bytes([content[-1] ^ 1])),
            "does not have the values that config.json describes",
        ),
        (weights(lambda content: content[:-8]), "damaged or truncated"),
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (
            lambda folder: (folder / "tokenizer.model").write_bytes(
                vocabulary(291).model
            ),
            "not the one that config.json describes",
        ),
    ],
)
def test_damage_is_refused(damage, message, tmp_path):
    to_safetensors.write(translator(), tmp_path, {})
    damage(tmp_path)
    with pytest.raises(UserError, match=message):
        to_safetensors.read(Request(tmp_path))


def test_the_library_reads_the_same_values(tmp_path):
    job = to_safetensors.write(translator(), tmp_path, {})
    text = (tmp_path / "README.md").read_text()
    for row in (
        "| `encoder.N.attention.query` | 16 x 2 x 8 | width, heads, head |",
        "| `decoder.N.ff.inner_bias` | 16 | hidden |",
        "| `embedding.tokens` | 290 x 16 | vocab, width |",
    ):
        assert row in text
    assert run_peer("safetensors", "values", tmp_path, **job)["equal"]
    x = np.zeros((2, 3), np.float32)
    write_safetensors(tmp_path / "model.safetensors", {"x": x}, {"format": "?"})
    wrong = run_peer("safetensors", "values", tmp_path, **job)
    assert not wrong["equal"]
    assert set(wrong["differ"]) == {"x", *job["tensors"]}
