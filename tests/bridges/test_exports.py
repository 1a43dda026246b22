"""Exports: their arrays, cards, tokenizers and programs, and what is refused.

With the other library, also that it computes what we do.
"""

import copy
import importlib.util
import json
import re
import shutil
import sys
import types
import zipfile

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from t2t_jax.config import changed, from_config_dict
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.scores import stored_scores
from t2t_jax.io.atomic import checked_json
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.model.positions import sinusoids
from t2t_jax.parallel import mesh
from t2t_jax.search.algorithm import never_generated
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.checks import agreement, peer_process
from t2t_jax.tools.bridges.exports import (
    to_argos,
    to_ctranslate2,
    to_huggingface,
    to_stablehlo,
)
from t2t_jax.tools.bridges.formats import NO_CHANGE
from t2t_jax.workdir import Workdir
from tests.bridges import written
from tests.bridges.exported import needs, random_like, run_peer, translator
from tests.decoding.small_translator import TEXT
from tests.test_nasty_lines import NASTY

# ------------------------------------------------------------------------ Hugging Face


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", "lstm"), ("norm", "post_final"), ("positions", "rotary")]
    + [("attention", "unscaled"), ("head_width", 4)],
)
def test_hugging_face_refuses_other_models_by_field(field, value, tmp_path):
    with pytest.raises(UserError, match=rf"config\.model\.{field}=.*--to=ctranslate2"):
        to_huggingface.write(translator(**{field: value}), tmp_path, {})
    assert not [*tmp_path.iterdir()]


def test_vocabularies_with_other_special_ids_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"\[3, 2, 0, 1\] in the source"):
        to_huggingface.write(translator(True), tmp_path, {})


def test_the_card_has_a_valid_header_and_the_scores_of_these_parameters(tmp_path):
    parameters = {
        "parameters_sha256": translator().provenance()["parameters_sha256"][0]
    }
    scores = {"bleu": 12.5, "signature": "nrefs:1|eff:no", "bleu_paper": 9, "ter": 70}
    (tmp_path / "scores").mkdir()
    for name, beam, origin in (
        ("news", 1, parameters),
        ("news.1", 5, parameters),  # an earlier search
        ("older", 7, {"parameters_sha256": "0"}),
    ):
        search = {"decode": translator().decode_options() | {"beam": beam}}
        content = checked_json(scores | search | origin)
        (tmp_path / f"scores/{name}.json").write_bytes(content)

    def card(target):
        original = copy.copy(translator())
        config = changed(original.config, "data", target=target)
        original = Translator(
            config, original.vocabulary, original.model, original.parameters, [7]
        )
        generation = {"max_length": 99, "length_penalty": 0.48}
        return to_huggingface.readme(
            original, generation, stored_scores(Workdir(tmp_path))
        )

    # Without quotes, YAML reads Norwegian as false.
    _, header, text = card("no").split("---\n", 2)
    assert yaml.safe_load(header)["language"] == ["en", "no"]
    for beam in (1, 5):
        search = f"beam {beam}, length penalty 'gnmt' with alpha 0.6"
        assert f"| news | BLEU | 12.50 | {search} | `nrefs:1\\|eff:no` |" in text
    assert "beam 7" not in text
    assert "BLEU as in the paper" in text
    # Of scores that mean nothing in the language nothing is shown.
    text = card("ja")
    assert "| news | BLEU |" in text
    assert "BLEU as in the paper" not in text
    assert "| TER |" not in text


@needs("torch", "transformers")
@pytest.mark.parametrize("name", written.EXPORTED)
def test_hugging_face_translates_as_we_do(name, tmp_path):
    original = agreement.float32(written.exported_model(name)).with_options(
        beam=4, alpha=0.6, penalty="length", stop="best"
    )
    to_huggingface.write(original, tmp_path, {})
    lines = [*TEXT[:2], *(line[:6] for line in [*NASTY.values()][:6])]
    sources = original.vocabulary.source.encode(lines, end=True)
    limits = [len(row) + 5 for row in sources]
    job = {"lines": lines, "sources": sources, "limits": limits}
    answer = run_peer("huggingface", "greedy", tmp_path, **job)
    tokens = [
        hypothesis.tokens for hypothesis in original.translate_ids(sources, beam=1)
    ]
    compared = agreement.compare_greedy(
        original, sources, tokens, answer["tokens"], limits
    )
    assert compared.agrees, compared
    # With the folder's own tokenizer.
    answer = run_peer("huggingface", "beam", tmp_path, beam=4, alpha=0.6, **job)
    if original.vocabulary.joint:
        assert not answer["tokenizer_differs"]
        assert answer["texts"] == original.vocabulary.decode(answer["tokens"])


