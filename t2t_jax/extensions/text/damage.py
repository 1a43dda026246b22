"""Damage to pairs of lines, for training and for measuring: one table.

A line that a user types, pastes or decodes wrongly has typos, lower-case names, missing
commas, odd spaces and codes that training text seldom has. A model that has seen such
sources in training translates them better (Belinkov and Bisk 2018).

    config.data.augment   damages a share of the training text, other lines in each
                          epoch (`extensions/data/variation.py`); any of both tables
    evaluate --damage     scores damaged copies of a test set
                          (`extensions/evaluation/robustness.py`); those of DAMAGES

To measure what was trained for, name the same damage in both: `augment=key_typos@0.05`
and `--damage=key_typos`. AUGMENTATIONS are similar, but other models of the same
mistakes: `typos` swaps, drops and doubles letters and hits keys of other rows, too,
`key_typos` hits keys of the same row alone. Neither replaces the other, because a run
that continues has to read the same text, and scores of one damage have to stay
comparable.

A damage is a pure function of the lines and of a stream of random numbers that follows
from the line's number. It returns the very pair that it was given if there is nothing
to change. Both sides of that have visible text. No line may get a line feed.
"""

import dataclasses
import html.entities
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from t2t_jax.extensions.text import placeholders, terms
from t2t_jax.text.counter_random import Stream
from t2t_jax.text.units import MARKS, SYMBOLS, Pair, Span, splice

MOST_NEIGHBOURS = 2  # lines after a line that `Damage.change` is given


@dataclasses.dataclass(frozen=True)
class Damage:
    """An entry of `AUGMENTATIONS` or `DAMAGES`.

    Attributes:
      change: (pair, draws, following) -> the changed pair. `following` holds the next
        lines of the same corpus, at most `MOST_NEIGHBOURS`, unchanged; it is shorter at
        the end of the text or of a chunk.
      changes_target: True if it may also change the target, which must be text then.
      symbols: what it writes that must be one token (`config.data.symbols`). It then
        also changes lines that have symbols of others of its kind.
      learn: None, or a pure function of pairs of the training text, to what JSON
        holds: the first argument of `change` then. It is called once for a text.
    """

    change: Callable[..., Pair]
    changes_target: bool = True
    symbols: tuple[str, ...] = ()
    learn: Callable[[Sequence[Pair]], Any] | None = None


def source_damage(change: Callable[[str, Stream], str]) -> Damage:
    """Makes a damage of a function of the source line; the target stays."""

    def change_pair(pair: Pair, draws: Stream, _: Sequence[Pair]) -> Pair:
        changed = change(pair[0], draws)
        return pair if changed == pair[0] else (changed, pair[1])

    return Damage(change_pair, changes_target=False)


def _sampled(places: list, share: float, draws: Stream) -> list:
    """Draws each place with a probability; at least one, if there is any."""
    drawn = [place for place in places if draws.uniform() < share]
    return drawn or ([draws.choice(places)] if places else [])


def _replaced(line: str, spans: list[Span], change: Callable[[str], str]) -> str:
    """Replaces spans of a line."""
    spans = sorted(spans)
    # From the last one on: the order in which `change` draws is part of pinned texts.
    changed = [change(line[begin:end]) for begin, end in reversed(spans)]
    return splice(line, spans, changed[::-1])[0]


def _spans(pattern: str, line: str) -> list[Span]:
    return [match.span() for match in re.finditer(pattern, line)]


def _pick(places: list, draws: Stream) -> list:
    return [draws.choice(places)] if places else []


# --------------------------------------------------------------------------------- case


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


def capitals(pair: Pair, _: Stream, __: Sequence[Pair]) -> Pair:
    """Puts both sides into capitals: a translation keeps them."""
    changed = pair[0].upper(), pair[1].upper()
    return pair if changed == pair else changed


def lower_case(line: str, _: Stream) -> str:
    """Puts the source into lower case; the reference keeps its capitals."""
    return line.lower()


# --------------------------------------------------------------- punctuation and spaces

_KEPT_SIGNS = "%&@#*/\\"  # Unicode's punctuation, but with a meaning


