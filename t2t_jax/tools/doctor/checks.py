"""Checks of lines (encodings, characters, repetition, tokens), and of pairs.

A check is a function (view, knowledge, thresholds) that yields (place, severity, note)
of the pairs of a chunk that it accuses. Its thresholds are arguments with defaults,
which --limit changes by their names. Of two accusations of one pair the more severe one
counts. Severities of one check compare with each other only.
"""

import collections
import contextlib
import re
from collections.abc import Callable, Iterator
from unicodedata import normalize

import numpy as np

from t2t_jax.data.cleaning import hashes
from t2t_jax.data.corpus import LowScore
from t2t_jax.text.characters import CLASS, SCRIPTS
from t2t_jax.text.view import WORD, Side, View
from t2t_jax.tools.doctor.knowledge import Knowledge

Accusations = Iterator[tuple[int, float, str]]
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


def empty(view: View, knowledge: Knowledge, words=4) -> Accusations:
    """Finds pairs of which a side has no letter, digit or other visible character."""
    blank = ("space", "control", "invisible", "mark", "soft hyphen")
    columns = [CLASS[name] for name in blank]
    for number, side in enumerate(view.sides):
        empty_p = side.counts_pk[:, columns].sum(1) == side.lengths_p
        for place in np.flatnonzero(empty_p).tolist():
            yield place, 1.0, f"the {NAMES[number]} is empty"
    # A sentence opposite "@@" or "–" has nothing opposite, either.
    s, t = (side.word_counts_p for side in view.sides)
    for place in np.flatnonzero(np.minimum(s, t) == 0).tolist():
        if max(s[place], t[place]) >= words:
            name = NAMES[int(t[place] == 0)]
            yield place, 0.5, f"the {name} has no word"


def low_score(view: View, knowledge: Knowledge) -> Accusations:
    """Finds pairs whose score is below `config.data.min_score`."""
    for place, pair in enumerate(view.pairs):
        if isinstance(pair, LowScore):
            yield place, 1.0, "its score is below config.data.min_score"


def mojibake(view: View, knowledge: Knowledge) -> Accusations:
    """Finds UTF-8 that was decoded as Windows-1252 or Latin-1, such as Ã¼ for ü."""
    for place, number, line in over_lines(
        view, lambda side: _lines_with(side, side.codes_c >= 0x80)
    ):
        matches = [m[0] for m in _MOJIBAKE.finditer(line) if _decoded(m[0])]
        # "ß“" in a German text is no letter of N'Ko.
        matches = [f for f in matches if f[0] in "ÃÂ" or f[1:2] not in _TYPOGRAPHIC]
        if matches:
            note = f"{NAMES[number]}: {matches[0]} for {_decoded(matches[0])}"
            yield place, len(matches), note


def _lines_with(side: Side, mask_c: np.ndarray) -> np.ndarray:
    flags = np.zeros(len(side), bool)
    flags[side.line_c[mask_c]] = True
    return flags


def _decoded(text: str) -> str:
    """The character that a run of misread bytes is; empty if it is none."""
    raw = b""
    for character in text:
        for encoding in ("cp1252", "latin-1"):
            with contextlib.suppress(UnicodeEncodeError):
                raw += character.encode(encoding)
                break
        else:
            return ""
    for end in range(len(raw), max(1, len(raw) - 3), -1):
        with contextlib.suppress(UnicodeDecodeError):
            return raw[:end].decode()
    return ""


def lost_letters(view: View, knowledge: Knowledge) -> Accusations:
    """Finds letters that a conversion lost: U+FFFD, or a question mark in a word."""
    for place, number, line in over_lines(
        view, lambda side: side.count_p("replacement") > 0
    ):
        yield place, 1.0 + line.count("\ufffd"), f"{NAMES[number]}: U+FFFD"
    for place, number, line in over_lines(
        view, lambda side: _lines_with(side, side.codes_c == ord("?"))
    ):
        if "://" not in line and (matches := _LOST_LETTER.findall(line)):
            yield place, 0.5, f"{NAMES[number]}: {matches[0]}"


def _entities(pattern: re.Pattern, view: View) -> Accusations:
    for place, number, line in over_lines(
        view, lambda side: _lines_with(side, side.codes_c == ord("&"))
    ):
        if matches := pattern.findall(line):
            yield place, len(matches), f"{NAMES[number]}: {matches[0]}"


