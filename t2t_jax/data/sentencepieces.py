"""SentencePiece models as a `Tokenizer`, lossless for those trained here."""

import re
from collections.abc import Sequence

import sentencepiece

from t2t_jax.io.errors import UserError

# SentencePiece writes a space as U+2581, so it would decode a real U+2581 as a space.
# Therefore a U+2581 in the text is escaped as two characters of the private use area.
# The first of them is the escape character; if it occurs in the text, it is doubled.
SPACE, _ESCAPE, SPACE_ESCAPED = "\u2581", "\uf8fe", "\uf8fe\uf8fd"


def escape(line: str) -> str:
    """The text as SentencePiece gets it."""
    return line.replace(_ESCAPE, _ESCAPE * 2).replace(SPACE, SPACE_ESCAPED)


def _unescape(line: str) -> str:
    """Undoes `escape`."""
    # In one pass from left to right: two replacements would misread a doubled escape
    # character before a U+F8FD.
    originals = {_ESCAPE * 2: _ESCAPE, SPACE_ESCAPED: SPACE}
    return re.sub("|".join(originals), lambda match: originals[match[0]], line)


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
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        except RuntimeError as e:
            raise UserError(f"{name} is not a SentencePiece model: {e}") from None
        processor = self._processor
        ids = processor.pad_id(), processor.bos_id(), processor.unk_id()
        # SentencePiece gives -1 for a special piece that a model lacks.
        pad, bos, unknown = (i if i >= 0 else None for i in ids)
        stand_in = next(i for i in (pad, bos, unknown) if i is not None)
        self.pad = stand_in if pad is None else pad
        self.bos = stand_in if bos is None else bos
        self.eos = processor.eos_id()
        self.unknown = processor.unk_id()
        if self.eos < 0:
            raise UserError(
                f"{name} has no piece for the end of a sentence (eos); train it with "
                "--pad_id=0 --bos_id=1 --eos_id=2 --unk_id=3"
            )

    def __len__(self) -> int:
        return self._processor.get_piece_size()

    def encode(self, lines: Sequence[str], threads: int) -> list[list[int]]:
        return self._processor.encode(
            [escape(line) for line in lines], num_threads=threads
        )

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return [_unescape(line) for line in self._processor.decode(rows)]

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
