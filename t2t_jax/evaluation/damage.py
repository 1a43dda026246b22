"""Damaged copies of a test set: the lines that users type, paste and decode wrongly.

`evaluate --damage=all` scores how well a model translates them. Typos, spaces and codes
are not made as in `data/augmentation.py`, so a model that was trained with augmentation
has not seen the same ones. Damage is a pure function of the line and its number, so
that everybody who damages a set gets the same one.
"""

import html.entities
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator

from t2t_jax.data.corpus import Corpus, Pair, derived, tagged
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.text.counter_random import Stream, hashed

# Damages a pair of lines with visible text: (pair, draws, next pair or None) -> pair.
Damage = Callable[[Pair, Stream, Pair | None], Pair]


def of_source(change: Callable[[str, Stream], str]) -> Damage:
    """Makes a damage of a function of the source line; the reference stays."""
    return lambda pair, draws, _: (change(pair[0], draws), pair[1])


def _some(places: list, share: float, draws: Stream) -> list:
    """Draws each place with a probability; at least one, if there is any."""
    drawn = [place for place in places if draws.uniform() < share]
    return drawn or ([draws.choice(places)] if places else [])


def _replaced(line: str, spans: list[tuple[int, int]], of: Callable[[str], str]) -> str:
    """Replaces spans of a line, from the last to the first so that none moves."""
    for begin, end in sorted(spans, reverse=True):
        line = line[:begin] + of(line[begin:end]) + line[end:]
    return line


def _spans(pattern: str, line: str) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(pattern, line)]


# ------------------------------------------------------------------ case, marks, spaces


def capitals(pair: Pair, _: Stream, __: Pair | None) -> Pair:
    """Puts both sides into capitals: a translation keeps them."""
    return pair[0].upper(), pair[1].upper()


def lower_case(line: str, _: Stream) -> str:
    """Puts the source into lower case; the reference keeps its capitals."""
    return line.lower()


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


def missing_spaces(line: str, draws: Stream) -> str:
    """Removes one space in six."""
    return _replaced(line, _some(_spans(r"\s+", line), 1 / 6, draws), lambda _: "")


def extra_spaces(line: str, draws: Stream) -> str:
    """Widens one gap in three, to two to four spaces, and puts one before each mark."""
    gaps = _some(_spans(r"(?<=\S) (?=\S)", line), 1 / 3, draws)
    line = _replaced(line, gaps, lambda _: " " * (2 + draws.below(3)))
    return "  " + re.sub(r"(?<=\w)(?=[.,;:!?](?:\s|$))", " ", line) + " "


# ---------------------------------------------------------------------------- letters

_WORDS = r"(?<!\w)[^\W\d_]{4,}(?!\w)"
# Keys beside one another on a German keyboard.
_KEY_ROWS = "qwertzuiopü", "asdfghjklöä", "yxcvbnm"
_BESIDE = {
    key: row[max(i - 1, 0) : i] + row[i + 1 : i + 2]
    for row in _KEY_ROWS
    for i, key in enumerate(row)
}


def key_typos(line: str, draws: Stream) -> str:
    """Hits a key beside the right one, before or in place of it, in a word of five."""

    def mistyped(word: str) -> str:
        at = draws.below(len(word))
        if word[at].lower() not in _BESIDE:  # another script
            return word[:at] + word[at + 1 :]
        beside = draws.choice(_BESIDE[word[at].lower()])
        return word[:at] + beside + word[at + draws.below(2) :]

    return _replaced(line, _some(_spans(_WORDS, line), 1 / 5, draws), mistyped)


def scrambled(line: str, draws: Stream) -> str:
    """Shuffles the inner letters of one word in three (Belinkov and Bisk 2018)."""

    def shuffled(word: str) -> str:
        inner = sorted(word[1:-1], key=lambda _: draws.uniform())
        return word[0] + "".join(inner) + word[-1]

    return _replaced(line, _some(_spans(_WORDS, line), 1 / 3, draws), shuffled)


_HOMOGLYPHS = dict(zip("aceopxyABCEHKMOPTX", "асеорхуАВСЕНКМОРТХ", strict=True))


def homoglyphs(line: str, draws: Stream) -> str:
    """Puts Cyrillic letters for one in six Latin ones that look the same."""
    places = [(i, i + 1) for i, letter in enumerate(line) if letter in _HOMOGLYPHS]
    return _replaced(line, _some(places, 1 / 6, draws), _HOMOGLYPHS.get)


_GERMAN = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"}
)


def no_diacritics(line: str, _: Stream) -> str:
    """Strips diacritics as on a foreign keyboard: "ue" for ü, "e" for é."""
    composed = unicodedata.normalize("NFC", line).translate(_GERMAN)
    letters = unicodedata.normalize("NFD", composed)
    return "".join(c for c in letters if not unicodedata.combining(c))


