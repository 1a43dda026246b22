"""What must survive a translation: markup, placeholders, terms, the shape of a text.

    text ─ document ─► segments ─ placeholders ─► sentences ─ terms ─► lines to search
    text ◄─ assemble ─ segments ◄─ restored ◄─ joined ◄─ translations, and their units

`Texts` is a text on this way, there and back. What searches the lines is left to its
caller: `decoding/translator.py`, or `tools/serve` with an engine. A text without
anything to preserve is searched as it is, so its translation has the same bits.
"""

import dataclasses
import html
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from t2t_jax.config import DataConfig
from t2t_jax.data.tokenizers.vocabulary import parse_symbols
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.text.formats import Po, SubRip
from t2t_jax.text.markup import KINDS, parse
from t2t_jax.text.placeholders import (
    MARKS,
    SYMBOLS,
    Protected,
    Restored,
    protect,
    restore,
)
from t2t_jax.text.sentences import split, split_long
from t2t_jax.text.terms import Annotated, Terms, annotate, check
from t2t_jax.text.terms import Report as TermReport
from t2t_jax.text.units import Aligned, Span, moved, units

# Units in which a line and its translation are linked, besides words and signs.
EVERY = *SYMBOLS, *MARKS
# The values of the fields of `Preserved`; "" is off.
FORMATS = "", "whole", "srt", "po"
SPLITS = "", "sentences"
TERM_MODES = "", "soft", "hard", "check"


@dataclasses.dataclass(eq=False)
class Report:
    """What happened to the markup, placeholders and terms of some texts.

    Attributes:
      markup: counts of `markup.Document.report`.
      placeholders: `asked`, those of all texts; `searched again`, parts of texts in
        which a first search had lost some; `lost` and `repeated` after that.
      lost: the numbers of the texts, from 1, in which one is lost or repeated.
      terms: by term, how often it was asked, exact, inflected, missing.
    """

    markup: Counter = dataclasses.field(default_factory=Counter)
    placeholders: Counter = dataclasses.field(default_factory=Counter)
    lost: list[int] = dataclasses.field(default_factory=list)
    terms: TermReport = dataclasses.field(default_factory=TermReport)

    def lines(self) -> list[str]:
        """The report, for a person; empty if there was nothing to preserve."""
        counts = {"markup": self.markup, "placeholders": self.placeholders}
        lines = []
        for name, of_name in counts.items():
            listed = [f"{n:,} {what}" for what, n in of_name.items() if n]
            lines += [f"{name}: {', '.join(listed)}"] if listed else []
        if self.lost:
            named = ", ".join(map(str, dict.fromkeys(self.lost)))
            lines.append(f"placeholders are lost or repeated in: {named}")
        return lines + (self.terms.lines() if self.terms.outcomes else [])

    def add_placeholders(
        self,
        number: int,
        protected: Protected,
        restored: Restored,
    ) -> None:
        """Counts the placeholders of a segment of a text, and what became of them."""
        self.placeholders["asked"] += protected.kinds.total()
        self.placeholders["untranslated ICU blocks"] += protected.kinds["icu"]
        self.placeholders["lost"] += len(restored.missing)
        self.placeholders["repeated"] += len(restored.repeated)
        if restored.missing or restored.repeated:
            self.lost.append(number)


class Document(Protocol):
    """A text and its segments.

    Attributes:
      segments: what is translated, each of one line.
      inline: for each, whether there are tags within, which need an alignment.
    """

    segments: Sequence[str]
    inline: Sequence[bool]

    def assemble(
        self, translations: Sequence[str], aligned: Sequence[Aligned | None]
    ) -> str:
        """Returns the text with translations in place of the segments."""


