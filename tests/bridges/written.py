"""Folders in every format that `import` reads, written from small random models.

`WRITERS` has a function for each format; it writes a variant into a folder, and returns
what its import has to give.
"""

import dataclasses
import functools
import json
from typing import NamedTuple

import numpy as np

from t2t_jax.config import ModelConfig, from_config_dict
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import build
from t2t_jax.sections import Options
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.exports import to_huggingface, to_safetensors
from t2t_jax.tools.bridges.families import fairseq, huggingface, marian
from t2t_jax.tools.bridges.families.huggingface import SILENT
from t2t_jax.tools.bridges.tensor_files import write_safetensors
from tests.bridges import bpe_folders, published_tokenizers
from tests.bridges.exported import random_like, translator
from tests.bridges.published_tokenizers import spm
from tests.decoding.small_translator import TEXT


class Written(NamedTuple):
    """What an import of a folder has to give."""

    config: ModelConfig
    parameters: Parameters
    joint: bool  # True if both languages have one vocabulary
    languages: tuple[str, str] = ("en", "de")


build_once = functools.cache(build)


def random_model(fields, *sizes):
    config = from_config_dict({"model": fields}).model
    return config, random_like(build_once(config, *sizes).shapes, 0.4)


def silenced(parameters, token):
    """The parameters with the bias of a token that has no probability."""
    bias = parameters["embedding"]["output_bias"].copy()
    bias[token] = SILENT
    return parameters | {"embedding": parameters["embedding"] | {"output_bias": bias}}


# ------------------------------------------------------------- Hugging Face's classes

SCALED = {"scale_embedding": True, "activation_function": "relu"}
# Shape -> the class, options of its tokenizer, and fields of its config.
SHAPES = {
    "opus-mt": ("marian", {}, SCALED | {"activation_function": "swish"}),
    "tc-big-separate": ("marian", {"separate": True}, SCALED),
    "untied": ("marian", {}, {"tie_word_embeddings": False}),
    "m2m100": ("m2m100", {}, {}),
    "nllb": ("nllb", {}, {}),
    "pegasus": ("pegasus", {}, {"activation_function": "gelu"}),
    "fsmt": ("fsmt", {}, {}),
}
TOKENIZERS = published_tokenizers.FOLDERS | {"fsmt": bpe_folders.fsmt}
LANGUAGES = {"marian": ("en", "deu"), "pegasus": ("", ""), "fsmt": ("", "")}
LANGUAGES |= published_tokenizers.LANGUAGES
SIZES = {
    **{"d_model": 8, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0.2},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 4},
    **{"encoder_ffn_dim": 6, "decoder_ffn_dim": 10, "max_position_embeddings": 32},
    **{"is_encoder_decoder": True, "activation_function": "relu"},
    **{"transformers_version": "5.23.0", "use_cache": True},
}
OUR_SIZES = {
    **{"width": 8, "layers": 1, "decoder_layers": 2, "heads": 2, "decoder_heads": 4},
    **{"hidden": 6, "decoder_hidden": 10, "dropout": 0.2, "max_positions": 32},
    **{"norm_epsilon": 1e-5, "attention_bias": True},
}
HALF = {"sinusoid_layout": "half"}
TENSOR2TENSOR = HALF | {"sinusoid_spacing": "tensor2tensor"}
AFTER_PADDING = TENSOR2TENSOR | {"position_offset": 2}
MARIAN = {"output_bias": True, "options": HALF}
# The fields of ours that follow from each shape.
OUR_FIELDS = {
    "opus-mt": MARIAN | {"feed_forward": "silu"},
    "tc-big-separate": MARIAN | {"tied": "target"},
    "untied": MARIAN | {"tied": "none", "embedding_scale": False},
    "m2m100": {"norm": "pre", "options": AFTER_PADDING},
    "nllb": {"norm": "pre", "options": AFTER_PADDING},
    "pegasus": MARIAN
    | {"norm": "pre", "feed_forward": "gelu", "embedding_scale": False},
    "fsmt": {"tied": "none", "options": AFTER_PADDING},
}


