"""Exports for StableHLO and our own format compute what ours computes."""

import copy
import importlib.util
import json
import re
import types

import jax
import jax.export
import numpy as np
import pytest

from t2t_jax.io.errors import UserError
from t2t_jax.parallel import mesh
from t2t_jax.tools.bridges.checks import peer_process
from t2t_jax.tools.bridges.exports import to_safetensors, to_stablehlo
from t2t_jax.tools.bridges.formats import ImportRequest
from t2t_jax.tools.bridges.importing import chosen_format
from t2t_jax.tools.bridges.tensor_files import write_safetensors
from tests.bridges.exported import run_peer, translator
from tests.decoding.small_translator import vocabulary

# -------------------------------------------------------------------------- our format


def bits(parameters):
    return [
        (jax.tree_util.keystr(path), x.dtype, x.shape, np.asarray(x).tobytes())
        for path, x in jax.tree.leaves_with_path(parameters)
    ]


@pytest.mark.parametrize("model", [{}, {"own_source": True}])
def test_import_undoes_export(model, tmp_path):
    one = translator(**model)
    to_safetensors.write(one, tmp_path, {})
    name, form = chosen_format(tmp_path, "")
    assert name == "t2t_jax-safetensors"
    read = form.read(ImportRequest(tmp_path))
    assert bits(read.parameters) == bits(one.parameters)
    assert read.config == one.config
    for mine, other in zip(one.vocabulary.sides, read.vocabulary.sides, strict=True):
        assert mine.model == other.model


def config_with(**fields):
    """Changes fields of config.json."""

    def damage(folder):
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_bytes()) | fields))

    return damage


def weights(change):
    def damage(folder):
        file = folder / "model.safetensors"
        file.write_bytes(change(file.read_bytes()))

    return damage


def another_tokenizer(folder):
    (folder / "tokenizer.model").write_bytes(vocabulary(291).model)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (config_with(format_version=2), "format_version=2.*upgrade t2t_jax"),
        (
            weights(lambda content: content[:-1] + bytes([content[-1] ^ 1])),
            "does not have the values that config.json describes",
        ),
        (weights(lambda content: content[:-8]), "damaged or truncated"),
        (another_tokenizer, "not the one that config.json describes"),
    ],
)
def test_damage_is_refused(damage, message, tmp_path):
    to_safetensors.write(translator(), tmp_path, {})
    damage(tmp_path)
    with pytest.raises(UserError, match=message):
        to_safetensors.read(ImportRequest(tmp_path))


def test_the_library_reads_the_same_values(tmp_path):
    job = to_safetensors.write(translator(), tmp_path, {})
    assert run_peer("safetensors", "values", tmp_path, **job)["equal"]
    x = np.zeros((2, 3), np.float32)
    write_safetensors(tmp_path / "model.safetensors", {"x": x}, {"format": "?"})
    wrong = run_peer("safetensors", "values", tmp_path, **job)
    assert set(wrong["differ"]) == {"x", *job["tensors"]}


# --------------------------------------------------------------------------- StableHLO

LINES = ["the cat sees the dog", "", "a dog", "ein Hund \u2581 sieht \uf8fe", "sees"]
OPTIONS = {"beam": 2, "alpha": 0.3}


