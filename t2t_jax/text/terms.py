"""Terms: words of a source, and how they are to be translated.

A file of terms has a line `source<TAB>target` for each; empty lines are skipped, and
nothing is a comment. A term is found by its words and signs (`text/units.py`), whatever
the white space between them, in the same case; a capital at the beginning of a sentence
may also stand for a small letter. Of terms that overlap, the first and longest counts.

Two ways to ask a model for them:

    hard    the target is a required phrase of the search (`Terms.phrases`)
    soft    the target is written into the source (`annotate`), and a model that was
            trained so (`config.data.augment=terms`) copies it from there (Dinu et al.
            2019, "Training Neural Machine Translation to Apply Terminology
            Constraints", their "append", with symbols instead of source factors)

`check` finds out what became of them.
"""

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import read_flag_file
from t2t_jax.io.tables import text_table
from t2t_jax.text.counter_random import Stream
from t2t_jax.text.placeholders import MARKS, SYMBOLS
from t2t_jax.text.units import Span, units
from t2t_jax.text.word_alignment import content_words, learn_both_ways

Pair = tuple[str, str]
OUTCOMES = "exact", "inflected", "missing"


class Match(NamedTuple):
    """A term in a line: its span in characters, the term, and its target."""

    begin: int
    end: int
    source: str
    target: str


class _Words:
    """The units of a line, and which of them begin a sentence."""

    def __init__(self, line: str):
        self.spans = units(line, (*SYMBOLS, *MARKS))
        self.words = [line[begin:end] for begin, end in self.spans]
        self._begins, begins = [], True
        for word in self.words:
            self._begins.append(begins)
            # Signs such as quotes may come before the first word.
            begins = word in ".!?…" or (begins and not re.search(r"\w", word))

    def readings(self, begin: int, end: int) -> list[tuple[str, ...]]:
        """Some units as they are, and perhaps with a small letter at the beginning."""
        words = tuple(self.words[begin:end])
        if not self._begins[begin] or not words[0][0].isupper():
            return [words]
        return [words, (words[0][0].lower() + words[0][1:], *words[1:])]


class Terms:
    """Terms of one direction.

    Args:
      file: see above; UTF-8, perhaps with a byte order mark.
      flag: the flag that names the file, for error messages.

    Attributes:
      count: of the terms.

    Raises:
      UserError: no file, no term, a line of another form, or two lines that give one
        source two targets; with their numbers.
    """

    def __init__(self, file: str, flag: str = "terms"):
        # By the words of the source; with the number of the line.
        self._terms: dict[tuple[str, ...], tuple[str, str, int]] = {}
        for number, line in enumerate(read_flag_file(flag, file).split("\n"), 1):
            if not line.strip():
                continue
            place = f"--{flag}: {file}, line {number}"
            if (tabs := line.count("\t")) != 1:
                raise UserError(f"{place}: got {tabs} tabs, want 1: SOURCE<TAB>TARGET")
            source, target = map(str.strip, line.split("\t"))
            words = tuple(_Words(source).words)
            if not words or not target:
                side = "target" if words else "source"
                raise UserError(f"{place}: the {side} is empty")
            _, before, first = self._terms.setdefault(words, (source, target, number))
            if before != target:
                raise UserError(
                    f"{place}: {source!r} is there before, too: {before!r} in line "
                    f"{first}, {target!r} here; want one target for a source"
                )
        if not self._terms:
            raise UserError(f"--{flag}: {file} has no term; want SOURCE<TAB>TARGET")
        self._longest = max(map(len, self._terms))
        self.count = len(self._terms)

    def matches(self, line: str) -> list[Match]:
        """Finds the terms of a line, in order; none overlap."""
        line, place, found = _Words(line), 0, []
        spans = line.spans
        while place < len(spans):
            for end in range(min(place + self._longest, len(spans)), place, -1):
                known = filter(None, map(self._terms.get, line.readings(place, end)))
                if term := next(known, None):
                    found.append(Match(spans[place][0], spans[end - 1][1], *term[:2]))
                    place = end - 1
                    break
            place += 1
        return found

    def phrases(self, line: str) -> tuple[str, ...]:
        """The targets of the terms of a line, each once."""
        return tuple(dict.fromkeys(match.target for match in self.matches(line)))