def double_escapes(view: View, knowledge: Knowledge) -> Accusations:
    """Finds HTML entities that were escaped twice, such as &amp;quot;."""
    return _entities(_ESCAPED_TWICE, view)


def entities(view: View, knowledge: Knowledge) -> Accusations:
    """Finds HTML entities, such as &quot;."""
    return _entities(_ESCAPED, view)


def odd_characters(view: View, knowledge: Knowledge) -> Accusations:
    """Finds controls, private use and unassigned characters, and zero-width ones."""
    kinds = {name: CLASS[name] for name in ("control", "private", "invisible")}
    columns = list(kinds.values())
    for place, number, line in over_lines(
        view, lambda side: side.counts_pk[:, columns].sum(1) > 0
    ):
        counts = view.sides[number].counts_pk[place, columns]
        name = list(kinds)[int(counts.argmax())]
        classes = View([(line, "")]).source.classes_c
        position = int(np.flatnonzero(classes == kinds[name])[0])
        note = f"{NAMES[number]}: U+{ord(line[position]):04X} ({name})"
        yield place, float(counts.sum()), note


def mixed_scripts(view: View, knowledge: Knowledge) -> Accusations:
    """Finds words with letters of two scripts, such as Latin and Cyrillic."""
    mixing = [CLASS[name] for name in ("Latin", "Greek", "Cyrillic")]
    for number, side in enumerate(view.sides):
        scripts = side.classes_c
        several = (side.counts_pk[:, mixing] > 0).sum(1) > 1
        if not several.any():
            continue
        letters = np.isin(scripts, mixing)
        meets = (scripts[1:] != scripts[:-1]) & letters[1:] & letters[:-1]
        meets &= side.line_c[1:] == side.line_c[:-1]
        for boundary in np.flatnonzero(meets).tolist():
            place = int(side.line_c[boundary])
            start = boundary - int(side.lengths_p[:place].sum())
            for word in WORD.finditer(side.lines[place]):
                # Shorter ones are of formulas: "Δx".
                if word.start() <= start < word.end() and len(word[0]) > 3:
                    yield place, 1.0, f"{NAMES[number]}: {word[0]}"


def repetition(view: View, knowledge: Knowledge, words=4) -> Accusations:
    """Finds phrases that follow themselves, more often than on the other side."""
    for number, side in enumerate(view.sides):
        opposite = view.sides[1 - number]
        for place, line in enumerate(side.words):
            if len(line) - len(set(line)) < 2:
                continue  # most lines: a phrase three times repeats two words
            phrase, times = repeated(line)
            repeated_words = times * (phrase.count(" ") + 1)
            if times < 3 or repeated_words < words or phrase.isdigit():
                continue
            if repeated(opposite.words[place])[1] < times - 1:
                note = f"{NAMES[number]}: {phrase} × {times}"
                yield place, repeated_words, note


def repeated(words: list[str]) -> tuple[str, int]:
    """Returns the phrase of 1 to 4 words that most often follows itself, and times."""
    best = "", 1
    for size in range(1, 5):
        run = 0  # words in a row that equal the one `size` before
        for end in range(size, len(words)):
            run = run + 1 if words[end] == words[end - size] else 0
            times = run // size + 1
            if times > best[1]:
                best = " ".join(words[end - size + 1 : end + 1]), times
    return best


def foreign_script(view: View, knowledge: Knowledge, share=0.3) -> Accusations:
    """Finds lines in a script that its side hardly has."""
    for number, side in enumerate(view.sides):
        share_p = knowledge.languages.foreign_script_p(side, number)
        for place in np.flatnonzero(share_p > share).tolist():
            counts = side.counts_pk[place, -len(SCRIPTS) :].copy()
            counts[knowledge.languages.scripts[number]] = 0
            name = SCRIPTS[int(counts.argmax())]
            note = f"{NAMES[number]}: {name}, {share_p[place]:.0%} of the letters"
            yield place, float(share_p[place]), note


def third_language(view: View, knowledge: Knowledge, z=1.0, share=0.99) -> Accusations:
    """Finds lines in a language that its side hardly has."""
    for number, side in enumerate(view.sides):
        # Only of lines with unusual letters the language is guessed, which is slow.
        unlike = knowledge.languages.unlikeness_p(side, number)
        for place in np.flatnonzero(unlike > z).tolist():
            name, probability = knowledge.languages.suspects(side.lines[place], number)
            if probability > share:
                yield place, probability, f"{NAMES[number]}: looks like {name!r}"


