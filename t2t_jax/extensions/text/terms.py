"""Terms: words of a source, and how they are to be translated.

A file of terms has a line `source<TAB>target` for each; empty lines are skipped, and
nothing is a comment. A term is found by its words and signs (`text/units.py`), whatever
the white space between them, in the same case; a capital at the beginning of a sentence
may also stand for a small letter. Of terms that overlap, the first and longest counts.

Two ways to ask a model for them:

    hard    the target is a required phrase of the search (`Terms.phrases`)
    soft    the target is written into the source (`annotate`); a model that was trained
            so (`config.data.augment=terms`) copies it (Dinu et al. 2019, "append",
            with symbols instead of source factors)
"""

import hashlib
import itertools
import operator
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.extensions.text.word_alignment import content_words, learn_both_ways
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import read_flag_file
from t2t_jax.io.tables import text_table
from t2t_jax.text.counter_random import Stream
from t2t_jax.text.units import MARKS, SYMBOLS, Edits, Pair, Span, splice, units

OUTCOMES = "exact", "inflected", "missing"


class Match(NamedTuple):
    """A term in a line: its span in characters, the term, and its target."""

    begin: int
    end: int
    source: str
    target: str


class _Line:
    """The units of a line, and which of them begin a sentence."""

    def __init__(self, line: str):
        self.spans = units(line)
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
    """Terms of one direction, from the file that a flag names.

    Attributes:
      count: of the terms.
      sha256: of the file.

    Raises UserError, with the numbers of lines: no file, no term, a line of another
    form, or two lines that give one source two targets.
    """

    def __init__(self, file: str, flag: str = "terms"):
        # By the words of the source; with the number of the line.
        self._terms: dict[tuple[str, ...], tuple[str, str, int]] = {}
        content = read_flag_file(flag, file)
        self.sha256 = hashlib.sha256(content.encode()).hexdigest()
        for number, line in enumerate(content.split("\n"), 1):
            if not line.strip():
                continue
            place = f"--{flag}: {file}, line {number}"
            if (tabs := line.count("\t")) != 1:
                raise UserError(f"{place}: got {tabs} tabs, want 1: SOURCE<TAB>TARGET")
            if reserved := [symbol for symbol in (*SYMBOLS, *MARKS) if symbol in line]:
                raise UserError(
                    f"{place}: has {reserved[0]}, which is reserved; leave it out"
                )
            source, target = map(str.strip, line.split("\t"))
            words = tuple(_Line(source).words)
            if not words or not target:
                side = "target" if words else "source"
                raise UserError(f"{place}: the {side} is empty; want both")
            _, defined, defined_in = self._terms.setdefault(
                words, (source, target, number)
            )
            if defined != target:
                raise UserError(
                    f"{place}: {source!r} is there before, too: {defined!r} in "
                    f"line {defined_in}, {target!r} here; want one target for a source"
                )
        if not self._terms:
            raise UserError(f"--{flag}: {file}, has no term; want SOURCE<TAB>TARGET")
        self._longest = max(map(len, self._terms))
        self.count = len(self._terms)

    def matches(self, line: str) -> list[Match]:
        """Finds the terms of a line, in order; none overlap."""
        line, place, matches = _Line(line), 0, []
        spans = line.spans
        while place < len(spans):
            for end in range(min(place + self._longest, len(spans)), place, -1):
                candidates = filter(
                    None, map(self._terms.get, line.readings(place, end))
                )
                if term := next(candidates, None):
                    matches.append(Match(spans[place][0], spans[end - 1][1], *term[:2]))
                    place = end - 1
                    break
            place += 1
        return matches

    def phrases(self, line: str) -> tuple[str, ...]:
        """The targets of the terms of a line, each once."""
        return tuple(dict.fromkeys(match.target for match in self.matches(line)))


class Checked(NamedTuple):
    """A term of a source: one of `OUTCOMES`, and where the translation has it."""

    match: Match
    outcome: str
    span: Span | None


def check(matches: Sequence[Match], translation: str) -> list[Checked]:
    """Finds the targets of terms in a translation, each in a place of its own.

    A target is there inflected if each of its words has one like it, in order: in other
    case, or with the same first letters, at least 4 and two thirds of the longer word,
    where ä is a. It is a rule for a report: "Hunde" and "Hundin" count for "Hund".
    """
    if not matches:
        return []
    line, taken_places, checked = _Line(translation), set(), {}
    for outcome, alike in (("exact", operator.eq), ("inflected", _inflected)):
        for n, match in enumerate(matches):
            target = _Line(match.target).words
            for begin in range(len(line.words) - len(target) + 1):
                places = range(begin, begin + len(target))
                if n in checked or not taken_places.isdisjoint(places):
                    continue
                readings = line.readings(begin, places.stop)
                if any(all(map(alike, target, reading)) for reading in readings):
                    span = line.spans[begin][0], line.spans[places[-1]][1]
                    checked[n] = Checked(match, outcome, span)
                    taken_places.update(places)
    missing = (Checked(match, "missing", None) for match in matches)
    return [checked.get(n, absent) for n, absent in enumerate(missing)]


