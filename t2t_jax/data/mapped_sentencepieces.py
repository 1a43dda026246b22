"""Tokenizers of published models: SentencePiece, whose pieces have ids of a table.

Marian, M2M100, NLLB and Pegasus split text with SentencePiece and take the ids from
somewhere else. Each class here stores the SentencePiece models and the whole table, so
that `tokenizer.model` of a workdir is complete.

Ids and texts are those of the Hugging Face tokenizers, with their accidents: special
tokens are recognized in the text, so that a line with `</s>` in it has the end of a
sentence in its middle, and decoding leaves `<unk>` out. What differs is this:

- The `tokenizers` library drops a mark that joins a character which it normalizes, if
  both have less than 6 bytes, such as U+00A0 U+200D. SentencePiece, which NLLB and
  Pegasus were trained with, keeps it (27 of 10,000 nasty lines).
- M2M100 decodes an id without a piece as the text `<unk>`; here it has no text.
"""

import base64
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import sentencepiece

from t2t_jax.data.sentencepieces import SPACE
from t2t_jax.io.errors import UserError


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
        rows = self._processor.encode(texts, out_type=str, num_threads=threads)
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
        own = self._processor.piece_to_id(piece)
        if self._processor.is_control(own):
            return ""
        if self._processor.is_byte(own):  # the piece "<0x41>" is the byte 0x41
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
        rows = self._processor.encode(lines, out_type=str, num_threads=threads)
        # Pieces with white space in them are split at it.
        return [
            [self._ids.get(piece, self.unknown) for piece in " ".join(row).split()]
            for row in rows
        ]

    def _decode(self, pieces: list[str]) -> str:
        return "".join(pieces).replace(" ", "").replace(SPACE, " ").strip()
