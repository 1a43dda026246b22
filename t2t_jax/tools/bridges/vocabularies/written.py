"""Vocabularies as files that other programs read.

Hugging Face: a SentencePiece model of ours becomes tokenizer.json, which gives the same
ids and text. Two models, or one that is not lossless, become the files of
`MarianTokenizer`, as those of an imported MarianMT are again. Our own files come along,
which `import` reads.

Programs with SentencePiece alone, such as CTranslate2's users: SentencePiece models and
pieces.py (checks/peers/pieces.py), which uses them as a JSON object describes:

    kind: "sentencepiece" with the escapes of data/tokenizers/sentencepieces.py, or the
      entry of `TOKENIZERS` that it is.
    source, target: the files.
    special: pieces that are split off before SentencePiece, and not decoded.
    source_prefix: pieces that every source line begins with.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from t2t_jax.config import Config
from t2t_jax.data.tokenizers.sentencepieces import (
    CONTROL,
    ORDINARY,
    SPACE,
    SPACE_ESCAPED,
    SYMBOL,
    UNKNOWN,
    MappedSentencePieces,
    Piece,
    lossless,
    pieces,
)
from t2t_jax.data.tokenizers.table import TOKENIZERS as CLASSES
from t2t_jax.data.tokenizers.vocabulary import TOKENIZER_FILES, Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges.checks.peer_process import SCRIPTS


def own_files(vocabulary: Vocabulary) -> dict[str, bytes]:
    """Our own files of a vocabulary, by name."""
    models = (side.model for side in vocabulary.sides)
    return dict(zip(TOKENIZER_FILES, models, strict=False))


def huggingface_files(vocabulary: Vocabulary, config: Config) -> dict[str, bytes]:
    """The files of Hugging Face's tokenizers, by name."""
    settings = {
        "model_max_length": config.decode.max_source,
        "clean_up_tokenization_spaces": False,
        "source_lang": config.data.source,
        "target_lang": config.data.target,
    }
    kinds = {_fields(side).get("tokenizer") for side in vocabulary.sides}
    if kinds == {"marian"}:
        sides = [_fields(side)["pieces"] for side in (vocabulary.source, vocabulary)]
        return _marian(sides, _models(vocabulary), vocabulary.joint, settings)
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
    our_files = own_files(vocabulary)
    if vocabulary.joint and lossless(vocabulary.model):
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        return our_files | {
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
    return our_files | _marian(
        [[side.piece(i) for i in range(len(side))] for side in sides],
        _models(vocabulary),
        vocabulary.joint,
        settings,
    )


def _fields(side: Vocabulary) -> dict[str, Any]:
    """A stored tokenizer's JSON object; empty for a SentencePiece model."""
    return json.loads(side.model) if side.model.startswith(b"{") else {}


def _models(vocabulary: Vocabulary) -> tuple[bytes, bytes]:
    """The SentencePiece models of source and target."""
    source, target = vocabulary.source, vocabulary
    if not target.model.startswith(b"{"):
        return source.model, target.model
    # One tokenizer of both has the model of the target, then that of the source.
    return (
        base64.b64decode(_fields(source)["models"][-1]),
        base64.b64decode(_fields(target)["models"][0]),
    )


def _marian(
    pieces: list[list[str]],
    models: tuple[bytes, bytes],
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


# --------------------------------------------------------------------- tokenizer.json

_ESCAPE = SPACE_ESCAPED[0]


def tokenizer_json(model: bytes, eos: int) -> bytes:
    """Converts a `lossless` SentencePiece model; the id `eos` ends each line."""
    table = pieces(model)
    # The longest first: one symbol may begin another.
    symbols = sorted((p.name for p in table if p.kind == SYMBOL), key=len)[::-1]
    # Each symbol is a word of its own, between spaces or not.
    isolated = {
        "type": "Split",
        "pattern": {"Regex": "|".join(map(re.escape, symbols))},
        "behavior": "Isolated",
        "invert": False,
    }
    end = table[eos].name
    stop = {"SpecialToken": {"id": end, "type_id": 0}}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _special(token, p)
            for token, p in enumerate(table)
            if p.kind in (CONTROL, UNKNOWN)
        ],
        "normalizer": _sequence(
            "normalizers",
            _replace(_ESCAPE, _ESCAPE * 2),
            _replace(SPACE, SPACE_ESCAPED),
            {"type": "Prepend", "prepend": SPACE},
            _replace(" ", SPACE),
        ),
        "pre_tokenizer": isolated if symbols else None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_text("A"), stop],
            "pair": [_text("A"), _text("B"), stop],
            "special_tokens": {end: {"id": end, "ids": [eos], "tokens": [end]}},
        },
        "decoder": _sequence(
            "decoders",
            _replace(SPACE, " "),
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            # Undoes the escapes. No U+2581 is left in the text, so it marks what is
            # done: no replacement may read the result of another.
            _replace(_ESCAPE * 2, SPACE + "0"),
            _replace(SPACE_ESCAPED, SPACE + "1"),
            _replace(SPACE + "0", _ESCAPE),
            _replace(SPACE + "1", SPACE),
        ),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": True,
            # A symbol is a word that is a piece already.
            "ignore_merges": bool(symbols),
            "vocab": {piece.name: token for token, piece in enumerate(table)},
            "merges": [*_merges(table)],
        },
    }
    return json.dumps(content, ensure_ascii=False, indent=1).encode()


def _merges(table: list[Piece]) -> Iterator[list[str]]:
    """Yields the pairs of pieces that make a piece, in the order of merging.

    SentencePiece merges the pair whose result has the best score, whatever the pair is;
    the `tokenizers` library wants each pair.
    """
    ordinary = [piece for piece in table if piece.kind == ORDINARY]
    names = {piece.name for piece in ordinary}
    for name, *_ in sorted(ordinary, key=lambda piece: -piece.score):
        for middle in range(1, len(name)):
            if name[:middle] in names and name[middle:] in names:
                yield [name[:middle], name[middle:]]


def _special(token: int, piece: Piece) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token, "content": piece.name, **flags, "special": True}


def _text(part: str) -> dict[str, Any]:
    return {"Sequence": {"id": part, "type_id": 0}}


def _sequence(kind: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", kind: [*steps]}


def _replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


# --------------------------------------------------------- SentencePiece and pieces.py


def sentencepiece_files(
    vocabulary: Vocabulary,
) -> tuple[dict[str, bytes], dict[str, Any] | None]:
    """The files of a vocabulary for SentencePiece, by name, and their description.

    The description of a tokenizer that is not SentencePiece is None, and its files are
    those of a workdir: of byte-pair codes and Moses, no other program does both.
    """
    source, target = vocabulary.source, vocabulary
    described = {"kind": "sentencepiece", "special": [], "source_prefix": []}
    if stored := _fields(target):
        if not issubclass(CLASSES[stored["tokenizer"]], MappedSentencePieces):
            return own_files(vocabulary), None
        source_prefix = source.encode([""])[0]
        described = {
            "kind": stored["tokenizer"],
            "special": stored["special"],
            "source_prefix": [source.piece(token) for token in source_prefix],
        }
    models = _models(vocabulary)
    names = ["source.spm", "target.spm"]
    if models[0] == models[1]:
        names = ["tokenizer.model"] * 2
    files = dict(zip(names, models, strict=True))
    files["pieces.py"] = (SCRIPTS / "pieces.py").read_bytes()
    return files, described | {"source": names[0], "target": names[1]}
