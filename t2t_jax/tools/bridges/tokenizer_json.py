"""Our SentencePiece models as tokenizer.json, the file of the `tokenizers` library.

It gives the same ids and the same text. A model qualifies if it is of the kind that
this project trains: byte-pair encoding with byte fallback that changes nothing in the
text.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from t2t_jax.data.tokenizers.sentencepieces import (
    CONTROL,
    ORDINARY,
    SPACE,
    SPACE_ESCAPED,
    SYMBOL,
    UNKNOWN,
    Piece,
    pieces,
)

_ESCAPE = SPACE_ESCAPED[0]


def tokenizer_json(model: bytes, eos: int) -> bytes:
    """Converts a `lossless` SentencePiece model.

    Args:
      eos: the id of the end of a sentence, which is appended to each line.
    """
    table = pieces(model)
    # The longest first: one symbol may begin another.
    symbols = sorted((p.name for p in table if p.kind == SYMBOL), key=len)[::-1]
    end = table[eos].name
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
        "pre_tokenizer": _isolated(symbols) if symbols else None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_text("A"), {"SpecialToken": {"id": end, "type_id": 0}}],
            "pair": [
                *(_text("A"), _text("B")),
                {"SpecialToken": {"id": end, "type_id": 0}},
            ],
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


def _isolated(symbols: list[str]) -> dict[str, Any]:
    """Makes each symbol a word of its own, between spaces or not."""
    pattern = "|".join(map(re.escape, symbols))
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def _text(part: str) -> dict[str, Any]:
    return {"Sequence": {"id": part, "type_id": 0}}


def _sequence(kind: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", kind: [*steps]}


def _replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}
