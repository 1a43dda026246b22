"""State dicts of PyTorch modules with a `torch.nn.Transformer` inside.

The file has the layers, the embeddings and the output layer. It does not say how many
heads there are, nor what the module does around the layers; the user does, with fields
of `config.model`.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax.config import ModelConfig
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.search.algorithm import never_generated
from t2t_jax.tools.bridges import weights
from t2t_jax.tools.bridges.formats import (
    Imported,
    ImportFormat,
    Request,
    check_size,
    imported_config,
    languages,
    load_vocabulary,
)
from t2t_jax.tools.bridges.tensor_files import read_tensors
from t2t_jax.tools.bridges.weights import Layers, Rule, Tables, Tensors, listed

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")
# Fields that only the user knows, and what they are in PyTorch.
ASKED = {
    "heads": "`nhead` of torch.nn.Transformer",
    "feed_forward": "its `activation`, relu or gelu",
    "norm": "pre if `norm_first`, else post_final",
    "embedding_scale": "true if embeddings are multiplied by the root of the width",
}
ASKED_POSITIONS = {"positions": "sinusoid or none; the file has no table of positions"}
# Words in names by which a table belongs to a side, or is of something else.
SOURCE_WORDS = ("src", "source", "enc")
TARGET_WORDS = ("tgt", "trg", "target", "dec")
OUTPUT_WORDS = ("out", "generator", "proj", "head", "fc", "linear")
RENAME = (
    "rename them in the state dict: source_embedding.weight, target_embedding.weight "
    "(or embedding.weight for both), output.weight and output.bias, and "
    "positions.weight"
)
NAMES = Layers(
    layer="{side}.layers.{number}.",
    linears={
        "attention.query": "self_attn.in_proj_{}",
        "attention.key": "self_attn.in_proj_{}",
        "attention.value": "self_attn.in_proj_{}",
        "attention.out": "self_attn.out_proj.{}",
        "cross.query": "multihead_attn.in_proj_{}",
        "cross.key": "multihead_attn.in_proj_{}",
        "cross.value": "multihead_attn.in_proj_{}",
        "cross.out": "multihead_attn.out_proj.{}",
        "ff.inner": "linear1.{}",
        "ff.outer": "linear2.{}",
    },
    norms=dict.fromkeys(("attention", "cross", "ff"), "norm{nth}.{}"),
    final_norm="{side}.norm.{}",
)
_FIRST = "encoder.layers.0.self_attn.in_proj_weight"


def recognize(path: Path) -> bool:
    """True for a file that PyTorch may have written; formats with configs go first."""
    return path.is_file() and path.suffix in SUFFIXES


def read(request: Request) -> Imported:
    """Reads a state dict; raises UserError for all that has no exact counterpart."""
    path, name = request.path, str(request.path)
    tensors = read_tensors(path)
    prefix = find_prefix(tensors, name)
    if request.tokenizer is None:
        raise UserError(
            f"{request.path} has no tokenizer; add --tokenizer=FILE.model, of "
            "SentencePiece (and --source_tokenizer if the source has its own)"
        )
    vocabulary = load_vocabulary(request.tokenizer, request.source_tokenizer)
    sizes = _sizes(tensors, prefix, name)
    layers = re.compile(re.escape(prefix) + r"(en|de)coder\.(layers\.\d+|norm)\.")
    around = {key: x for key, x in tensors.items() if not layers.match(key)}
    tables = find_tables(around, sizes["width"], name)
    asked = _asked(request, tables, path)
    model = {**sizes, **asked, "attention_bias": True}
    model |= _read_positions(tensors, tables)
    model |= {"tied": _tied(tables, tensors), "output_bias": bool(tables.bias)}
    model.setdefault("norm_epsilon", 1e-5)
    _check_norm(model["norm"], tensors, prefix, name)
    check_size(name, tensors, tables.source, vocabulary.source)
    check_size(name, tensors, tables.target, vocabulary)
    config = imported_config(request, name, model, vocabulary, languages(request), {})
    weights.merge_copies(tensors, tables, config.model.tied, name, RENAME)
    if config.model.positions != "learned":
        for table in tables.positions.values():
            tensors.pop(table, None)
    rules = weight_rules(config.model, prefix, tables)
    parameters = weights.read(
        rules, tensors, build(config.model, *vocabulary.sizes), name
    )
    peer = _peer(config.model, prefix, tables, vocabulary)
    flags = ", ".join(f"{field}={value}" for field, value in asked.items())
    note = (
        f"taken from the flags, not from the file: {flags}. The original is compared "
        "with these values as well, so the comparison does not check them"
    )
    return Imported(config, vocabulary, parameters, peer, (note,))


def find_prefix(tensors: Tensors, name: str) -> str:
    """The name of the `torch.nn.Transformer` in the module, with a dot, or nothing."""
    prefixes = [key.removesuffix(_FIRST) for key in tensors if key.endswith(_FIRST)]
    if len(prefixes) != 1:
        raise UserError(
            f"{name} has {len(prefixes)} arrays named {_FIRST}; want one, of a "
            "torch.nn.Transformer"
        )
    return prefixes[0]


def _sizes(tensors: Tensors, prefix: str, name: str) -> dict[str, Any]:
    """Reads the sizes of the layers from the shapes of their arrays."""
    sizes: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        start = re.escape(f"{prefix}{side}.layers.")
        numbers = [re.match(rf"{start}(\d+)\.", key) for key in tensors]
        inner = f"{prefix}{side}.layers.0.linear1.weight"
        if inner not in tensors or tensors[inner].ndim != 2:
            raise UserError(f"{name} lacks {inner}; want a torch.nn.Transformer")
        sizes[f"{side}_layers"] = 1 + max(int(n[1]) for n in numbers if n)
        sizes[f"{side}_hidden"], sizes["width"] = tensors[inner].shape
    return sizes


def _asked(request: Request, tables: Tables, path: Path) -> dict[str, Any]:
    """Returns the fields that the file does not state, from the user's flags."""
    required = ASKED | ({} if tables.positions else ASKED_POSITIONS)
    if missing := [field for field in required if field not in request.model]:
        flags = "; ".join(
            f"--config.model.{each}= ({required[each]})" for each in missing
        )
        raise UserError(f"{path} does not state all of the model; add {flags}")
    if request.model.get("positions", "") == "learned" and not tables.positions:
        raise UserError(
            f"--config.model.positions=learned, but {path} has no table of positions "
            "(an array [positions, width] with `pos` or `pe` in its name)"
        )
    asked = (*required, "norm_epsilon")
    return {field: request.model[field] for field in asked if field in request.model}