def unlike_side(view: View, knowledge: Knowledge, z=7.0, letters=20) -> Accusations:
    """Finds lines whose letters are improbable on their side, as code or noise is."""
    for number, side in enumerate(view.sides):
        z_p = knowledge.languages.unlikeness_p(side, number)
        flags = (z_p > z) & (side.letters_p >= letters)
        for place in np.flatnonzero(flags).tolist():
            note = f"{NAMES[number]}: {z_p[place]:.1f} deviations from what is usual"
            yield place, float(z_p[place]), note


def decomposed(view: View, knowledge: Knowledge) -> Accusations:
    """Finds lines with decomposed letters: a tokenizer takes ü and u + U+0308 apart."""
    for number, side in enumerate(view.sides):
        for place, line in enumerate(side.lines):
            extra = len(line) - len(normalize("NFC", line))
            if extra > 0:
                note = f"{NAMES[number]}: {extra} characters more than in NFC"
                yield place, float(extra), note


def many_pieces(
    view: View, knowledge: Knowledge, z=8.0, words=4, odd=0.2
) -> Accusations:
    """Finds lines of far more tokens a word than usual, or that cannot be spelled."""
    if knowledge.pieces is None:
        return
    for number, side in enumerate(view.sides):
        pieces_p, odd_p = knowledge.pieces.counts(view, number)
        rate_p = pieces_p / np.maximum(side.word_counts_p, 1)
        z_p = knowledge.pieces.usual[number].z(rate_p)
        share = odd_p / np.maximum(pieces_p, 1)
        split = (z_p > z) & (side.word_counts_p >= words)
        for place in np.flatnonzero(split | (share > odd)).tolist():
            note = (
                f"{NAMES[number]}: {rate_p[place]:.1f} tokens a word, "
                f"{share[place]:.0%} of them bytes or unknown"
            )
            yield place, float(max(z_p[place], 0) + 100 * share[place]), note


# -------------------------------------------------------------------------------- pairs
# The two sides of a pair against each other, and pairs against others.

# Placeholders of printf and of templates, tags, addresses.
_MARKUP = re.compile(
    r"%(?:\d+\$)?[-+#0]*[\d*]*(?:\.[\d*]+)?(?:hh|ll|[hlLzjt])?[diouxXeEfgGcsSpqm]\b"
    r"|\{\w*\}|</?[a-zA-Z][^<>]*>|https?://[^\s<>\"“”„»«’']+|\$\{\w+\}"
)
_ENDING = re.compile(r"[.!?:;。！？：；…](?=[\"'»«”“’)\]\s]*$)")
_SAME_ENDING = str.maketrans("。！？：；…", ".!?:;.")
_BRACKETS = str.maketrans("（）", "()")


def duplicate(view: View, knowledge: Knowledge) -> Accusations:
    """Finds pairs that came before, character by character."""
    view.repeated_p = ~knowledge.seen_pairs.add(hashes(view.pairs))
    yield from _longest(view, view.repeated_p, "the same pair came before")


def near_duplicate(view: View, knowledge: Knowledge) -> Accusations:
    """Finds pairs that came before but for case, punctuation and spacing."""
    keys = list(zip(view.source.keys, view.target.keys, strict=True))
    new_p = knowledge.seen_keys.add(hashes(keys))
    worded = np.array([bool(s or t) for s, t in keys])  # lines of signs have no words
    flags = ~new_p & worded & ~view.repeated_p
    view.repeated_p |= flags
    yield from _longest(view, flags, "a pair of the same words came before")


def other_target(view: View, knowledge: Knowledge, words=3) -> Accusations:
    """Finds new pairs whose source came before, so with another target."""
    new_p = knowledge.seen_sources.add(hashes([(s, "") for s in view.source.keys]))
    flags = ~new_p & ~view.repeated_p & (view.source.word_counts_p >= words)
    yield from _longest(view, flags, "this source came before, with another target")


def _longest(view: View, flags: np.ndarray, note: str) -> Accusations:
    """Accuses pairs that a mask selects, the more severely the longer they are."""
    for p in np.flatnonzero(flags).tolist():
        yield p, float(len(view.pairs[p][0])), note


def overlap(view: View, knowledge: Knowledge, words=5) -> Accusations:
    """Finds lines of the dev and test sets, without case, punctuation and spacing."""
    if knowledge.overlap:
        knowledge.overlap.mark_seen(view)
        yield from knowledge.overlap.equal(view, int(words))


