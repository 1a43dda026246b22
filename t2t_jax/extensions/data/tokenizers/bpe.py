"""Byte-pair codes applied to the words of Moses, as WMT models before SentencePiece.

Moses splits text into words (and FSMT normalizes it before), merges split each word
into pieces, and a table has their ids. Decoding joins the pieces and undoes Moses. That
is not lossless: Moses decides where spaces are next to punctuation.

fairseq marks a piece inside a word (`Hun@@ d`), FSMT the last one (`Hun d</w>`).
"""

import functools
import heapq
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from t2t_jax.io.errors import UserError

END = "</w>"  # the end of a word in merges
INSIDE = "@@"

# Name of a piece inside a word, name of the last one, text of a piece.
STYLES: dict[str, tuple[Callable[[str], str], ...]] = {
    INSIDE: (
        lambda part: part + INSIDE,
        lambda part: part,
        lambda piece: f"{piece} ".replace(f"{INSIDE} ", ""),
    ),
    END: (
        lambda part: part,
        lambda part: part + END,
        lambda piece: piece.replace(END, " "),
    ),
    "": (lambda part: part, lambda part: part, lambda piece: f"{piece} "),
}

WORDS = 1 << 20  # words whose pieces are kept: the known ones of a large corpus


class Moses:
    """Moses' words of one language.

    Args:
      language: such as `de`; Moses has rules for some.
      split_dashes: writes `a-b` as `a @-@ b`.
      escape: writes `&` as `&amp;`, and so on.
      normalize: replaces Unicode punctuation, and removes control characters.
    """

    def __init__(
        self, language: str, split_dashes: bool, escape: bool, normalize: bool
    ):
        import sacremoses  # slow to import

        self._tokenizer = sacremoses.MosesTokenizer(language)
        self._detokenizer = sacremoses.MosesDetokenizer(language)
        self._other_detokenizer = sacremoses.MosesDetokenizer("")
        self._options = {"aggressive_dash_splits": split_dashes, "escape": escape}
        self._normalizer = normalize and sacremoses.MosesPunctNormalizer(
            language, pre_replace_unicode_punct=True
        )

    def split(self, text: str) -> list[str]:
        """Returns the words of a text."""
        if self._normalizer:
            text = self._normalizer.normalize(text)
            # Not the normalizer's own removal, whose Unicode version is another one.
            text = "".join(c for c in text if unicodedata.category(c)[0] != "C")
        return self._tokenizer.tokenize(text, **self._options)

    def join(self, text: str) -> str:
        """Undoes `split`; takes words with spaces between them."""
        words = text.split()
        try:
            return self._detokenizer.detokenize(words)
        except TypeError:
            # sacremoses 0.2 fails at a Czech rule, for the words "x' - li".
            return self._other_detokenizer.detokenize(words)

    def unescape(self, text: str) -> str:
        """Returns words in the characters of the text, apart from spaces."""
        # The space keeps it apart from a hyphen that goes on with a word.
        return self._detokenizer.unescape_xml(text).replace("@-@", " -")


class NoMoses:
    """Words between spaces, for text that is split before."""

    def split(self, text: str) -> list[str]:
        return text.strip("\r\n ").split(" ")

    def join(self, text: str) -> str:
        return text.rstrip()

    def unescape(self, text: str) -> str:
        return text


