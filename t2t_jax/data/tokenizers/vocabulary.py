"""The tokens of a model: lines to token ids, and back.

For a tokenizer trained here, `decode(encode(line)) == line` for every line: it does not
normalize, has no unknown characters (rare ones are spelled in bytes), and keeps all
white space. A tokenizer from elsewhere may lose some of that.
"""

import copy
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from etils import epath

from t2t_jax.data.filling import Ragged, ragged
from t2t_jax.data.tokenizers.sentencepieces import (
    SPACE,
    SPACE_ESCAPED,
    SentencePieces,
    escape,
)
from t2t_jax.data.tokenizers.table import Tokenizer, parse
from t2t_jax.io.errors import UserError
from t2t_jax.text.words import UNKNOWN, TokenWords, token_words

# Of a stored vocabulary: that of the target, and of the source if it is another.
TOKENIZER_FILES = "tokenizer.model", "source_tokenizer.model"
_is_special = re.compile("<s>|</s>|<unk>|<pad>|<0x[0-9A-F]{2}>").fullmatch


def parse_symbols(symbols: str) -> tuple[str, ...]:
    """Splits `config.data.symbols`, such as `<bt>,<2de>`, into its symbols.

    Raises UserError if one is empty, is given twice, has white space in it, or is a
    piece or a character that the tokenizer needs itself.
    """
    parsed = tuple(s.strip() for s in symbols.split(",")) if symbols else ()
    for number, symbol in enumerate(parsed):
        if not symbol:
            wrong = "has an empty symbol; write a symbol between any two commas"
        elif re.search(r"[\s\x00-\x1f\x7f]", symbol):
            wrong = f"has white space in the symbol {symbol!r}; leave it out"
        elif _is_special(symbol):
            wrong = f"has {symbol!r}, a piece that every tokenizer has; rename it"
        elif re.search(f"[{SPACE}{SPACE_ESCAPED}]", symbol):
            wrong = f"has {symbol!r}; U+2581, U+F8FE and U+F8FD are reserved for spaces"
        elif symbol in parsed[:number]:
            wrong = f"has {symbol!r} twice; once is enough"
        else:
            continue
        raise UserError(f"config.data.symbols={symbols!r} {wrong}")
    return parsed


