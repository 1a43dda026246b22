"""Reads a SentencePiece model, by its library or as the protocol buffer that it is.

SentencePiece's own interface hides how a model treats text.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import sentencepiece

from t2t_jax.io.errors import UserError

# Field numbers of SentencePiece's sentencepiece_model.proto, and values of its
# enumerations.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_NAME, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _SPACE_AS_SUFFIX, _BYTE_FALLBACK = 3, 24, 35
_CHARACTER_MAP, _DUMMY_PREFIX, _REMOVE_SPACES = 2, 3, 4
_BPE = 2
ORDINARY, UNKNOWN, CONTROL, SYMBOL, UNUSED, BYTE = range(1, 7)


class Piece(NamedTuple):
    """A piece; its id is its index.

    Attributes:
      score: of two possible merges, that with the higher score of its result is done.
      kind: `ORDINARY`, `UNKNOWN`, `CONTROL`, `SYMBOL`, `UNUSED` or `BYTE`.
    """

    name: str
    score: float
    kind: int


def own_pieces(model: bytes, file: Path) -> list[str]:
    """Returns the pieces of a model in its order, without their scores.

    Raises:
      UserError: not a SentencePiece model.
    """
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as e:
        raise UserError(f"{file} is not a SentencePiece model: {e}") from None
    return [processor.id_to_piece(i) for i in range(len(processor))]


def pieces(model: bytes) -> list[Piece]:
    """Returns the pieces of a model in the order of their ids."""
    return [
        Piece(fields[_NAME].decode(), fields.get(_SCORE, 0.0), fields.get(_TYPE, 1))
        for number, content in _fields(model)
        if number == _PIECES
        for fields in [dict(_fields(content))]
    ]


def is_byte_pairs(model: bytes) -> bool:
    """True if a model is a byte-pair encoding, not a unigram, word or character one."""
    parts = dict(_fields(model))
    return dict(_fields(parts.get(_TRAINER, b""))).get(_MODEL_TYPE) == _BPE


def lossless(model: bytes) -> bool:
    """True if a model is of the kind that this project trains.

    It is a byte-pair encoding with bytes for unknown characters, and encodes every
    character and every space of the text.
    """
    parts = dict(_fields(model))
    trainer = dict(_fields(parts.get(_TRAINER, b"")))
    normalizer = dict(_fields(parts.get(_NORMALIZER, b"")))
    return (
        trainer.get(_MODEL_TYPE) == _BPE
        and trainer.get(_BYTE_FALLBACK) == 1
        and not trainer.get(_SPACE_AS_SUFFIX)
        and not normalizer.get(_CHARACTER_MAP)
        and normalizer.get(_DUMMY_PREFIX, 1) == 1
        and normalizer.get(_REMOVE_SPACES, 1) == 0
        and all(piece.kind != UNUSED for piece in pieces(model))
    )


def _fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yields the fields of a protocol buffer: numbers and values."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
            continue
        size = {1: 8, 2: varint, 5: 4}[wire]
        size = size() if callable(size) else size
        content = message[at : at + size]
        at += size
        yield number, struct.unpack("<f", content)[0] if wire == 5 else content