def no_punctuation(line: str, _: Stream) -> str:
    """Removes punctuation, except within words and numbers such as "don't" and 3.5."""
    outside = re.sub(
        r"(?<!\w)[^\w\s]|[^\w\s](?!\w)",
        lambda m: (
            ""
            if unicodedata.category(m[0])[0] == "P" and m[0] not in _KEPT_SIGNS
            else m[0]
        ),
        line,
    )
    return " ".join(outside.split())


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
    match = _FINAL.search(line)
    if not match:
        return line.rstrip() + "."
    mark = match[1]
    kind = draws.uniform()
    ending = "" if kind < 0.6 else mark + mark[-1] if kind < 0.8 else f" {mark}"
    return line[: match.start()] + ending + match[2]


def _vary_quotes(line: str, draws: Stream) -> str:
    style = draws.choice(_QUOTE_STYLES)
    # `replace`, as the quoted text may have braces.
    return _QUOTES.sub(lambda m: style.replace("{}", m[1]), line)


def missing_spaces(line: str, draws: Stream) -> str:
    """Removes one space in six."""
    return _replaced(line, _sampled(_spans(r"\s+", line), 1 / 6, draws), lambda _: "")


def extra_spaces(line: str, draws: Stream) -> str:
    """Widens one gap in three, to two to four spaces, and puts one before each mark."""
    gaps = _sampled(_spans(r"(?<=\S) (?=\S)", line), 1 / 3, draws)
    line = _replaced(line, gaps, lambda _: " " * (2 + draws.below(3)))
    return "  " + re.sub(r"(?<=\w)(?=[.,;:!?](?:\s|$))", " ", line) + " "


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
    place = draws.choice([i for i, character in enumerate(line) if character == " "])
    return line[:place] + odd + line[place + 1 :]


# ------------------------------------------------------------------------------ letters

# The letters of keyboards, row by row.
_ENGLISH = "qwertyuiop", "asdfghjkl", "zxcvbnm"
_GERMAN = "qwertzuiopü", "asdfghjklöä", "yxcvbnm"


def _near(rows: Sequence[str], above: int) -> dict[str, str]:
    """Maps each letter to those on the keys around it, at most `above` rows away."""
    place_of = {
        letter: (row + 0.0, column + row / 2)  # each row begins half a key later
        for row, letters in enumerate(rows)
        for column, letter in enumerate(letters)
    }
    return {
        letter: "".join(
            key
            for key, (r, c) in place_of.items()
            if key != letter and abs(r - row) <= above and abs(c - column) <= 1
        )
        for letter, (row, column) in place_of.items()
    }


_NEARBY, _BESIDE = _near(_ENGLISH, above=1), _near(_GERMAN, above=0)
# Words that a typist mistypes, narrower than units (`text/units.py`): letters alone, so
# that no number, address or code is changed. `typos` keeps to those between spaces.
_PLAIN_WORD = re.compile(r"(?<!\S)[^\W\d_]{3,}(?=[.,;:!?)]*(?:\s|$))")
_WORDS = r"(?<!\w)[^\W\d_]{4,}(?!\w)"