# --------------------------------------------------------------------------- encodings


def entities(line: str, draws: Stream) -> str:
    """Writes signs, accented letters and one space as in HTML: &quot; &uuml; &nbsp;."""
    named = "".join(
        f"&{name};" if (name := _ENTITY_OF.get(character)) else character
        for character in line
    )
    return _replaced(named, _one(_spans(" ", named), draws), lambda _: "&nbsp;")


_ENTITY_OF = {
    **{chr(code): name for code, name in html.entities.codepoint2name.items()},
    "'": "#39",
}


def mojibake(line: str, draws: Stream) -> str:
    """Reads UTF-8 as Windows-1252: "â€™" for a curved apostrophe, "Ã¼" for ü.

    Apostrophes are curved and one space is a no-break space ("Â ") before that, as in
    typeset text, so that plain ASCII has something to go wrong.
    """
    typeset = line.replace("'", "’")
    typeset = _replaced(typeset, _one(_spans(" ", typeset), draws), lambda _: "\u00a0")
    # Five bytes mean nothing in Windows-1252; Latin-1 has control characters there.
    return "".join(
        bytes([byte]).decode("cp1252" if byte not in _UNDEFINED else "latin-1")
        for byte in typeset.encode()
    )


_UNDEFINED = (0x81, 0x8D, 0x8F, 0x90, 0x9D)


def _one(places: list, draws: Stream) -> list:
    return [draws.choice(places)] if places else []


# -------------------------------------------------------------------------- both sides


def codes(pair: Pair, draws: Stream, _: Pair | None) -> Pair:
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
    *("XX99 9999 99", "INV/2999/99999", "v9.99.9-b99", "+49-99-999999", "0x9~~9~~9"),
    *("http://~~~~9.example/~~~?id=999", "~~~~.9~@~~~.example", "XXX_99_~~~9"),
)


def joined(pair: Pair, _: Stream, following: Pair | None) -> Pair:
    """Joins each line with the next, on both sides; the last line stays alone."""
    if following is None or not all(side.strip() for side in following):
        return pair
    return tuple(map(" ".join, zip(pair, following, strict=True)))


DAMAGES: dict[str, Damage] = {
    "capitals": capitals,
    "lower_case": of_source(lower_case),
    "no_punctuation": of_source(no_punctuation),
    "missing_spaces": of_source(missing_spaces),
    "extra_spaces": of_source(extra_spaces),
    "key_typos": of_source(key_typos),
    "scrambled": of_source(scrambled),
    "homoglyphs": of_source(homoglyphs),
    "no_diacritics": of_source(no_diacritics),
    "entities": of_source(entities),
    "mojibake": of_source(mojibake),
    "codes": codes,
    "joined": joined,
}
EVERY = "all"


def damaged(corpus: Corpus, damage: str) -> Corpus:
    """Returns a copy of a test set: damaged sources, and references that go with them.

    The tag of a subtask is not damaged, and a pair with a blank side stays as it is.
    The name is `NAME+DAMAGE`, so that files of scores are not those of the set.

    Args:
      damage: a name of `DAMAGES`.
    """
    if corpus.subtask:
        return tagged(damaged(corpus.made_of, damage), corpus.subtask, corpus.tag)

    def changed(pairs: Iterator[Pair]) -> Iterator[Pair]:
        pairs = list(pairs)
        key = zlib.crc32(damage.encode())
        for number, pair in enumerate(pairs):
            if not all(side.strip() for side in pair):
                yield pair
                continue
            following = pairs[number + 1] if number + 1 < len(pairs) else None
            yield DAMAGES[damage](pair, Stream(int(hashed(key, number))), following)

    return derived(
        corpus,
        damage,
        changed,
        place=f"{corpus.place}+{damage}",
        name=f"{corpus.name}+{damage}",
        compare_with=(
            "damaged text, without published numbers; compare only with systems scored "
            "on the same damage of the same lines, same signature"
        ),
    )


def damages_named(names: str) -> list[str]:
    """Reads --damage: names of `DAMAGES` separated by commas, or "all".

    Raises:
      UserError: an unknown name, or none.
    """
    named = [name for name in map(str.strip, names.split(",")) if name]
    if named == [EVERY]:
        return [*DAMAGES]
    for name in named:
        if name not in DAMAGES:
            raise UserError(
                f"--damage={names!r}: no damage {name!r}"
                + did_you_mean(name, [*DAMAGES, EVERY])
            )
    if not named:
        raise UserError(
            f"--damage={names!r} names no damage; want {EVERY!r}, or some of "
            + ", ".join(DAMAGES)
        )
    return [*dict.fromkeys(named)]
