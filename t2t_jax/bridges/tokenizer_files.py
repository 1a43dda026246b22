"""A vocabulary as files that programs without t2t_jax read: SentencePiece models.

How they are used is described by a JSON object:

    kind: "sentencepiece" with the escapes of data/sentencepieces.py, or an entry of
      `tokenizers.TOKENIZERS`, as data/mapped_sentencepieces.py has them.
    source, target: the files.
    special: pieces that are split off before SentencePiece, and not decoded.
    source_prefix: pieces that every source line begins with.
"""

import base64
import json
from typing import Any

from t2t_jax.data import tokenizers
from t2t_jax.data.mapped_sentencepieces import MappedSentencePieces
from t2t_jax.data.tokenizer import Vocabulary


def tokenizer_files(
    vocabulary: Vocabulary,
) -> tuple[dict[str, bytes], dict[str, Any] | None]:
    """Returns the files of a vocabulary by name, and their description.

    The description of a tokenizer that is not SentencePiece is None, and its file is
    for t2t_jax: of byte-pair codes and Moses there is no program that does both.
    """
    source, target = vocabulary.source, vocabulary
    described = {"kind": "sentencepiece", "special": [], "source_prefix": []}
    models = source.model, target.model
    if target.model.startswith(b"{"):
        stored = [json.loads(side.model) for side in (source, target)]
        kind = stored[1]["tokenizer"]
        if not issubclass(tokenizers.TOKENIZERS[kind], MappedSentencePieces):
            return {"tokenizer.model": target.model}, None
        first = source.encode([""])[0]
        described = {
            "kind": kind,
            "special": stored[1]["special"],
            "source_prefix": [source.piece(token) for token in first],
        }
        # Of one vocabulary, the model of the source is the last one.
        models = (
            base64.b64decode(stored[0]["models"][-1]),
            base64.b64decode(stored[1]["models"][0]),
        )
    if models[0] == models[1]:
        name = "tokenizer.model"
        return {name: models[0]}, described | {"source": name, "target": name}
    names = {"source": "source.spm", "target": "target.spm"}
    return dict(zip(names.values(), models, strict=True)), described | names
