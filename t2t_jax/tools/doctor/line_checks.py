"""Checks of single lines: encodings, odd characters, repetition, pieces.

A check is a function (view, knowledge, limits) -> {place: (severity, note)} of the
pairs of a chunk that it accuses. Severities of one check compare with each other only.
"""

import re
from collections.abc import Callable, Iterator

import numpy as np

from t2t_jax.text.characters import CLASS, SCRIPTS
from t2t_jax.text.view import WORD, Side, View
from t2t_jax.tools.doctor.knowledge import Knowledge

Accused = dict[int, tuple[float, str]]
Limits = dict[str, float]
NAMES = "source", "target"

# UTF-8 that was read as Windows-1252: a lead byte, and bytes that go on.
_GOES_ON = "\u0080-\u00bfŒœŠšŸŽžƒˆ˜–—‘’‚“”„†‡•…‰‹›€™"
_TYPOGRAPHIC = "«»“”„‘’‚…´–—"
_MOJIBAKE = re.compile(rf"[\u00c2-\u00f4][{_GOES_ON}]{{1,3}}")
# Written as Latin-1 without an encoding for the letter: "f?r", "K?nstler".
_LOST_LETTER = re.compile(r"(?<![\w?&=/])[^\W\d_]+\?[a-z]+(?![\w?=&/])")
_ESCAPED_TWICE = re.compile(r"&amp;(?:#?\w{2,8};)")
_ESCAPED = re.compile(
    r"&(?:amp|lt|gt|quot|apos|nbsp|[aouAOU]uml|szlig|eacute|#x?[0-9a-fA-F]{2,5});"
)


def over_lines(view: View, flags: Callable[[Side], np.ndarray]) -> Iterator:
    """Yields (place, number of the side, line) of the lines that a mask selects."""
    for number, side in enumerate(view.sides):
        for place in np.flatnonzero(flags(side)).tolist():
            yield place, number, side.lines[place]


def _worst(accused: Accused, place: int, severity: float, note: str) -> None:
    """Keeps the more severe of the accusations of both sides."""
    if place not in accused or accused[place][0] < severity:
        accused[place] = severity, note


