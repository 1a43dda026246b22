"""Joint subwords (section 5.1): SentencePiece, trained by the program, lossless.

`decode(encode(line)) == line` for every line: no normalisation, no character unknown
(bytes stand in for rare ones), no white space dropped. That holds for a tokenizer
trained here; one that is brought along may do less.
"""

import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import sentencepiece

from t2t_jax.terminal.errors import UserError

T = TypeVar("T")

# SentencePiece writes a space as U+2581 and cannot tell that character from a space.
# So U+2581 in the text is spelled with two characters of the private use area, and the
# first of those, should it occur, is doubled.
_SPACE, _ESCAPE, _SPACE_SPELLED = "\u2581", "\uf8fe", "\uf8fe\uf8fd"
_SPECIAL = re.compile("<s>|</s>|<unk>|<pad>|<0x[0-9A-F]{2}>").fullmatch


def _escape(line: str) -> str:
    return line.replace(_ESCAPE, _ESCAPE * 2).replace(_SPACE, _SPACE_SPELLED)


def _unescape(line: str) -> str:
    spelled = {_ESCAPE * 2: _ESCAPE, _SPACE_SPELLED: _SPACE}
    return re.sub("|".join(spelled), lambda match: spelled[match[0]], line)


def parse_symbols(symbols: str) -> tuple[str, ...]:
    """The symbols of `config.data.symbols`, such as `<bt>,<2de>`.

    Raises:
      UserError: one is empty, named twice, has white space in it, or is a piece or a
        character that the tokenizer needs itself.
    """
    parsed = tuple(s.strip() for s in symbols.split(",")) if symbols else ()
    for number, symbol in enumerate(parsed):
        if not symbol:
            wrong = "has an empty symbol; write a symbol between any two commas"
        elif re.search(r"[\s\x00-\x1f\x7f]", symbol):
            wrong = f"has white space in the symbol {symbol!r}; leave it out"
        elif _SPECIAL(symbol):
            wrong = f"has {symbol!r}, a piece that every tokenizer has; rename it"
        elif re.search(f"[{_SPACE}{_SPACE_SPELLED}]", symbol):
            wrong = f"has {symbol!r}; U+2581, U+F8FE and U+F8FD are for spelling spaces"
        elif symbol in parsed[:number]:
            wrong = f"has {symbol!r} twice; once is enough"
        else:
            continue
        raise UserError(f"config.data.symbols={symbols!r} {wrong}")
    return parsed