class Vocabulary:
    """The tokens of a model: encodes lines as token ids and decodes them.

    The vocabulary of a run is that of the target; `source` encodes its source text.

    Args:
      model: a stored tokenizer, the content of `tokenizer.model`: of SentencePiece, or
        another of `TOKENIZERS`.
      name: the tokenizer as error messages call it: its file, if it has one.
      source: the vocabulary of the source, if it has ids of its own.

    Attributes:
      source: the vocabulary of the source; this one itself if it encodes both alike.
      pad, bos, eos: the ids of padding, of the decoder's start and of the end of
        sentence. Padding and start are inputs only, unless the start is `eos`.
      unknown: the id of what the tokenizer cannot spell; -1 if there is none.
      never: ids besides these that no translation contains.
      free_spaces: True if `decode` decides the spaces next to punctuation.

    Raises:
      UserError: not a tokenizer, or one without an end of sentence.
    """

    def __init__(
        self,
        model: bytes,
        name: str = "the tokenizer",
        source: "Vocabulary | None" = None,
    ):
        self.model, self.name, self.joint = model, name, source is None
        self._use(parse(model, name))
        if source is None:
            source = self
            if self._tokenizer.source is not None:
                source = copy.copy(self)
                source._use(self._tokenizer.source)
                source.source = source
        self.source = source

    def _use(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.pad, self.bos, self.eos = tokenizer.pad, tokenizer.bos, tokenizer.eos
        self.unknown, self.never = tokenizer.unknown, tokenizer.never
        self.free_spaces = tokenizer.free_spaces

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Loads a `.model` file; raises UserError if it does not exist."""
        path = Path(path)
        if not path.is_file():
            raise UserError(f"{path} does not exist; want a SentencePiece .model file")
        return cls(path.read_bytes(), str(path))

    @classmethod
    def from_files(
        cls, folder: epath.Path, joint: bool, read: Callable[[str], bytes] | None = None
    ) -> "Vocabulary":
        """Opens the `files` of a folder; `read` returns one by its name."""
        read = read or (lambda name: (folder / name).read_bytes())
        name, source_name = TOKENIZER_FILES
        source = None if joint else cls(read(source_name), str(folder / source_name))
        return cls(read(name), str(folder / name), source)

    @property
    def files(self) -> dict[str, bytes]:
        """The contents of its files, by name."""
        return dict(
            zip(TOKENIZER_FILES, (side.model for side in self.sides), strict=False)
        )

    def __len__(self) -> int:
        return len(self._tokenizer)

    def __repr__(self) -> str:
        return f"Vocabulary({show_sizes(self.sizes)} pieces)"

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer itself; its class tells how it splits text."""
        return self._tokenizer

    @property
    def sides(self) -> tuple["Vocabulary", ...]:
        """The vocabulary itself; then, unless they share ids, that of the source."""
        return (self,) if self.joint else (self, self.source)

    @functools.cached_property
    def sha256(self) -> list[str]:
        """The SHA-256 of the files of `sides`, as `sha256sum` prints them."""
        return [hashlib.sha256(side.model).hexdigest() for side in self.sides]

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
          end: Appends EOS to each line, unless the tokenizer has none.
          threads: The number of threads; -1 is one for each core.

        Returns:
          The ids of each line.
        """
        rows = self._tokenizer.encode(lines, threads)
        prefix, suffix = [*self._tokenizer.first], [self.eos] * (end and self.eos >= 0)
        return [prefix + row + suffix for row in rows] if prefix or suffix else rows

    def encode_flat(self, lines: Sequence[str], threads: int = -1) -> Ragged:
        """Encodes much text: the ids of `encode` with `end`, in one array."""
        if not isinstance(self._tokenizer, SentencePieces):
            return ragged(self.encode(lines, end=True, threads=threads))
        encoded = self._tokenizer.encode_flat(lines, threads)
        tokens = np.insert(encoded.tokens, encoded.offsets[1:], self.eos)
        return Ragged(tokens, encoded.offsets + np.arange(len(encoded.offsets)))

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Decodes token ids to lines; skips padding, begin and end of sentence."""
        special = {self.pad, self.bos, self.eos}
        text_ids = [[int(i) for i in row if int(i) not in special] for row in ids]
        return self._tokenizer.decode(text_ids)

    def spelled(self, text: str) -> str:
        """The text in the characters of the pieces: special characters are escaped."""
        return self._tokenizer.spelled(text)

    def spelling(self, token: int) -> str | bytes:
        """The text that a token adds: characters, or one byte of a character.

        Empty for padding, begin and end of sentence. The space that begins the first
        piece of a line is not part of the line, nor one that ends the last.
        """
        if token in {self.pad, self.bos, self.eos}:
            return ""
        return self._tokenizer.spelling(token)

    def spellings(self, ids: Iterable[int]) -> list[bytes]:
        """The text that each token adds, in UTF-8; an unknown token adds a sign."""
        # Not with spaces around it, as SentencePiece writes it: it may be in a word.
        unknown = self.spelling(self.unknown) if self.unknown >= 0 else ""
        signs = {self.unknown: unknown.replace(f" {UNKNOWN} ", "") or UNKNOWN}
        added = [signs.get(i) or self.spelling(i) for i in ids]
        return [s if isinstance(s, bytes) else s.encode() for s in added]

    def words(
        self, ids: Sequence[int], mode: str = "spaces", line: str | None = None
    ) -> TokenWords:
        """Each token's word, by a definition of `text/words.py`.

        Args:
          line: the text that was encoded, if the words are to be its own, between
            spaces: a tokenizer may normalize it.
        """
        text_words = token_words(self.spellings(ids), mode)
        if line is None:
            return text_words
        # Characters that SentencePiece uses itself are spelled as others.
        escapes = isinstance(self._tokenizer, SentencePieces)
        return text_words.of_line(escape(line) if escapes else line)

    def pieces(self, line: str) -> list[str]:
        """The pieces of a line, for a person to read."""
        return [self.piece(token) for token in self.encode([line])[0]]

    def piece(self, token: int) -> str:
        """The piece with an id, for a person to read; U+2581 stands for a space."""
        return self._tokenizer.piece(int(token))

    def id_of(self, piece: str) -> int:
        """The id of a piece, such as a symbol; `unknown` if there is none."""
        return self._tokenizer.id_of(piece)

    def check_symbols(self, symbols: Sequence[str], remedy: str) -> None:
        """Checks that the tokenizer never splits a symbol.

        Args:
          symbols: Strings that must be one piece wherever they occur.
          remedy: The end of the error message: how to get such a tokenizer.

        Raises:
          UserError: A symbol is split.
        """
        ids = {symbol: self._tokenizer.id_of(symbol) for symbol in symbols}
        # The longest first: one symbol may begin another.
        find = re.compile("|".join(map(re.escape, sorted(symbols, key=len)[::-1])))
        for symbol in symbols:
            # An ordinary piece may be kept in one place and merged with its neighbours
            # in another, so try each symbol among spaces, common letters and signs.
            lines = [f"{a}{symbol}{a}{symbol}{a}" for a in ("", " ", *"aeist.<>2")]
            for line, encoded in zip(lines, self.encode(lines), strict=True):
                expected = [ids[match] for match in find.findall(line)]
                if self.unknown in expected or expected != [
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
