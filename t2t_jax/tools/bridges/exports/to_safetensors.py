"""Our own format: parameters as .safetensors under our names, and its import.

A folder: `model.safetensors`, `config.json`, the tokenizers, and a README.md that
documents the names. These are those of `to_numpy`; the values are float32, bit for bit
those of the checkpoint. The metadata of the .safetensors file repeats
`config.json`, so that the file alone can be identified.
"""

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import jax

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.data.tokenizers.vocabulary import TOKENIZER_FILES
from t2t_jax.decoding.inputs import Member
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.model.flat_parameters import flatten, load_numpy, to_numpy
from t2t_jax.io.errors import UserError
from t2t_jax.io.tables import markdown_table
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model, build
from t2t_jax.tools.bridges.exports.card import origin, write_own
from t2t_jax.tools.bridges.formats import (
    ExportFormat,
    Imported,
    ImportFormat,
    Request,
    load_vocabulary,
)
from t2t_jax.tools.bridges.model_files import recognizer
from t2t_jax.tools.bridges.tensor_files import read_tensors, write_safetensors

FORMAT, VERSION = "t2t_jax-safetensors", 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"


def write(
    translator: Translator, folder: Path, options: dict[str, Any]
) -> dict[str, Any]:
    """Writes the model; returns type, shape and SHA-256 of each tensor, by name."""
    tensors = to_numpy(translator.parameters)
    about = {
        "format": FORMAT,
        "format_version": VERSION,
        **origin(translator),
        "config": dataclasses.asdict(translator.config),
    }
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in about.items()}
    write_safetensors(folder / WEIGHTS, tensors, texts)
    use = _use(translator)
    write_own(translator, folder / CONFIG, about, "a model of t2t_jax", use, options)
    return {
        "tensors": {
            name: {
                "dtype": x.dtype.name,
                "shape": list(x.shape),
                "sha256": hashlib.sha256(x.tobytes()).hexdigest(),
            }
            for name, x in tensors.items()
        }
    }


# Of folders that `write` wrote, of any version.
recognize = recognizer("format", FORMAT)


def read(request: Request) -> Imported:
    """Reads a folder that `write` wrote."""
    folder = request.path
    about = _description(folder)
    config = _config(folder, about)
    target, source = (folder / name for name in TOKENIZER_FILES)
    joint = config.data.joint_vocabulary
    vocabulary = load_vocabulary(target, None if joint else source)
    if vocabulary.sha256 != about.get("vocabulary_sha256"):
        raise UserError(
            f"{folder}: {' or '.join(TOKENIZER_FILES)} is not the one that {CONFIG} "
            "describes: its SHA-256 differs. Restore the files from one copy"
        )
    model = build(config.model, *vocabulary.sizes)
    file = folder / WEIGHTS
    parameters = load_numpy(read_tensors(file), model, str(file))
    sha256 = Member(config, model, parameters, ()).parameters_sha256()
    if about.get("provenance", {}).get("parameters_sha256") != [sha256]:
        raise UserError(
            f"{file} does not have the values that {CONFIG} describes: their SHA-256 "
            "differs. Restore the files from one copy"
        )
    return Imported(config, vocabulary, parameters, {})


def _description(folder: Path) -> dict[str, Any]:
    file = folder / CONFIG
    if not recognize(folder):
        raise UserError(f"{file} is missing, damaged, or not of the format {FORMAT}")
    about = json.loads(file.read_bytes())
    if about.get("format_version") != VERSION:
        raise UserError(
            f"{file} has format_version={about.get('format_version')!r}; this version "
            f"of t2t_jax reads {VERSION}: upgrade t2t_jax"
        )
    return about


def _config(folder: Path, about: dict[str, Any]) -> Config:
    try:
        config = fields.from_config_dict(about["config"])
    except (ValueError, TypeError, LookupError) as e:
        raise UserError(
            f"{folder / CONFIG} does not fit this version of t2t_jax: {e}"
        ) from None
    # The import has one set of parameters: those that were chosen at export.
    return fields.changed(config, "decode", checkpoint="average")


def _use(translator: Translator) -> str:
    return f"""\
- `{WEIGHTS}`: {translator.model.count():,} parameters, float32. Metadata: the content
  of `{CONFIG}`, each entry as text.
- `{CONFIG}`: the config, and what the parameters were made from.
- `{TOKENIZER_FILES[0]}`: the tokenizer (SHA-256 in `{CONFIG}`);
  `{TOKENIZER_FILES[1]}`: that of the source, if it has its own.

Back into t2t_jax: `python -m t2t_jax import --model=FOLDER --workdir=DIR`.

## Parameters

N is a number from 0, such as that of the layer. Weights are [inputs, outputs]; those of
attention keep the heads apart.

{_names(translator.model, translator.parameters)}
"""


def _names(model: Model, parameters: Parameters) -> str:
    """A table; parameters that differ only in a layer's number are one row."""
    axes = jax.tree.map(lambda _, names: ", ".join(names), parameters, model.axes)
    rows = []
    for (name, leaf), named in zip(
        flatten(parameters).items(), flatten(axes).values(), strict=True
    ):
        general = re.sub(r"(?<=\.)\d+(?=\.|$)", "N", name)
        rows.append((f"`{general}`", " x ".join(map(str, leaf.shape)), named))
    heads = ("name", "shape", "axes")
    return "\n".join(markdown_table(heads, dict.fromkeys(rows), left=(0, 1, 2)))


IMPORT = ImportFormat(
    "an export of t2t_jax to safetensors",
    recognize,
    read,
    peer=None,
    reads=(),
    checked="bit for bit, their SHA-256 is the same",
)
EXPORT = ExportFormat(
    "safetensors with t2t_jax's names", write, "safetensors", checks=("values",)
)
