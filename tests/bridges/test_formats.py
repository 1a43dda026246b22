"""What a format stores is read again, computes the same, and is refused if damaged."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from t2t_jax.config import changed
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.model.positions import sinusoids
from t2t_jax.sections import Options
from t2t_jax.tools.bridges import importing, weights
from t2t_jax.tools.bridges.checks import agreement
from t2t_jax.tools.bridges.exports import to_safetensors
from t2t_jax.tools.bridges.families import fairseq, huggingface
from t2t_jax.tools.bridges.formats import REPETITION, Request, repetition_fields
from t2t_jax.tools.bridges.tensor_files import read_tensors, write_safetensors
from t2t_jax.tools.bridges.vocabularies.written import own_files
from t2t_jax.workdir import Workdir
from tests.bridges import bpe_folders, published_tokenizers, written
from tests.bridges.exported import needs, run_peer, translator
from tests.decoding.small_translator import vocabulary
from tests.small_run import assert_same


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A model is built once; fairseq's checkpoints are read without PyTorch."""
    monkeypatch.setattr(huggingface, "build", written.build_once)
    monkeypatch.setattr(fairseq, "read_checkpoint", written.CHECKPOINTS.__getitem__)


def read(folder, source="en", target="de", **fields):
    _, form = importing.chosen_format(folder, "")
    return form.read(Request(folder, source, target, **fields))


def refused(message, folder, *languages, **fields):
    with pytest.raises(UserError, match=message):
        read(folder, *languages, **fields)


def change(folder, function):
    """Changes the tensors of a folder, in a new file: what was read is a view of it."""
    file = folder / "model.safetensors"
    tensors = dict(read_tensors(file))
    function(tensors)
    write_safetensors(folder / "new", tensors)
    (folder / "new").replace(file)


@pytest.mark.parametrize(("form", "variant"), written.CASES)
def test_reading_undoes_writing(form, variant, tmp_path):
    expected = written.write(form, variant, tmp_path)
    assert importing.chosen_format(tmp_path, "")[0] == form
    imported = read(tmp_path, *expected.languages)
    assert imported.config.model == expected.config
    assert imported.vocabulary.joint == expected.joint
    assert_same(imported.parameters, expected.parameters)
    languages = imported.config.data.source, imported.config.data.target
    assert languages == expected.languages or not all(expected.languages)


# -------------------------------------------------- logits, as other programs have them

with np.load(Path(__file__).with_name("huggingface_numbers.npz")) as file:
    NUMBERS = dict(file)


NAMES = sorted({key.partition("/")[0] for key in NUMBERS})


@pytest.fixture
def stored(name, tmp_path):
    """A model of `huggingface_numbers.npz` as a folder."""
    if name == "m2m_100":
        published_tokenizers.m2m100(tmp_path)
    elif name == "fsmt":
        bpe_folders.fsmt(tmp_path)
    else:
        tokens = written.separate().vocabulary if "two" in name else vocabulary()
        for file, content in own_files(tokens).items():
            (tmp_path / file).write_bytes(content)
    (tmp_path / "config.json").write_text(str(NUMBERS[f"{name}/config"]))
    shapes = json.loads(str(NUMBERS[f"{name}/shapes"]))
    ends = np.cumsum([np.prod(shape) for shape in shapes.values()])[:-1]
    arrays = np.split(np.float32(NUMBERS[f"{name}/tensors"]), ends)
    tensors = {n: x.reshape(shapes[n]) for n, x in zip(shapes, arrays, strict=True)}
    write_safetensors(tmp_path / "model.safetensors", tensors, {"format": "pt"})
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_hugging_face(name, stored):
    """Of its classes, computed by make_huggingface_numbers.py."""
    imported = read(stored)
    model = build(imported.config.model, *imported.vocabulary.sizes)
    imported_translator = Translator(
        imported.config, imported.vocabulary, model, imported.parameters, [0]
    )
    pairs = [NUMBERS[f"{name}/{side}"].tolist() for side in ("source", "target")]
    logits_btv = np.array(
        agreement.logits(agreement.float32(imported_translator), *pairs)
    )
    expected_btv = NUMBERS[f"{name}/logits"]
    columns = np.arange(expected_btv.shape[2])
    columns = columns[columns != imported.vocabulary.pad]  # it may be silenced
    np.testing.assert_allclose(
        logits_btv[..., columns], expected_btv[..., columns], 1e-4, 1e-4
    )


