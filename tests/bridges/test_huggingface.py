"""Imports from Hugging Face: folders made here, and with the peers, the originals."""

import functools
import json
import subprocess
import sys

import jax
import numpy as np
import pytest

from t2t_jax.config import from_config_dict
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.model.positions import sinusoids
from t2t_jax.tools.bridges import importing, weights
from t2t_jax.tools.bridges.families import huggingface
from t2t_jax.tools.bridges.formats import ImportRequest
from t2t_jax.tools.bridges.table import IMPORTS
from t2t_jax.tools.bridges.tensor_files import read_tensors, write_safetensors
from t2t_jax.workdir import Workdir
from tests.bridges.exported import needs, random_like
from tests.bridges.published_shapes import LANGUAGES, SHAPES, TOKENIZERS

SIZES = {
    **{"d_model": 8, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0.2},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 4},
    **{"encoder_ffn_dim": 6, "decoder_ffn_dim": 10, "max_position_embeddings": 32},
    **{"is_encoder_decoder": True, "activation_function": "relu"},
    **{"transformers_version": "5.23.0", "use_cache": True},
}
OURS = {
    **{"width": 8, "layers": 1, "decoder_layers": 2, "heads": 2, "decoder_heads": 4},
    **{"hidden": 6, "decoder_hidden": 10, "dropout": 0.2, "max_positions": 32},
    **{"norm_epsilon": 1e-5, "attention_bias": True},
}
HALF = {"sinusoid_layout": "half"}
FAIRSEQ_POSITIONS = HALF | {"sinusoid_spacing": "tensor2tensor", "position_offset": 2}
FSMT_HEAD = "model.decoder.output_projection.weight"

MARIAN = {"output_bias": True, "options": HALF}
PRE = {"norm": "pre", "options": FAIRSEQ_POSITIONS}
# The fields of ours that follow from each shape.
CASES = {
    "opus-mt": MARIAN | {"feed_forward": "silu"},
    "tc-big-separate": MARIAN | {"tied": "target"},
    "untied": MARIAN | {"tied": "none", "embedding_scale": False},
    "m2m100": PRE,
    "nllb": PRE,
    "pegasus": MARIAN
    | {"norm": "pre", "feed_forward": "gelu", "embedding_scale": False},
    "fsmt": {"tied": "none", "options": FAIRSEQ_POSITIONS},
}


known_build = functools.cache(build)


@pytest.fixture(autouse=True)
def every_model_is_built_once(monkeypatch):
    monkeypatch.setattr(huggingface, "build", known_build)


def put(folder, name, fields):
    (folder / name).write_text(json.dumps(fields))


def write(shape, folder, **fields):
    """Writes a folder with our random parameters; returns them and their config."""
    kind, options, more = SHAPES[shape]
    described = TOKENIZERS[kind](folder, **options)
    model_type = "m2m_100" if kind in ("nllb", "m2m100") else kind
    config = SIZES | {"model_type": model_type} | described | more | fields
    put(folder, "config.json", config)
    model = from_config_dict({"model": OURS | CASES[shape]}).model
    if kind == "fsmt":
        target, source = config["tgt_vocab_size"], config["src_vocab_size"]
    else:
        source = config["vocab_size"]
        target = config.get("decoder_vocab_size", source)
    sizes = (target,) if model.tied == "all" else (target, source)
    parameters = random_like(known_build(model, *sizes).shapes)
    head = FSMT_HEAD if kind == "fsmt" else huggingface.HEAD
    rules = huggingface.weight_rules(model, head)
    tensors = weights.write(rules, parameters)
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    return model, parameters


def read(shape, folder, **request):
    kind, *_ = SHAPES[shape]
    source, target = LANGUAGES[kind]
    _, form = importing.chosen_format(folder, "")
    assert form is IMPORTS["m2m100" if kind == "nllb" else kind]
    return form.read(
        ImportRequest(folder, **{"source": source, "target": target} | request)
    )