def _tied(tables: Tables, tensors: Tensors) -> str:
    """Says which tables are equal, as `config.model.tied`."""

    def equal(one: str, other: str) -> bool:
        return one == other or np.array_equal(tensors[one], tensors[other])

    if tables.output and not equal(tables.target, tables.output):
        return "none"
    return "all" if equal(tables.source, tables.target) else "target"


def _read_positions(tensors: dict[str, np.ndarray], tables: Tables) -> dict[str, Any]:
    """Recognizes sinusoids among tables of positions; others are learned."""
    if not tables.positions:
        return {}
    sinusoids = []
    for table in {*tables.positions.values()}:
        # Modules keep an axis for the batch.
        tensors[table] = tensors[table].reshape(-1, tensors[table].shape[-1])
        sinusoids.append(known_sinusoids(tensors[table]))
    if all(sinusoids):
        return {"positions": "sinusoid", "options": sinusoids[0]}
    rows = weights.shorten_positions(tensors, tables)
    return {"positions": "learned", "max_positions": rows}


def _check_norm(norm: str, tensors: Tensors, prefix: str, name: str) -> None:
    """Compares --config.model.norm with the norms that the file has."""
    final = f"{prefix}encoder.norm.weight" in tensors
    expected = ("pre", "post_final") if final else ("post",)
    if norm not in expected:
        has = "has final norms" if final else "has no final norms"
        raise UserError(
            f"--config.model.norm={norm}, but {name} {has}; want "
            f"{' or '.join(expected)}"
        )