def merge(symbols: list[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Merges neighbours, everywhere the pair of the lowest rank first.

    Takes n log n steps for n symbols: a word may be as long as a line.
    """
    # A linked list: a merged pair stays in the place of its first symbol. The end is
    # one more symbol, in no pair; index -1 is that symbol, too.
    parts: list[str | None] = [*symbols, None]
    previous, following = [*range(-1, len(symbols))], [*range(1, len(parts)), 0]
    queue: list[tuple[int, int]] = []

    def rank_at(place: int) -> int | None:
        return ranks.get((parts[place], parts[following[place]]))

    def look_at(place: int) -> None:
        if (rank := rank_at(place)) is not None:
            heapq.heappush(queue, (rank, place))

    for place in range(len(symbols)):
        look_at(place)
    while queue:
        lowest, merged = queue[0][0], []
        # All of this pair, from left to right, before any pair that they make.
        while queue and queue[0][0] == lowest:
            _, place = heapq.heappop(queue)
            if rank_at(place) == lowest:  # neither was merged meanwhile
                removed = following[place]
                parts[place] += parts[removed]
                parts[removed] = None
                following[place] = following[removed]
                previous[following[removed]] = place
                merged.append(place)
        for place in merged:
            look_at(previous[place])
            look_at(place)
    return [part for part in parts if part is not None]


class BytePairs:
    """A `Tokenizer` of byte-pair codes.

    Args:
      fields: the stored tokenizer:
        pieces: the table; a piece's id is its place.
        merges: pairs of symbols, `a b`, the first learned first; None if words are not
          split.
        style: of `STYLES`; empty if words are not split.
        separate_end: True if `</w>` is a symbol of its own in merges, as in the codes
          of subword-nmt 0.1.
        pad, bos, eos, unknown: pieces.
        silent: pieces that add no text.
        special: pieces that are recognized in the text.
        lowercase: lowers text.
        moses: arguments of `Moses`; None for words between spaces.
        source: the same of the source text if it differs; None if not.
      name: the tokenizer, as error messages call it.

    Raises:
      UserError: a field is missing or damaged.
    """

    first: tuple[int, ...] = ()
    never: tuple[int, ...] = ()

    def __init__(self, fields: dict[str, Any], name: str):
        try:
            self._pieces: list[str] = fields["pieces"]
            self._ids = {piece: i for i, piece in enumerate(self._pieces)}
            merges: list[str] | None = fields["merges"]
            self._whole = merges is None
            self._ranks = {tuple(p.split(" ")): i for i, p in enumerate(merges or ())}
            self._end = ["", END] if fields["separate_end"] else [END]
            self.pad, self.bos, self.eos, self.unknown = (
                self._ids[fields[part]] for part in ("pad", "bos", "eos", "unknown")
            )
            self._inside, self._last, text = STYLES[fields["style"]]
            silent = {*fields["silent"]}
            self._texts = ["" if p in silent else text(p) for p in self._pieces]
            special: list[str] = fields["special"]
            self._lowercase: bool = fields["lowercase"]
            moses = fields["moses"]
            self._moses = NoMoses() if moses is None else Moses(**moses)
            source = fields["source"]
            self.source = source and BytePairs(
                fields | {"moses": source, "source": None}, name
            )
        except (LookupError, TypeError, ValueError) as e:
            raise UserError(f"{name} is damaged: {e!r}; import the model again") from e
        # Moses decides the spaces next to punctuation, so phrases match without them.
        self.free_spaces = moses is not None
        self._split = re.compile(f"({'|'.join(map(re.escape, special))})").split
        self._special = bool(special)
        self._ids_of = functools.lru_cache(WORDS)(self._encode_word)

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, lines: Sequence[str], threads: int) -> list[list[int]]:
        return [self._encode(line) for line in lines]

    def _encode(self, line: str) -> list[int]:
        # Special pieces are every second of the parts.
        parts = self._split(line) if self._special else [line]
        ids: list[int] = []
        for number, part in enumerate(parts):
            if number % 2:
                ids.append(self._ids[part])
            else:
                for word in self._words(part):
                    ids += self._ids_of(word)
        return ids

    def _words(self, text: str) -> Iterable[str]:
        text = text.lower() if self._lowercase else text
        return filter(None, self._moses.split(text))

    def _encode_word(self, word: str) -> tuple[int, ...]:
        *inside, last_part = self._parts(word)
        pieces = [*map(self._inside, inside), self._last(last_part)]
        # Without Moses a word may have white space in it, at which fairseq splits.
        return tuple(
            self._ids.get(piece, self.unknown) for piece in " ".join(pieces).split()
        )

    def _parts(self, word: str) -> list[str]:
        """Splits a word into the parts that merges make of its characters."""
        if self._whole:
            return [word]
        parts = [*word]
        parts[-1:] = [parts[-1] + self._end[0], *self._end[1:]]
        parts = merge(parts, self._ranks)
        parts[-1] = parts[-1].removesuffix(END)
        return parts if parts[-1] else parts[:-1]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        texts = self._texts
        return [self._moses.join("".join([texts[i] for i in row])) for row in rows]

    def spelled(self, text: str) -> str:
        return self._moses.unescape(" ".join(self._words(text)))

    def spelling(self, token: int) -> str | bytes:
        return self._moses.unescape(self._texts[token])

    def piece(self, token: int) -> str:
        return self._pieces[token]

    def id_of(self, piece: str) -> int:
        return self._ids.get(piece, self.unknown)
