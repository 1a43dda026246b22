"""SentencePiece models as a `Tokenizer`: those trained here, and those of others.

Models that are trained here are lossless. Marian, M2M100, NLLB and Pegasus split text
with SentencePiece and take the ids from a table of their own; `MappedSentencePieces`
stores the SentencePiece models and the whole table, so that `tokenizer.model` of a
workdir is complete.

Ids and texts of these are those of the Hugging Face tokenizers, with their accidents:
special tokens are recognized in the text, so that a line with `</s>` in it has the end
of a sentence in its middle, and decoding leaves `<unk>` out. What differs is this:

- The `tokenizers` library drops a mark that joins a character which it normalizes, if
  both have less than 6 bytes, such as U+00A0 U+200D. SentencePiece, which NLLB and
  Pegasus were trained with, keeps it (27 of 10,000 nasty lines).
- M2M100 decodes an id without a piece as the text `<unk>`; here it has no text.

At the end, a reader of the model file itself, a protocol buffer: SentencePiece's own
interface hides how a model treats text.
"""

import base64
import re
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import sentencepiece

from t2t_jax.data.filling import Ragged, ragged
from t2t_jax.data.tokenizers.words import WordTable
from t2t_jax.io.errors import UserError

# SentencePiece writes a space as U+2581, so it would decode a real U+2581 as a space.
# Therefore a U+2581 in the text is escaped as two characters of the private use area.
# The first of them is the escape character; if it occurs in the text, it is doubled.
SPACE, _ESCAPE, SPACE_ESCAPED = "\u2581", "\uf8fe", "\uf8fe\uf8fd"

BULK = 1_000  # lines from which on words are remembered; not a translator's few


def escape(line: str) -> str:
    """The text as SentencePiece gets it."""
    return line.replace(_ESCAPE, _ESCAPE * 2).replace(SPACE, SPACE_ESCAPED)


def _unescape(line: str) -> str:
    """Undoes `escape`."""
    # In one pass from left to right: two replacements would misread a doubled escape
    # character before a U+F8FD.
    originals = {_ESCAPE * 2: _ESCAPE, SPACE_ESCAPED: SPACE}
    return re.sub("|".join(originals), lambda match: originals[match[0]], line)


def opened(model: bytes, name: str | Path) -> sentencepiece.SentencePieceProcessor:
    """Opens the content of a `.model` file; raises UserError if it is not one."""
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as e:
        raise UserError(f"{name} is not a SentencePiece model: {e}") from None


# To start threads takes as long as so many rows.
FEW = 50


def _by_row(method: Callable, rows: Sequence, threads=-1, **options: Any) -> list:
    """Calls a method of SentencePiece for rows, of which few need no threads."""
    if len(rows) > FEW:
        return method(rows, num_threads=threads, **options)
    return [method(row, **options) for row in rows]


class SentencePieces:
    """A `.model` file of SentencePiece; its piece ids are the token ids.

    Padding and begin of sentence are inputs only and never predicted. So if a model
    lacks one of the two, the other stands in; if it lacks both, the unknown piece does.

    Args:
      content: the file's content.
      name: the tokenizer as error messages call it.

    Raises:
      UserError: not a SentencePiece model, or one without an end of sentence.
    """

    source = None
    first: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    free_spaces = False

    def __init__(self, content: bytes, name: str):
        self._processor = processor = opened(content, name)
        self._content, self._lock = content, threading.Lock()
        self._words: WordTable | bool | None = None
        pad, bos = processor.pad_id(), processor.bos_id()
        self.eos, self.unknown = processor.eos_id(), processor.unk_id()
        # SentencePiece gives -1 for a special piece that a model lacks.
        stand_in = next(i for i in (pad, bos, self.unknown) if i >= 0)
        self.pad = stand_in if pad < 0 else pad
        self.bos = stand_in if bos < 0 else bos
        if self.eos < 0:
            raise UserError(
                f"{name} has no piece for the end of a sentence (eos); train it with "
                "--pad_id=0 --bos_id=1 --eos_id=2 --unk_id=3"
            )

    def __len__(self) -> int:
        return self._processor.get_piece_size()

    def encode(self, lines: Sequence[str], threads: int) -> list[list[int]]:
        return _by_row(self._processor.encode, [*map(escape, lines)], threads)

    def encode_flat(self, lines: Sequence[str], threads: int) -> Ragged:
        """Does what `encode` does; faster for many lines, if words recur in them."""
        if len(lines) >= BULK and (words := self._word_table()):
            encoded = words.encode(escape("\n".join([*lines, ""])), threads)
            if len(encoded) == len(lines):  # otherwise a line has a line feed in it
                return encoded
        return ragged(self.encode(lines, threads))

    def _word_table(self) -> WordTable | bool:
        """The words so far; False if those of a line depend on one another."""
        with self._lock:
            if self._words is None:  # only now, since reading a model takes long
                names = map(self._processor.id_to_piece, range(len(self)))
                independent = words_independent(names) and lossless(self._content)
                self._words = independent and WordTable(self._processor)
            elif self._words and not self._words.room:
                # Start over, because the next text may have other words.
                self._words = WordTable(self._processor)
            return self._words

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return [_unescape(line) for line in _by_row(self._processor.decode, [*rows])]

    def spelled(self, text: str) -> str:
        normalized = self._processor.normalize(escape(text))
        return normalized.replace(SPACE, " ").removeprefix(" ")

    def spelling(self, token: int) -> str | bytes:
        processor = self._processor
        if processor.is_control(token):
            return ""
        if processor.is_byte(token):  # the piece "<0x41>" is the byte 0x41
            return bytes([int(processor.id_to_piece(token)[3:5], 16)])
        if processor.is_unknown(token):
            return processor.decode([token])
        return processor.id_to_piece(token).replace(SPACE, " ")

    def piece(self, token: int) -> str:
        return self._processor.id_to_piece(token)

    def id_of(self, piece: str) -> int:
        return self._processor.piece_to_id(piece)