def near_overlap(view: View, knowledge: Knowledge, jaccard=0.7) -> Accusations:
    """Finds pairs that share most words and word pairs with a dev or test pair."""
    if knowledge.overlap:
        yield from knowledge.overlap.near(view, jaccard)


def swapped(view: View, knowledge: Knowledge, trigrams=10, margin=0.3) -> Accusations:
    """Finds pairs of which each side is in the language of the other one."""
    s, s_count = knowledge.languages.place_p(view.source)
    t, t_count = knowledge.languages.place_p(view.target)
    enough = np.minimum(s_count, t_count) >= trigrams
    flags = (s < -margin) & (t > margin) & enough
    for p in np.flatnonzero(flags).tolist():
        yield p, float(t[p] - s[p]), "each side is in the other's language"


def wrong_side(
    view: View, knowledge: Knowledge, trigrams=15, margin=0.2, markers=2
) -> Accusations:
    """Finds pairs of which both sides are in one of the two languages."""
    places = [knowledge.languages.place_p(side) for side in view.sides]
    (s, s_count), (t, t_count) = places
    enough = np.minimum(s_count, t_count) >= trigrams
    for number, flags in ((0, (s < -margin) & (t < 0)), (1, (t > margin) & (s > 0))):
        for p in np.flatnonzero(flags & enough).tolist():
            words = view.sides[number].words[p]
            # Names and commands look like English on either side: ask for words that
            # only the other side has, and none of its own.
            if knowledge.languages.markers(words, number):
                continue
            if knowledge.languages.markers(words, 1 - number) < markers:
                continue
            if view.source.keys[p] == view.target.keys[p]:
                continue  # copied, and accused of that
            note = f"the {NAMES[number]} is in the other side's language"
            yield p, float(abs(places[number][0][p])), note


def copied(
    view: View, knowledge: Knowledge, words=3, many=6, share=0.8, markers=1
) -> Accusations:
    """Finds pairs whose sides are the same words, or nearly.

    Names, commands and formulas are the same in every language. So a copy is accused if
    it has words that mark one of the two languages.
    """
    lines = zip(view.source.words, view.target.words, strict=True)
    for p, (source, target) in enumerate(lines):
        if min(len(source), len(target)) < words:
            continue
        shared, alike = set(source), 1.0
        if source != target:
            shared &= {*target}
            if 2 * len(shared) < len(target) or len(source) < many:
                continue
            shared_counts = collections.Counter(source) & collections.Counter(target)
            alike = shared_counts.total() / max(len(source), len(target))
            if alike < share:
                continue
        marks = max(knowledge.languages.markers(shared, n) for n in (0, 1))
        if marks >= markers + (alike < 1) or not knowledge.languages.differ:
            yield p, alike + marks / 100, f"{alike:.0%} of the words are the same"


def unrelated(view: View, knowledge: Knowledge, nats=4.5, words=4) -> Accusations:
    """Finds pairs whose source looks paired with another line's translation."""
    odds = view.log_odds_p
    enough = np.minimum(*(side.word_counts_p for side in view.sides))
    flags = (odds < -nats) & (enough >= words)
    for p in np.flatnonzero(flags).tolist():
        yield p, float(-odds[p]), f"{-odds[p]:.1f} nats against belonging together"


def ratio(view: View, knowledge: Knowledge, z=6.0, factor=2.0) -> Accusations:
    """Finds pairs of which one side is far longer than usual for the other."""
    z_p = knowledge.lengths.z_p(view)
    s, t = (np.maximum(side.lengths_p, 1) for side in view.sides)
    log_factor_p = np.abs(np.log(t / s / knowledge.lengths.ratio))
    flags = (np.abs(z_p) > z) & (log_factor_p > np.log(factor))
    for p in np.flatnonzero(flags).tolist():
        note = f"the target has {t[p] / s[p]:.2f} characters for one of the source"
        yield p, float(abs(z_p[p])), note