@needs("torch", "transformers")
@pytest.mark.parametrize("name", NAMES)
def test_an_import_is_compared_with_the_original(name, stored, tmp_path):
    request = Request(stored, "en", "de")
    importing.import_model(request, Workdir(tmp_path / "w"))
    facts = json.loads((tmp_path / "w/imported.json").read_text())["compared"]
    assert facts["logits"]["difference"] <= 1e-4
    assert facts["greedy"]["equal"] + facts["greedy"]["ties"] == 100


def test_features_in_another_order_compute_the_same():
    """All sines before all cosines, as other systems have them."""
    original = agreement.float32(translator(layers=1, decoder_layers=2))
    parameters = weights.sines_first(original.config.model, original.parameters)
    options = Options(sinusoid_layout="half")
    config = changed(original.config, "model", options=options)
    model = build(config.model, *original.vocabulary.sizes)
    reordered = Translator(config, original.vocabulary, model, parameters, [7])
    pairs = [[5, 6, 7, 8, 9, 2]], [[1, 9, 8, 7, 6]]
    np.testing.assert_allclose(
        agreement.logits(reordered, *pairs),
        agreement.logits(original, *pairs),
        1e-5,
        1e-5,
    )


# -------------------------------------------------------------------- fields and arrays


@pytest.mark.parametrize(
    ("form", "field", "value"),
    [
        ("marian", "activation_function", "gelu_new"),
        ("marian", "decoder_attention_heads", 3),
        ("marian", "normalize_before", True),
        ("marian", "auto_map", {"AutoModel": "their.Code"}),
        ("marian", "forced_bos_token_id", 5),
        ("marian", "num_beams", "4"),
        ("fairseq", "adaptive_softmax_cutoff", [10]),
        ("fairseq", "decoder_normalize_before", True),
        ("fairseq", "task", "translation_multi_simple_epoch"),
        ("fairseq", "arch", "lightconv_wmt_en_de"),
        ("marian-npz", "type", "s2s"),
        ("marian-npz", "transformer-tied-layers", [1, 1]),
        ("marian-npz", "transformer-postprocess", "dhn"),
        ("marian-npz", "lemma-dim-emb", 8),
        ("marian-npz", "transformer-heads", None),
    ],
)
def test_what_we_do_not_compute_is_refused_by_its_name(form, field, value, tmp_path):
    if form == "marian":
        written.write_huggingface("opus-mt", tmp_path, **{field: value})
    elif form == "fairseq":
        written.write_fairseq("post", tmp_path, **{field: value})
    else:
        written.write_marian_npz("post", tmp_path, **{field: value})
    refused(f"{field}.*want", tmp_path)


def test_tied_copies_may_be_stored_but_must_be_equal(tmp_path):
    written.write_huggingface("opus-mt", tmp_path)
    shared = huggingface.SHARED
    copies = [huggingface.SOURCE, huggingface.TARGET, huggingface.HEAD]
    parameters = read(tmp_path).parameters
    for function in (
        lambda tensors: tensors.update(dict.fromkeys(copies, tensors[shared])),
        # Any one of them is enough.
        lambda tensors: [tensors.pop(name) for name in (shared, *copies[1:])],
    ):
        change(tmp_path, function)
        assert_same(read(tmp_path).parameters, parameters)
    change(tmp_path, lambda tensors: tensors.update({shared: tensors[copies[0]] + 1}))
    refused(f"{shared} and {copies[0]} differ", tmp_path)