class MappedSentencePieces:
    """A SentencePiece model whose pieces have the ids of a table.

    Normalizes text as the model says. A piece that the table lacks is `<unk>`.

    Args:
      fields: the stored tokenizer:
        pieces: the table; a piece's id is its place. An empty one is an id without a
          piece: tables of embeddings are rounded up.
        special: the pieces that text never spells; decoding leaves them out.
        models: the SentencePiece model in base64, then that of source text if it is
          another one.
        first: the pieces that every target line begins with, then those of every
          source line.
        bos: the piece that starts the decoder.
        never: ids that no translation contains.
      name: the tokenizer, as error messages call it.
      side: the entry of `models` and `first` to use.

    Raises:
      UserError: a field is missing or damaged.
    """

    free_spaces = False
    pad_piece: ClassVar[str] = "<pad>"
    eos_piece: ClassVar[str] = "</s>"
    unknown_piece: ClassVar[str] = "<unk>"

    def __init__(self, fields: dict[str, Any], name: str, side: int = 0):
        try:
            self._pieces: list[str] = fields["pieces"]
            self._ids = {piece: i for i, piece in enumerate(self._pieces) if piece}
            special = fields["special"]
            self._special = {self._ids[piece] for piece in special}
            self.pad = self._ids[self.pad_piece]
            self.eos = self._ids[self.eos_piece]
            self.unknown = self._ids[self.unknown_piece]
            self.bos = self._ids[fields["bos"]]
            self.first = tuple(self._ids[piece] for piece in fields["first"][side])
            self.never = tuple(fields["never"])
            models = fields["models"]
            content = base64.b64decode(models[min(side, len(models) - 1)])
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        except (LookupError, TypeError, ValueError, RuntimeError) as e:
            raise UserError(f"{name} is damaged: {e}; import the model again") from None
        # The longest first: one special piece may begin another.
        patterns = [
            r"\s*" * (piece == "<mask>") + re.escape(piece)  # it takes the space before
            for piece in sorted(special, key=len, reverse=True)
        ]
        self._split = re.compile(f"({'|'.join(patterns)})").split
        differs = len(models) > 1 or fields["first"][0] != fields["first"][1]
        self.source = type(self)(fields, name, 1) if differs and side == 0 else None

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, lines: Sequence[str], threads: int) -> list[list[int]]:
        # Special pieces are every second of the parts.
        parts = [self._split(line) for line in lines]
        texts = [text for part in parts for text in part[::2]]
        encoded = iter(self._encode(texts, threads))
        rows = []
        for part in parts:
            row = next(encoded)
            for special in part[1::2]:
                row += [self._ids[special.lstrip()], *next(encoded)]
            rows.append(row)
        return rows

    def _encode(self, texts: Sequence[str], threads: int) -> list[list[int]]:
        """Encodes texts without special pieces."""
        find, unknown = self._ids.get, self.unknown
        rows = _by_row(self._processor.encode, texts, threads, out_type=str)
        return [[find(piece, unknown) for piece in row] for row in rows]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        pieces, special = self._pieces, self._special
        return [
            self._decode([pieces[i] for i in row if i not in special and pieces[i]])
            for row in rows
        ]

    def _decode(self, pieces: list[str]) -> str:
        # SentencePiece leaves the space of pieces that it does not know itself.
        return self._processor.decode_pieces(pieces).replace(SPACE, " ").strip()

    def spelled(self, text: str) -> str:
        return self._processor.normalize(text).replace(SPACE, " ").strip()

    def spelling(self, token: int) -> str | bytes:
        if token in self._special:
            return ""
        piece = self._pieces[token]
        model_id = self._processor.piece_to_id(piece)
        if self._processor.is_control(model_id):
            return ""
        if self._processor.is_byte(model_id):  # the piece "<0x41>" is the byte 0x41
            return bytes([int(piece[3:5], 16)])
        return piece.replace(SPACE, " ")

    def piece(self, token: int) -> str:
        return self._pieces[token] or f"<unused_{token}>"

    def id_of(self, piece: str) -> int:
        return self._ids.get(piece, self.unknown)