def truncated(
    view: View, knowledge: Knowledge, z=2.0, z_alone=5.0, words=2
) -> Accusations:
    """Finds sides that are too short and translate only the beginning of the other."""
    z_p = knowledge.lengths.z_p(view)
    for p in np.flatnonzero(np.abs(z_p) > z).tolist():
        short = 0 if z_p[p] > 0 else 1
        endings = [_ending(line) for line in view.pairs[p]]
        lost_ending = endings[1 - short] and not endings[short]
        if not lost_ending and abs(z_p[p]) < z_alone:
            continue  # a free translation may leave out as much
        complete, opposite = (view.sides[n].words[p] for n in (1 - short, short))
        half = len(complete) // 2
        begun, _ = knowledge.lexicon.split(complete[:half], opposite, 1 - short)
        ended, missing = knowledge.lexicon.split(complete[half:], opposite, 1 - short)
        if begun and not ended and len(missing) >= words:
            note = f"the {NAMES[short]} lacks the second half of the other side"
            yield p, float(abs(z_p[p])), note


def length(view: View, knowledge: Knowledge, z=4.0) -> Accusations:
    """Finds lines that are far longer than the lines of this text."""
    for number, side in enumerate(view.sides):
        z_p = knowledge.log_length[number].z(np.log(np.maximum(side.lengths_p, 1)))
        for p in np.flatnonzero(z_p > z).tolist():
            note = f"the {NAMES[number]} has {side.lengths_p[p]:,} characters"
            yield p, float(z_p[p]), note


def numbers(view: View, knowledge: Knowledge, small=12) -> Accusations:
    """Finds numbers that the other side has not; small ones may be written in words."""
    for p, (s, t) in enumerate(
        zip(view.source.numbers, view.target.numbers, strict=True)
    ):
        if s != t and (only := missing_numbers(s, t, int(small))):
            yield p, float(len(only)), f"only on one side: {', '.join(only[:4])}"


def missing_numbers(source: list[str], target: list[str], small: int) -> list[str]:
    """Returns the numbers that only one side has, each side's sorted.

    Those up to `small` may be written in words on the other side, and count only if the
    sides have equally many numbers.
    """
    # 10,000 may be split or joined otherwise: then the digits are the same ones.
    if sorted("".join(source)) == sorted("".join(target)):
        return []
    s, t = (
        collections.Counter(number.lstrip("0") or "0" for number in side)
        for side in (source, target)
    )
    only = [*(s - t).elements(), *(t - s).elements()]
    if len(source) == len(target):
        return only
    return [number for number in only if len(number) > 6 or int(number) > small]


def markup(view: View, knowledge: Knowledge) -> Accusations:
    """Finds placeholders, tags and addresses that the other side has not."""
    for p, pair in enumerate(view.pairs):
        if not any(sign in line for sign in ("%", "<", "{", "://") for line in pair):
            continue
        s, t = map(_markup, pair)
        if only := [*(s - t).elements(), *(t - s).elements()]:
            yield p, float(len(only)), f"only on one side: {', '.join(only[:3])}"


def _markup(line: str) -> collections.Counter:
    counts = collections.Counter()
    for item in _MARKUP.findall(line):
        if item[0] == "%":
            item = "%" + item[-1]  # %1$s and %-5s: positions and widths may differ
        elif item[0] == "<":
            item = re.match(r"</?\w+", item)[0].lower() + ">"  # attributes may, too
        counts[item.rstrip(".,;:)")] += 1
    return counts


def punctuation(view: View, knowledge: Knowledge, words=3) -> Accusations:
    """Finds sides that end in another sign, or have other numbers of brackets."""
    enough = np.minimum(*(side.word_counts_p for side in view.sides)) >= words
    for p in np.flatnonzero(enough).tolist():
        s, t = view.pairs[p]
        if (ends := (_ending(s), _ending(t))) and not _same_ending(*ends):
            s_end, t_end = (end or "nothing" for end in ends)
            yield p, 1.0, f"the source ends in {s_end}, the target in {t_end}"
        for bracket in "[(":
            counts = [_count(line, bracket) for line in (s, t)]
            if counts[0] != counts[1]:
                severity = 1.0 + abs(counts[0] - counts[1])
                yield p, severity, f"{counts[0]} and {counts[1]} of {bracket}"


def _count(line: str, bracket: str) -> int:
    return (line if line.isascii() else line.translate(_BRACKETS)).count(bracket)


def _ending(line: str) -> str:
    match = _ENDING.search(line[-8:])
    return match[0] if match else ""


def _same_ending(*ends: str) -> bool:
    """True for signs that end the same sentence in two languages."""
    s, t = (end.translate(_SAME_ENDING) for end in ends)
    # Japanese and Chinese questions and exclamations may end in a full stop.
    return s == t or ("。" in ends and {s, t} <= {".", "?", "!"})
