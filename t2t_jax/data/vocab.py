"""Joint subwords (section 5.1): SentencePiece, trained by the program, lossless.

`decode(encode(line)) == line` for every line: no normalisation, no character unknown
(bytes stand in for rare ones), no white space dropped.
"""

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from t2t_jax.errors import UserError

# SentencePiece writes a space as U+2581 and cannot tell that character from a space.
# So U+2581 in the text is spelled with two characters of the private use area, and the
# first of those, should it occur, is doubled.
_SPACE, _ESCAPE, _SPACE_SPELLED = "\u2581", "\uf8fe", "\uf8fe\uf8fd"


def _escape(line: str) -> str:
    return line.replace(_ESCAPE, _ESCAPE * 2).replace(_SPACE, _SPACE_SPELLED)


def _unescape(line: str) -> str:
    spelled = {_ESCAPE * 2: _ESCAPE, _SPACE_SPELLED: _SPACE}
    return re.sub("|".join(spelled), lambda match: spelled[match[0]], line)


class Vocabulary:
    """A SentencePiece model: lines to ids and back.

    Attributes:
      model: the serialized SentencePiece model, as `tokenizer.model` holds it.
      pad, bos, eos: ids of padding, begin and end of a sentence.
    """

    def __init__(self, model: bytes, name: str = "the tokenizer"):
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as e:
            raise UserError(f"{name} is not a SentencePiece model: {e}") from None
        self.model = model
        self.pad, self.bos, self.eos = (
            self._processor.pad_id(),
            self._processor.bos_id(),
            self._processor.eos_id(),
        )
        missing = [n for n in ("pad", "bos", "eos") if getattr(self, n) < 0]
        if missing:
            raise UserError(
                f"{name} has no piece for {', '.join(missing)}; train it with "
                "--pad_id=0 --bos_id=1 --eos_id=2 --unk_id=3"
            )

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Reads a `.model` file."""
        path = Path(path)
        if not path.is_file():
            raise UserError(f"{path} does not exist; want a SentencePiece .model file")
        return cls(path.read_bytes(), str(path))

    def __len__(self) -> int:
        return self._processor.get_piece_size()

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} pieces)"

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line, without begin or end."""
        return self._processor.encode([_escape(line) for line in lines])

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Lines of ids; padding, begin and end are left out."""
        special = {self.pad, self.bos, self.eos}
        kept = [[int(i) for i in row if int(i) not in special] for row in ids]
        return [_unescape(line) for line in self._processor.decode(kept)]

    def pieces(self, line: str) -> list[str]:
        """The pieces of a line, as a person reads them."""
        return [self._processor.id_to_piece(i) for i in self.encode([line])[0]]


def train(lines: Iterable[str], vocab_size: int) -> bytes:
    """Trains joint byte-pair subwords; returns the SentencePiece model.

    Args:
      lines: the text of both sides, streamed.
      vocab_size: pieces in all, with 4 special ones and 256 bytes.

    Raises:
      UserError: `vocab_size` is too small or too large for this text.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(_escape(line) for line in lines),
            model_writer=model,
            vocab_size=vocab_size,
            model_type="bpe",
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            byte_fallback=True,
            character_coverage=0.9999,
            max_sentence_length=1 << 20,
            pad_id=0,
            bos_id=1,
            eos_id=2,
            unk_id=3,
            minloglevel=2,
        )
    except RuntimeError as e:
        reason = str(e).rsplit("] ", 1)[-1].strip() or str(e)
        raise UserError(
            f"config.data.vocab_size={vocab_size} does not fit the training text "
            f"(SentencePiece: {reason}); small text wants a smaller vocabulary, and "
            "none fits under 4 special pieces + 256 bytes + the characters of the text"
        ) from None
    return model.getvalue()