# ---------------------------------------------------------------------------- reports


class Checked(NamedTuple):
    """A term of a source, and what became of it.

    `outcome` is one of `OUTCOMES`; `span` is where the translation has it, or None.
    """

    match: Match
    outcome: str
    span: Span | None


def check(matches: Sequence[Match], translation: str) -> list[Checked]:
    """Finds the targets of terms in a translation, each in a place of its own.

    A target is there inflected if each of its words has one like it, in order: with the
    same first letters, at least 4 and two thirds of the longer word, where ä is a and
    so on. That is a rule for a report: "Hunde" counts for "Hund", as does "Hundin";
    "neue" for "neu" does not.
    """
    line, taken = _Words(translation), set()
    checked: list[Checked | None] = [None] * len(matches)
    for outcome, alike in (("exact", _equal), ("inflected", _inflected)):
        for n, match in enumerate(matches):
            target = tuple(_Words(match.target).words)
            for begin in range(len(line.words) - len(target) + 1):
                places = range(begin, begin + len(target))
                if checked[n] or not target or not taken.isdisjoint(places):
                    continue
                readings = line.readings(begin, places.stop)
                if any(all(map(alike, target, reading)) for reading in readings):
                    span = line.spans[begin][0], line.spans[places.stop - 1][1]
                    checked[n] = Checked(match, outcome, span)
                    taken.update(places)
    return [
        found or Checked(match, "missing", None)
        for match, found in zip(matches, checked, strict=True)
    ]


def _equal(word: str, other: str) -> bool:
    return word == other


def _inflected(word: str, other: str) -> bool:
    if word == other:
        return True
    one, two = (
        "".join(
            c for c in unicodedata.normalize("NFD", w) if not unicodedata.combining(c)
        )
        for w in (word.lower(), other.lower())
    )
    letters = zip(one, two, strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda ab: ab[0] == ab[1], letters))
    return shared >= 4 and 3 * shared >= 2 * max(len(one), len(two))


class Report:
    """Counts what became of each term in a text."""

    def __init__(self):
        self.outcomes: dict[tuple[str, str], Counter[str]] = {}

    def add(self, checked: Iterable[Checked]) -> None:
        """Adds the terms of a line."""
        for each in checked:
            term = each.match.source, each.match.target
            self.outcomes.setdefault(term, Counter())[each.outcome] += 1

    @property
    def total(self) -> Counter[str]:
        """The number of each of `OUTCOMES`, over all terms."""
        return sum(self.outcomes.values(), Counter())

    def lines(self) -> list[str]:
        """A table: each term, how often it was asked for, and its outcomes."""
        rows = [("term", "target", "asked", *OUTCOMES)]
        for term, counts in [*sorted(self.outcomes.items()), (("all", ""), self.total)]:
            numbers = counts.total(), *(counts[outcome] for outcome in OUTCOMES)
            rows.append((*term, *(f"{number:,}" for number in numbers)))
        return text_table(rows, left=(0, 1))


# ------------------------------------------------------------------------- annotations


class Annotated(NamedTuple):
    """A source with the targets of its terms.

    Attributes:
      text: `A<term> dog<is> Hund</term> barks.`: each mark takes the place of a space,
        so all words are the tokens that they are without it.
      origins: for each unit of the text (`units(text, MARKS and others)`), the number
        of the unit that it was in the line: of the first word of the term if it is of
        a target, -1 if it is a mark.
    """

    text: str
    origins: list[int]


