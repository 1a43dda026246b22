"""The tokenizer's files of a Hugging Face folder, such that `AutoTokenizer` reads them.

A SentencePiece model of ours becomes tokenizer.json, which gives the same ids and text
(`tokenizer_json.py`). Two models, or one that is not lossless, become the files of
`MarianTokenizer`, as those of an imported MarianMT are again. Our own files come along,
which `import` reads.
"""

import base64
import json
from typing import Any

from t2t_jax.config import Config
from t2t_jax.data.tokenizers.sentencepieces import lossless
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges.tokenizer_json import tokenizer_json
from t2t_jax.workdir import TOKENIZERS


def tokenizer_files(vocabulary: Vocabulary, config: Config) -> dict[str, bytes]:
    """Returns the files' contents by name.

    Raises:
      UserError: their tokenizers cannot read such a vocabulary.
    """
    settings = {
        "model_max_length": config.decode.max_source,
        "clean_up_tokenization_spaces": False,
        "source_lang": config.data.source,
        "target_lang": config.data.target,
    }
    kinds = {_fields(side).get("tokenizer") for side in vocabulary.sides}
    if kinds == {"marian"}:
        return _imported_marian(vocabulary, settings)
    if kinds != {None}:
        raise UserError(
            f"{vocabulary.name} is a tokenizer of kind {min(map(str, kinds))}, for "
            "which no files of Hugging Face are written; --to=ctranslate2 and "
            "--to=safetensors take any tokenizer"
        )
    settings |= {
        # A line with the characters </s> in it does not end there.
        "split_special_tokens": True,
        "eos_token": vocabulary.piece(vocabulary.eos),
        "pad_token": vocabulary.piece(vocabulary.pad),
        "bos_token": vocabulary.piece(vocabulary.bos),
    }
    own = dict(zip(TOKENIZERS, (s.model for s in vocabulary.sides), strict=False))
    if vocabulary.joint and lossless(vocabulary.model):
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        return own | {
            "tokenizer.json": tokenizer_json(vocabulary.model, vocabulary.eos),
            "tokenizer_config.json": _json(settings),
        }
    sides = vocabulary.source, vocabulary
    special = [[side.pad, side.bos, side.eos, side.unknown] for side in sides]
    if special[0] != special[1]:
        raise UserError(
            f"padding, start, end and unknown pieces have the ids {special[0]} in the "
            f"source vocabulary and {special[1]} in the target's; MarianTokenizer "
            "wants the same. --to=ctranslate2 and --to=safetensors take both"
        )
    settings["unk_token"] = vocabulary.piece(vocabulary.unknown)
    return own | _marian(
        [[side.piece(i) for i in range(len(side))] for side in sides],
        [side.model for side in sides],
        vocabulary.joint,
        settings,
    )


def _fields(side: Vocabulary) -> dict[str, Any]:
    """A stored tokenizer's JSON object; empty for a SentencePiece model."""
    return json.loads(side.model) if side.model.startswith(b"{") else {}


def _imported_marian(
    vocabulary: Vocabulary, settings: dict[str, Any]
) -> dict[str, bytes]:
    """The files that the vocabulary was imported from."""
    sides = [_fields(side) for side in (vocabulary.source, vocabulary)]
    models = [[*map(base64.b64decode, side["models"])] for side in sides]
    if vocabulary.joint:
        # One tokenizer with the model of the target, then that of the source.
        spm = [models[0][-1], models[0][0]]
    else:
        spm = [models[0][0], models[1][0]]
    pieces = [side["pieces"] for side in sides]
    return _marian(pieces, spm, vocabulary.joint, settings)


def _marian(
    pieces: list[list[str]],
    models: list[bytes],
    joint: bool,
    settings: dict[str, Any],
) -> dict[str, bytes]:
    """The files of `MarianTokenizer`; lists are of the source, then of the target."""
    tables = [
        json.dumps({piece: i for i, piece in enumerate(side)}, indent=2).encode()
        for side in pieces
    ]
    files = {
        "source.spm": models[0],
        "target.spm": models[1],
        "vocab.json": tables[0],
        "tokenizer_config.json": _json(
            settings
            | {"tokenizer_class": "MarianTokenizer", "separate_vocabs": not joint}
        ),
    }
    return files if joint else files | {"target_vocab.json": tables[1]}


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True).encode()
