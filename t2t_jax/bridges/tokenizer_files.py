"""A vocabulary as files that programs without t2t_jax read.

The files are SentencePiece models. The rest is a description, a JSON object:

    source, target: the files.
    escape: True if the text is escaped as in `data/sentencepieces.py`.
    special: pieces that are split off before SentencePiece, and not decoded.
    tags: True if `>>de<<` at the start of a line is one piece.
    source_prefix: pieces that every source line begins with.
"""

import base64
import json
from typing import Any

from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.terminal.errors import UserError

# Kinds of `tokenizers.TOKENIZERS` that are SentencePiece with a table of ids.
_MAPPED = ("marian", "m2m100", "nllb", "pegasus")


def tokenizer_files(
    vocabulary: Vocabulary,
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Returns the files of a vocabulary by name, and their description.

    Raises:
      UserError: the tokenizer is not one of SentencePiece.
    """
    described = {"escape": True, "special": [], "tags": False, "source_prefix": []}
    source, target = vocabulary.source, vocabulary
    if not target.model.startswith(b"{"):
        files = {"source.spm": source.model, "target.spm": target.model}
        return _joined(files, described)
    stored = [json.loads(side.model) for side in (source, target)]
    kinds = [side["tokenizer"] for side in stored]
    if other := sorted({*kinds} - {*_MAPPED}):
        raise UserError(
            f"{vocabulary.name} is a tokenizer of kind {other[0]!r}, which has no "
            "SentencePiece model for other programs to read; export the model "
            "--to=safetensors or --to=stablehlo"
        )
    models = [[base64.b64decode(model) for model in side["models"]] for side in stored]
    described |= {
        "escape": False,
        "special": stored[1]["special"],
        "tags": kinds[0] == "marian",
        "source_prefix": [source.piece(token) for token in source.encode([""])[0]],
    }
    return _joined({"source.spm": models[0][-1], "target.spm": models[1][0]}, described)


def _joined(files: dict[str, bytes], described: dict[str, Any]):
    """One file if both are the same."""
    names = {"source": "source.spm", "target": "target.spm"}
    if files["source.spm"] == files["target.spm"]:
        names = dict.fromkeys(names, "tokenizer.model")
        files = {"tokenizer.model": files["source.spm"]}
    return files, described | names
