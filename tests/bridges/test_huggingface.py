"""Imports from Hugging Face: folders made here, and with the peers, the originals."""

import functools
import json
import subprocess
import sys

import jax
import numpy as np
import pytest

from t2t_jax.config import changed, from_config_dict
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.model.positions import sinusoids
from t2t_jax.tools.bridges import importing, weights
from t2t_jax.tools.bridges.checks import agreement
from t2t_jax.tools.bridges.checks import peer_process as peers
from t2t_jax.tools.bridges.families import huggingface
from t2t_jax.tools.bridges.formats import Request
from t2t_jax.tools.bridges.table import IMPORTS
from t2t_jax.tools.bridges.tensor_files import read_tensors, write_safetensors
from t2t_jax.workdir import Workdir
from tests.bridges import bpe_folders, published_tokenizers
from tests.bridges.exported import needs, random_like
from tests.bridges.published_shapes import LANGUAGES, SHAPES
from tests.decoding.small_translator import vocabulary

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

TOKENIZERS = published_tokenizers.FOLDERS | {"fsmt": bpe_folders.fsmt}
# Shape -> the class, options of its tokenizer, fields of its config.json besides, and
# the fields of ours that follow.
MARIAN = {"output_bias": True, "options": HALF}
PRE = {"norm": "pre", "options": FAIRSEQ_POSITIONS}
CASES = {
    "opus-mt": (
        *("marian", {}, {"scale_embedding": True, "activation_function": "swish"}),
        MARIAN | {"feed_forward": "silu"},
    ),
    "tc-big-separate": (
        *("marian", {"separate": True}, {"scale_embedding": True}),
        MARIAN | {"tied": "target"},
    ),
    "untied": (
        *("marian", {}, {"tie_word_embeddings": False}),
        MARIAN | {"tied": "none", "embedding_scale": False},
    ),
    "m2m100": ("m2m100", {}, {}, PRE),
    "nllb": ("nllb", {}, {}, PRE),
    "pegasus": (
        *("pegasus", {}, {"activation_function": "gelu"}),
        MARIAN | {"norm": "pre", "feed_forward": "gelu", "embedding_scale": False},
    ),
    "fsmt": ("fsmt", {}, {}, {"tied": "none", "options": FAIRSEQ_POSITIONS}),
}


known_build = functools.cache(build)


@pytest.fixture(autouse=True)
def every_model_is_built_once(monkeypatch):
    monkeypatch.setattr(huggingface, "build", known_build)


def put(folder, name, fields):
    (folder / name).write_text(json.dumps(fields))


def write(shape, folder, **fields):
    """Writes a folder with our random parameters; returns them and their config."""
    kind, options, more, ours = CASES[shape]
    described = TOKENIZERS[kind](folder, **options)
    model_type = "m2m_100" if kind in ("nllb", "m2m100") else kind
    config = SIZES | {"model_type": model_type} | described | more | fields
    put(folder, "config.json", config)
    model = from_config_dict({"model": OURS | ours}).model
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


def write_with_own_tokenizer(folder, **fields):
    """Writes the export of a model of ours; returns its vocabulary."""
    own = vocabulary()
    ids = {"pad_token_id": own.pad, "eos_token_id": own.eos}
    ids |= {"decoder_start_token_id": own.bos, "vocab_size": len(own)}
    write("opus-mt", folder, **ids | fields)
    (folder / "tokenizer.model").write_bytes(own.model)
    return own


def read(shape, folder, **request):
    kind, *_ = CASES[shape]
    source, target = LANGUAGES[kind]
    if kind == "marian":
        target = "deu"
    _, form = importing.chosen_format(folder, "")
    assert form is IMPORTS["m2m100" if kind == "nllb" else kind]
    return form.read(Request(folder, **{"source": source, "target": target} | request))


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
    if CASES[shape][0] == "marian":  # padding is no token of Marian's own
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