class Marian(MappedSentencePieces):
    """MarianMT: a language tag `>>de<<` at the start of a line is one token."""

    _tag = re.compile(r">>.*?<<", re.DOTALL).match

    def _encode(self, texts: Sequence[str], threads: int) -> list[list[int]]:
        tags = [match[0] if (match := self._tag(text)) else "" for text in texts]
        texts = [text[len(tag) :] for tag, text in zip(tags, texts, strict=True)]
        rows = super()._encode(texts, threads)
        return [
            [self.id_of(tag)] * bool(tag) + row
            for tag, row in zip(tags, rows, strict=True)
        ]


class FastSentencePieces(MappedSentencePieces):
    """NLLB and Pegasus, as Hugging Face's `tokenizers` library splits and joins text.

    It keeps white space at the end of a text, and before a special token, as one piece.
    """

    def _encode(self, texts: Sequence[str], threads: int) -> list[list[int]]:
        rows = super()._encode(texts, threads)
        # A letter after the text shows if normalized white space ends it.
        for row, text in zip(rows, texts, strict=True):
            if text and self._processor.normalize(text + "x").endswith(SPACE + "x"):
                row.append(self.id_of(SPACE))
        return rows

    def _decode(self, pieces: list[str]) -> str:
        begin = [piece.replace(SPACE, "") for piece in pieces[:1]]
        return "".join(begin + pieces[1:]).replace(SPACE, " ")


class FairseqSentencePieces(MappedSentencePieces):
    """fairseq: text never spells a special piece, and `<unk>` is text."""

    def encode(self, lines: Sequence[str], threads: int) -> list[list[int]]:
        rows = _by_row(self._processor.encode, lines, threads, out_type=str)
        # Pieces with white space in them are split at it.
        return [
            [self._ids.get(piece, self.unknown) for piece in " ".join(row).split()]
            for row in rows
        ]

    def _decode(self, pieces: list[str]) -> str:
        return "".join(pieces).replace(" ", "").replace(SPACE, " ").strip()


# Field numbers of SentencePiece's sentencepiece_model.proto, and values of its
# enumerations.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_NAME, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _SPACE_AS_SUFFIX, _BYTE_FALLBACK = 3, 24, 35
_CHARACTER_MAP, _DUMMY_PREFIX, _REMOVE_SPACES = 2, 3, 4
_BPE = 2
ORDINARY, UNKNOWN, CONTROL, SYMBOL, UNUSED, BYTE = range(1, 7)


class Piece(NamedTuple):
    """A piece; its id is its index."""

    name: str
    score: float  # of two possible merges, that of the higher score is done
    kind: int  # `ORDINARY`, `UNKNOWN`, `CONTROL`, `SYMBOL`, `UNUSED` or `BYTE`


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
    return _part(model, _TRAINER).get(_MODEL_TYPE) == _BPE


def lossless(model: bytes) -> bool:
    """True if a model is of the kind that this project trains.

    It is a byte-pair encoding with bytes for unknown characters, and encodes every
    character and every space of the text.
    """
    trainer, normalizer = _part(model, _TRAINER), _part(model, _NORMALIZER)
    return (
        trainer.get(_MODEL_TYPE) == _BPE
        and trainer.get(_BYTE_FALLBACK) == 1
        and not trainer.get(_SPACE_AS_SUFFIX)
        and not normalizer.get(_CHARACTER_MAP)
        and normalizer.get(_DUMMY_PREFIX, 1) == 1
        and normalizer.get(_REMOVE_SPACES, 1) == 0
        and all(piece.kind != UNUSED for piece in pieces(model))
    )


def words_independent(names: Iterable[str]) -> bool:
    """True if no piece has a space after its beginning: no merge crosses the space."""
    return not any(re.search(f" |.{SPACE}", name, re.DOTALL) for name in names)


def _part(model: bytes, number: int) -> dict[int, int | float | bytes]:
    """The fields of a message inside the model."""
    return dict(_fields(dict(_fields(model)).get(number, b"")))


def _fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yields the fields of a protocol buffer: numbers and values."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
            continue
        size = {1: 8, 2: varint, 5: 4}[wire]
        size = size() if callable(size) else size
        content = message[position : position + size]
        position += size
        yield number, struct.unpack("<f", content)[0] if wire == 5 else content