def typos(line: str, draws: Stream) -> str:
    """Swaps, drops or doubles letters, or hits a neighbouring key.

    One letter in each eight words, at least one. Only plain words are changed: a wrong
    digit or address would teach the model to correct what it has to copy. The target
    stays correct, so that the model learns to read over typos.
    """
    for _ in range(1 + len(line.split()) // 8):
        words = list(_PLAIN_WORD.finditer(line))
        if not words:
            break
        begin, end = draws.choice(words).span()
        line = line[:begin] + _mistyped(line[begin:end], draws) + line[end:]
    return line


def _mistyped(word: str, draws: Stream) -> str:
    i = draws.below(len(word) - 1)
    kind = draws.choice(("swap", "drop", "double", "key"))
    letter = word[i]
    if kind == "swap" and letter != word[i + 1]:
        return word[:i] + word[i + 1] + letter + word[i + 2 :]
    if kind == "drop":
        return word[:i] + word[i + 1 :]
    if kind == "key" and letter.lower() in _NEARBY:
        key = draws.choice(_NEARBY[letter.lower()])
        return word[:i] + (key.upper() if letter.isupper() else key) + word[i + 1 :]
    return word[: i + 1] + letter + word[i + 1 :]


def key_typos(line: str, draws: Stream) -> str:
    """Hits a key next to the right one, before or instead of it, in a word of five."""

    def mistyped(word: str) -> str:
        i = draws.below(len(word))
        if word[i].lower() not in _BESIDE:  # another script
            return word[:i] + word[i + 1 :]
        key = draws.choice(_BESIDE[word[i].lower()])
        return word[:i] + key + word[i + draws.below(2) :]

    return _replaced(line, _sampled(_spans(_WORDS, line), 1 / 5, draws), mistyped)


def scrambled(line: str, draws: Stream) -> str:
    """Shuffles the inner letters of one word in three (Belinkov and Bisk 2018)."""

    def shuffled(word: str) -> str:
        inner = sorted(word[1:-1], key=lambda _: draws.uniform())
        return word[0] + "".join(inner) + word[-1]

    return _replaced(line, _sampled(_spans(_WORDS, line), 1 / 3, draws), shuffled)


HOMOGLYPHS = dict(zip("aceopxyABCEHKMOPTX", "асеорхуАВСЕНКМОРТХ", strict=True))


def homoglyphs(line: str, draws: Stream) -> str:
    """Puts Cyrillic letters for one in six Latin ones that look the same."""
    places = [(i, i + 1) for i, letter in enumerate(line) if letter in HOMOGLYPHS]
    return _replaced(line, _sampled(places, 1 / 6, draws), HOMOGLYPHS.get)


_WITHOUT_UMLAUTS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"}
)


def no_diacritics(line: str, _: Stream) -> str:
    """Strips diacritics as on a foreign keyboard: "ue" for ü, "e" for é."""
    composed = unicodedata.normalize("NFC", line).translate(_WITHOUT_UMLAUTS)
    letters = unicodedata.normalize("NFD", composed)
    return "".join(c for c in letters if not unicodedata.combining(c))


# ---------------------------------------------------------------------------- encodings

_ENTITY_OF = {
    **{chr(code): name for code, name in html.entities.codepoint2name.items()},
    "'": "#39",
}
_UNDEFINED = (0x81, 0x8D, 0x8F, 0x90, 0x9D)  # in Windows-1252


def entities(line: str, draws: Stream) -> str:
    """Writes signs, accented letters and one space as in HTML: &quot; &uuml; &nbsp;."""
    named = "".join(
        f"&{name};" if (name := _ENTITY_OF.get(character)) else character
        for character in line
    )
    return _replaced(named, _pick(_spans(" ", named), draws), lambda _: "&nbsp;")


def mojibake(line: str, draws: Stream) -> str:
    """Reads UTF-8 as Windows-1252: "â€™" for a curved apostrophe, "Ã¼" for ü.

    Apostrophes are curved and one space is a no-break space ("Â ") before that, as in
    typeset text, so that plain ASCII has something to go wrong.
    """
    typeset = line.replace("'", "’")
    typeset = _replaced(typeset, _pick(_spans(" ", typeset), draws), lambda _: "\u00a0")
    # Five bytes mean nothing in Windows-1252; Latin-1 has control characters there.
    return "".join(
        bytes([byte]).decode("cp1252" if byte not in _UNDEFINED else "latin-1")
        for byte in typeset.encode()
    )


# ----------------------------------------------------------------- codes and neighbours


