"""fairseq's `transformer`: its checkpoints, and FSMT, Hugging Face's port for WMT19.

A checkpoint comes with dictionaries and codes, which `vocabularies/fairseq.py` reads.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax.config import ModelConfig
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.families import huggingface
from t2t_jax.tools.bridges.families.huggingface import open_folder
from t2t_jax.tools.bridges.formats import (
    TENSOR2TENSOR,
    Imported,
    ImportFormat,
    ImportRequest,
    check_size,
    imported_config,
    languages,
    layerdrop_notes,
)
from t2t_jax.tools.bridges.model_files import Fields
from t2t_jax.tools.bridges.tensor_files import read_checkpoint
from t2t_jax.tools.bridges.vocabularies.fairseq import (
    fairseq_vocabulary,
    fsmt_vocabulary,
)
from t2t_jax.tools.bridges.weights import TableNames, TensorRule

# File names in a folder, the first that exists counts.
CHECKPOINTS = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")
# Its names of activations that we have; the other forms of GELU approximate it.
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu"}
# Options that change what is computed; we have no counterpart of any.
UNSUPPORTED = (
    "adaptive_softmax_cutoff", "adaptive_input", "tie_adaptive_weights",
    "layernorm_embedding", "no_cross_attention", "cross_self_attention",
    "no_token_positional_embeddings", "merge_src_tgt_embed", "char_inputs",
    "encoder_layers_to_keep", "decoder_layers_to_keep", "base_layers", "quant_noise_pq",
    "quant_noise_scalar", "use_factorized_embedding", "no_encoder_final_norm",
    "no_decoder_final_norm", "use_stable_embedding", "encoder_add_adapters",
    "decoder_add_adapters", "moe_freq", "scale_fc", "scale_attn", "scale_heads",
    "scale_resids", "encoder_xformers_att_config", "decoder_xformers_att_config",
    "encoder_langtok", "decoder_langtok", "prepend_bos",
)  # fmt: skip
# Architectures whose names begin like those of `transformer`, and tasks that read the
# same text as `translation`.
OTHER_MODELS = ("_lm", "_monotonic", "_pointer", "_from_pretrained", "_modular")
TASKS = ("translation", "translation_with_backtranslation")
SOURCE, TARGET, OUTPUT = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "decoder.output_projection.weight",
)
TABLES = TableNames(
    SOURCE,
    TARGET,
    OUTPUT,
    bias="",
    positions={
        side: f"{side}.embed_positions.weight" for side in ("encoder", "decoder")
    },
    shared=SOURCE,
)
# Positions are numbered from 2, after padding, which is 1. A learned table has a row
# for each number.
FIRST_POSITION = 2
# Counters and devices, which are buffers of PyTorch.
_BUFFERS = r"(en|de)coder\.(version|embed_positions\._float_tensor)"
# Before version 0.6.1, the norms of a layer had numbers.
_NUMBERED = {
    "encoder.0": "self_attn",
    "encoder.1": "final",
    "decoder.0": "self_attn",
    "decoder.1": "encoder_attn",
    "decoder.2": "final",
}


def recognize(path: Path) -> bool:
    """True for a checkpoint, or a folder of one, with dictionaries next to it."""
    folder = path if path.is_dir() else path.parent
    has_weights = any(folder.glob("*.pt")) if path.is_dir() else path.suffix == ".pt"
    return has_weights and any(folder.glob("dict.*.txt"))


def read_fairseq(request: ImportRequest) -> Imported:
    """Reads a checkpoint; raises UserError for all that has no exact counterpart."""
    path = find_checkpoint(request.path)
    content = read_checkpoint(path)
    options = read_options(content, path)
    model = model_fields(options)
    pair = languages(
        request, (options.get("source_lang", ""), options.get("target_lang", ""))
    )
    named = dict(zip(("source_lang", "target_lang"), pair, strict=True))
    vocabulary, notes = fairseq_vocabulary(path.parent, {**options.values, **named})
    tensors = newest_names(content["model"], model["tied"], str(path))
    check_size(str(path), tensors, SOURCE, vocabulary.source)
    check_size(str(path), tensors, TARGET, vocabulary)
    if model["positions"] == "learned":
        for table in TABLES.positions.values():
            if table not in tensors:
                raise UserError(f"{path} lacks {table}, its learned positions")
        rows = weights.shorten_positions(tensors, TABLES)
        model["max_positions"] = rows - FIRST_POSITION
    decode = {"beam": 5, "alpha": 1.0, "penalty": "length", "stop": "first"}
    config = imported_config(request, str(path), model, vocabulary, pair, decode)
    our_model = build(config.model, *vocabulary.sizes)
    parameters = weights.read(weight_rules(config.model), tensors, our_model, str(path))
    return Imported(config, vocabulary, parameters, {}, (*notes, *_notes(options)))


def find_checkpoint(path: Path) -> Path:
    """The checkpoint of a folder; raises UserError if several are possible."""
    if path.is_file():
        return path
    named = [path / name for name in CHECKPOINTS if (path / name).is_file()]
    checkpoints = sorted(path.glob("*.pt"))
    if named or len(checkpoints) == 1:
        return (named or checkpoints)[0]
    names = ", ".join(checkpoint.name for checkpoint in checkpoints) or "none"
    raise UserError(
        f"{path} has no model.pt, and of other checkpoints it has {names}; give one "
        "file with --model. An ensemble is several models: import one"
    )


def read_options(content: Any, path: Path) -> Fields:
    """Reads the options of a checkpoint, in either of the forms that fairseq writes."""
    if not isinstance(content, Mapping) or not isinstance(content.get("model"), dict):
        raise UserError(f"{path} is not a checkpoint of fairseq: it lacks `model`")
    config = content.get("cfg")
    parts = [content.get("args")]
    if isinstance(config, Mapping):  # since 1.0: a dict of dicts or of Namespaces
        parts += [config.get("task"), config.get("model")]
    values: dict[str, Any] = {}
    for part in parts:
        for name, value in dict(part or {}).items():
            # The newest form has dicts for the encoder, the decoder and noise.
            if isinstance(value, Mapping) and name in _SIDES:
                values |= {
                    f"{name}_{inner}": inner_value
                    for inner, inner_value in value.items()
                }
            else:
                values[name] = value
    # A part's own name; of the model's, since that comes last.
    values.setdefault("arch", values.get("_name"))
    options = Fields(values, str(path))
    architecture = str(options.get("arch", "none"))
    if not architecture.startswith("transformer") or any(
        suffix in architecture for suffix in OTHER_MODELS
    ):
        raise options.error("arch", "transformer, or one of its sizes")
    task = config.get("task") if isinstance(config, Mapping) else None
    name = dict(task or {}).get("_name") or options.get("task") or "translation"
    if name not in TASKS:
        raise UserError(f"{path} has task={name}; want {' or '.join(TASKS)}")
    return options


_SIDES = ("encoder", "decoder", "quant_noise")


def model_fields(options: Fields) -> dict[str, Any]:
    """Reads the fields of `config.model`; raises UserError for unsupported options."""
    for name in UNSUPPORTED:
        if options.get(name):
            raise options.error(name, "none; no model with it can be imported")
    width = options.size("encoder_embed_dim")
    decoder_widths = ("decoder_embed_dim", "decoder_input_dim", "decoder_output_dim")
    options.only(**dict.fromkeys(decoder_widths, width))
    pre, learned = (
        _on_both_sides(options, name) for name in ("normalize_before", "learned_pos")
    )
    tied = "none"
    if options.flag("share_decoder_input_output_embed", False):
        tied = "target"
    if options.flag("share_all_embeddings", False):
        tied = "all"
    fields = {
        "width": width,
        "feed_forward": options.choice("activation_fn", ACTIVATIONS, "relu"),
        "norm": "pre" if pre else "post",
        "norm_epsilon": 1e-5,
        "attention_bias": True,
        "tied": tied,
        "embedding_scale": not options.flag("no_scale_embedding", False),
        "dropout": options.rate("dropout"),
        "attention_dropout": options.rate("attention_dropout"),
        "activation_dropout": options.rate("activation_dropout")
        or options.rate("relu_dropout"),  # its old name
        "positions": "learned" if learned else "sinusoid",
        "options": {
            "position_offset": FIRST_POSITION,
            **({} if learned else TENSOR2TENSOR),
        },
    }
    for field, option in (
        ("layers", "layers"),
        ("heads", "attention_heads"),
        ("hidden", "ffn_embed_dim"),
    ):
        fields[field] = options.size(f"encoder_{option}")
        fields[f"decoder_{field}"] = options.size(f"decoder_{option}")
    return fields


def _on_both_sides(options: Fields, name: str) -> bool:
    encoder = options.flag(f"encoder_{name}", False)
    if options.flag(f"decoder_{name}", False) != encoder:
        raise options.error(f"decoder_{name}", f"encoder_{name}={encoder}")
    return encoder


def _notes(options: Fields) -> list[str]:
    notes = layerdrop_notes(options)
    if options.get("alignment_heads"):
        notes.append(
            "alignment_heads: training here does not supervise attention; translations "
            "are the same"
        )
    return notes


def newest_names(stored: Mapping[str, Any], tied: str, name: str) -> dict[str, Any]:
    """Returns the arrays of a checkpoint under the names of fairseq's newest version.

    Copies of tied tables are left out.
    """
    arrays: dict[str, Any] = {}
    for key, array in stored.items():
        if not isinstance(array, np.ndarray):
            raise UserError(f"{name} is damaged: model.{key} is not a tensor")
        if re.fullmatch(_BUFFERS, str(key)):
            continue
        if packed := re.fullmatch(r"(.*\.)in_proj_(weight|bias)", key):
            parts = np.array_split(np.atleast_1d(array), 3)
            for letter, matrix in zip("qkv", parts, strict=True):
                arrays[f"{packed[1]}{letter}_proj.{packed[2]}"] = matrix
        else:
            arrays[_newest_name(key)] = array
    weights.merge_copies(arrays, TABLES, tied, name, "is the file damaged?")
    return arrays


def _newest_name(key: str) -> str:
    if key == "decoder.embed_out":
        return OUTPUT
    norm = re.fullmatch(r"((\w+)\.layers\.\d+)\.layer_norms\.(\d)\.(\w+)", key)
    if norm and (part := _NUMBERED.get(f"{norm[2]}.{norm[3]}")):
        return f"{norm[1]}.{part}_layer_norm.{norm[4]}"
    return key


def weight_rules(config: ModelConfig) -> list[TensorRule]:
    """The rules of a model."""
    return [
        *weights.table_rules(config, TABLES),
        *weights.layer_rules(config, weights.FAIRSEQ),
    ]


FAIRSEQ = ImportFormat("fairseq's transformer", recognize, read_fairseq, peer=None)


# ------------------------------- FSMT of Hugging Face: fairseq's models of WMT19

HEAD = "model.decoder.output_projection.weight"


def read_fsmt(request: ImportRequest) -> Imported:
    """Reads a folder; raises UserError for all that has no exact counterpart."""
    folder = open_folder(request.path)
    config = folder.config
    folder.generation.only(forced_bos_token_id=None)
    config.get("decoder")  # the same sizes once more
    size = config.size("src_vocab_size")
    # Its two vocabularies have a table each; no published model shares them.
    config.only(tie_word_embeddings=False)
    options = huggingface.after_padding(config, size)
    model = huggingface.model_fields(
        config, scaled=True, norm="post", tied="none", options=options
    )
    langs = config.get("langs", ["", ""])
    if not isinstance(langs, list) or len(langs) != 2:
        raise config.error("langs", "two languages")
    pair = languages(request, (langs[0], langs[1]))
    vocabulary = fsmt_vocabulary(request.path, folder.merged())
    return huggingface.finish(request, folder, model, vocabulary, pair, head=HEAD)


FSMT = huggingface.class_format("FSMT of Hugging Face", "fsmt", read_fsmt)