# ------------------------------------------------------------------------- CTranslate2

SMALL = {"layers": 2, "width": 16, "heads": 2, "hidden": 24, "dtype": "float32"}
# Each choice that CTranslate2 has, in as few models as possible.
VARIANTS = {
    "paper": {},
    "biases": {"norm": "pre", "attention_bias": True, "output_bias": True}
    | {"tied": "target", "feed_forward": "silu", "embedding_scale": False}
    | {"norm_epsilon": 1e-2},
    "sides": {"norm": "post_final", "tied": "none", "feed_forward": "gelu"}
    | {"encoder_layers": 1, "decoder_heads": 4, "decoder_hidden": 8, "head_width": 6}
    | {"options": {"sinusoid_layout": "half", "position_offset": 2}},
    "learned": {"norm": "pre", "norm_kind": "rms", "feed_forward": "swiglu"}
    | {"positions": "learned", "max_positions": 100, "options": {"position_offset": 2}},
    "rotary": {"positions": "rotary", "feed_forward": "geglu"}
    | {"options": {"rotary_base": 100.0}},
    "relative": {"positions": "relative", "options": {"relative_clip": 3}},
}


def translator_of(**model):
    """A translator whose parameters all have values of their own."""
    target = Vocabulary(train_tokenizer(TEXT * 20, 290))
    source = Vocabulary(train_tokenizer(TEXT * 20, 280))
    separate = model.get("tied") == "none"
    vocabulary = Vocabulary(target.model, source=source) if separate else target
    config = from_config_dict(
        {
            "model": SMALL | model,
            "data": {"joint_vocabulary": not separate},
            "decode": {"max_source": 40, "extra_length": 8},
        }
    )
    built = build(config.model, *vocabulary.sizes)
    return Translator(config, vocabulary, built, random_like(built.shapes, 0.5, 1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_ctranslate2s_arrays_are_all_of_our_parameters(variant):
    original = translator_of(**VARIANTS[variant] | {"output_bias": True})
    rules = to_ctranslate2.rules(original.config.model)
    tensors = weights.write(rules, original.parameters)
    read = weights.flatten(weights.read(rules, tensors, original.model, "x"))
    for name, parameter in weights.flatten(original.parameters).items():
        # No position reads the rows before the offset.
        unread = 2 if variant == "learned" and name.endswith("table") else 0
        np.testing.assert_array_equal(read[name][unread:], parameter[unread:], name)


def test_positions_are_a_table_and_banned_tokens_have_a_bias():
    original = translator_of(**VARIANTS["sides"])
    arrays = to_ctranslate2.variables(
        original.config.model, original.parameters, 49, (0, 1)
    )
    for side in ("encoder", "decoder"):
        table = arrays[f"{side}/position_encodings/encodings"]
        np.testing.assert_array_equal(table, sinusoids(58, 16, "half")[2:])
    bias = arrays["decoder/projection/bias"]
    assert bias[:3].tolist() == [-60_000, -60_000, 0]
    assert np.isfinite(bias.astype(np.float16)).all()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ({"kind": "lstm"}, {}, "config.model.kind='lstm'.*--to=saf"),
        ({"value_width": 4}, {}, "config.model.value_width=4"),
        ({}, {"quantization": "int7"}, "--quantization=int7.*'int8'"),
        # A package without its parts cannot be imported from.
        ({}, {}, r"pip install ctranslate2"),
    ],
)
def test_refusals_write_nothing(model, options, message, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    monkeypatch.setitem(sys.modules, "ctranslate2", types.ModuleType("ctranslate2"))
    with pytest.raises(UserError, match=message):
        to_ctranslate2.write(translator_of(**model), tmp_path, options)
    assert sys.modules.get("torch", "not hidden") is not None
    assert not [*tmp_path.iterdir()]


def test_tokens_of_one_name_are_refused():
    vocabulary = translator().vocabulary
    tokens = {"eos_token": "</s>", "unk_token": "<unk>"}
    names = to_ctranslate2.piece_names(vocabulary, tokens)
    assert names == [vocabulary.piece(i) for i in range(len(vocabulary))]
    with pytest.raises(UserError, match="several tokens named <0x41>"):
        to_ctranslate2.piece_names(vocabulary, tokens | {"eos_token": "<0x41>"})


@needs("ctranslate2")
@pytest.mark.parametrize("variant", VARIANTS)
def test_ctranslate2_gives_our_probabilities_and_tokens(variant, tmp_path):
    original = translator_of(**VARIANTS[variant])
    job = {"threads": 1} | to_ctranslate2.write(original, tmp_path, {})
    random = np.random.default_rng(2)
    sources, targets = (
        [[*map(int, random.integers(4, 280, n)), 2] for n in lengths]
        for lengths in ([1, 2, 7, 19, 30], [12, 3, 25, 6, 1])
    )
    answer = run_peer(
        *("ctranslate2_peer", "log_probs", tmp_path),
        **{"sources": sources, "targets": targets, **job},
    )
    inputs = [[1, *ids[:-1]] for ids in targets]
    for row, logits_tv in enumerate(agreement.logits(original, sources, inputs)):
        banned = [*never_generated(original.vocabulary)]
        log_p_tv = jax.nn.log_softmax(jnp.asarray(logits_tv).at[:, banned].add(-6e4))
        log_p_t = log_p_tv[np.arange(len(targets[row])), np.array(targets[row])]
        np.testing.assert_allclose(answer["log_probs"][row], log_p_t, atol=1e-4)
    limits = [len(ids) + 8 for ids in sources]
    job |= {"sources": sources, "limits": limits}
    answer = run_peer("ctranslate2_peer", "greedy", tmp_path, **job)
    tokens = [h.tokens for h in original.translate_ids(sources, beam=1)]
    compared = agreement.compare_greedy(
        original, sources, tokens, answer["tokens"], limits
    )
    assert compared.equal == 5
    assert len({*map(tuple, tokens)}) > 3


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
    """A translator and the folder of its export.

    Its translations begin with two forced tokens, as those of a multilingual model.
    """
    original = translator(own_source=True).with_options(max_source=32)
    vocabulary = original.vocabulary = copy.copy(original.vocabulary)
    vocabulary._tokenizer = copy.copy(vocabulary._tokenizer)
    vocabulary._tokenizer.first = (7, 9)
    folder = tmp_path_factory.mktemp("exported")
    job = to_stablehlo.write(original, folder, OPTIONS)
    assert job["search"] == {**OPTIONS, "penalty": "gnmt", "stop": "best", **NO_CHANGE}
    return original, folder


def test_texts_and_scores_are_those_of_the_translator(exported, peer):
    original, folder = exported
    translations = original.translate(LINES, **OPTIONS)
    answer = peer.beam({"model": folder, "lines": LINES, "beam": OPTIONS["beam"]})
    assert answer["texts"] == [translation.text for translation in translations]
    assert len({*answer["texts"]}) > 2
    for translation, tokens, score in zip(
        translations, answer["tokens"], answer["scores"], strict=True
    ):
        if translation.text:
            assert tokens == [*translation.best.tokens]
            assert score == pytest.approx(translation.score, abs=1e-4)


def test_the_readme_says_for_how_long_and_its_loader_translates(exported, monkeypatch):
    original, folder = exported
    readme = (folder / "README.md").read_text()
    assert "**Short-lived**" in readme
    code = readme.partition("```python\n")[2].partition("print(")[0]
    monkeypatch.chdir(folder)
    loaded = {}
    exec(code, loaded)
    (translation,) = original.translate(LINES[:1], **OPTIONS)
    assert loaded["translate"](LINES[0]) == translation.text


def test_programs_run_on_all_platforms(exported):
    _, folder = exported
    about = json.loads((folder / "export.json").read_bytes())
    assert sorted(p["beam"] for p in about["programs"]) == [1, 2]
    for program in about["programs"]:
        read = jax.export.deserialize((folder / program["file"]).read_bytes())
        assert read.platforms == ("cpu", "cuda", "tpu")


def test_other_models_are_exported_for_any_number_of_rows():
    program = to_stablehlo.export_search(translator(kind="lstm"), 2, 32, 37)
    assert [str(axis) for axis in program.in_avals[-1].shape] == ["rows"]


def test_no_kernel_of_the_exporting_machine_is_used(monkeypatch):
    tpu = types.SimpleNamespace(platform="tpu")
    monkeypatch.setattr(mesh, "target_device", lambda: tpu)
    text = to_stablehlo.export_search(translator(), 1, 128, 133).mlir_module()
    assert set(re.findall(r"custom_call @(\w+)", text)) == {"shape_assertion"}
    products = re.findall(r"stablehlo\.dot_general .*", text)
    assert products
    assert [line for line in products if "[HIGHEST, HIGHEST]" not in line] == []


def test_greedy_search_begins_with_forced_tokens_and_respects_limits(exported, peer):
    original, folder = exported
    sources = original.vocabulary.source.encode(["the cat sees", "a dog"], end=True)
    rows = [[*h.tokens] for h in original.translate_ids(sources, beam=1)]
    limits = [len(ids) + 5 for ids in sources]
    job = {"model": folder, "sources": sources, "limits": limits}
    assert peer.greedy(job)["tokens"] == rows
    assert [row[:2] for row in rows] == [[7, 9]] * 2
    cut = peer.greedy(job | {"limits": [3, 4]})["tokens"]
    assert cut == [rows[0][:3], rows[1][:4]]


def test_a_model_without_a_source_is_refused(tmp_path):
    original = translator().with_options(beam=2)
    (member,) = original.members
    original.members = (member._replace(model=member.model._replace(has_source=False)),)
    with pytest.raises(UserError, match="'transformer' has no source"):
        to_stablehlo.write(original, tmp_path, {})
    assert not [*tmp_path.iterdir()]


# --------------------------------------------------------------------------- Argos


@needs("ctranslate2")
def test_a_package_of_argos_translates_as_we_do_with_its_search(tmp_path):
    """Its calls, on its file: Argos Translate itself wants PyTorch."""
    made = translator()
    config = changed(made.config, "data", source="eng_Latn", target="pt-BR")
    made = Translator(config, made.vocabulary, made.model, made.parameters, [7])
    (tmp_path / "unrepeated").mkdir()
    to_argos.write(made.with_options(no_repeat_ngram=3), tmp_path / "unrepeated", {})
    readme = (tmp_path / "unrepeated" / "README.md").read_text("utf-8")
    assert "does not avoid repetitions (no_repeat_ngram_size)" in readme
    shutil.rmtree(tmp_path / "unrepeated")
    job = to_argos.write(made, tmp_path, {})
    assert "repetitions" not in (tmp_path / "README.md").read_text("utf-8")
    name = "translate-en_pb-1_0"
    files = {file.name for file in tmp_path.iterdir()}
    assert files == {"README.md", f"{name}.argosmodel"}
    with zipfile.ZipFile(tmp_path / f"{name}.argosmodel") as archive:
        names = {*archive.namelist()}
        metadata = json.loads(archive.read(f"{name}/metadata.json"))
    assert {f"{name}/model/model.bin", f"{name}/sentencepiece.model"} <= names
    codes = {"from_code": "en", "from_name": "English", "to_code": "pb"}
    assert codes.items() <= metadata.items()
    lines = ["the cat sees the dog", "ein  Hund", "Zo\u00eb \U0001f600"]
    sources = made.vocabulary.encode(lines, end=True)
    given = {"lines": lines, "sources": sources, "limits": [20] * 3, "threads": 1}
    greedy = run_peer("argos", "greedy", tmp_path, **given)["tokens"]
    ours = [hypothesis.tokens for hypothesis in made.translate_ids(sources, beam=1)]
    for ids, tokens in zip(ours, greedy, strict=True):
        shared = min(len(ids), len(tokens), 8)
        assert [*ids[:shared]] == tokens[:shared] != []
    answer = run_peer("argos", "beam", tmp_path, **given, **job["search"])
    decoded = made.vocabulary.decode(answer["tokens"])
    assert answer["texts"] == [text.replace("_", " ") for text in decoded]


def stand_in(kind="translation", model=b"{}"):
    config = changed(translator().config, "task", kind=kind)
    vocabulary = types.SimpleNamespace(joint=True, model=model, name="x.json")
    return types.SimpleNamespace(config=config, vocabulary=vocabulary)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: translator(own_source=True), "two vocabularies; a package"),
        (lambda: stand_in("text_to_text"), "one direction"),
        (lambda: translator(positions="learned", max_positions=64), "max_positions=64"),
        (stand_in, "is not a SentencePiece model of"),
    ],
)
def test_what_a_package_of_argos_cannot_hold_is_refused(make, message, tmp_path):
    with pytest.raises(UserError, match=message):
        to_argos.write(make(), tmp_path, {})
    assert not [*tmp_path.iterdir()]