def weight_rules(config: ModelConfig, prefix: str, tables: Tables) -> list[Rule]:
    """The rules of a model."""
    return [
        *weights.table_rules(config, tables),
        *weights.layer_rules(config, NAMES._replace(prefix=prefix)),
    ]


def _peer(
    config: ModelConfig, prefix: str, tables: Tables, vocabulary: Vocabulary
) -> Mapping[str, Any]:
    """The arguments of the peer script."""
    return {
        "prefix": prefix,
        "tables": {**tables._asdict(), "output": tables.output or tables.target},
        "width": config.width,
        "heads": config.heads,
        "layers": [config.side(side).layers for side in ("encoder", "decoder")],
        "hidden": [config.side(side).hidden for side in ("encoder", "decoder")],
        "activation": config.feed_forward,
        "norm": config.norm,
        "epsilon": config.norm_epsilon,
        "scale": config.embedding_scale,
        "positions": config.positions,
        "pad": vocabulary.source.pad,
        "bos": vocabulary.bos,
        "eos": vocabulary.eos,
        "never": never_generated(vocabulary),
    }


def find_tables(around: Tensors, width: int, name: str) -> Tables:
    """Finds the tables around the layers by their shapes, biases and words in names.

    A table of both sides is its source and target; what is not there is empty.
    """
    positions, matrices = [], []
    for key, x in around.items():
        if x.ndim >= 2 and x.shape[-1] == width:
            lonely = x.size == max(x.shape[:-1]) * width  # other axes have length 1
            if lonely and ("pos" in key.lower() or key.split(".")[-1] == "pe"):
                positions.append(key)
            elif x.ndim == 2:
                matrices.append(key)
    outputs = [key for key in matrices if _bias(key, around)] or [
        key for key in matrices if _has(key, OUTPUT_WORDS)
    ]
    embeddings = [key for key in matrices if key not in outputs]
    if len(outputs) > 1 or not embeddings:
        raise UserError(
            f"{name}: {listed(matrices) or 'no array'} could be embeddings or the "
            f"output layer (width {width}), and it is not clear which is which; "
            f"{RENAME}"
        )
    output = outputs[0] if outputs else ""
    source, target = _by_side(embeddings, name)
    position_tables = dict(
        zip(("encoder", "decoder"), _by_side(positions, name), strict=True)
        if positions
        else ()
    )
    return Tables(source, target, output, _bias(output, around), position_tables)


def _bias(key: str, around: Tensors) -> str:
    """The name of the bias of a matrix; empty if there is none."""
    bias = key.removesuffix("weight") + "bias"
    return bias if key.endswith("weight") and bias in around else ""


def _has(key: str, words: Sequence[str]) -> bool:
    return any(word in key.lower() for word in words)


def _by_side(tables: Sequence[str], name: str) -> tuple[str, str]:
    """The tables of source and target; one table is of both."""
    if len(tables) == 1:
        return tables[0], tables[0]
    for source, target in itertools.permutations(tables, 2):
        words = (
            (source, SOURCE_WORDS, TARGET_WORDS),
            (target, TARGET_WORDS, SOURCE_WORDS),
        )
        if len(tables) == 2 and all(
            _has(key, own) and not _has(key, other) for key, own, other in words
        ):
            return source, target
    raise UserError(
        f"{name}: it is not clear which of {listed(tables)} is of the source and which "
        f"of the target; {RENAME}"
    )


def known_sinusoids(table: np.ndarray) -> Mapping[str, Any] | None:
    """The options of `Sinusoid` that compute a table; None if none do."""
    if table.shape[1] % 2:
        return None
    for layout, spacing in itertools.product(
        ("interleaved", "half"), ("paper", "tensor2tensor")
    ):
        if weights.is_sinusoids(table, layout, spacing):
            return {"sinusoid_layout": layout, "sinusoid_spacing": spacing}
    return None


IMPORT = ImportFormat(
    "a torch.nn.Transformer",
    recognize,
    read,
    peer="torch_transformer",
    reads=Request._fields[1:],
)
