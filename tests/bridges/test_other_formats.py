"""Imports of fairseq's and Marian's own files: names, forms and refusals.

The files are written by hand from random parameters. Of fairseq's checkpoints, what
PyTorch reads of them stands in; slow tests have PyTorch write and read them.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from t2t_jax.config import from_config_dict
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.families import fairseq, marian
from t2t_jax.tools.bridges.families.huggingface import SILENT
from t2t_jax.tools.bridges.formats import ImportRequest
from t2t_jax.tools.bridges.table import IMPORTS
from tests.bridges.exported import needs, random_like
from tests.bridges.published_tokenizers import spm

SIZES = {"width": 16, "encoder_layers": 1, "decoder_layers": 2, "heads": 2}
SIZES |= {"hidden": 12, "decoder_hidden": 20}


@pytest.fixture(scope="module")
def models():
    """Two SentencePiece models: as trained for Marian, and another one."""
    marians = {"eos_id": 0, "unk_id": 1, "bos_id": -1}
    return spm("source", "unigram", **marians), spm("target", "unigram", 154, pad_id=3)


def random_parameters(model_fields, *sizes):
    config = from_config_dict({"model": SIZES | model_fields}).model
    return config, random_like(build(config, *sizes).shapes, 0.4)


def check_same(imported, config, parameters, without=()):
    """Asserts that the import equals what was written, except for added rows."""
    for field in ("width", "norm", "tied", "feed_forward", "positions", "options"):
        assert getattr(imported.config.model, field) == getattr(config, field), field
    wanted = weights.flatten(parameters)
    found = weights.flatten(imported.parameters)
    assert found.keys() == wanted.keys()
    for name, x in found.items():
        if name not in without:
            np.testing.assert_array_equal(x, wanted[name], name)


# ----------------------------------------------------------------------------- fairseq

HALF = {"sinusoid_layout": "half", "sinusoid_spacing": "tensor2tensor"}
COMMON = {"attention_bias": True, "norm_epsilon": 1e-5}
# Fields of our model, and fairseq's options.
FAIRSEQ = {
    "post": (
        {"norm": "post", "tied": "all", "options": {"position_offset": 2, **HALF}},
        {"share_all_embeddings": True},
    ),
    "pre": (
        {"norm": "pre", "tied": "target", "feed_forward": "gelu"}
        | {"embedding_scale": False, "options": {"position_offset": 2, **HALF}},
        {"share_decoder_input_output_embed": True, "activation_fn": "gelu"}
        | {"no_scale_embedding": True}
        | {f"{side}_normalize_before": True for side in ("encoder", "decoder")},
    ),
    "learned": (
        {"norm": "pre", "tied": "none", "positions": "learned", "max_positions": 30}
        | {"options": {"position_offset": 2}},
        {f"{side}_normalize_before": True for side in ("encoder", "decoder")}
        | {f"{side}_learned_pos": True for side in ("encoder", "decoder")},
    ),
}


def fairseq_options(**more):
    options = {"arch": "transformer_wmt_en_de", "source_lang": "en", "dropout": 0.3}
    options |= {"target_lang": "de", "task": "translation", "bpe": None}
    for side, layers, hidden in (("encoder", 1, 12), ("decoder", 2, 20)):
        options |= {f"{side}_embed_dim": 16, f"{side}_layers": layers}
        options |= {f"{side}_attention_heads": 2, f"{side}_ffn_embed_dim": hidden}
        options |= {f"{side}_layerdrop": 0, f"{side}_layers_to_keep": None}
    return {**options, "adaptive_softmax_cutoff": None, **more}


@pytest.fixture
def save(monkeypatch):
    """Saves a checkpoint: as an empty file, of which the reader returns the content."""
    contents = {}
    monkeypatch.setattr(fairseq, "read_checkpoint", contents.__getitem__)

    def save(path, arrays, **content):
        path.touch()
        arrays = {name: np.float32(x) for name, x in arrays.items()}
        contents[path] = {**content, "model": arrays}

    return save


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


def fairseq_folder(folder, name, save):
    """Writes a model of fairseq in one of its forms; returns our parameters."""
    fields, options = FAIRSEQ[name]
    (folder / "dict.en.txt").write_text("hel@@ 9\nlo 8\no 7\nworld 7\n")
    more = "" if fields["tied"] == "all" else "welt 3\n"
    (folder / "dict.de.txt").write_text("hel@@ 9\nlo 8\no 7\nworld 7\n" + more)
    (folder / "bpecodes").write_text("h e 5\nhe l 4\nl o</w> 3\n")
    sizes = (8,) if fields["tied"] == "all" else (9, 8)
    config, parameters = random_parameters(COMMON | fields, *sizes)
    arrays = weights.write([*fairseq.weight_rules(config)], parameters)
    if name == "post":  # copies, and buffers
        for copy in ("decoder.embed_tokens", "decoder.output_projection"):
            arrays[f"{copy}.weight"] = arrays["encoder.embed_tokens.weight"]
        arrays["encoder.version"] = np.array([3.0])
        arrays["decoder.embed_positions._float_tensor"] = np.zeros(1)
    if name == "pre":
        arrays = as_in_2018(arrays)
    values = fairseq_options(**options)
    if name == "learned":
        content = {"args": None, "cfg": {"model": values}}
        content["cfg"]["task"] = {"_name": "translation", "source_lang": "en"}
    else:
        content = {"args": values}
    save(folder / "model.pt", arrays, **content)
    return config, parameters


OLD_NORMS = {
    "encoder": ("self_attn", "final"),
    "decoder": ("self_attn", "encoder_attn", "final"),
}


def as_in_2018(arrays):
    """The names of old versions: norms have numbers; queries, keys, values are one."""
    found = {}
    for name, x in arrays.items():
        for i, part in enumerate(OLD_NORMS[name.split(".")[0]]):
            name = name.replace(f".{part}_layer_norm.", f".layer_norms.{i}.")
        found[name] = x
    for name in [name for name in found if ".q_proj." in name]:
        parts = [found.pop(name.replace(".q_proj.", f".{p}_proj.")) for p in "qkv"]
        found[name.replace(".q_proj.", ".in_proj_")] = np.concatenate(parts)
    return found


@pytest.mark.parametrize("name", FAIRSEQ)
def test_fairseq(name, tmp_path, save):
    config, parameters = fairseq_folder(tmp_path, name, save)
    assert IMPORTS["fairseq"].recognize(tmp_path)
    imported = fairseq.read_fairseq(ImportRequest(tmp_path))
    check_same(imported, config, parameters)
    model, data = imported.config.model, imported.config.data
    assert (model.dropout, model.norm_epsilon) == (0.3, 1e-5)
    assert model.embedding_scale == (name != "pre")
    assert (data.source, data.target) == ("en", "de")
    assert data.joint_vocabulary == (name == "post")
    vocabulary = imported.vocabulary
    assert vocabulary.source.pieces("hello o") == ["hel@@", "lo", "o"]
    assert (vocabulary.pad, vocabulary.bos, vocabulary.eos) == (1, 2, 2)
    assert any("assumed Moses" in note for note in imported.notes)


@needs("torch")
@pytest.mark.parametrize("name", FAIRSEQ)
def test_fairseq_as_torch_saves_it(name, tmp_path):
    config, parameters = fairseq_folder(tmp_path, name, save_by_torch)
    imported = fairseq.read_fairseq(ImportRequest(tmp_path))
    check_same(imported, config, parameters)
    assert imported.config.model.dropout == 0.3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("adaptive_softmax_cutoff", [10]),
        ("cross_self_attention", True),
        ("decoder_normalize_before", True),
        ("task", "translation_multi_simple_epoch"),
        ("arch", "lightconv_wmt_en_de"),
    ],
)
def test_options_of_fairseq_that_are_refused(name, value):
    options = fairseq_options(**{name: value})
    content = {"args": options, "model": {}}
    with pytest.raises(UserError, match=name):
        fairseq.model_fields(fairseq.read_options(content, Path("model.pt")))


def test_damage_of_fairseq_models(tmp_path, save):
    config, parameters = fairseq_folder(tmp_path, "post", save)
    arrays = weights.write([*fairseq.weight_rules(config)], parameters)
    options = fairseq_options(**FAIRSEQ["post"][1])

    def refused(message, changed, **request):
        save(tmp_path / "model.pt", arrays | changed, args=options)
        with pytest.raises(UserError, match=message):
            fairseq.read_fairseq(ImportRequest(tmp_path, **request))

    refused("are one table", {"decoder.embed_tokens.weight": np.zeros((8, 16))})
    refused("--source=fr, but .* says en", {}, source="fr")
    for language in ("en", "de"):
        (tmp_path / f"dict.{language}.txt").write_text("a 1\n")
    refused("has 8 rows, and .* has 5 tokens", {})


# ------------------------------------------------------------------------- Marian .npz

MARIAN = {
    "post": ({"norm": "post", "tied": "all"}, {"tied-embeddings-all": True}),
    "post_final": (
        {"norm": "post_final", "tied": "target", "feed_forward": "relu"},
        {"tied-embeddings": True, "transformer-ffn-activation": "relu"}
        | {"transformer-postprocess-top": "n"},
    ),
    "pre": (
        {"norm": "pre", "tied": "none"},
        {"transformer-preprocess": "n", "transformer-postprocess": "da"}
        | {"transformer-postprocess-top": "n"},
    ),
}
MARIAN_COMMON = {"attention_bias": True, "output_bias": True, "norm_epsilon": 1e-6}
MARIAN_COMMON |= {"feed_forward": "silu", "options": HALF}
# Some of the names, as Hugging Face's convert_marian_to_pytorch.py has them.
MARIAN_NAMES = {
    "encoder_l1_self_Wk": "encoder.0.attention.key",
    "decoder_l2_context_Wo": "decoder.1.cross.out",
    "decoder_l1_ffn_W2": "decoder.0.ff.outer",
    "decoder_l2_ffn_ffn_ln_bias": "decoder.1.ff_sub.norm.bias",
}


def marian_options(**more):
    options = {"type": "transformer", "dim-emb": 16, "enc-depth": 1, "dec-depth": 2}
    options |= {"transformer-heads": 2, "transformer-dim-ffn": 12}
    options |= {"transformer-decoder-dim-ffn": 20, "transformer-postprocess": "dan"}
    options |= {"transformer-decoder-autoreg": "self-attention"}
    options |= {"transformer-postprocess-emb": "d", "transformer-ffn-depth": 2}
    options |= {"transformer-ffn-activation": "swish", "transformer-preprocess": ""}
    options |= {"transformer-depth-scaling": True, "transformer-tied-layers": []}
    return options | more


def store_npz(path, arrays, options):
    text = np.frombuffer(json.dumps(options).encode() + b"\0", np.int8)
    np.savez(path, **arrays, **{marian.OPTIONS: text})


def marian_folder(folder, name, models):
    """Writes a model of Marian, without a row of padding; returns our parameters."""
    fields, options = MARIAN[name]
    joint = fields["tied"] == "all"
    vocabs = [models[0]] * 2 if joint else models[::-1]
    for side, content in zip(("src", "trg"), vocabs, strict=True):
        (folder / f"{side}.spm").write_bytes(content)
    settings = {"models": ["m.npz"], "vocabs": ["/x/src.spm", "/x/trg.spm"]}
    settings |= {"beam-size": 6, "normalize": 1}
    (folder / "decoder.yml").write_text(json.dumps(settings))
    sizes = (151,) if joint else (151, 155)
    config, parameters = random_parameters(MARIAN_COMMON | fields, *sizes)
    arrays = weights.write([*marian.weight_rules(config)], parameters)
    for table in ("Wemb", "encoder_Wemb", "decoder_Wemb", marian.OUTPUT):
        if table in arrays:
            arrays[table] = arrays[table][:-1]
    arrays[marian.BIAS] = arrays[marian.BIAS][:, :-1]
    if name == "pre":  # an older form
        arrays["decoder_ff_logit_out_W"] = arrays.pop(marian.OUTPUT).T
    store_npz(folder / "model.npz", arrays, marian_options(**options))
    return config, parameters, arrays


@pytest.mark.parametrize("name", MARIAN)
def test_marian_npz(name, tmp_path, models):
    config, parameters, arrays = marian_folder(tmp_path, name, models)
    assert IMPORTS["marian-npz"].recognize(tmp_path)
    flat = weights.flatten(parameters)
    for theirs, ours in MARIAN_NAMES.items():
        norm = "_pre" if name == "pre" and "_ln_" in theirs else ""
        stored = arrays[theirs + norm].reshape(flat[ours].shape)
        np.testing.assert_array_equal(stored, flat[ours], ours)
    imported = marian.read_npz(ImportRequest(tmp_path, "en", "de"))
    added = {each for each in weights.flatten(parameters) if "embedding." in each}
    check_same(imported, config, parameters, added)
    for each in added:
        mine = np.array(weights.flatten(parameters)[each])
        mine[-1] = SILENT if each.endswith("bias") else 0
        np.testing.assert_array_equal(
            weights.flatten(imported.parameters)[each], mine, each
        )
    assert imported.config.model.norm_epsilon == 1e-6
    assert (imported.config.decode.beam, imported.config.decode.alpha) == (6, 1.0)
    vocabulary = imported.vocabulary
    assert (vocabulary.pad, vocabulary.bos, vocabulary.eos) == (150, 150, 0)
    assert vocabulary.joint == (name == "post")
    line = "the cat"
    assert vocabulary.decode(vocabulary.encode([line], end=True)) == [line]


def test_marian_with_tables_in_yaml(tmp_path, models):
    marian_folder(tmp_path, "post", models)
    for side in ("source", "target"):
        (tmp_path / f"{side}.spm").write_bytes(models[0])
    processor = sentencepiece.SentencePieceProcessor(model_proto=models[0])
    pieces = [processor.id_to_piece(i) for i in range(150)]
    pieces[30] = ">>de<<"  # for a piece of the model
    pieces[31] = "no"  # YAML: false
    lines = [
        f"{each if i == 31 else json.dumps(each)}: {i}" for i, each in enumerate(pieces)
    ]
    (tmp_path / "opus.vocab.yml").write_text("\n".join(lines))
    settings = {"vocabs": ["opus.vocab.yml"] * 2}
    (tmp_path / "decoder.yml").write_text(json.dumps(settings))
    vocabulary = marian.read_npz(ImportRequest(tmp_path, "en", "de")).vocabulary
    assert vocabulary.encode([">>de<< the"])[0][0] == 30
    assert vocabulary.piece(31) == "no"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("type", "s2s"),
        ("transformer-tied-layers", [1, 1]),
        ("transformer-ffn-depth", 3),
        ("transformer-postprocess", "dhn"),
        ("lemma-dim-emb", 8),
        ("transformer-heads", None),
    ],
)
def test_options_of_marian_that_are_refused(name, value):
    text = np.frombuffer(json.dumps(marian_options(**{name: value})).encode(), np.int8)
    options = marian.read_options({marian.OPTIONS: text}, Path("model.npz"))
    with pytest.raises(UserError, match=name):
        marian.model_fields(options)


def test_marian_files_that_are_refused(tmp_path, models):
    *_, arrays = marian_folder(tmp_path, "post", models)
    arrays["encoder_l1_self_Wr"] = np.zeros((1, 1))
    store_npz(tmp_path / "model.npz", arrays, marian_options(**MARIAN["post"][1]))
    with pytest.raises(UserError, match="encoder_l1_self_Wr, which this import does"):
        marian.read_npz(ImportRequest(tmp_path, "en", "de"))
    with pytest.raises(UserError, match="does not say its source language"):
        marian.read_npz(ImportRequest(tmp_path))
    (tmp_path / "src.spm").write_bytes(models[1])
    with pytest.raises(UserError, match=r"src.spm and .*trg.spm differ"):
        marian.read_npz(ImportRequest(tmp_path, "en", "de"))