class Lines:
    """A document whose segments are its lines, with their white space.

    Attributes:
      escapes: translations are written as text of HTML or XML.
    """

    def __init__(self, text: str, escapes: bool = False):
        self._parts = re.split(r"(^\ufeff|\r?\n|\r)", text)
        self.segments, self.escapes = self._parts[::2], escapes
        self.inline = [False] * len(self.segments)

    def assemble(
        self, translations: Sequence[str], aligned: Sequence[Aligned | None]
    ) -> str:
        """Joins lines with the line ends that are between the segments."""
        if self.escapes:
            translations = [
                new if new == old else html.escape(new, quote=False)
                for old, new in zip(self.segments, translations, strict=True)
            ]
        ends = [*self._parts[1::2], ""]
        return "".join(itertools.chain(*zip(translations, ends, strict=True)))


@dataclasses.dataclass(frozen=True)
class Preserved:
    """What to preserve; by default nothing.

    Attributes:
      format: "srt" for SubRip's subtitles, "po" for gettext's messages, "whole" for
        other texts of several lines; "" if each is a line, or has markup.
      markup: a key of `KINDS`; "" if texts are plain.
      ignored: names of elements that stay as they are.
      split: "sentences" to search for each sentence by itself, and for parts of those
        that are too long for the model.
      placeholders: whether what `placeholders.PATTERNS` describes is kept.
      terms: how words are to be translated; None for as the model likes.
      term_mode: "soft" shows the model the terms, "hard" demands them, "check" only
        counts. "" is soft if the model has learned it (`config.data.augment=terms`),
        else hard.

    Raises:
      UserError: no such choice.
    """

    format: str = ""
    markup: str = ""
    ignored: tuple[str, ...] = ()
    split: str = ""
    placeholders: bool = False
    terms: Terms | None = None
    term_mode: str = ""

    def __post_init__(self):
        for name, known in (
            ("format", FORMATS),
            ("markup", ("", *KINDS)),
            ("split", SPLITS),
            ("term_mode", TERM_MODES),
        ):
            if (value := getattr(self, name)) not in known:
                raise UserError(f"{name}={value!r}{did_you_mean(value, known[1:])}")
        if self.term_mode and self.terms is None:
            raise UserError(f"term_mode={self.term_mode!r} needs terms, a file")
        if self.ignored and not self.markup:
            raise UserError(f"ignored={[*self.ignored]} needs markup=html or xml")

    def __bool__(self) -> bool:
        return self != Preserved()

    def check(self, prefix: Any, must: Any, must_not: Any) -> None:
        """Raises UserError for constraints that cannot be divided among parts."""
        if not (self.format or self.markup or self.split):
            return
        if prefix or must:
            raise UserError(
                "prefix and must are of single lines; with markup, split or format "
                "leave them out, or translate the segments by themselves"
            )
        if any(not isinstance(each, str) for each in must_not or ()):
            raise UserError(
                "must_not: with markup, split or format want phrases for all lines"
            )

    def document(self, text: str, target: str) -> Document:
        """Makes the document of a text that is translated into a language."""
        if self.format == "po":
            return Po(text, target, self._inner)
        return SubRip(text, self._inner) if self.format == "srt" else self._inner(text)

    def _inner(self, text: str) -> Document:
        """Makes the document of a text that is no file."""
        # A line without markup is searched as it is: with all of its white space.
        if not self.markup or not re.search("[<&\r\n]", text):
            return Lines(text, escapes=bool(self.markup))
        return parse(text, self.markup, self.ignored)


class Model(NamedTuple):
    """What a search can take.

    Attributes:
      symbols: of `SYMBOLS`, if the model was trained to copy them.
      shows_terms: the model was trained with terms in its source.
      source, target: the codes of the languages.
      fits: whether a line is not too long.
    """

    symbols: tuple[str, ...]
    shows_terms: bool
    source: str
    target: str
    fits: Callable[[str], bool]

    @classmethod
    def of(cls, data: DataConfig, fits: Callable[[str], bool]) -> "Model":
        """What the model of a config can take."""
        known = {*parse_symbols(data.symbols)}
        symbols = SYMBOLS if {*SYMBOLS} <= known else ()
        return cls(symbols, {*MARKS} <= known, data.source, data.target, fits)