def write_huggingface(shape, folder, **fields) -> Written:
    """A class of Hugging Face; `fields` are further ones of its config."""
    kind, options, class_fields = SHAPES[shape]
    tokenizer = TOKENIZERS[kind](folder, **options)
    model_type = "m2m_100" if kind in ("nllb", "m2m100") else kind
    config = SIZES | {"model_type": model_type} | tokenizer | class_fields | fields
    (folder / "config.json").write_text(json.dumps(config))
    source = config.get("src_vocab_size", config.get("vocab_size"))
    target = config.get("tgt_vocab_size", config.get("decoder_vocab_size", source))
    our_fields = OUR_SIZES | OUR_FIELDS[shape]
    sizes = (target, source) if our_fields.get("tied", "all") != "all" else (target,)
    model, parameters = random_model(our_fields, *sizes)
    head = fairseq.HEAD if kind == "fsmt" else huggingface.HEAD
    tensors = weights.write(huggingface.weight_rules(model, head), parameters)
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    if kind == "marian":  # padding is no token of Marian's own
        parameters = silenced(parameters, config["pad_token_id"])
    joint = shape not in ("tc-big-separate", "fsmt")
    return Written(model, parameters, joint, LANGUAGES[kind])


# ------------------------------------------------------------------------------ fairseq

