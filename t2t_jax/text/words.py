"""Words of a text, and the word that each of its tokens belongs to.

There are three definitions of a word, the `mode`:

    spaces   what ASCII white space separates, as in files of links in Pharaoh format:
             fast_align, GIZA++ and Marian know no other. `10 000` with a no-break space
             is one word. Files of links, `Translator.align`, the words of explanations
    units    words, signs, and characters of scripts without spaces (`text/units.py`).
             Links that are learned, descriptions of attention heads
    tokens   each token with visible text. Explanations of scripts without spaces

The first two depend on the text alone, not on how a tokenizer splits it.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.text.units import Span, matched, units

SPACE = " \t\n\v\f\r"
UNKNOWN = "\u2047"  # stands for what a tokenizer cannot spell
_WORD = re.compile(f"[^{SPACE}]+")
# White space, control characters, and Unicode's default ignorable code points.
_INVISIBLE = (
    r"[\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    r"\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def words(text: str) -> list[Span]:
    """Finds what ASCII white space separates."""
    return [match.span() for match in _WORD.finditer(text)]


class TokenWords(NamedTuple):
    """The words of a text, and the word of each token.

    Attributes:
      text: what the tokens spell.
      token_spans: the characters that each token spells a part of, int [tokens, 2].
      spans: of the words.
      of_token: the number of each token's word, from 0; -1 for none. White space
        belongs to the word after it; a token of several words belongs to the last.
    """

    text: str
    token_spans: np.ndarray
    spans: list[Span]
    of_token: list[int]

    @property
    def texts(self) -> list[str]:
        """The words."""
        return [self.text[begin:end].strip(SPACE) for begin, end in self.spans]

    def of_line(self, line: str) -> "TokenWords":
        """Returns the words, between spaces, of the line that the tokens stand for.

        A tokenizer may normalize a line, or spell it with other spaces: the units that
        are the same tell which word is which. A token of no such unit has no word.
        """
        spans = words(line)
        # An unknown token stands for some characters.
        if len(spans) == len(self.spans) and all(
            _stands_for(text, line[b:e])
            for text, (b, e) in zip(self.texts, spans, strict=True)
        ):
            return TokenWords(line, self.token_spans, spans, self.of_token)
        begins = [begin for begin, _ in spans]
        spelled, written = units(self.text), units(line)
        word_of = {
            unit: bisect_right(begins, written[same][0]) - 1
            for unit, same in matched(self.text, spelled, line, written).items()
        }
        of_token = [word_of.get(n, -1) for n in _numbers(self.token_spans, spelled)]
        return TokenWords(line, self.token_spans, spans, of_token)


def _stands_for(text: str, word: str) -> bool:
    """True if a word has some characters wherever a text has an unknown token.

    Each part is looked for once, from left to right: tries of all places would take
    time that doubles with each sign.
    """
    if text == word:
        return True
    prefix, *parts = map(re.escape, text.split(UNKNOWN))
    middle = "".join(f"(?>.+?{part})" for part in parts[:-1])
    return bool(parts and re.fullmatch(f"{prefix}{middle}.+{parts[-1]}", word))


def token_words(spelled: Sequence[bytes], mode: str = "spaces") -> TokenWords:
    """Finds the words that tokens spell, and the word of each token.

    Args:
      spelled: what each token adds to the text, in UTF-8; a character may be divided.
      mode: the definition of a word: "spaces", "units" or "tokens".
    """
    text = b"".join(spelled).decode(errors="surrogateescape")
    code_c = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    bytes_c = 1 + (code_c >= 0x80) + (code_c >= 0x800) + (code_c >= 0x10000)
    bytes_c[(code_c >= 0xDC80) & (code_c <= 0xDCFF)] = 1  # a byte without a character
    character_b = np.repeat(np.arange(len(text) + 1), np.append(bytes_c, 1))
    end_t = np.cumsum([*map(len, spelled)], dtype=int)
    begin_t = np.append(0, end_t)[:-1]
    spans_t = np.stack(
        [
            character_b[begin_t],
            np.where(end_t > begin_t, character_b[end_t - 1] + 1, character_b[begin_t]),
        ],
        axis=1,
    )
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    if mode == "tokens":
        spans = sorted({(b, e) for b, e in spans_t.tolist() if text[b:e].strip(SPACE)})
    else:
        spans = {"spaces": words, "units": units}[mode](text)
    return TokenWords(text, spans_t, spans, _numbers(spans_t, spans))


def _numbers(token_spans: np.ndarray, spans: Sequence[Span]) -> list[int]:
    """The number of the span that each token belongs to, as `TokenWords.of_token`."""
    begin_t, end_t = token_spans.T
    if not spans:
        return [-1] * len(begin_t)
    begin_w, end_w = np.array(spans).T
    # The last that begins before the token's end; between two of them, the next.
    number_t = np.searchsorted(begin_w, end_t) - 1
    number_t += (number_t < 0) | (end_w[number_t] <= begin_t)
    number_t = np.minimum(number_t, len(spans) - 1)
    return np.where(end_t > begin_t, number_t, -1).tolist()


def blank_matcher(symbols: Sequence[str] = ()) -> Callable[[str], re.Match | None]:
    """Makes a matcher of lines of nothing but invisible characters and symbols."""
    parts = "|".join([_INVISIBLE, *map(re.escape, symbols)])
    return re.compile(f"(?:{parts})*").fullmatch


_is_blank = blank_matcher()


def visible(line: str) -> bool:
    """True if a line has a character that a reader sees."""
    return not _is_blank(line)