def refused(message, shape, folder, **request):
    with pytest.raises(UserError, match=message):
        read(shape, folder, **request)


def change(folder, function):
    """Changes the tensors of a folder, in a new file: what was read is a view of it."""
    file = folder / "model.safetensors"
    tensors = dict(read_tensors(file))
    function(tensors)
    write_safetensors(folder / "new", tensors)
    (folder / "new").replace(file)


@pytest.mark.parametrize("shape", CASES)
def test_reading_undoes_writing(shape, tmp_path):
    model, parameters = write(shape, tmp_path)
    found = read(shape, tmp_path)
    assert found.config.model == model
    assert found.vocabulary.joint == (shape not in ("tc-big-separate", "fsmt"))
    if SHAPES[shape][0] == "marian":  # padding is no token of Marian's own
        bias = parameters["embedding"]["output_bias"].copy()
        bias[found.vocabulary.pad] = huggingface.SILENT
        embedding = parameters["embedding"] | {"output_bias": bias}
        parameters = parameters | {"embedding": embedding}
    assert jax.tree.all(jax.tree.map(np.array_equal, parameters, found.parameters))
    assert not found.notes
    if shape == "nllb":
        peer = found.peer
        assert found.vocabulary.piece(peer["forced_bos"]) == "deu_Latn"
        assert (peer["start"], peer["eos"], peer["pad"]) == (2, 2, 1)
        assert [token in peer["never"] for token in (1, 2)] == [True, False]


def test_tied_copies_may_be_stored_but_must_be_equal(tmp_path):
    write("opus-mt", tmp_path)
    shared = huggingface.SHARED
    copies = [huggingface.SOURCE, huggingface.TARGET, huggingface.HEAD]
    plain = read("opus-mt", tmp_path).parameters
    for function in (
        lambda tensors: tensors.update(dict.fromkeys(copies, tensors[shared])),
        # Any one of them is enough.
        lambda tensors: [tensors.pop(name) for name in (shared, *copies[1:])],
    ):
        change(tmp_path, function)
        again = read("opus-mt", tmp_path).parameters
        assert jax.tree.all(jax.tree.map(np.array_equal, plain, again))
    change(tmp_path, lambda tensors: tensors.update({shared: tensors[copies[0]] + 1}))
    refused(f"{shared} and {copies[0]} differ", "opus-mt", tmp_path)


def test_stored_positions_are_compared_with_ours(tmp_path):
    write("fsmt", tmp_path)
    name = "model.decoder.embed_positions.weight"

    def store(spacing):
        table = sinusoids(34, 8, "half", spacing)
        table[1] = 0  # padding
        change(tmp_path, lambda tensors: tensors.update({name: table}))

    store("tensor2tensor")
    read("fsmt", tmp_path)
    store("paper")
    refused(f"{name} is not the table of sinusoids", "fsmt", tmp_path)