def empty(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds pairs of which a side has no letter, digit or other visible character."""
    blank = ("space", "control", "invisible", "mark", "soft hyphen")
    columns = [CLASS[name] for name in blank]
    accused: Accused = {}
    for place, number, _ in over_lines(
        view, lambda side: side.counts_pk[:, columns].sum(1) == side.lengths_p
    ):
        _worst(accused, place, 1.0, f"the {NAMES[number]} is empty")
    # A sentence opposite "@@" or "–" has nothing opposite, either.
    s, t = (side.word_counts_p for side in view.sides)
    for place in np.flatnonzero(np.minimum(s, t) == 0).tolist():
        if max(s[place], t[place]) >= limits["words"]:
            name = NAMES[int(t[place] == 0)]
            _worst(accused, place, 0.5, f"the {name} has no word")
    return accused


def mojibake(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds UTF-8 that was decoded as Windows-1252 or Latin-1, such as Ã¼ for ü."""
    accused: Accused = {}
    for place, number, line in over_lines(view, _not_ascii):
        found = [m[0] for m in _MOJIBAKE.finditer(line) if _decoded(m[0])]
        # "ß“" in a German text is no letter of N'Ko.
        found = [f for f in found if f[0] in "ÃÂ" or f[1:2] not in _TYPOGRAPHIC]
        if found:
            _worst(
                accused,
                place,
                len(found),
                f"{NAMES[number]}: {found[0]} for {_decoded(found[0])}",
            )
    return accused


def _not_ascii(side: Side) -> np.ndarray:
    flags = np.zeros(len(side), bool)
    flags[side.line_c[side.codes_c >= 0x80]] = True
    return flags


def _decoded(text: str) -> str:
    """The character that a run of misread bytes is; empty if it is none."""
    raw = b""
    for character in text:
        for encoding in ("cp1252", "latin-1"):
            try:
                raw += character.encode(encoding)
                break
            except UnicodeEncodeError:
                continue
        else:
            return ""
    for end in (len(raw), len(raw) - 1, len(raw) - 2):
        try:
            decoded = raw[:end].decode("utf-8") if end > 1 else ""
        except UnicodeDecodeError:
            continue
        return decoded
    return ""


def lost_letters(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds letters that a conversion lost: U+FFFD, or a question mark in a word."""
    accused: Accused = {}
    for place, number, line in over_lines(
        view, lambda side: side.count_p("replacement") > 0
    ):
        _worst(accused, place, 1.0 + line.count("\ufffd"), f"{NAMES[number]}: U+FFFD")
    for place, number, line in over_lines(view, lambda side: _has(side, "?")):
        if "://" not in line and (found := _LOST_LETTER.findall(line)):
            _worst(accused, place, 0.5, f"{NAMES[number]}: {found[0]}")
    return accused


def _has(side: Side, character: str) -> np.ndarray:
    flags = np.zeros(len(side), bool)
    flags[side.line_c[side.codes_c == ord(character)]] = True
    return flags


def _entities(pattern: re.Pattern, view: View) -> Accused:
    accused: Accused = {}
    for place, number, line in over_lines(view, lambda side: _has(side, "&")):
        if found := pattern.findall(line):
            _worst(accused, place, len(found), f"{NAMES[number]}: {found[0]}")
    return accused


def double_escapes(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds HTML entities that were escaped twice, such as &amp;quot;."""
    return _entities(_ESCAPED_TWICE, view)


def entities(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds HTML entities, such as &quot;."""
    return _entities(_ESCAPED, view)


def odd_characters(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds controls, private use and unassigned characters, and zero-width ones."""
    accused: Accused = {}
    kinds = {name: CLASS[name] for name in ("control", "private", "invisible")}
    columns = list(kinds.values())
    for place, number, line in over_lines(
        view, lambda side: side.counts_pk[:, columns].sum(1) > 0
    ):
        counts = view.sides[number].counts_pk[place, columns]
        name = list(kinds)[int(counts.argmax())]
        classes = View([(line, "")]).source.classes_c
        at = int(np.flatnonzero(classes == kinds[name])[0])
        note = f"{NAMES[number]}: U+{ord(line[at]):04X} ({name})"
        _worst(accused, place, float(counts.sum()), note)
    return accused


def mixed_scripts(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds words with letters of two scripts, such as Latin and Cyrillic."""
    accused: Accused = {}
    mixing = [CLASS[name] for name in ("Latin", "Greek", "Cyrillic")]
    for number, side in enumerate(view.sides):
        scripts = side.classes_c
        several = (side.counts_pk[:, mixing] > 0).sum(1) > 1
        if not several.any():
            continue
        letters = np.isin(scripts, mixing)
        meets = (scripts[1:] != scripts[:-1]) & letters[1:] & letters[:-1]
        meets &= side.line_c[1:] == side.line_c[:-1]
        for at in np.flatnonzero(meets).tolist():
            place = int(side.line_c[at])
            start = at - int(side.lengths_p[:place].sum())
            for word in WORD.finditer(side.lines[place]):
                # Shorter ones are of formulas: "Δx".
                if word.start() <= start < word.end() and len(word[0]) > 3:
                    _worst(accused, place, 1.0, f"{NAMES[number]}: {word[0]}")
    return accused


def repetition(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds phrases that follow themselves, more often than on the other side."""
    accused: Accused = {}
    for number, side in enumerate(view.sides):
        other = view.sides[1 - number]
        for place, words in enumerate(side.words):
            if len(words) - len(set(words)) < 2:
                continue  # most lines: a phrase three times repeats two words
            phrase, times = repeated(words)
            said = times * (phrase.count(" ") + 1)
            if times < 3 or said < limits["words"] or phrase.isdigit():
                continue
            if repeated(other.words[place])[1] < times - 1:
                note = f"{NAMES[number]}: {phrase} × {times}"
                _worst(accused, place, said, note)
    return accused


def repeated(words: list[str]) -> tuple[str, int]:
    """Returns the phrase of 1 to 4 words that most often follows itself, and times."""
    best = "", 1
    for size in range(1, 5):
        run = 0  # words in a row that equal the one `size` before
        for at in range(size, len(words)):
            run = run + 1 if words[at] == words[at - size] else 0
            times = run // size + 1
            if times > best[1]:
                best = " ".join(words[at - size + 1 : at + 1]), times
    return best


def foreign_script(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds lines in a script that its side hardly has."""
    accused: Accused = {}
    for number, side in enumerate(view.sides):
        share = known.languages.foreign_script_p(side, number)
        for place in np.flatnonzero(share > limits["share"]).tolist():
            counts = side.counts_pk[place, -len(SCRIPTS) :].copy()
            counts[known.languages.scripts[number]] = 0
            name = SCRIPTS[int(counts.argmax())]
            note = f"{NAMES[number]}: {name}, {share[place]:.0%} of the letters"
            _worst(accused, place, float(share[place]), note)
    return accused


def third_language(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds lines with the function words of a language that is not its side's."""
    accused: Accused = {}
    for number, side in enumerate(view.sides):
        unlike = known.languages.unlikeness_p(side, number)
        for place, words in enumerate(side.words):
            if not (suspects := known.languages.suspects(words, number)):
                continue
            name, hits = suspects
            # Two words are enough if the letters are unusual, too.
            least = limits["words"] - (unlike[place] > limits["z"])
            if hits >= least and hits >= limits["share"] * len(words):
                note = f"{NAMES[number]}: {hits} function words of {name!r}"
                _worst(accused, place, hits / len(words), note)
    return accused


def unlike_side(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds lines whose letters are improbable on their side, as code or noise is."""
    accused: Accused = {}
    for number, side in enumerate(view.sides):
        z = known.languages.unlikeness_p(side, number)
        flags = (z > limits["z"]) & (side.letters_p >= limits["letters"])
        for place in np.flatnonzero(flags).tolist():
            note = f"{NAMES[number]}: {z[place]:.1f} deviations from what is usual"
            _worst(accused, place, float(z[place]), note)
    return accused


def many_pieces(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds lines of far more pieces a word than usual, or that cannot be spelled."""
    accused: Accused = {}
    if known.pieces is None:
        return accused
    for number, side in enumerate(view.sides):
        pieces_p, odd_p = known.pieces.counts(view, number)
        middle, deviation = known.pieces.usual[number]
        rate_p = pieces_p / np.maximum(side.word_counts_p, 1)
        z = (rate_p - middle) / deviation
        share = odd_p / np.maximum(pieces_p, 1)
        split = (z > limits["z"]) & (side.word_counts_p >= limits["words"])
        for place in np.flatnonzero(split | (share > limits["odd"])).tolist():
            note = (
                f"{NAMES[number]}: {rate_p[place]:.1f} pieces a word, "
                f"{share[place]:.0%} of them bytes or unknown"
            )
            _worst(accused, place, float(max(z[place], 0) + 100 * share[place]), note)
    return accused