class Vocabulary:
    """A SentencePiece model: lines to ids and back.

    Attributes:
      model: the serialized SentencePiece model, as `tokenizer.model` holds it.
      pad, bos, eos: ids of padding, begin and end of a sentence. Padding and begin are
        only given to the model, never predicted, so where a tokenizer has no piece for
        one, the other stands in; where it has neither, the unknown piece.
    """

    def __init__(self, model: bytes, name: str = "the tokenizer"):
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as e:
            raise UserError(f"{name} is not a SentencePiece model: {e}") from None
        self.model, self.name = model, name
        processor = self._processor
        ids = processor.pad_id(), processor.bos_id(), processor.unk_id()
        pad, bos, unknown = (i if i >= 0 else None for i in ids)
        stand_in = next(i for i in (pad, bos, unknown) if i is not None)
        self.pad = stand_in if pad is None else pad
        self.bos = stand_in if bos is None else bos
        self.eos = processor.eos_id()
        if self.eos < 0:
            raise UserError(
                f"{name} has no piece for the end of a sentence (eos); train it with "
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

    def encode(
        self, lines: Sequence[str], end: bool = False, threads: int = -1
    ) -> list[list[int]]:
        """Ids of each line, without begin.

        Args:
          end: with the end of the sentence.
          threads: how many encode; -1 is one for each core.
        """
        return self._processor.encode(
            [_escape(line) for line in lines], add_eos=end, num_threads=threads
        )

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Lines of ids; padding, begin and end are left out."""
        special = {self.pad, self.bos, self.eos}
        kept = [[int(i) for i in row if int(i) not in special] for row in ids]
        return [_unescape(line) for line in self._processor.decode(kept)]

    def spelled(self, text: str) -> str:
        """Text in the characters that pieces spell it with."""
        return _escape(text)

    def spelling(self, token: int) -> str | bytes:
        """What a token adds to the text: characters, or one byte of a character.

        A first piece's first space is not part of the text. Nothing for padding, begin
        and end.
        """
        processor = self._processor
        if token in {self.pad, self.bos, self.eos} or processor.is_control(token):
            return ""
        if processor.is_byte(token):
            return bytes([int(processor.id_to_piece(token)[3:5], 16)])
        if processor.is_unknown(token):
            return processor.decode([token])
        return processor.id_to_piece(token).replace(_SPACE, " ")

    def pieces(self, line: str) -> list[str]:
        """The pieces of a line, as a person reads them."""
        return [self.piece(token) for token in self.encode([line])[0]]

    def piece(self, token: int) -> str:
        """A piece, as a person reads it."""
        return self._processor.id_to_piece(int(token))

    def check_symbols(self, symbols: Sequence[str], remedy: str) -> None:
        """Raises UserError, with a remedy, unless no symbol is ever split."""
        unknown = self._processor.unk_id()
        ids = {symbol: self._processor.piece_to_id(symbol) for symbol in symbols}
        find = re.compile("|".join(map(re.escape, sorted(symbols, key=len)[::-1])))
        for symbol in symbols:
            lines = [f"{a}{symbol}{a}{symbol}{a}" for a in ("", " ", *"aeist.<>2")]
            for line, encoded in zip(lines, self.encode(lines), strict=True):
                wanted = [ids[found] for found in find.findall(line)]
                if unknown in wanted or wanted != [
                    i for i in encoded if i in ids.values()
                ]:
                    raise UserError(
                        f"config.data.symbols has {symbol!r}, which {self.name} splits:"
                        f" {line!r} becomes {' '.join(self.pieces(line))}; {remedy}"
                    )


def sample(items: Iterable[T], most: int) -> list[T]:
    """At most `most` of the items, in order; each is as likely as any other.

    Every item draws a number, and the smallest are kept. So it needs no memory but for
    what it keeps and a quarter more, and the same items give the same sample.
    """
    bits = np.random.Philox(0)
    numbers = itertools.chain.from_iterable(
        iter(lambda: bits.random_raw(4096).tolist(), None)
    )
    kept: list[T] = []
    drawn: list[int] = []
    limit = 1 << 64

    def leave_most():
        limit = int(np.partition(np.array(drawn, np.uint64), most)[most])
        below = [number < limit for number in drawn]
        kept[:] = itertools.compress(kept, below)
        drawn[:] = itertools.compress(drawn, below)
        return limit

    for item, number in zip(items, numbers, strict=False):
        if number < limit:
            kept.append(item)
            drawn.append(number)
            if len(kept) > most + most // 4 + 1000:
                limit = leave_most()
    if len(kept) > most:
        leave_most()
    return kept


def train(lines: Iterable[str], vocab_size: int, symbols: Sequence[str] = ()) -> bytes:
    """Trains joint byte-pair subwords; returns the SentencePiece model.

    Args:
      lines: the text of both sides, streamed.
      vocab_size: pieces in all, with 4 special ones, 256 bytes and the symbols.
      symbols: pieces that are never split nor joined with what stands beside them.

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
            user_defined_symbols=list(symbols),
            pad_id=0,
            bos_id=1,
            eos_id=2,
            unk_id=3,
            minloglevel=2,
        )
    except RuntimeError as e:
        raise UserError(_unfit(str(e), vocab_size)) from None
    return model.getvalue()


def _unfit(reason: str, vocab_size: int) -> str:
    """What SentencePiece says of a size that does not fit, for a person."""
    told = f"config.data.vocab_size={vocab_size} does not fit the training text: "
    if most := re.search(r"size too high .* value <= (\d+)", reason):
        return told + (
            f"it has no more than {int(most[1]):,} different pieces; "
            f"--config.data.vocab_size={most[1]} or less, or more text"
        )
    if least := re.search(r"smaller than required_chars. \d+ vs (\d+)", reason):
        return told + (
            f"its characters, 256 bytes, 4 special pieces and config.data.symbols are "
            f"{int(least[1]):,} already; --config.data.vocab_size={least[1]} or more"
        )
    if "sentences_.empty()" in reason:
        return "there is no text to train a tokenizer on: every line is empty"
    return told + f"SentencePiece says {reason.rsplit('] ', 1)[-1].strip()}"


def drained(items: list[T]) -> Iterator[T]:
    """The items in order, each forgotten by the list once it is given."""
    items.reverse()
    while items:
        yield items.pop()