def copy(pair: Pair, draws: Stream, _: Sequence[Pair]) -> Pair:
    """Puts a made-up code, number, name or URL into both sides.

    No vocabulary knows it, so the model has to copy its tokens (Currey et al. 2017 copy
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
_SYLLABLES = "ba ko mi ru ten sal vor dra li no qua zel tur fi gan hesk ol py"
_ENDINGS = "com", "org", "net", "eu", "de", "io"


def _several(options: Sequence[str], low: int, high: int, draws: Stream) -> str:
    """Joins `low` to `high` of some strings."""
    count = low + draws.below(high - low + 1)
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
    return _several(_SYLLABLES.split(), 2, 4, draws).capitalize()


def _url(draws: Stream) -> str:
    syllables = _SYLLABLES.split()
    address = f"{_several(syllables, 2, 3, draws)}.{draws.choice(_ENDINGS)}"
    if draws.uniform() < 0.25:
        return f"{_several(syllables, 1, 2, draws)}@{address}"
    path = f"/{_several(_LETTERS, 2, 6, draws)}" if draws.uniform() < 0.5 else ""
    return draws.choice(("https://", "www.")) + address + path


TOKENS = (_code, _number, _name, _url)


def codes(pair: Pair, draws: Stream, _: Sequence[Pair]) -> Pair:
    """Adds a made-up code at the begin or the end of both sides, to be copied."""
    code = draws.choice(_CODES)
    # 9 is any digit, X a capital, ~ a letter or digit.
    alphabet = {"9": "0123456789", "X": "ABCDEFHK", "~": "abcdefghkmnpqrstuvw23456789"}
    code = re.sub("[9X~]", lambda m: draws.choice(alphabet[m[0]]), code)
    form = draws.choice(("{} – {}", "[{}] {}"))
    if draws.uniform() < 0.5:
        return tuple(form.format(code, side) for side in pair)
    return tuple(f"{side} [{code}]" for side in pair)


_CODES = (
    "XX99 9999 99",
    "INV/2999/99999",
    "v9.99.9-b99",
    "+49-99-999999",
    "0x9~~9~~9",
    "http://~~~~9.example/~~~?id=999",
    "~~~~.9~@~~~.example",
    "XXX_99_~~~9",
)


def neighbours(pair: Pair, draws: Stream, following: Sequence[Pair]) -> Pair:
    """Joins a pair with the next one or two pairs of its corpus, on both sides.

    In text of whole documents the next line is the context (Tiedemann and Scherrer
    2017). In other text it still teaches inputs of several sentences.
    """
    count = 1 + (draws.uniform() < 0.25)
    return _joined([pair, *following[:count]])


def joined(pair: Pair, _: Stream, following: Sequence[Pair]) -> Pair:
    """Joins each line with the next, on both sides; the last line stays alone."""
    return _joined([pair, *following[:1]])


def _joined(pairs: list[Pair]) -> Pair:
    # An empty side would make the joined pair misaligned.
    if len(pairs) == 1 or not all(line.strip() for pair in pairs for line in pair):
        return pairs[0]
    return tuple(" ".join(lines) for lines in zip(*pairs, strict=True))


# --------------------------------------------------------------------------- the tables

# Applied to a line of training text in this order: what has to be copied comes last, so
# that nothing damages it.
AUGMENTATIONS: dict[str, Damage] = {
    "neighbours": Damage(neighbours),
    "case": Damage(case),
    "typos": source_damage(typos),
    "punctuation": source_damage(punctuation),
    "white_space": source_damage(white_space),
    "copy": Damage(copy),
    "placeholders": Damage(placeholders.replaced, symbols=SYMBOLS),
    "terms": Damage(terms.annotated, True, MARKS, learn=terms.learn_lexicon),
}
# What `--damage` measures: all lines of a test set are damaged.
EVERY = "all"  # stands for all of them
DAMAGES: dict[str, Damage] = {
    "capitals": Damage(capitals),
    "lower_case": source_damage(lower_case),
    "no_punctuation": source_damage(no_punctuation),
    "missing_spaces": source_damage(missing_spaces),
    "extra_spaces": source_damage(extra_spaces),
    "key_typos": source_damage(key_typos),
    "scrambled": source_damage(scrambled),
    "homoglyphs": source_damage(homoglyphs),
    "no_diacritics": source_damage(no_diacritics),
    "entities": source_damage(entities),
    "mojibake": source_damage(mojibake),
    "codes": Damage(codes),
    "joined": Damage(joined),
}
# All that training may name. Damages that are measured come first, for `copy` is last.
TRAINABLE: dict[str, Damage] = DAMAGES | AUGMENTATIONS