@pytest.fixture(scope="module")
def peer():
    """The peer script, in this process: it starts sooner."""
    file = peer_process.SCRIPTS / "stablehlo.py"
    spec = importlib.util.spec_from_file_location("peer_stablehlo", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ROWS = 1  # as the README has it: nothing is compiled twice
    return module


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A translator and the folder of its export."""
    one = translator(own_source=True).with_options(max_source=32)
    folder = tmp_path_factory.mktemp("exported")
    job = to_stablehlo.write(one, folder, OPTIONS)
    assert job["search"] == {**OPTIONS, "penalty": "gnmt", "stop": "best"}
    return one, folder


def test_texts_and_scores_are_those_of_the_translator(exported, peer):
    one, folder = exported
    ours = one.translate(LINES, **OPTIONS)
    theirs = peer.beam({"model": folder, "lines": LINES, "beam": OPTIONS["beam"]})
    assert theirs["texts"] == [translation.text for translation in ours]
    assert len({*theirs["texts"]}) > 2
    for translation, tokens, score in zip(
        ours, theirs["tokens"], theirs["scores"], strict=True
    ):
        if translation.text:
            assert tokens == [*translation.best.tokens]
            assert score == pytest.approx(translation.score, abs=1e-4)


def test_the_loader_of_the_readme_translates(exported, monkeypatch):
    one, folder = exported
    _, _, code = (folder / "README.md").read_text().partition("```python\n")
    code, *_ = code.partition("print(")
    monkeypatch.chdir(folder)
    loaded = {}
    exec(code, loaded)
    assert loaded["translate"](LINES[0]) == one.translate(LINES[:1], **OPTIONS)[0].text


def test_it_runs_on_all_platforms_and_says_that_it_is_short_lived(exported):
    _, folder = exported
    assert "**Short-lived**" in (folder / "README.md").read_text()
    about = json.loads((folder / "export.json").read_bytes())
    assert sorted(p["beam"] for p in about["programs"]) == [1, 2]
    for program in about["programs"]:
        read = jax.export.deserialize((folder / program["file"]).read_bytes())
        assert read.platforms == ("cpu", "cuda", "tpu")


@pytest.mark.parametrize("kind", ["lstm", "conv"])
def test_other_models_are_exported_for_any_number_of_rows(kind):
    one = translator(kind=kind, dtype="float32")
    exported = to_stablehlo.export_search(one, 2, 32, 37)
    assert [str(axis) for axis in exported.in_avals[-1].shape] == ["rows"]


def test_no_kernel_of_the_exporting_machine_is_used(monkeypatch):
    tpu = types.SimpleNamespace(platform="tpu")
    monkeypatch.setattr(mesh, "target_device", lambda: tpu)
    text = to_stablehlo.export_search(translator(), 1, 128, 133).mlir_module()
    assert set(re.findall(r"custom_call @(\w+)", text)) == {"shape_assertion"}
    products = re.findall(r"stablehlo\.dot_general .*", text)
    assert products
    assert [line for line in products if "[HIGHEST, HIGHEST]" not in line] == []


def test_greedy_search_begins_with_forced_tokens_and_respects_limits(peer, tmp_path):
    """Forced tokens are those of multilingual models: the language of the target."""
    one = translator(tied="target").with_options(max_source=32)
    vocabulary = one.vocabulary = copy.copy(one.vocabulary)
    vocabulary._tokenizer = copy.copy(vocabulary._tokenizer)
    vocabulary._tokenizer.first = (7, 9)
    to_stablehlo.write(one, tmp_path, {"beam": 1})
    sources = vocabulary.source.encode(["the cat sees", "a dog"], end=True)
    ours = [[*h.tokens] for h in one.translate_ids(sources, beam=1)]
    limits = [len(ids) + 5 for ids in sources]
    job = {"model": tmp_path, "sources": sources, "limits": limits}
    assert peer.greedy(job)["tokens"] == ours
    assert [row[:2] for row in ours] == [[7, 9]] * 2
    cut = peer.greedy(job | {"limits": [3, 4]})["tokens"]
    assert cut == [ours[0][:3], ours[1][:4]]


# ---------------------------------------------------------------------------- refusals


def test_what_cannot_be_exported_is_refused(tmp_path):
    one = translator().with_options(beam=2)
    (member,) = one.members
    one.members = (member._replace(model=member.model._replace(has_source=False)),)
    with pytest.raises(UserError, match="'transformer' has no source"):
        to_stablehlo.write(one, tmp_path, {})
    assert not [*tmp_path.iterdir()]