def test_other_positions_on_both_sides_are_a_learned_table(tmp_path):
    write("pegasus", tmp_path)
    change(tmp_path, lambda tensors: tensors.pop("final_logits_bias"))
    table = np.random.default_rng(0).normal(size=(2, 32, 8)).astype(np.float32)
    names = huggingface.POSITIONS.values()
    change(tmp_path, lambda tensors: tensors.update(zip(names, table, strict=True)))
    found = read("pegasus", tmp_path)
    assert found.config.model.positions == "learned"
    assert found.config.model.max_positions == 32
    for side, rows in zip(("encoder", "decoder"), table, strict=True):
        stored = found.parameters[f"{side}_positions"][0]["table"]
        assert np.array_equal(stored, rows)
    assert not found.parameters["embedding"]["output_bias"].any()  # none is stored
    rules = huggingface.weight_rules(found.config.model)
    again = weights.write(rules, found.parameters)
    assert np.array_equal(again[next(iter(names))], table[0])


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("activation_function", "gelu_new", "relu or gelu"),
        ("decoder_attention_heads", 3, "a divisor of 8"),
        ("normalize_before", True, "want false; no other"),
        ("dropout", 1.0, "rate < 1"),
        ("auto_map", {"AutoModel": "their.Code"}, "cannot be imported"),
        ("forced_bos_token_id", 5, "want null"),
        ("num_beams", "4", "a whole number"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(field, value, wanted, tmp_path):
    write("opus-mt", tmp_path, **{field: value})
    refused(f"(?=.*{field}).*{wanted}", "opus-mt", tmp_path)


def test_search_options_come_from_the_generation_config(tmp_path):
    more = {"use_rope": True, "decoder_layerdrop": 0.1}
    write("opus-mt", tmp_path, num_beams=6, length_penalty=0.5, **more)
    found = read("opus-mt", tmp_path)
    decode, (layerdrop, unknown) = found.config.decode, found.notes
    assert (decode.beam, decode.alpha, decode.penalty) == (6, 0.5, "length")
    assert "decoder_layerdrop=0.1" in layerdrop
    assert "use_rope=true, which this import does not know" in unknown
    options = {"num_beams": 3, "early_stopping": True, "no_repeat_ngram_size": 3}
    put(tmp_path, "generation_config.json", options)
    found = read("opus-mt", tmp_path)
    decode = found.config.decode
    assert (decode.beam, decode.alpha, decode.stop) == (3, 1.0, "first")
    assert "no_repeat_ngram_size=3" in " ".join(found.notes)


def test_languages_are_those_of_the_user_then_of_the_model(tmp_path):
    folder = tmp_path / "opus-mt-tc-big-en-fra"
    folder.mkdir()
    write("opus-mt", folder)

    def languages(**given):
        data = read("opus-mt", folder, **given).config.data
        return data.source, data.target

    nothing = {"source": "", "target": ""}
    assert languages(**nothing) == ("en", "fra")
    assert languages(source="eng", target="") == ("eng", "fra")
    put(folder, "tokenizer_config.json", {"source_lang": "fi", "target_lang": "sv"})
    assert languages(**nothing) == ("fi", "sv")
    assert languages(target="fra") == ("en", "fra")  # a model of several languages
    table = (folder / "vocab.json").read_text()
    (folder / "vocab.json").write_text(table.replace(">>", "<"))  # of one pair
    message = "--target=fr, but .* says sv; leave --target"
    refused(message, "opus-mt", folder, source="", target="fr")
    (folder / "tokenizer_config.json").unlink()
    folder = folder.rename(tmp_path / "mine")
    refused("does not say its source language.*--source", "opus-mt", folder, **nothing)


def test_languages_of_a_multilingual_model_are_known_ones(tmp_path):
    write("nllb", tmp_path)
    refused("deu_Lat.*did you mean 'deu_Latn'", "nllb", tmp_path, target="deu_Lat")
    put(tmp_path, "tokenizer_config.json", {"legacy_behaviour": True})
    refused("legacy_behaviour=true", "nllb", tmp_path)


def test_the_user_cannot_contradict_the_model(tmp_path):
    write("opus-mt", tmp_path)
    assert read("opus-mt", tmp_path, model={"heads": 2, "remat": "full"})
    message = "config.model.heads=4, but .* says 2"
    refused(message, "opus-mt", tmp_path, model={"heads": 4})


def original(shape, folder):
    command = "-m", "tests.bridges.published_shapes", str(folder), shape
    subprocess.run([sys.executable, *command], check=True)
    kind, *_ = SHAPES[shape]
    return ImportRequest(folder / shape, *LANGUAGES[kind])


@needs("torch", "transformers")
@pytest.mark.parametrize("shape", SHAPES)
def test_it_computes_what_the_original_does(shape, tmp_path):
    importing.import_model(original(shape, tmp_path), Workdir(tmp_path / "w"))
    facts = json.loads((tmp_path / "w/imported.json").read_text())["compared"]
    assert facts["logits"]["difference"] <= 1e-4
    assert facts["greedy"]["equal"] + facts["greedy"]["ties"] == 100
