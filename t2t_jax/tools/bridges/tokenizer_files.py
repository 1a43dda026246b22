"""A vocabulary as files that programs without t2t_jax read: SentencePiece models.

pieces.py beside them (peers/pieces.py) uses them as a JSON object describes:

    kind: "sentencepiece" with the escapes of data/tokenizers/sentencepieces.py, or the
      entry of `TOKENIZERS` that it is.
    source, target: the files.
    special: pieces that are split off before SentencePiece, and not decoded.
    source_prefix: pieces that every source line begins with.
"""

import base64
import json
from typing import Any

from t2t_jax.data.tokenizers.sentencepieces import MappedSentencePieces
from t2t_jax.data.tokenizers.table import TOKENIZERS as CLASSES
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.tools.bridges.peer_process import SCRIPTS
from t2t_jax.workdir import TOKENIZERS


def tokenizer_files(
    vocabulary: Vocabulary,
) -> tuple[dict[str, bytes], dict[str, Any] | None]:
    """Returns the files of a vocabulary by name, and their description.

    The description of a tokenizer that is not SentencePiece is None, and its files are
    those of a workdir: of byte-pair codes and Moses, no other program does both.
    """
    source, target = vocabulary.source, vocabulary
    described = {"kind": "sentencepiece", "special": [], "source_prefix": []}
    models = source.model, target.model
    if target.model.startswith(b"{"):
        stored = [json.loads(side.model) for side in (source, target)]
        kind = stored[1]["tokenizer"]
        if not issubclass(CLASSES[kind], MappedSentencePieces):
            models = (side.model for side in vocabulary.sides)
            return dict(zip(TOKENIZERS, models, strict=False)), None
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
    names = ["source.spm", "target.spm"]
    if models[0] == models[1]:
        names = ["tokenizer.model"] * 2
    files = dict(zip(names, models, strict=True))
    files["pieces.py"] = (SCRIPTS / "pieces.py").read_bytes()
    return files, described | {"source": names[0], "target": names[1]}
