"""A chunk of pairs as the rules read it: words, numbers, classes of characters.

Each property is computed when a rule first asks for it, once for the whole chunk.
Suffixes of arrays: `p` pairs (lines of one side), `c` characters, `k` classes.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from t2t_jax.text.characters import CLASS, CLASSES, FIRST_SCRIPT, classes_of

# The words that the doctor's rules count, without signs. Unlike units (`units.py`),
# they have no marks, and Thai, Lao, Khmer and Burmese are not divided.
# Ideographs and kana are written without spaces: each is a word of its own.
_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
WORD = re.compile(rf"[{_ALONE}]|[^\W{_ALONE}]+")
# 1,000 and 1.000 are one number; 12:30, 2.5 and dates are several.
_NUMBER = re.compile(r"\d+(?:[.,'’\u00a0\u202f]\d{3}(?!\d))*")
_NOT_DIGIT = re.compile(r"\D")
_OTHER_DIGIT = re.compile(r"[^\D0-9]")


class Side:
    """The lines of one side of a chunk."""

    def __init__(self, lines: Sequence[str]):
        self.lines = lines

    def __len__(self) -> int:
        return len(self.lines)

    @cached_property
    def lengths_p(self) -> np.ndarray:
        """The characters of each line, int64."""
        return np.fromiter(map(len, self.lines), np.int64, len(self.lines))

    @cached_property
    def codes_c(self) -> np.ndarray:
        """The code points of all lines, one after the other, uint32."""
        joined = "".join(self.lines).encode("utf-32-le", "surrogatepass")
        return np.frombuffer(joined, "<u4")

    @cached_property
    def line_c(self) -> np.ndarray:
        """The line of each character, int64."""
        return np.repeat(np.arange(len(self.lines)), self.lengths_p)

    @cached_property
    def classes_c(self) -> np.ndarray:
        """The class of each character, an index of `characters.CLASSES`."""
        return classes_of(self.codes_c)

    @cached_property
    def counts_pk(self) -> np.ndarray:
        """The characters of each class in each line, int64 [lines, classes]."""
        cells = self.line_c * len(CLASSES) + self.classes_c
        counts = np.bincount(cells, minlength=len(self.lines) * len(CLASSES))
        return counts.reshape(len(self.lines), len(CLASSES))

    def count_p(self, name: str) -> np.ndarray:
        """The characters of one class in each line, int64."""
        return self.counts_pk[:, CLASS[name]]

    @cached_property
    def letters_p(self) -> np.ndarray:
        """The letters in each line, int64."""
        return self.counts_pk[:, FIRST_SCRIPT:].sum(1)

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each line: lower case, composed, without punctuation."""
        return [words_of(line) for line in self.lines]

    @cached_property
    def word_counts_p(self) -> np.ndarray:
        """The words of each line, int64."""
        return np.fromiter(map(len, self.words), np.int64, len(self.lines))

    @cached_property
    def keys(self) -> list[str]:
        """Each line without case, punctuation and spacing: its words."""
        return [" ".join(words) for words in self.words]

    @cached_property
    def numbers(self) -> list[list[str]]:
        """The numbers in each line, sorted: digits without separators."""
        digits_p = self.count_p("digit")
        return [
            numbers_of(line) if digits else []
            for line, digits in zip(self.lines, digits_p.tolist(), strict=True)
        ]


class View:
    """A chunk of pairs.

    Attributes:
      first: the place of the first pair in the whole text, from 0.
      pairs: (source line, target line).
      sides: the source and the target lines.
      log_odds_p: that the sides belong together; `Examination` fills it in.
      repeated_p: which pairs came before; the check for duplicates fills it in, and
        the next one adds pairs of the same words.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]], first: int = 0):
        self.pairs, self.first = pairs, first
        self.sides = Side([s for s, _ in pairs]), Side([t for _, t in pairs])
        self.source, self.target = self.sides
        self.log_odds_p = np.zeros(len(pairs))
        self.repeated_p = np.zeros(len(pairs), bool)

    def __len__(self) -> int:
        return len(self.pairs)


def words_of(line: str) -> list[str]:
    """Returns the words of a line as `Side.words` has them."""
    if not line.isascii():
        line = unicodedata.normalize("NFKC", line)
    return WORD.findall(line.lower())


def numbers_of(line: str) -> list[str]:
    """Returns the numbers in a line, sorted, without separators, in digits 0 to 9."""
    if not line.isascii():  # full-width, Arabic and Devanagari digits, among others
        line = _OTHER_DIGIT.sub(lambda match: str(int(match[0])), line)
    return sorted(_NOT_DIGIT.sub("", number) for number in _NUMBER.findall(line))