def test_an_output_layer_of_its_own_may_have_shared_inputs(tmp_path):
    write("untied", tmp_path)

    def version_4(tensors):
        tensors[huggingface.SHARED] = tensors.pop(huggingface.SOURCE)
        del tensors[huggingface.TARGET]

    change(tmp_path, version_4)
    embedding = read("untied", tmp_path).parameters["embedding"]
    assert np.array_equal(embedding["source_tokens"], embedding["tokens"])
    assert not np.array_equal(embedding["output"], embedding["tokens"])


@pytest.mark.parametrize(
    ("shape", "spacing", "padding"),
    [("opus-mt", "paper", None), ("fsmt", "tensor2tensor", 1)],
)
def test_stored_positions_are_compared_with_ours(shape, spacing, padding, tmp_path):
    write(shape, tmp_path)
    name = "model.decoder.embed_positions.weight"

    def store(spacing):
        table = sinusoids(34, 8, "half", spacing)
        if padding is not None:
            table[padding] = 0
        change(tmp_path, lambda tensors: tensors.update({name: table}))

    store(spacing)
    read(shape, tmp_path)
    store({"paper": "tensor2tensor", "tensor2tensor": "paper"}[spacing])
    refused(f"{name} is not the table of sinusoids", shape, tmp_path)


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