def annotate(line: str, matches: Sequence[Match]) -> Annotated:
    """Writes the targets of terms into a line.

    Args:
      matches: of units of the line, in order; none overlap.
    """
    spans = _Words(line).spans
    parts: list[str] = []
    origins: list[int] = []
    end = n = 0  # of the characters and of the units that are done
    opening, between, closing = MARKS
    for match in matches:
        first = next(i for i in range(n, len(spans)) if spans[i][0] == match.begin)
        after = (
            next(i for i in range(first, len(spans)) if spans[i][1] == match.end) + 1
        )
        # A mark takes the place of the space before the word, or brings one.
        parts += line[end : match.begin].removesuffix(" "), opening, " "
        parts += line[match.begin : match.end], between, " ", match.target, closing
        targets = [first] * len(_Words(match.target).spans)
        origins += [*range(n, first), -1, *range(first, after), -1, *targets, -1]
        end, n = match.end, after
    origins += range(n, len(spans))
    return Annotated("".join([*parts, line[end:]]), origins)


FREQUENT = 40  # words of each side that are left out: they are not terms
LEAST = 3  # occurrences together that make two words translations
PROBABLE = 0.1  # p(target | source) * p(source | target) that makes them translations
CELLS = 10_000_000  # of all pairs of words of all pairs of lines; bounds memory
ITERATIONS = 5
MOST_TERMS = 3  # of a line
Lexicon = dict[str, list[str]]


def learn_lexicon(pairs: Iterable[Pair]) -> Lexicon:
    """Finds words that translate each other in training text, by IBM model 1.

    Returns:
      The translations of words of at least three letters, inflected as they occur.
    """
    words = [
        tuple(
            [w for b, e in units(side) if len(w := side[b:e]) > 2 and w.isalpha()]
            for side in pair
        )
        for pair in pairs
    ]
    numbered, numbers, _ = content_words(words, FREQUENT, LEAST, CELLS)
    if not numbered:
        return {}
    learned = learn_both_ways(numbered, len(numbers[1]), ITERATIONS)
    probable = learned.forward_k * learned.backward_k >= PROBABLE
    probable &= np.bincount(learned.type_c) >= LEAST
    source, target = (list(of_side) for of_side in numbers)
    lexicon: Lexicon = {}
    for k in np.flatnonzero(probable):
        translations = lexicon.setdefault(source[learned.source_k[k]], [])
        translations.append(target[learned.target_k[k]])
    return lexicon


def annotated(
    lexicon: Lexicon, pair: Pair, draws: Stream, following: Sequence[Pair]
) -> Pair:
    """Annotates one to `MOST_TERMS` words of a source with their translations.

    A term is a word whose translation the target has exactly once, or two of them if
    their translations follow each other as they do.
    """
    if any(mark in pair[0] for mark in MARKS):
        return pair  # the text has marks of its own
    sides = [_Words(side) for side in pair]
    source, target = (side.spans for side in sides)
    once = {w for w, count in Counter(sides[1].words).items() if count == 1}
    place_of = {w: n for n, w in enumerate(sides[1].words) if w in once}
    links = [
        next((place_of[t] for t in lexicon.get(w, ()) if t in once), None)
        for w in sides[0].words
    ]
    terms = [(n, n + 1) for n, link in enumerate(links) if link is not None]
    terms += [
        (n, n + 2)
        for n, (one, two) in enumerate(itertools.pairwise(links))
        if one is not None
        and two == one + 1
        and source[n + 1][0] - source[n][1] == 1 == target[two][0] - target[one][1]
    ]
    if not terms:
        return pair
    most, chosen = 1 + draws.below(MOST_TERMS), []
    for begin, end in sorted(terms, key=lambda _: draws.uniform()):
        if len(chosen) < most and all(end <= b or e <= begin for b, e in chosen):
            chosen.append((begin, end))
    matches = []
    for begin, end in sorted(chosen):
        first, last = target[links[begin]], target[links[end - 1]]
        found = pair[1][first[0] : last[1]]
        matches.append(Match(source[begin][0], source[end - 1][1], "", found))
    return annotate(pair[0], matches).text, pair[1]
