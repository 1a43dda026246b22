"""Marian models: Marian's own .npz, its options inside, and Hugging Face's MarianMT.

OPUS-MT is published in both forms.
"""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.families import huggingface
from t2t_jax.tools.bridges.families.huggingface import open_folder, silence
from t2t_jax.tools.bridges.formats import (
    TENSOR2TENSOR,
    Imported,
    ImportFormat,
    ImportRequest,
    check_size,
    imported_config,
    languages,
)
from t2t_jax.tools.bridges.model_files import Fields
from t2t_jax.tools.bridges.tensor_files import read_tensors
from t2t_jax.tools.bridges.vocabularies.marian import (
    marian_vocabulary,
    npz_vocabulary,
    settings_beside,
    tags,
)
from t2t_jax.tools.bridges.weights import (
    MARIAN,
    ROW,
    LayerNames,
    TableNames,
    TensorRule,
)

OPTIONS = "special:model.yml"
# Names of tables: of both sides, of the source, of the target; the output layer's.
SHARED, SOURCE, TARGET = "Wemb", "encoder_Wemb", "decoder_Wemb"
OUTPUT, BIAS = "decoder_ff_logit_out_Wt", "decoder_ff_logit_out_b"
TABLES = TableNames(SOURCE, TARGET, OUTPUT, BIAS, positions={}, shared=SHARED)
LAYERS = LayerNames(
    layer="{side}_l{nth}_",
    linears={
        "attention.query": "self_{}q",
        "attention.key": "self_{}k",
        "attention.value": "self_{}v",
        "attention.out": "self_{}o",
        "cross.query": "context_{}q",
        "cross.key": "context_{}k",
        "cross.value": "context_{}v",
        "cross.out": "context_{}o",
        "ff.inner": "ffn_{}1",
        "ff.outer": "ffn_{}2",
    },
    norms={
        "attention": "self_Wo_ln_{}",
        "cross": "context_Wo_ln_{}",
        "ff": "ffn_ffn_ln_{}",
    },
    final_norm="{side}_top_ln_{}",
    forms=MARIAN,
    linear=("W", "b"),
    norm=("scale", "bias"),
)

# Marian's GELU is x * sigmoid(1.702 x), which we do not have.
ACTIVATIONS = {"relu": "relu", "swish": "silu"}
# Operations before and after each sub-layer and after the last, without dropout.
NORMS = {("", "an", ""): "post", ("", "an", "n"): "post_final", ("n", "a", "n"): "pre"}

# Options that change what is computed, and the value that we have.
NEUTRAL = {
    "type": "transformer",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-ffn-depth": 2,
    "transformer-no-projection": False,
    "transformer-no-bias": False,
    "transformer-no-affine": False,
    "transformer-pool": False,
    "transformer-train-positions": False,
    "transformer-train-position-embeddings": False,
    "transformer-disable-position-embeddings": False,
    "ulr": False,
    "lemma-dim-emb": 0,
    "factors-dim-emb": 0,
    "output-omit-bias": False,
    "right-left": False,
}


def recognize_npz(path: Path) -> bool:
    """True for an .npz with Marian's options in it, or a folder of one."""
    if path.is_dir():
        return bool(_models(path))
    return path.suffix == ".npz" and _has_options(path)


def _has_options(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{OPTIONS}.npy" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def _models(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.npz")) if _has_options(path)]


def read_npz(request: ImportRequest) -> Imported:
    """Reads a model; raises UserError for all that has no exact counterpart."""
    path = request.path
    if path.is_dir():
        models = _models(path)
        if len(models) != 1:
            names = ", ".join(model.name for model in models) or "none"
            raise UserError(f"{path} has {names}; give one .npz file with --model")
        path = models[0]
    tensors = read_tensors(path)
    options = read_options(tensors, path)
    model = model_fields(options)
    pair = languages(request)
    vocabulary = npz_vocabulary(request, path, joint=model["tied"] == "all")
    del tensors[OPTIONS]
    # Vectors become one row, whichever form a version of Marian has stored.
    tensors = {name: np.atleast_2d(x) for name, x in tensors.items()}
    if (untransposed := tensors.pop("decoder_ff_logit_out_W", None)) is not None:
        tensors[OUTPUT] = untransposed.T  # as older versions store it
    # Marian's decoder starts from an embedding of zeros. Here it starts with the token
    # of padding, which has that embedding.
    for name in {SHARED, SOURCE, TARGET, OUTPUT} & tensors.keys():
        tensors[name] = np.pad(np.float32(tensors[name]), ((0, 1), (0, 0)))
    if BIAS in tensors:
        tensors[BIAS] = np.pad(np.float32(tensors[BIAS]), ((0, 0), (0, 1)))
    joint = model["tied"] == "all"
    check_size(str(path), tensors, SHARED if joint else TARGET, vocabulary)
    check_size(str(path), tensors, SHARED if joint else SOURCE, vocabulary.source)
    settings = Fields(settings_beside(path), f"the settings beside {path}")
    decode = {
        "beam": settings.get("beam-size", 12),
        "alpha": float(settings.get("normalize", 0.0)),
        "penalty": "length",
    }
    config = imported_config(request, str(path), model, vocabulary, pair, decode)
    our_model = build(config.model, *vocabulary.sizes)
    parameters = weights.read(weight_rules(config.model), tensors, our_model, str(path))
    parameters = silence(parameters, (vocabulary.pad,))
    notes: tuple[str, ...] = ()
    if options.get("guided-alignment", "none") not in ("none", ""):
        notes = ("guided-alignment: training here does not supervise attention",)
    return Imported(config, vocabulary, parameters, {}, notes)