def _inflected(word: str, form: str) -> bool:
    letters_a, letters_b = (
        [c for c in unicodedata.normalize("NFD", w) if not unicodedata.combining(c)]
        for w in (word.lower(), form.lower())
    )
    common = itertools.takewhile(bool, map(operator.eq, letters_a, letters_b))
    shared, longest = sum(common), max(len(letters_a), len(letters_b))
    return letters_a == letters_b or (shared >= 4 and 3 * shared >= 2 * longest)


def report_lines(outcomes: Mapping[Pair, Counter[str]]) -> list[str]:
    """A table: each term and its target, how often it was asked for, `OUTCOMES`."""
    total = sum(outcomes.values(), Counter())
    rows = [("term", "target", "asked", *OUTCOMES)]
    for term, counts in [*sorted(outcomes.items()), (("all", ""), total)]:
        numbers = counts.total(), *(counts[outcome] for outcome in OUTCOMES)
        rows.append((*term, *(f"{number:,}" for number in numbers)))
    return text_table(rows, left=(0, 1))


def annotate(line: str, matches: Sequence[Match]) -> tuple[str, Edits]:
    """Writes the targets of terms, in order, into a line.

    `A<term> dog<is> Hund</term> barks.`: a mark takes the place of a space, so that all
    words are the tokens that they are without it.
    """
    opening, separator, closing = MARKS
    spans, texts = [], []
    for begin, end, *_, target in matches:
        texts.append(f"{opening} {line[begin:end]}{separator} {target}{closing}")
        spans.append((begin - (line[begin - 1 : begin] == " "), end))
    return splice(line, spans, texts)


FREQUENT = 40  # words of each side that are left out: they are not terms
LEAST = 3  # occurrences together that make two words translations
PROBABLE = 0.1  # p(target | source) * p(source | target) that makes them translations
CELLS = 10_000_000  # of all pairs of words of all pairs of lines; bounds memory
ITERATIONS = 5
MOST_TERMS = 3  # of a line
# Terms whose translation is exchanged: a model that can guess all of them from the
# source learns to overlook what it is shown.
EXCHANGED = 0.5
Lexicon = dict[str, list[str]]


def learn_lexicon(pairs: Iterable[Pair]) -> Lexicon:
    """Finds words that translate each other, as they are inflected, by IBM model 1."""
    words = [
        tuple(
            [w for b, e in units(side) if len(w := side[b:e]) > 2 and w.isalpha()]
            for side in pair
        )
        for pair in pairs
    ]
    numbered, numbers, _ = content_words(words, FREQUENT, LEAST, CELLS)
    learned = learn_both_ways(numbered, len(numbers[1]), ITERATIONS)
    probable = learned.forward_k * learned.backward_k >= PROBABLE
    often = np.bincount(learned.type_c, minlength=len(probable)) >= LEAST
    source, target = map(list, numbers)
    lexicon = defaultdict(list)
    for k in np.flatnonzero(probable & often):
        lexicon[source[learned.source_k[k]]].append(target[learned.target_k[k]])
    return dict(lexicon)


def annotated(lexicon: Lexicon, pair: Pair, draws: Stream, _: Sequence[Pair]) -> Pair:
    """Annotates one to `MOST_TERMS` words; the target has each translation once.

    `EXCHANGED` of the translations become that of another word, on both sides.
    """
    source, target = map(_Line, pair)
    count = Counter(target.words)
    terms = {
        span: Match(*span, word, translation)
        for span, word in zip(source.spans, source.words, strict=True)
        for translation in lexicon.get(word, ())
        if count[translation] == 1
    }
    if not terms or any(mark in pair[0] for mark in MARKS):
        return pair
    selected = sorted(terms.values(), key=lambda _: draws.uniform())
    selected = sorted(selected[: 1 + draws.below(MOST_TERMS)])
    words, written = [*lexicon], {}
    for n, match in enumerate(selected):
        replacement = lexicon[words[draws.below(len(words))]][0]
        alike = replacement[0].isupper() == match.target[0].isupper()
        if draws.uniform() < EXCHANGED and alike and not count[replacement]:
            count[replacement] = 1
            span = target.spans[target.words.index(match.target)]
            selected[n], written[span] = match._replace(target=replacement), replacement
    spans = sorted(written)
    changed = splice(pair[1], spans, [written[span] for span in spans])[0]
    return annotate(pair[0], selected)[0], changed
