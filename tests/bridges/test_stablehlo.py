"""The exported search finds what ours finds."""

import copy
import importlib.util
import json
import re
import types

import jax
import jax.export
import pytest

from t2t_jax.io.errors import UserError
from t2t_jax.model.model import MODELS
from t2t_jax.parallel import mesh
from t2t_jax.tools.bridges.checks import peer_process
from t2t_jax.tools.bridges.exports import to_stablehlo
from tests.bridges.exported import translator

pytestmark = pytest.mark.usefixtures("quick_compiler")

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
    """A translator, the folder of its export, and the content of export.json."""
    one = translator(own_source=True).with_options(max_source=32)
    folder = tmp_path_factory.mktemp("exported")
    job = to_stablehlo.write(one, folder, OPTIONS)
    assert job["search"] == {**OPTIONS, "penalty": "gnmt", "stop": "best"}
    return one, folder, json.loads((folder / "export.json").read_bytes())


def test_texts_and_scores_are_those_of_the_translator(exported, peer):
    one, folder, _ = exported
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
    one, folder, _ = exported
    _, _, code = (folder / "README.md").read_text().partition("```python\n")
    code, *_ = code.partition("print(")
    assert code.count("\n") <= 17
    monkeypatch.chdir(folder)
    loaded = {}
    exec(code, loaded)
    assert loaded["translate"](LINES[0]) == one.translate(LINES[:1], **OPTIONS)[0].text


def test_it_says_how_long_it_lives_and_where_it_runs(exported):
    _, folder, about = exported
    assert "6 months" in about["short_lived"]
    assert "**Short-lived**" in (folder / "README.md").read_text()
    assert about["versions"]["jax"] == jax.__version__
    for program in about["programs"]:
        read = jax.export.deserialize((folder / program["file"]).read_bytes())
        assert read.platforms == ("cpu", "cuda", "tpu")
    assert sorted(p["beam"] for p in about["programs"]) == [1, 2]


@pytest.mark.parametrize(
    "kind", [k for k, m in MODELS.items() if m.generates and k != "transformer"]
)
def test_every_model_is_exported_for_any_number_of_rows(kind):
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


def test_what_cannot_be_exported_is_refused(tmp_path):
    one = translator().with_options(beam=2)
    (member,) = one.members
    for change, message in (
        ({"generates": False}, "config.model.kind='transformer' does not gen"),
        ({"has_source": False}, "'transformer' has no source"),
    ):
        one.members = (member._replace(model=member.model._replace(**change)),)
        with pytest.raises(UserError, match=message):
            to_stablehlo.write(one, tmp_path, {})
    with pytest.raises(UserError, match="config.decode.beam=0"):
        to_stablehlo.write(translator(), tmp_path, {"beam": 0})
    assert not [*tmp_path.iterdir()]
