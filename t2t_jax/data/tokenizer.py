"""Lossless subwords from SentencePiece, joint or one model a side (section 5.1).

For a tokenizer trained here, `decode(encode(line)) == line` for every line: it does not
normalize, has no unknown characters (rare ones are spelled in bytes), and keeps all
white space. A tokenizer from elsewhere may lose some of that.
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

# SentencePiece writes a space as U+2581, so it would decode a real U+2581 as a space.
# Therefore a U+2581 in the text is escaped as two characters of the private use area.
# The first of them is the escape character; if it occurs in the text, it is doubled.
_SPACE, _ESCAPE, _SPACE_ESCAPED = "\u2581", "\uf8fe", "\uf8fe\uf8fd"
_is_special = re.compile("<s>|</s>|<unk>|<pad>|<0x[0-9A-F]{2}>").fullmatch


def _escape(line: str) -> str:
    """The text as SentencePiece gets it."""
    return line.replace(_ESCAPE, _ESCAPE * 2).replace(_SPACE, _SPACE_ESCAPED)


def _unescape(line: str) -> str:
    """Undoes `_escape`."""
    # In one pass from left to right: two replacements would misread a doubled escape
    # character before a U+F8FD.
    originals = {_ESCAPE * 2: _ESCAPE, _SPACE_ESCAPED: _SPACE}
    return re.sub("|".join(originals), lambda match: originals[match[0]], line)


def parse_symbols(symbols: str) -> tuple[str, ...]:
    """Splits `config.data.symbols`, such as `<bt>,<2de>`, into its symbols.

    Raises:
      UserError: A symbol is empty, is given twice, has white space in it, or is a piece
        or a character that the tokenizer needs itself.
    """
    parsed = tuple(s.strip() for s in symbols.split(",")) if symbols else ()
    for number, symbol in enumerate(parsed):
        if not symbol:
            wrong = "has an empty symbol; write a symbol between any two commas"
        elif re.search(r"[\s\x00-\x1f\x7f]", symbol):
            wrong = f"has white space in the symbol {symbol!r}; leave it out"
        elif _is_special(symbol):
            wrong = f"has {symbol!r}, a piece that every tokenizer has; rename it"
        elif re.search(f"[{_SPACE}{_SPACE_ESCAPED}]", symbol):
            wrong = f"has {symbol!r}; U+2581, U+F8FE and U+F8FD are reserved for spaces"
        elif symbol in parsed[:number]:
            wrong = f"has {symbol!r} twice; once is enough"
        else:
            continue
        raise UserError(f"config.data.symbols={symbols!r} {wrong}")
    return parsed


class Vocabulary:
    """A SentencePiece model: encodes lines as token ids and decodes them.

    The vocabulary of a run is that of the target; `source` encodes its source text.

    Attributes:
      source: The vocabulary of the source; this one itself if it is joint.
      model: The serialized SentencePiece model, the content of `tokenizer.model`.
      name: The tokenizer as error messages call it: its file, if it has one.
      pad, bos, eos: The ids of padding, begin and end of sentence. Padding and begin
        are inputs only and never predicted. So if a tokenizer lacks one of the two, the
        other stands in; if it lacks both, the unknown piece does.

    Raises:
      UserError: Not a SentencePiece model, or one without an end of sentence.
    """

    def __init__(
        self,
        model: bytes,
        name: str = "the tokenizer",
        source: "Vocabulary | None" = None,
    ):
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as e:
            raise UserError(f"{name} is not a SentencePiece model: {e}") from None
        self.model, self.name = model, name
        self.source = self if source is None else source
        processor = self._processor
        ids = processor.pad_id(), processor.bos_id(), processor.unk_id()
        # SentencePiece gives -1 for a special piece that a model lacks.
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
        """Loads a `.model` file; raises UserError if it does not exist."""
        path = Path(path)
        if not path.is_file():
            raise UserError(f"{path} does not exist; want a SentencePiece .model file")
        return cls(path.read_bytes(), str(path))

    def __len__(self) -> int:
        return self._processor.get_piece_size()

    def __repr__(self) -> str:
        return f"Vocabulary({show_sizes(self.sizes)} pieces)"

    @property
    def sides(self) -> tuple["Vocabulary", ...]:
        """The vocabulary itself; then, unless it is joint, that of the source."""
        return (self,) if self.source is self else (self, self.source)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of pieces of `sides`, as `model.build` takes them."""
        return tuple(len(side) for side in self.sides)

    def encode(
        self, lines: Sequence[str], end: bool = False, threads: int = -1
    ) -> list[list[int]]:
        """Encodes lines as token ids, without BOS.

        Args:
          lines: The lines, without line ends.
          end: Appends EOS to each line.
          threads: The number of threads; -1 is one for each core.

        Returns:
          The ids of each line.
        """
        return self._processor.encode(
            [_escape(line) for line in lines], add_eos=end, num_threads=threads
        )

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Decodes token ids to lines; skips padding, begin and end of sentence."""
        special = {self.pad, self.bos, self.eos}
        kept = [[int(i) for i in row if int(i) not in special] for row in ids]
        return [_unescape(line) for line in self._processor.decode(kept)]

    def spelled(self, text: str) -> str:
        """The text in the characters of the pieces: special characters are escaped."""
        return _escape(text)

    def spelling(self, token: int) -> str | bytes:
        """The text that a token adds: characters, or one byte of a character.

        Empty for padding, begin and end of sentence. The space that begins the first
        piece of a line is not part of the line.
        """
        processor = self._processor
        if token in {self.pad, self.bos, self.eos} or processor.is_control(token):
            return ""
        if processor.is_byte(token):  # the piece "<0x41>" is the byte 0x41
            return bytes([int(processor.id_to_piece(token)[3:5], 16)])
        if processor.is_unknown(token):
            return processor.decode([token])
        return processor.id_to_piece(token).replace(_SPACE, " ")

    def pieces(self, line: str) -> list[str]:
        """The pieces of a line, for a person to read."""
        return [self.piece(token) for token in self.encode([line])[0]]

    def piece(self, token: int) -> str:
        """The piece with an id, for a person to read; U+2581 stands for a space."""
        return self._processor.id_to_piece(int(token))

    def check_symbols(self, symbols: Sequence[str], remedy: str) -> None:
        """Checks that the tokenizer never splits a symbol.

        Args:
          symbols: Strings that must be one piece wherever they occur.
          remedy: The end of the error message: how to get such a tokenizer.

        Raises:
          UserError: A symbol is split.
        """
        unknown = self._processor.unk_id()
        ids = {symbol: self._processor.piece_to_id(symbol) for symbol in symbols}
        # The longest first: one symbol may begin another.
        find = re.compile("|".join(map(re.escape, sorted(symbols, key=len)[::-1])))
        for symbol in symbols:
            # An ordinary piece may be kept in one place and merged with its neighbours
            # in another, so try each symbol among spaces, common letters and signs.
            lines = [f"{a}{symbol}{a}{symbol}{a}" for a in ("", " ", *"aeist.<>2")]
            for line, encoded in zip(lines, self.encode(lines), strict=True):
                wanted = [ids[match] for match in find.findall(line)]
                if unknown in wanted or wanted != [
                    i for i in encoded if i in ids.values()
                ]:
                    raise UserError(
                        f"config.data.symbols has {symbol!r}, which {self.name} splits:"
                        f" {line!r} becomes {' '.join(self.pieces(line))}; {remedy}"
                    )


def show_sizes(sizes: Sequence[int]) -> str:
    """Formats `Vocabulary.sizes`: `37,000`, or `37,000 target and 32,000 source`."""
    if len(sizes) == 1:
        return f"{sizes[0]:,}"
    return f"{sizes[0]:,} target and {sizes[1]:,} source"


def sample(items: Iterable[T], most: int) -> list[T]:
    """Samples at most `most` items, in order, each with equal probability.

    Every item draws a random number, and those with the smallest numbers are kept. The
    same items always give the same sample. Memory holds at most about 1.25 * `most`
    items at a time.
    """
    bits = np.random.Philox(0)  # its raw bits are the same in every version of NumPy
    numbers = itertools.chain.from_iterable(
        iter(lambda: bits.random_raw(4096).tolist(), None)
    )
    kept: list[T] = []
    drawn: list[int] = []
    limit = 1 << 64  # above all numbers: at first every item is kept

    def trim():
        """Keeps the `most` items with the smallest numbers; returns the new limit."""
        limit = int(np.partition(np.array(drawn, np.uint64), most)[most])
        below = [number < limit for number in drawn]
        kept[:] = itertools.compress(kept, below)
        drawn[:] = itertools.compress(drawn, below)
        return limit

    for item, number in zip(items, numbers, strict=False):
        if number < limit:
            kept.append(item)
            drawn.append(number)
            if len(kept) > most + most // 4 + 1000:  # seldom: a trim reads all of them
                limit = trim()
    if len(kept) > most:
        trim()
    return kept


def train(
    lines: Iterable[str],
    vocab_size: int,
    symbols: Sequence[str] = (),
    field: str = "vocab_size",
) -> bytes:
    """Trains a byte-pair encoding.

    Args:
      lines: The text of both languages, or of one, streamed.
      vocab_size: The number of pieces, including 4 special ones, 256 bytes and the
        symbols.
      symbols: Strings that are always one piece: never split, never merged with their
        neighbours.
      field: The field of `config.data` that error messages name for `vocab_size`.

    Returns:
      The serialized SentencePiece model.

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
            # The next three settings make the tokenizer lossless.
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            byte_fallback=True,
            character_coverage=0.9999,  # rarer characters are spelled in bytes
            max_sentence_length=1 << 20,  # in bytes; longer lines are skipped
            user_defined_symbols=list(symbols),
            pad_id=0,
            bos_id=1,
            eos_id=2,
            unk_id=3,
            minloglevel=2,  # errors only
        )
    except RuntimeError as e:
        raise UserError(_unfit(str(e), f"config.data.{field}=", vocab_size)) from None
    return model.getvalue()


def _unfit(reason: str, flag: str, vocab_size: int) -> str:
    """Rewords SentencePiece's error about a vocabulary size, with a size that fits."""
    message = f"{flag}{vocab_size} does not fit the training text: "
    if most := re.search(r"size too high .* value <= (\d+)", reason):
        return message + (
            f"it has no more than {int(most[1]):,} different pieces; "
            f"want --{flag}{most[1]} or less, or more text"
        )
    if least := re.search(r"smaller than required_chars. \d+ vs (\d+)", reason):
        return message + (
            f"its characters, 256 bytes, 4 special pieces and config.data.symbols are "
            f"{int(least[1]):,} already; want --{flag}{least[1]} or more"
        )
    if "sentences_.empty()" in reason:
        return "there is no text to train a tokenizer on: every line is empty"
    # SentencePiece puts its source line and condition before "] ".
    return message + f"SentencePiece says {reason.rsplit('] ', 1)[-1].strip()}"


def consume(items: list[T]) -> Iterator[T]:
    """Yields the items of a list in order, and removes each from it: frees memory."""
    # Reversed once, because `pop` is O(1) only at the end.
    items.reverse()
    while items:
        yield items.pop()