def test_an_export_of_ours_has_its_tokenizer(tmp_path):
    own = write_with_own_tokenizer(tmp_path)
    found = read("opus-mt", tmp_path)
    assert found.vocabulary.model == own.model
    # Its padding has been in the softmax all the time.
    assert found.parameters["embedding"]["output_bias"][own.pad] > -9
    write_with_own_tokenizer(tmp_path, eos_token_id=1)
    refused("eos_token_id=1; want 2, which tokenizer.model", "opus-mt", tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("activation_function", "gelu_new", "relu or gelu"),
        ("d_model", 7, "an even number"),
        ("d_model", None, "lacks d_model"),
        ("encoder_layers", True, "a whole number"),
        ("decoder_attention_heads", 3, "a divisor of 8"),
        ("normalize_before", True, "want false; no other"),
        ("static_position_embeddings", False, "want true"),
        ("scale_embedding", "yes", "true or false"),
        ("dropout", 1.0, "rate < 1"),
        ("decoder_vocab_size", 7, "vocab_size="),
        ("is_decoder", True, "want false"),
        ("auto_map", {"AutoModel": "their.Code"}, "cannot be imported"),
        ("quantization_config", {"bits": 4}, "cannot be imported"),
        ("forced_bos_token_id", 5, "want null"),
        ("length_penalty", -1.0, "at least 0"),
        ("early_stopping", "soon", "want true"),
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
    options = {"num_beams": 3, "early_stopping": True, "max_length": 99}
    put(tmp_path, "generation_config.json", options | {"no_repeat_ngram_size": 3})
    found = read("opus-mt", tmp_path)
    decode = found.config.decode
    assert (decode.beam, decode.alpha, decode.stop) == (3, 1.0, "first")
    assert (decode.max_source, decode.average) == (32, 1)
    notes = " ".join(found.notes)
    assert "max_length=99 ended translations" in notes
    assert "no_repeat_ngram_size=3" in notes


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
    (folder / "tokenizer_config.json").unlink()
    folder = folder.rename(tmp_path / "mine")
    refused("does not say its source language.*--source", "opus-mt", folder, **nothing)


@pytest.mark.parametrize("shape", ["opus-mt", "own", "pegasus", "fsmt"])
def test_languages_cannot_contradict_a_model_of_one_pair(shape, tmp_path):
    folder = tmp_path / "opus-mt-fi-sv"  # a guess
    folder.mkdir()
    if shape == "own":
        write_with_own_tokenizer(folder)
    else:
        write(shape, folder)
    if shape == "opus-mt":
        table = (folder / "vocab.json").read_text()
        (folder / "vocab.json").write_text(table.replace(">>", "<"))  # no tags
    shape = "opus-mt" if shape == "own" else shape
    if shape != "fsmt":
        data = read(shape, folder, source="en", target="de").config.data
        assert (data.source, data.target) == ("en", "de")
        put(folder, "tokenizer_config.json", {"source_lang": "en", "target_lang": "de"})
    assert read(shape, folder, source="en", target="").config.data.target == "de"
    message = "--target=fr, but .* says de; leave --target"
    refused(message, shape, folder, source="", target="fr")


def test_a_model_of_several_languages_has_those_of_the_user(tmp_path):
    for shape, target in (("opus-mt", "fra"), ("nllb", "deu_Latn")):
        folder = tmp_path / shape
        folder.mkdir()
        write(shape, folder)
        stored = {"source_lang": "x", "target_lang": "y"}
        put(folder, "tokenizer_config.json", stored)
        assert read(shape, folder, target=target).config.data.target == target
    refused("deu_Lat.*did you mean 'deu_Latn'", "nllb", folder, target="deu_Lat")
    for settings, message in (
        ({"tokenizer_class": "SMALL100Tokenizer"}, "M2M100Tokenizer or NllbTokenizer"),
        ({"legacy_behaviour": True}, "legacy_behaviour=true"),
    ):
        put(folder, "tokenizer_config.json", settings)
        refused(message, "nllb", folder)


def test_the_user_cannot_contradict_the_model(tmp_path):
    write("opus-mt", tmp_path)
    assert read("opus-mt", tmp_path, model={"heads": 2, "remat": "full"})
    message = "config.model.heads=4, but .* says 2"
    refused(message, "opus-mt", tmp_path, model={"heads": 4})


def original(shape, folder):
    command = "-m", "tests.bridges.published_shapes", str(folder), shape
    subprocess.run([sys.executable, *command], check=True)
    kind, *_ = SHAPES[shape]
    return Request(folder / shape, *LANGUAGES[kind])


@needs("torch", "transformers")
@pytest.mark.parametrize("shape", SHAPES)
def test_it_computes_what_the_original_does(shape, tmp_path, quick_compiler):
    importing.import_model(original(shape, tmp_path), Workdir(tmp_path / "w"))
    facts = json.loads((tmp_path / "w/imported.json").read_text())["compared"]
    assert facts["logits"]["difference"] <= 1e-4
    assert facts["greedy"]["equal"] + facts["greedy"]["ties"] == 100


@needs("torch", "transformers")
def test_leaving_a_part_out_is_visible(tmp_path, quick_compiler):
    request = original("opus-mt", tmp_path)
    found = IMPORTS["marian"].read(request)
    rng = np.random.default_rng(0)
    pairs = rng.integers(5, 90, (2, 2, 30)).tolist()
    job = dict(zip(("sources", "targets"), pairs, strict=True))
    theirs = peers.run("huggingface", "logits", **found.peer, **job)
    kept = [i for i in range(len(found.vocabulary)) if i != found.vocabulary.pad]

    def difference(without="", **model):
        config = changed(found.config, "model", dtype="float32", **model)
        built = build(config.model, *found.vocabulary.sizes)
        flat = {
            name: np.zeros_like(x) if without and name.endswith(without) else x
            for name, x in weights.flatten(found.parameters).items()
        }
        nested = weights.nest(flat, built.shapes)
        translator = Translator(config, found.vocabulary, built, nested)
        ours = agreement.logits(translator, *pairs)
        rows = [theirs[f"logits_{i}"] for i in range(len(ours))]
        return np.abs(np.array(ours) - np.array(rows))[..., kept].max()

    assert difference() <= 1e-4
    for without in ("query_bias", "out_bias", "value_bias", "output_bias"):
        assert difference(without) > 0.1, without
    assert difference("key_bias") <= 1e-4  # it cancels in the softmax
    assert difference(feed_forward="relu") > 0.1
    for options in (
        {"sinusoid_layout": "interleaved"},
        {"sinusoid_layout": "half", "sinusoid_spacing": "tensor2tensor"},
        {"sinusoid_layout": "half", "position_offset": 1},
    ):
        assert difference(options=options) > 0.1, options