def test_stored_positions_are_compared_with_ours(tmp_path):
    written.write_huggingface("fsmt", tmp_path)
    name = "model.decoder.embed_positions.weight"

    def store(spacing):
        table = sinusoids(34, 8, "half", spacing)
        table[1] = 0  # padding
        change(tmp_path, lambda tensors: tensors.update({name: table}))

    store("tensor2tensor")
    read(tmp_path)
    store("paper")
    refused(f"{name} is not the table of sinusoids", tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tensors: tensors.pop(huggingface.SHARED), "lacks model.shared.weight"),
        (
            lambda tensors: tensors.update(x=np.zeros(1)),
            "has x, which this import does not know",
        ),
        (
            lambda tensors: tensors.update({huggingface.BIAS: np.zeros((1, 3))}),
            r"final_logits_bias has the shape \[1, 3\]; its config says",
        ),
        (
            lambda tensors: tensors[huggingface.SHARED].fill(np.nan),
            "model.shared.weight has values that are not finite",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(damage, message):
    config, parameters = written.random_model(
        written.OUR_SIZES | {"output_bias": True}, 11
    )
    tensors = weights.write(huggingface.weight_rules(config), parameters)
    damage(tensors)
    model = written.build_once(config, 11)
    with pytest.raises(UserError, match=message):
        weights.read(huggingface.weight_rules(config), tensors, model, "a file")


# -------------------------------------------------- search options, languages, requests


def test_search_options_come_from_the_generation_config(tmp_path):
    written.write_huggingface(
        *("opus-mt", tmp_path),
        **{"num_beams": 6, "length_penalty": 0.5, "use_rope": True},
        decoder_layerdrop=0.1,
    )
    imported = read(tmp_path)
    decode, (layerdrop, unknown) = imported.config.decode, imported.notes
    assert (decode.beam, decode.alpha, decode.penalty) == (6, 0.5, "length")
    assert "decoder_layerdrop=0.1" in layerdrop
    assert "use_rope=true" in unknown
    options = {"num_beams": 3, "early_stopping": True}
    options |= {"no_repeat_ngram_size": 3, "repetition_penalty": 1.2}
    (tmp_path / "generation_config.json").write_text(json.dumps(options))
    imported = read(tmp_path)
    decode = imported.config.decode
    assert (decode.beam, decode.alpha, decode.stop) == (3, 1.0, "first")
    assert (decode.no_repeat_ngram, decode.repetition_penalty) == (3, 1.2)
    assert "log-probabilities" in " ".join(imported.notes)
    assert repetition_fields(decode) == {k: options[k] for k in REPETITION.values()}


def test_languages_are_those_of_the_user_then_of_the_model(tmp_path):
    folder = tmp_path / "opus-mt-tc-big-en-fra"
    folder.mkdir()
    written.write_huggingface("opus-mt", folder)

    def languages(*request):
        data = read(folder, *request).config.data
        return data.source, data.target

    assert languages("", "") == ("en", "fra")
    assert languages("eng", "") == ("eng", "fra")
    stored = {"source_lang": "fi", "target_lang": "sv"}
    (folder / "tokenizer_config.json").write_text(json.dumps(stored))
    assert languages("", "") == ("fi", "sv")
    assert languages("en", "fra") == ("en", "fra")  # a model of several languages
    table = (folder / "vocab.json").read_text()
    (folder / "vocab.json").write_text(table.replace(">>", "<"))  # of one pair
    refused("--target=fr, but .* says sv", folder, "", "fr")
    (folder / "tokenizer_config.json").unlink()
    folder = folder.rename(tmp_path / "mine")
    refused("does not say its source language", folder, "", "")


def test_a_multilingual_model_is_told_its_languages(tmp_path):
    written.write_huggingface("nllb", tmp_path)
    imported = read(tmp_path)
    peer = imported.peer
    assert imported.vocabulary.piece(peer["forced_bos"]) == "deu_Latn"
    assert (peer["start"], peer["eos"], peer["pad"]) == (2, 2, 1)
    assert [token in peer["never"] for token in (1, 2)] == [True, False]
    refused("deu_Lat.*did you mean 'deu_Latn'", tmp_path, "en", "deu_Lat")
    settings = {"legacy_behaviour": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    refused("legacy_behaviour=true", tmp_path)


def test_the_user_cannot_contradict_the_model(tmp_path):
    written.write_huggingface("opus-mt", tmp_path)
    assert read(tmp_path, model={"heads": 2, "remat": "full"})
    message = "config.model.heads=4, but .* says 2"
    refused(message, tmp_path, model={"heads": 4})


# ---------------------------------------------------------- files of fairseq and Marian


def test_files_of_fairseq_that_do_not_fit(tmp_path):
    config, parameters, *_ = written.write_fairseq("post", tmp_path)
    arrays = weights.write(fairseq.weight_rules(config), parameters)
    options = written.fairseq_options(share_all_embeddings=True)
    other = {"decoder.embed_tokens.weight": np.zeros((8, 16))}
    written.save_checkpoint(tmp_path / "model.pt", arrays | other, args=options)
    refused("are one table", tmp_path)
    written.save_checkpoint(tmp_path / "model.pt", arrays, args=options)
    refused("--source=fr, but .* says en", tmp_path, "fr")
    for language in ("en", "de"):
        (tmp_path / f"dict.{language}.txt").write_text("a 1\n")
    refused("has 8 rows, and .* has 5 tokens", tmp_path)


SAVE = """
import argparse, json, sys, numpy, torch
path, old = sys.argv[1], sys.argv[2] == "old"
content = json.load(open(path + ".json"), object_pairs_hook=lambda items: (
    argparse.Namespace(**dict(items)) if "arch" in dict(items) else dict(items)))
with numpy.load(path + ".npz") as arrays:
    content["model"] = {name: torch.tensor(arrays[name]) for name in arrays}
torch.save(content, path, _use_new_zipfile_serialization=not old)
"""


def save_by_torch(path, arrays, **content):
    """Has PyTorch save a checkpoint, with Namespaces; as in 2018 for old names."""
    np.savez(f"{path}.npz", **{name: np.float32(x) for name, x in arrays.items()})
    path.with_name(f"{path.name}.json").write_text(json.dumps(content))
    old = "old" if any("layer_norms" in name for name in arrays) else "new"
    command = [sys.executable, "-P", "-c", SAVE, path, old]
    subprocess.run(command, check=True, capture_output=True)


@needs("torch")
@pytest.mark.parametrize("variant", written.FAIRSEQ)
def test_fairseq_as_torch_saves_it(variant, tmp_path, monkeypatch):
    monkeypatch.undo()
    expected = written.write_fairseq(variant, tmp_path, save_by_torch)
    imported = read(tmp_path)
    assert imported.config.model == expected.config
    assert_same(imported.parameters, expected.parameters)


def test_the_settings_and_tokens_of_marian(tmp_path):
    written.write_marian_npz("post", tmp_path)
    imported = read(tmp_path)
    assert (imported.config.decode.beam, imported.config.decode.alpha) == (6, 1.0)
    tokens = imported.vocabulary
    assert (tokens.pad, tokens.bos, tokens.eos) == (150, 150, 0)
    assert tokens.decode(tokens.encode(["the cat"], end=True)) == ["the cat"]


def test_marian_with_tables_in_yaml(tmp_path):
    written.write_marian_npz("post", tmp_path)
    model, _ = written.marian_models()
    for side in ("source", "target"):
        (tmp_path / f"{side}.spm").write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(i) for i in range(150)]
    pieces[30] = ">>de<<"  # for a piece of the model
    lines = [f"{json.dumps(piece)}: {i}" for i, piece in enumerate(pieces)]
    lines[31] = "no: 31"  # YAML: false
    (tmp_path / "opus.vocab.yml").write_text("\n".join(lines))
    settings = {"vocabs": ["opus.vocab.yml"] * 2}
    (tmp_path / "decoder.yml").write_text(json.dumps(settings))
    tokens = read(tmp_path).vocabulary
    assert tokens.encode([">>de<< the"])[0][0] == 30
    assert tokens.piece(31) == "no"


def test_files_of_marian_that_do_not_fit(tmp_path):
    written.write_marian_npz("post", tmp_path)
    refused("does not say its source language", tmp_path, "", "")
    (tmp_path / "src.spm").write_bytes(written.marian_models()[1])
    refused(r"src.spm and .*trg.spm differ", tmp_path)


# ----------------------------------------------------------------------- our own format


def config_with(**fields):
    """Changes fields of config.json."""

    def damage(folder):
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_bytes()) | fields))

    return damage