@dataclasses.dataclass(eq=False)
class Part:
    """A part of a segment that is searched by itself.

    Attributes:
      begin: where it is in the segment whose placeholders are symbols.
      text: it.
      line: what is searched, with terms shown to the model.
      origins: for each unit of `line`, the unit of `text` that it is from; -1: none.
      kept: the symbols and placeholders that its translation has to contain.
      must: the phrases that are demanded.
      found: its translation.
    """

    begin: int
    text: str
    line: str
    origins: Sequence[int]
    kept: tuple[str, ...]
    must: tuple[str, ...]
    found: Translation | None = None

    def take(self, found: Translation) -> None:
        """Takes a translation, unless an earlier one lacks no more placeholders."""
        if self.found is None or len(self.lacks(found)) < len(self.lacks(self.found)):
            self.found = found

    def lacks(self, found: Translation) -> list[str]:
        """The placeholders that the best translation lacks."""
        return [each for each in self.kept if each not in found.text]


class Segment:
    """A segment of a document: its placeholders, and the parts that are searched.

    Attributes:
      number: of its text.
      inline: there are tags within it.
    """

    def __init__(
        self, text: str, number: int, inline: bool, preserved: Preserved, model: Model
    ):
        self.text, self.number, self.inline = text, number, inline
        self._terms = preserved.terms
        keeps = preserved.placeholders
        self.protected = protect(text, model.symbols) if keeps else None
        replaced = self.protected.text if keeps else text
        spans = [(0, len(replaced))]
        if preserved.split:
            spans = [
                (begin + first, begin + last)
                for begin, end in split(replaced, model.source)
                for first, last in split_long(replaced[begin:end], model.fits)
            ]
        self.replaced = replaced
        self.parts = [
            self._part(begin, replaced[begin:end], preserved, model)
            for begin, end in spans
        ]

    def _part(self, begin: int, text: str, preserved: Preserved, model: Model) -> Part:
        kept, must = (), ()
        if self.protected is not None:
            expected = *self.protected.symbols, *self.protected.beyond
            kept = tuple(each for each in dict.fromkeys(expected) if each in text)
        line = Annotated(text, range(len(units(text, EVERY))))
        if preserved.terms is not None:
            mode = preserved.term_mode or ("soft" if model.shows_terms else "hard")
            if mode == "soft":
                line = annotate(text, preserved.terms.matches(text))
            elif mode == "hard":
                must = preserved.terms.phrases(text)
        return Part(begin, text, *line, kept, must)

    @property
    def ranks(self) -> int:
        """The number of translations of the part with most of them."""
        return max((len(part.found.hypotheses) for part in self.parts), default=1)

    def hypotheses(self, rank: int) -> list[Hypothesis]:
        """The translations of the parts, with this rank or the last one."""
        every = [part.found.hypotheses for part in self.parts]
        return [of_part[min(rank, len(of_part) - 1)] for of_part in every]

    def translation(
        self, rank: int, aligned: Sequence[Aligned], report: Report
    ) -> tuple[str, Aligned | None]:
        """Joins the translations of its parts, and restores its placeholders.

        Args:
          aligned: of each part, if the segment is `inline`.

        Returns:
          The translation, and the units of the segment and of it.
        """
        text, end, links = "", 0, []
        sides: tuple[list, list] = ([], [])
        hypotheses = self.hypotheses(rank)
        linked = aligned or [Aligned((), (), ())] * len(hypotheses)
        for part, found, of_part in zip(self.parts, hypotheses, linked, strict=True):
            text += self.replaced[end : part.begin]
            links += [
                (part.origins[s] + len(sides[0]), t + len(sides[1]))
                for s, t in of_part.links
                if part.origins[s] >= 0
            ]
            if aligned:
                sides[0].extend(_shifted(units(part.text, EVERY), part.begin))
                sides[1].extend(_shifted(of_part.target, len(text)))
            text += found.text
            end = part.begin + len(part.text)
        text += self.replaced[end:]
        if self.protected is not None:
            restored = restore(text, self.protected)
            text = restored.text
            sides = (
                [moved(span, self.protected.edits) for span in sides[0]],
                [moved(span, restored.edits) for span in sides[1]],
            )
            if rank == 0:
                report.add_placeholders(self.number, self.protected, restored)
        if rank == 0 and self._terms is not None:
            matches = self._terms.matches(self.text)
            report.terms.add(check(matches, text))
        return text, Aligned(*sides, links) if aligned else None


