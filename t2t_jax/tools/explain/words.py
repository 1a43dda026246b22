"""The words of a line: what an alignment links, and what a view groups pieces into."""

import itertools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.alignment import spellings, word_texts, words_of_target

# Scripts that put no space between words, as the names of their characters begin.
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


class Words(NamedTuple):
    """The words of a line.

    White space separates them, as in `Translator.align`; where a script has none, each
    piece is one.

    Attributes:
      of_piece: the word of each piece, from 0; -1 for EOS and pieces without text.
      texts: of each word.
    """

    of_piece: list[int]
    texts: list[str]


def words_of(vocabulary: Vocabulary, ids: Sequence[int]) -> Words:
    """Returns the words of a line's tokens; a final EOS belongs to none."""
    texts = word_texts(vocabulary, ids)
    if _is_unspaced("".join(texts)):
        return _pieces_as_words(vocabulary, ids)
    words = words_of_target(vocabulary, ids)
    return Words(words + [-1] * (len(ids) - len(words)), texts)


def _is_unspaced(text: str) -> bool:
    """True if most letters are of scripts without spaces."""
    letters = [character for character in text if character.isalpha()]
    unspaced = sum(
        unicodedata.name(character, "").startswith(UNSPACED) for character in letters
    )
    return 2 * unspaced > len(letters)


def _pieces_as_words(vocabulary: Vocabulary, ids: Sequence[int]) -> Words:
    """Takes each piece as a word; the bytes of one character are one together."""
    octets = spellings(vocabulary, ids)
    of_piece: list[int] = []
    texts: list[str] = []
    begun = b""
    for added, rest in zip(octets, _after(octets), strict=True):
        begun += added
        of_piece.append(len(texts) if begun.strip() else -1)
        # A character is complete where another begins, or where the line ends.
        if begun.strip() and not _continues(rest):
            texts.append(begun.decode(errors="replace").strip())
            begun = b""
    return Words(of_piece, texts)


def _after(octets: Sequence[bytes]) -> list[bytes]:
    """The bytes after each piece: those of the next piece that adds something."""
    following = itertools.accumulate(
        reversed(octets[1:]), lambda later, own: own or later, initial=b""
    )
    return [*following][::-1]


def _continues(octets: bytes) -> bool:
    """True if these bytes go on with a character of UTF-8."""
    return octets[:1] >= b"\x80" and octets[:1] < b"\xc0"
