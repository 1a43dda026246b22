"""Augmentations: changes to pairs of training text, line by line.

A line that a user types has typos, lower-case names, missing commas and codes that
training text seldom has. A model that has seen such sources in training translates them
better (Belinkov and Bisk 2018). `data/text_variation.py` chooses the lines.

A function of `AUGMENTATIONS` is pure: what it draws comes from the stream of the line.
It returns the pair that it was given if it finds nothing to change. Both sides of that
have visible text. No line may get a line feed.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence

from t2t_jax.data.corpus import Pair
from t2t_jax.text.counter_random import Stream

MOST_NEIGHBOURS = 2  # lines after a line that `Augmentation.change` is given


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """An entry of `AUGMENTATIONS`.

    Attributes:
      change: (pair, draws, following) -> the changed pair. `following` holds the next
        lines of the same corpus, at most `MOST_NEIGHBOURS`, unchanged; it is shorter at
        the end of a chunk.
      changes_target: True if it may also change the target, which must be text then.
    """

    change: Callable[[Pair, Stream, Sequence[Pair]], Pair]
    changes_target: bool


def of_source(change: Callable[[str, Stream], str]) -> Augmentation:
    """Makes an augmentation of a function of the source line."""

    def of_pair(pair: Pair, draws: Stream, _: Sequence[Pair]) -> Pair:
        changed = change(pair[0], draws)
        return pair if changed == pair[0] else (changed, pair[1])

    return Augmentation(of_pair, changes_target=False)


# ------------------------------------------------------------------------- both sides


def neighbours(pair: Pair, draws: Stream, following: Sequence[Pair]) -> Pair:
    """Joins a pair with the next one or two pairs of its corpus, on both sides.

    In text of whole documents the next line is the context (Tiedemann and Scherrer
    2017). In other text it still teaches inputs of several sentences.
    """
    count = 1 + (draws.uniform() < 0.25)
    joined = [pair, *following[:count]]
    # An empty side would make the joined pair misaligned.
    if len(joined) == 1 or not all(line.strip() for p in joined for line in p):
        return pair
    return tuple(" ".join(lines) for lines in zip(*joined, strict=True))


def case(pair: Pair, draws: Stream, _: Sequence[Pair]) -> Pair:
    """Changes the case of the source; of both sides if the source is all capitals.

    A text in capitals is a choice of its writer, which a translation keeps. One in
    lower case or with a capital at each word is translated into well-formed text.
    """
    source, target = pair
    kind = draws.choice(("upper", "lower", "title", "first"))
    if kind == "upper":
        changed = source.upper(), target.upper()
    elif kind == "lower":
        changed = source.lower(), target
    elif kind == "title":  # not str.title, which makes "Don'T" of "don't"
        changed = re.sub(r"(?<!\S)\w", lambda m: m[0].upper(), source), target
    else:
        changed = re.sub(r"\w", lambda m: m[0].lower(), source, count=1), target
    return pair if changed == pair else changed


def copy(pair: Pair, draws: Stream, _: Sequence[Pair]) -> Pair:
    """Puts a made-up code, number, name or URL into both sides.

    No vocabulary knows it, so the model has to copy its pieces (Currey et al. 2017 copy
    whole lines for the same reason).
    """
    token = draws.choice(TOKENS)(draws)
    template = draws.choice(("{token}: {line}", "{line} ({token})", "{token} {line}"))
    if draws.uniform() < 0.5 and pair[0][-1] in ".!?" and pair[1][-1] in ".!?":
        return tuple(f"{line[:-1]} {token}{line[-1]}" for line in pair)
    # `replace`, as a line may have braces.
    return tuple(
        template.replace("{token}", token).replace("{line}", line) for line in pair
    )


_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SYLLABLES = (
    *("ba", "ko", "mi", "ru", "ten", "sal", "vor", "dra", "li"),
    *("no", "qua", "zel", "tur", "fi", "gan", "hesk", "ol", "py"),
)
_ENDINGS = "com", "org", "net", "eu", "de", "io"


def _several(options: Sequence[str], least: int, most: int, draws: Stream) -> str:
    """Joins `least` to `most` of some strings."""
    count = least + draws.below(most - least + 1)
    return "".join(draws.choice(options) for _ in range(count))


def _code(draws: Stream) -> str:
    letters = _several(_LETTERS, 1, 3, draws).upper()
    return (
        f"{letters}{draws.choice(('-', '', '/'))}{_several('0123456789', 2, 5, draws)}"
    )


def _number(draws: Stream) -> str:
    # Without separators, which a translation would change: 1,000 is 1.000 in German.
    return draws.choice("123456789") + _several("0123456789", 2, 7, draws)


def _name(draws: Stream) -> str:
    return _several(_SYLLABLES, 2, 4, draws).capitalize()


def _url(draws: Stream) -> str:
    address = f"{_several(_SYLLABLES, 2, 3, draws)}.{draws.choice(_ENDINGS)}"
    if draws.uniform() < 0.25:
        return f"{_several(_SYLLABLES, 1, 2, draws)}@{address}"
    path = f"/{_several(_LETTERS, 2, 6, draws)}" if draws.uniform() < 0.5 else ""
    return draws.choice(("https://", "www.")) + address + path


TOKENS = (_code, _number, _name, _url)

# ------------------------------------------------------------------------- the source

_ROWS = "qwertyuiop", "asdfghjkl", "zxcvbnm"  # of an English keyboard
_WORD = re.compile(r"(?<!\S)[^\W\d_]{3,}(?=[.,;:!?)]*(?:\s|$))")


def _nearby() -> dict[str, str]:
    """For each letter the letters of the keys around it."""
    place_of = {
        letter: (row + 0.0, column + row / 2)  # each row begins half a key later
        for row, letters in enumerate(_ROWS)
        for column, letter in enumerate(letters)
    }
    return {
        letter: "".join(
            other
            for other, (r, c) in place_of.items()
            if other != letter and abs(r - row) <= 1 and abs(c - column) <= 1
        )
        for letter, (row, column) in place_of.items()
    }


_NEARBY = _nearby()


def typos(line: str, draws: Stream) -> str:
    """Swaps, drops or doubles letters, or hits a neighbouring key.

    One letter in each eight words, at least one. Only plain words are changed: a wrong
    digit or address would teach the model to correct what it has to copy. The target
    stays correct, so that the model learns to read over typos.
    """
    for _ in range(1 + len(line.split()) // 8):
        words = list(_WORD.finditer(line))
        if not words:
            break
        begin, end = draws.choice(words).span()
        line = line[:begin] + _mistyped(line[begin:end], draws) + line[end:]
    return line


def _mistyped(word: str, draws: Stream) -> str:
    at = draws.below(len(word) - 1)
    kind = draws.choice(("swap", "drop", "double", "key"))
    letter = word[at]
    if kind == "swap" and letter != word[at + 1]:
        return word[:at] + word[at + 1] + letter + word[at + 2 :]
    if kind == "drop":
        return word[:at] + word[at + 1 :]
    if kind == "key" and letter.lower() in _NEARBY:
        other = draws.choice(_NEARBY[letter.lower()])
        return (
            word[:at] + (other.upper() if letter.isupper() else other) + word[at + 1 :]
        )
    return word[: at + 1] + letter + word[at + 1 :]


_FINAL = re.compile(r"\s*([.!?…]+)(\s*)$")
_INNER = re.compile(r"[,;:](?=\s)")  # not within 1,000 or 12:30
_QUOTES = re.compile(r"[\"“”„«»](.+?)[\"“”„«»]")
_QUOTE_STYLES = '"{}"', "“{}”", "„{}“", "«{}»", "'{}'", "{}"
_APOSTROPHES = str.maketrans({"'": "’", "’": "'"})


def punctuation(line: str, draws: Stream) -> str:
    """Drops or changes punctuation of one kind: final, inner, quotes or apostrophes.

    The target keeps its punctuation: it is to be complete whatever the source lacks.
    """
    kinds = [_vary_final]
    if _INNER.search(line):
        kinds.append(lambda text, _: _INNER.sub("", text))
    if _QUOTES.search(line):
        kinds.append(_vary_quotes)
    if re.search(r"\w['’]\w", line):
        kinds.append(lambda text, _: text.translate(_APOSTROPHES))
    return draws.choice(kinds)(line, draws)


def _vary_final(line: str, draws: Stream) -> str:
    """Drops a final mark mostly; else doubles it or puts a space before it."""
    found = _FINAL.search(line)
    if not found:
        return line.rstrip() + "."
    mark = found[1]
    kind = draws.uniform()
    other = "" if kind < 0.6 else mark + mark[-1] if kind < 0.8 else f" {mark}"
    return line[: found.start()] + other + found[2]


def _vary_quotes(line: str, draws: Stream) -> str:
    style = draws.choice(_QUOTE_STYLES)
    # `replace`, as the quoted text may have braces.
    return _QUOTES.sub(lambda m: style.replace("{}", m[1]), line)


_ODD_SPACES = "  ", "   ", "\t", "\u00a0", "\u2009", "\u3000"


def white_space(line: str, draws: Stream) -> str:
    """Doubles spaces, or puts tabs and no-break spaces for them; the source only.

    Copied and pasted text has them. They carry no meaning, so the target has none.
    """
    kind = draws.choice(("one", "all", "begin", "end", "mark"))
    odd = draws.choice(_ODD_SPACES)
    if kind == "begin":
        return odd + line
    if kind == "end" or " " not in line:
        return line + odd
    if kind == "all":
        return line.replace(" ", odd)
    if kind == "mark" and _INNER.search(line):  # "one,two"
        return re.sub(r"(?<=[,;:])\s+", "", line)
    at = draws.choice([i for i, character in enumerate(line) if character == " "])
    return line[:at] + odd + line[at + 1 :]


# Applied to a line in this order: `copy` comes last, so that nothing damages what has
# to be copied.
AUGMENTATIONS: dict[str, Augmentation] = {
    "neighbours": Augmentation(neighbours, changes_target=True),
    "case": Augmentation(case, changes_target=True),
    "typos": of_source(typos),
    "punctuation": of_source(punctuation),
    "white_space": of_source(white_space),
    "copy": Augmentation(copy, changes_target=True),
}