def read_options(tensors: weights.Tensors, path: Path) -> Fields:
    """Reads the options that Marian stores with the parameters."""
    if OPTIONS not in tensors:
        raise UserError(f"{path} has no {OPTIONS}, so Marian did not write it")
    text = tensors[OPTIONS].tobytes().split(b"\0")[0]
    try:
        options = yaml.safe_load(text)
        if not isinstance(options, dict):
            raise ValueError("it is not a mapping")
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        raise UserError(f"{path} is damaged: {OPTIONS} is not YAML: {e}") from None
    return Fields(options, f"{path}: {OPTIONS}")


def model_fields(options: Fields) -> dict[str, Any]:
    """Reads the fields of `config.model`; raises UserError for unsupported options."""
    options.only(**NEUTRAL)
    if layers := options.get("transformer-tied-layers"):
        if layers != [*range(1, len(layers) + 1)]:
            raise options.error("transformer-tied-layers", "none; no layer is shared")
    if options.get("transformer-postprocess-emb", "d") not in ("", "d"):
        raise options.error("transformer-postprocess-emb", '"d"')
    if options.get("transformer-decoder-ffn-depth") not in (None, 0, 2):
        raise options.error("transformer-decoder-ffn-depth", "2")
    names = ("preprocess", "postprocess", "postprocess-top")
    operations = tuple(
        str(options.get(f"transformer-{name}", "")).replace("d", "") for name in names
    )
    if operations not in NORMS:
        text = ", ".join(
            f"transformer-{name}={options.get(f'transformer-{name}', '')!r}"
            for name in names
        )
        raise UserError(
            f'{options.name} has {text}; want "", "dan" and "" or "n" (post-norm), or '
            '"n", "da" and "n" (pre-norm)'
        )
    activation = options.choice("transformer-ffn-activation", ACTIVATIONS, "swish")
    hidden = options.size("transformer-dim-ffn")
    return {
        "width": options.size("dim-emb"),
        "encoder_layers": options.size("enc-depth"),
        "decoder_layers": options.size("dec-depth"),
        "heads": options.size("transformer-heads"),
        "hidden": hidden,
        "decoder_hidden": options.get("transformer-decoder-dim-ffn") or hidden,
        "feed_forward": activation,
        "norm": NORMS[operations],
        "norm_epsilon": 1e-6,
        "attention_bias": True,
        "output_bias": True,
        "tied": _tied(options),
        "positions": "sinusoid",
        "options": {**TENSOR2TENSOR},
    }


def _tied(options: Fields) -> str:
    """The tables that are one, as `config.model.tied`."""
    target = options.flag("tied-embeddings", False)
    source = options.flag("tied-embeddings-src", False)
    if options.flag("tied-embeddings-all", False) or (target and source):
        return "all"
    if source:
        raise options.error(
            "tied-embeddings-src", "it with tied-embeddings, or neither"
        )
    return "target" if target else "none"


def weight_rules(config: ModelConfig) -> list[TensorRule]:
    """The rules of a model."""
    names = LAYERS
    if config.norm == "pre":
        norms = {part: f"{name}_pre" for part, name in LAYERS.norms.items()}
        names = LAYERS._replace(norms=norms)
    return [
        *weights.table_rules(config, TABLES, ROW),
        *weights.layer_rules(config, names),
    ]


NPZ = ImportFormat(
    "Marian's own .npz",
    recognize_npz,
    read_npz,
    peer=None,
    reads=ImportRequest._fields[1:],
)


# ----------------------- MarianMT of Hugging Face: OPUS-MT and its tc-big models


def read_marian_mt(request: ImportRequest) -> Imported:
    """Reads a folder; raises UserError for all that has no exact counterpart."""
    folder = open_folder(request.path)
    config = folder.config
    # Of versions before 4, in which Marian was a BART with these values.
    config.only(
        normalize_before=False,
        normalize_embedding=False,
        add_final_layer_norm=False,
        add_bias_logits=False,
        static_position_embeddings=True,
    )
    folder.generation.only(forced_bos_token_id=None)
    shared = config.flag("share_encoder_decoder_embeddings", True)
    size = config.size("vocab_size")
    target_size = config.get("decoder_vocab_size", size)
    if shared and target_size != size:
        raise config.error("decoder_vocab_size", f"vocab_size={size}")
    if not config.flag("tie_word_embeddings", True):
        tied = "none"
    else:
        tied = "all" if shared else "target"
    model = huggingface.model_fields(
        config,
        scaled=False,
        norm="post",
        tied=tied,
        output_bias=True,
        options={"sinusoid_layout": "half"},
    )
    stored_vocabulary = huggingface.own_vocabulary(folder)
    vocabulary = stored_vocabulary or marian_vocabulary(
        request.path, folder.merged(), request.target
    )
    source = vocabulary.source
    pieces = map(source.piece, range(len(source)))
    pair = languages(
        request,
        huggingface.stored_languages(folder),
        _languages_of(request.path.name),
        # A tokenizer of ours already begins lines with the tag of its language.
        several=not stored_vocabulary and bool(tags(pieces)),
    )
    # Marian itself has no padding token: the port's, which starts the decoder, would
    # get a part of the probability.
    pad = vocabulary.pad
    return huggingface.finish(
        request,
        folder,
        model,
        vocabulary,
        pair,
        stored_positions=True,
        silent=(pad,) if pad == vocabulary.bos else (),
    )


def _languages_of(name: str) -> tuple[str, str]:
    """The languages in the name of a folder, such as `opus-mt-en-de`."""
    match = re.fullmatch(r"opus-mt-(?:tc-\w+-)?(\w+)-(\w+)", name)
    return (match[1], match[2]) if match else ("", "")


MARIAN_MT = huggingface.class_format(
    "MarianMT of Hugging Face", "marian", read_marian_mt
)