FAIRSEQ_SIZES = {
    **{"width": 16, "layers": 1, "decoder_layers": 2, "hidden": 12},
    **{"decoder_hidden": 20, "heads": 2, "decoder_heads": 2, "dropout": 0.3},
    **{"attention_bias": True, "norm_epsilon": 1e-5},
}
# Fields of our model, and fairseq's options.
FAIRSEQ = {
    "post": ({"options": AFTER_PADDING}, {"share_all_embeddings": True}),
    "pre": (
        {"norm": "pre", "tied": "target", "feed_forward": "gelu"}
        | {"embedding_scale": False, "options": AFTER_PADDING},
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
# Before version 0.6.1, the norms of a layer had numbers.
NUMBERED_NORMS = {
    "encoder": ("self_attn", "final"),
    "decoder": ("self_attn", "encoder_attn", "final"),
}


def fairseq_options(**options):
    sizes = {"arch": "transformer_wmt_en_de", "source_lang": "en", "dropout": 0.3}
    sizes |= {"target_lang": "de", "task": "translation", "bpe": None}
    for side, layers, hidden in (("encoder", 1, 12), ("decoder", 2, 20)):
        sizes |= {f"{side}_embed_dim": 16, f"{side}_layers": layers}
        sizes |= {f"{side}_attention_heads": 2, f"{side}_ffn_embed_dim": hidden}
        sizes |= {f"{side}_layerdrop": 0, f"{side}_layers_to_keep": None}
    return sizes | {"adaptive_softmax_cutoff": None} | options


CHECKPOINTS = {}  # what `read_checkpoint` is to return of a file


def save_checkpoint(path, arrays, **content):
    """Stands in for PyTorch: an empty file, and the content that is read of it."""
    path.touch()
    arrays = {name: np.float32(x) for name, x in arrays.items()}
    CHECKPOINTS[path] = {**content, "model": arrays}


def write_fairseq(variant, folder, save=save_checkpoint, **changes) -> Written:
    fields, options = FAIRSEQ[variant]
    joint = variant == "post"
    pieces = "hel@@ 9\nlo 8\no 7\nworld 7\n"
    (folder / "dict.en.txt").write_text(pieces)
    (folder / "dict.de.txt").write_text(pieces if joint else f"{pieces}welt 3\n")
    (folder / "bpecodes").write_text("h e 5\nhe l 4\nl o</w> 3\n")
    config, parameters = random_model(
        FAIRSEQ_SIZES | fields, *([8] if joint else [9, 8])
    )
    arrays = weights.write(fairseq.weight_rules(config), parameters)
    if joint:  # copies, and buffers
        for copy in ("decoder.embed_tokens", "decoder.output_projection"):
            arrays[f"{copy}.weight"] = arrays["encoder.embed_tokens.weight"]
        arrays["encoder.version"] = np.array([3.0])
        arrays["decoder.embed_positions._float_tensor"] = np.zeros(1)
    if variant == "pre":
        arrays = as_in_2018(arrays)
    content = {"args": fairseq_options(**options | changes)}
    if variant == "learned":
        task = {"_name": "translation", "source_lang": "en"}
        content = {"args": None, "cfg": {"model": content["args"], "task": task}}
    save(folder / "model.pt", arrays, **content)
    return Written(config, parameters, joint)


def as_in_2018(arrays):
    """The names of old versions: norms have numbers; queries, keys, values are one."""
    stored = {}
    for name, x in arrays.items():
        for i, part in enumerate(NUMBERED_NORMS[name.split(".")[0]]):
            name = name.replace(f".{part}_layer_norm.", f".layer_norms.{i}.")
        stored[name] = x
    for name in [name for name in stored if ".q_proj." in name]:
        parts = [stored.pop(name.replace(".q_proj.", f".{p}_proj.")) for p in "qkv"]
        stored[name.replace(".q_proj.", ".in_proj_")] = np.concatenate(parts)
    return stored


# ------------------------------------------------------------------------- Marian .npz

MARIAN_SIZES = {
    **{"width": 16, "encoder_layers": 1, "decoder_layers": 2, "heads": 2},
    **{"hidden": 12, "decoder_hidden": 20, "attention_bias": True},
    **{"output_bias": True, "norm_epsilon": 1e-6, "feed_forward": "silu"},
    "options": TENSOR2TENSOR,
}
MARIAN_NPZ = {
    "post": ({}, {"tied-embeddings-all": True}),
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
# Some of the names, as Hugging Face's convert_marian_to_pytorch.py has them.
MARIAN_NAMES = {
    "encoder_l1_self_Wk": "encoder.0.attention.key",
    "decoder_l2_context_Wo": "decoder.1.cross.out",
    "decoder_l1_ffn_W2": "decoder.0.ff.outer",
    "decoder_l2_ffn_ffn_ln_bias": "decoder.1.ff_sub.norm.bias",
}


def marian_options(**options):
    return {
        **{"type": "transformer", "dim-emb": 16, "enc-depth": 1, "dec-depth": 2},
        **{"transformer-heads": 2, "transformer-dim-ffn": 12},
        **{"transformer-decoder-dim-ffn": 20, "transformer-postprocess": "dan"},
        **{"transformer-decoder-autoreg": "self-attention"},
        **{"transformer-postprocess-emb": "d", "transformer-ffn-depth": 2},
        **{"transformer-ffn-activation": "swish", "transformer-preprocess": ""},
        **{"transformer-depth-scaling": True, "transformer-tied-layers": []},
        **options,
    }


def store_npz(path, arrays, options):
    text = np.frombuffer(json.dumps(options).encode() + b"\0", np.int8)
    np.savez(path, **arrays, **{marian.OPTIONS: text})


def marian_models():
    """SentencePiece models, as trained for Marian, and another one."""
    marian_ids = {"eos_id": 0, "unk_id": 1, "bos_id": -1}
    return (
        spm("source", "unigram", **marian_ids),
        spm("target", "unigram", 154, pad_id=3),
    )


def write_marian_npz(variant, folder, **changes) -> Written:
    """Marian's own file, without the row of padding that an import adds."""
    fields, options = MARIAN_NPZ[variant]
    joint = variant == "post"
    models = marian_models()
    for side, content in zip(
        ("src", "trg"), [models[0]] * 2 if joint else models[::-1], strict=True
    ):
        (folder / f"{side}.spm").write_bytes(content)
    settings = {"models": ["m.npz"], "vocabs": ["/x/src.spm", "/x/trg.spm"]}
    settings |= {"beam-size": 6, "normalize": 1}
    (folder / "decoder.yml").write_text(json.dumps(settings))
    sizes = [151] if joint else [151, 155]
    config, parameters = random_model(MARIAN_SIZES | fields, *sizes)
    arrays = weights.write(marian.weight_rules(config), parameters)
    for name, parameter in MARIAN_NAMES.items():
        array = weights.flatten(parameters)[parameter]
        if variant == "pre" and "_ln_" in name:
            name = f"{name}_pre"
        np.testing.assert_array_equal(arrays[name].reshape(array.shape), array)
    for table in {"Wemb", "encoder_Wemb", "decoder_Wemb", marian.OUTPUT} & {*arrays}:
        arrays[table] = arrays[table][:-1]
    arrays[marian.BIAS] = arrays[marian.BIAS][:, :-1]
    if variant == "pre":  # an older form
        arrays["decoder_ff_logit_out_W"] = arrays.pop(marian.OUTPUT).T
    store_npz(folder / "model.npz", arrays, marian_options(**options | changes))
    embedding = {name: np.array(x) for name, x in parameters["embedding"].items()}
    for name, x in embedding.items():
        x[-1] = SILENT if name == "output_bias" else 0
    return Written(config, parameters | {"embedding": embedding}, joint)


# ------------------------------------------------------------------- exports of ours

# Models that MarianMT and Pegasus compute.
EXPORTED = {
    "our post": {},
    "our pre": {"norm": "pre", "feed_forward": "silu", "embedding_scale": False},
    "our learned": {"positions": "learned", "max_positions": 80, "tied": "none"}
    | {"decoder_layers": 2, "decoder_heads": 4, "decoder_hidden": 8}
    | {"feed_forward": "gelu", "options": Options({"position_offset": 2})},
    "our two vocabularies": {"own_source": True},
}


def exported_model(variant) -> Translator:
    return separate() if "two" in variant else translator(**EXPORTED[variant])


def separate() -> Translator:
    """A translator with two vocabularies whose special pieces have the same ids."""
    original = translator(True)
    source = Vocabulary(train_tokenizer(TEXT * 20, 280), "source")
    vocabulary = Vocabulary(original.vocabulary.model, "target", source)
    model = build_once(original.config.model, *vocabulary.sizes)
    tables = {
        name: x[: model.shapes["embedding"][name].shape[0]]
        for name, x in original.parameters["embedding"].items()
    }
    parameters = original.parameters | {"embedding": tables}
    return Translator(original.config, vocabulary, model, parameters, [7])


def write_export(variant, folder) -> Written:
    """A MarianMT or Pegasus that `export` writes."""
    original = exported_model(variant)
    to_huggingface.write(original, folder, {})
    config = original.config.model
    parameters = weights.sines_first(config, original.parameters)
    config, parameters = weights.with_biases(
        config, parameters, "attention_bias", "output_bias"
    )
    learned = config.positions == "learned"
    if learned:  # the rows of no position are left out
        for side in ("encoder", "decoder"):
            table = parameters[f"{side}_positions"][0]["table"]
            parameters |= {f"{side}_positions": {0: {"table": table[2:]}}}
    config = dataclasses.replace(
        config,
        norm_epsilon=to_huggingface.EPSILON,
        max_positions=to_huggingface.positions(original),
        options=Options({} if learned else HALF),
    )
    return Written(config, parameters, original.vocabulary.joint)


def write_own(variant, folder) -> Written:
    """Our own format."""
    original = translator(own_source=variant == "two vocabularies")
    to_safetensors.write(original, folder, {})
    return Written(
        original.config.model, original.parameters, original.vocabulary.joint
    )


def write_class(variant, folder) -> Written:
    """A folder of Hugging Face, theirs or ours."""
    write = write_export if variant in EXPORTED else write_huggingface
    return write(variant, folder)


WRITERS = {
    "fairseq": write_fairseq,
    "marian-npz": write_marian_npz,
    "t2t_jax-safetensors": write_own,
}
# Format, variant.
CASES = [
    *[("marian", name) for name in ("opus-mt", "tc-big-separate", "untied")],
    *[("m2m100", "m2m100"), ("m2m100", "nllb"), ("pegasus", "pegasus")],
    *[("fsmt", "fsmt"), ("pegasus", "our pre")],
    *[("marian", name) for name in EXPORTED if name != "our pre"],
    *[("fairseq", name) for name in FAIRSEQ],
    *[("marian-npz", name) for name in MARIAN_NPZ],
    *[("t2t_jax-safetensors", name) for name in ("one", "two vocabularies")],
]


def write(form, variant, folder) -> Written:
    return WRITERS.get(form, write_class)(variant, folder)