def another_value(folder):
    file = folder / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def another_tokenizer(folder):
    (folder / "tokenizer.model").write_bytes(vocabulary(291).model)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (config_with(format_version=2), "format_version=2.*upgrade t2t_jax"),
        (another_value, "does not have the values that config.json describes"),
        (another_tokenizer, "not the one that config.json describes"),
    ],
)
def test_damage_of_our_own_format_is_refused(damage, message, tmp_path):
    written.write_own("one", tmp_path)
    damage(tmp_path)
    refused(message, tmp_path)


def test_the_library_reads_the_same_values(tmp_path):
    job = to_safetensors.write(translator(), tmp_path, {})
    assert run_peer("safetensors", "values", tmp_path, **job)["equal"]
    x = np.zeros((2, 3), np.float32)
    write_safetensors(tmp_path / "model.safetensors", {"x": x}, {"format": "?"})
    answer = run_peer("safetensors", "values", tmp_path, **job)
    assert set(answer["differ"]) == {"x", *job["tensors"]}


def test_added_biases_are_zero_and_all_else_stays():
    original = translator()
    config, parameters = weights.with_biases(
        original.config.model, original.parameters, "attention_bias", "output_bias"
    )
    model = build(config, *original.vocabulary.sizes)
    arrays = weights.flatten(parameters)
    assert arrays.keys() == weights.flatten(model.shapes).keys()
    for name, x in arrays.items():
        array = weights.flatten(original.parameters).get(name, np.zeros_like(x))
        np.testing.assert_array_equal(x, array, name)