def _shifted(spans: Sequence[Span], by: int) -> list[Span]:
    return [(begin + by, end + by) for begin, end in spans]


class Texts:
    """Texts on their way to a search and back.

    Args:
      first: the number of the first text, for the report.

    Attributes:
      parts: what is searched.
    """

    def __init__(
        self,
        texts: Sequence[str],
        preserved: Preserved,
        model: Model,
        report: Report,
        first: int = 1,
    ):
        self.texts, self.report = texts, report
        self.documents = [preserved.document(text, model.target) for text in texts]
        self.segments = [
            [
                Segment(segment, number, inline, preserved, model)
                for segment, inline in zip(each.segments, each.inline, strict=True)
            ]
            for number, each in enumerate(self.documents, first)
        ]
        every = itertools.chain.from_iterable(self.segments)
        self.parts = [part for segment in every for part in segment.parts]

    @property
    def one_each(self) -> bool:
        """True if each text is searched as one line."""
        return all(len(of) == 1 == len(of[0].parts) for of in self.segments)

    def lost(self) -> list[int]:
        """The numbers of parts that lack placeholders, and shall be searched again.

        They then demand them as phrases.
        """
        lost = [n for n, part in enumerate(self.parts) if part.lacks(part.found)]
        for part in (self.parts[n] for n in lost):
            part.must = (*part.must, *part.lacks(part.found))
        self.report.placeholders["searched again"] += len(lost)
        return lost

    def to_align(self) -> list[tuple[str, Hypothesis]]:
        """Lines and their translations whose units have to be linked."""
        return [
            (part.line, found)
            for segment in itertools.chain.from_iterable(self.segments)
            if segment.inline
            for rank in range(segment.ranks)
            for part, found in zip(segment.parts, segment.hypotheses(rank), strict=True)
        ]

    def finished(self, aligned: Sequence[Aligned]) -> list[Translation]:
        """Returns the translation of each text.

        Args:
          aligned: of each of `to_align`.
        """
        left = iter(aligned)
        return [
            self._finished(*each, left)
            for each in zip(self.texts, self.documents, self.segments, strict=True)
        ]

    def _finished(
        self,
        text: str,
        document: Document,
        segments: Sequence[Segment],
        aligned: Iterator[Aligned],
    ) -> Translation:
        parts = [part for segment in segments for part in segment.parts]
        cut = sum(part.found.cut for part in parts)
        by_rank: list[list] = [
            [] for _ in range(max((s.ranks for s in segments), default=1))
        ]
        for segment in segments:
            of_segment = [
                segment.translation(
                    rank,
                    [next(aligned) for _ in segment.parts] if segment.inline else (),
                    self.report,
                )
                for rank in range(segment.ranks)
            ]
            for rank, made in enumerate(by_rank):
                made.append(of_segment[min(rank, segment.ranks - 1)])
        hypotheses = []
        for rank, made in enumerate(by_rank):
            found = [h for s in segments for h in s.hypotheses(rank)]
            texts, of_units = zip(*made, strict=True) if made else ((), ())
            assembled = document.assemble(texts, of_units)
            if rank == 0:
                self.report.markup.update(getattr(document, "report", {}))
            # What was searched as it is stays as it was found.
            if len(found) == 1 and found[0].text == assembled:
                hypotheses.append(found[0])
                continue
            hypotheses.append(
                Hypothesis(
                    assembled,
                    sum(each.score for each in found),
                    sum(each.log_prob for each in found),
                    all(each.ended for each in found),
                )
            )
        if len(parts) != 1:  # ranks of several parts may be the same text
            by_text: dict[str, Hypothesis] = {}
            for each in hypotheses:
                by_text.setdefault(each.text, each)
            hypotheses = [*by_text.values()]
        return Translation(text, tuple(hypotheses), cut)
