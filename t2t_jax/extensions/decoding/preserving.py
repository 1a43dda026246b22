"""What must survive a translation: markup, placeholders, terms, the shape of a text.

    text ─ document ─► segments ─ placeholders ─► sentences ─ terms ─► lines to search
    text ◄─ assemble ─ segments ◄─ restored ◄─ joined ◄─ translations, and their units

`PreparedText` is a text on this way, there and back; `PreservingOptions` say what to
do. `translated` leads texts along it. It leaves searching and aligning to its caller:
`decoding/translator.py`, or `tools/serve` with an engine. A line without anything to
preserve is searched as it is, so its translation has the same bits; only the white
space around it is not searched, and stays.
"""

import bisect
import dataclasses
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from t2t_jax.config import DataConfig
from t2t_jax.data.tokenizers.vocabulary import parse_symbols
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.decoding.search_options import PreservingOptions, SearchRequest
from t2t_jax.extensions.text.formats import LineDocument, Po, SubRip
from t2t_jax.extensions.text.markup import parse
from t2t_jax.extensions.text.placeholders import (
    Protected,
    RestoredText,
    find,
    protect,
    restore,
)
from t2t_jax.extensions.text.sentences import sentences
from t2t_jax.extensions.text.terms import Terms, annotate, check, report_lines
from t2t_jax.io.errors import UserError
from t2t_jax.io.parts import chunks
from t2t_jax.sections import checked_options
from t2t_jax.text.units import (
    MARKS,
    SYMBOLS,
    Aligned,
    Edits,
    Span,
    core,
    inverse,
    map_span,
    splice,
    units,
)

# Lines whose placeholders are demanded together: each has a table of its own.
REPEATED = 64
LISTED = 20  # numbers of texts in a report


@dataclasses.dataclass(eq=False)
class Report:
    """What happened to the markup, placeholders and terms of some texts.

    Attributes:
      markup: counts of `MarkupDocument.report`.
      placeholders: `asked`, those of all texts; `searched again`, parts of texts in
        which a first search had lost some; `lost` and `repeated` after that.
      lost: the numbers of the texts, from 1, in which one is lost or repeated.
      terms: by source and target, how often it was exact, inflected, missing.
    """

    markup: Counter = dataclasses.field(default_factory=Counter)
    placeholders: Counter = dataclasses.field(default_factory=Counter)
    lost: list[int] = dataclasses.field(default_factory=list)
    terms: dict = dataclasses.field(default_factory=lambda: defaultdict(Counter))

    def lines(self) -> list[str]:
        """The report, for a person; empty if there was nothing to preserve."""
        lines = []
        for name in ("markup", "placeholders"):
            counts = [f"{n:,} {name}" for name, n in getattr(self, name).items() if n]
            lines += [f"{name}: {', '.join(counts)}"] if counts else []
        if numbers := [*map(str, dict.fromkeys(self.lost))]:
            unlisted = len(numbers) - LISTED
            listed = ", ".join(numbers[:LISTED])
            listed += f" and {unlisted:,} more" if unlisted > 0 else ""
            lines.append(f"placeholders are lost or repeated in: {listed}")
        return lines + (report_lines(self.terms) if self.terms else [])

    def add_placeholders(self, protected: Protected, restored: RestoredText) -> bool:
        """Counts placeholders of a segment; returns whether one is lost or repeated."""
        self.placeholders["asked"] += protected.kinds.total()
        self.placeholders["untranslated ICU blocks"] += protected.kinds["icu"]
        self.placeholders["lost"] += len(restored.missing)
        self.placeholders["repeated"] += len(restored.repeated)
        return bool(restored.missing or restored.repeated)


class Document(Protocol):
    """A text and its segments.

    Attributes:
      segments: what is translated, each of one line.
      inline: for each, whether there are tags within, which need an alignment.
      escapes: translations are written as text of HTML or XML.
      report: counts what happened to tags.
    """

    segments: Sequence[str]
    inline: Sequence[bool]
    escapes: bool
    report: Counter[str]

    def assemble(
        self, translations: Sequence[str], aligned: Sequence[Aligned | None]
    ) -> str:
        """Returns the text with translations in place of the segments."""


def preserving_options(values: Mapping[str, Any], label: str = "") -> PreservingOptions:
    """Checks options by name, of which None is the default, and reads terms.

    Args:
      values: as in `PreservingOptions`; `ignored` may also be a list.
      label: stands before the names in errors, such as "--".

    Raises:
      UserError: an option or the file of terms is wrong.
    """
    values = {name: value for name, value in values.items() if value is not None}
    terms = values.pop("terms", "")
    if not isinstance(values.get("ignored", ""), str):
        values["ignored"] = ",".join(values["ignored"])
    options = checked_options(PreservingOptions, values, label)
    if isinstance(terms, str | os.PathLike) and terms:
        terms = Terms(str(terms))
    return PreservingOptions(**options, terms=terms)


def check_constraints(options: PreservingOptions, request: SearchRequest) -> None:
    """Raises UserError for constraints that cannot be divided among parts."""
    if not (options.format or options.markup or options.split):
        return
    if request.prefix or request.must:
        raise UserError(
            "prefix and must are of single lines; with markup, split or format "
            "leave them out, or translate the segments by themselves"
        )
    if any(not isinstance(entry, str) for entry in request.must_not or ()):
        raise UserError(
            "must_not: with markup, split or format want phrases for all lines"
        )


def document_of(text: str, options: PreservingOptions, target: str) -> Document:
    """Makes the document of a text that is translated into a language."""
    inner = None
    if options.markup:
        ignored = options.ignored.split(",")
        inner = partial(parse, kind=options.markup, ignored=ignored)
    if options.format == "srt":
        return SubRip(text, inner)
    if options.format == "po":
        # A message may have several lines.
        return Po(text, target, partial(LineDocument, inner=inner))
    return (inner or LineDocument)(text)


class ModelSupport(NamedTuple):
    """What a search can take.

    Attributes:
      symbols: `SYMBOLS`, if the model was trained to copy them.
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
    def of(cls, data: DataConfig, fits: Callable[[str], bool]) -> "ModelSupport":
        """What the model of a config can take."""
        learned = {*parse_symbols(data.symbols)}
        symbols = SYMBOLS if {*SYMBOLS} <= learned else ()
        return cls(symbols, {*MARKS} <= learned, data.source, data.target, fits)


@dataclasses.dataclass(eq=False)
class SearchedPart:
    """A part of a segment that is searched by itself.

    Attributes:
      span: in the segment whose placeholders are symbols.
      line: what is searched: its text, with terms shown to the model.
      edits: of the text, which make the line.
      required: the symbols and placeholders that its translation has to contain.
      must: the phrases that are demanded.
      number: of the text that it is of.
      aligned: the units of the line and of each hypothesis, if they are needed.
    """

    span: Span
    line: str
    edits: Edits
    required: tuple[str, ...]
    must: tuple[str, ...]
    number: int
    translation: Translation | None = None
    aligned: Sequence[Aligned] = ()

    def take(self, translation: Translation) -> None:
        """Takes a translation, unless the one before lacks as few placeholders."""
        if self.translation is None or len(self.lacks(translation)) < len(self.lacks()):
            self.translation = translation

    def lacks(self, translation: Translation | None = None) -> list[str]:
        """The placeholders that the best hypothesis lacks."""
        text = (translation or self.translation).text
        return [symbol for symbol in self.required if symbol not in text]

    def demand_lost(self) -> bool:
        """Demands the placeholders that the translation lacks; false if it has all."""
        lost = self.lacks()
        self.must = (*self.must, *lost)
        return bool(lost)

    def clamped(self, rank: int) -> int:
        """`rank`, or the last rank if there are fewer hypotheses."""
        return min(rank, len(self.translation.hypotheses) - 1)

    def hypothesis(self, rank: int) -> Hypothesis:
        """The hypothesis of a rank, or the last one."""
        return self.translation.hypotheses[self.clamped(rank)]


class Segment:
    """A segment of a document: its placeholders, and the parts that are searched.

    Attributes:
      inline: there are tags within it.
    """

    def __init__(
        self,
        text: str,
        inline: bool,
        options: PreservingOptions,
        support: ModelSupport,
        number: int,
    ):
        self.text, self.inline, self._replaced = text, inline, text
        self._terms, self._protected = options.terms, None
        if options.placeholders:
            self._protected = protect(text, support.symbols)
            self._replaced = self._protected.text
        self._options, self._support = options, support
        self.parts: list[SearchedPart] = []
        self._number = number

    def prepare(self) -> Iterator[None]:
        """Makes the parts, those of a sentence at each step."""
        options, support, protected = self._options, self._support, self._protected
        mode = options.term_mode or ("soft" if support.shows_terms else "hard")
        hard = options.terms and mode == "hard"
        expected = {*protected.symbols, *protected.beyond} if protected else {}

        def with_terms(text: str) -> tuple[str, Edits]:
            soft = options.terms and mode == "soft"
            return annotate(text, options.terms.matches(text)) if soft else (text, ())

        def fits(text: str) -> bool:
            return support.fits(with_terms(text)[0])

        sentence_spans: Iterable[Sequence[Span]] = [[core(self._replaced)]]
        if options.split:
            sentence_spans = sentences(self._replaced, support.source, fits)
        for spans in sentence_spans:
            for begin, end in spans:
                text = self._replaced[begin:end]
                must = options.terms.phrases(text) if hard else ()
                symbols = dict.fromkeys(text[p.begin : p.end] for p in find(text))
                required = tuple(symbol for symbol in symbols if symbol in expected)
                line, edits = with_terms(text)
                self.parts.append(
                    SearchedPart(
                        (begin, end), line, edits, required, must, self._number
                    )
                )
            yield

    def translation(
        self, rank: int, report: Report | None
    ) -> tuple[str, Aligned | None, bool]:
        """Joins the translations of its parts, and restores its placeholders.

        Returns:
          The translation; the units of the segment and of it, if it is `inline`;
          whether a placeholder is lost or repeated.
        """
        texts = [part.hypothesis(rank).text for part in self.parts]
        text, joined = splice(self._replaced, [part.span for part in self.parts], texts)
        source_edits: Edits = ()
        target_edits: Edits = ()
        lost = False
        if self._protected:
            restored = restore(text, self._protected)
            text, target_edits = restored.text, restored.edits
            source_edits = inverse(self._protected.edits)
            counted = Report() if report is None else report
            lost = counted.add_placeholders(self._protected, restored)
        terms = self._terms if report is not None else None  # only they take long
        matches = terms.matches(self._replaced) if terms else ()
        for term in check(matches, text):
            report.terms[term.match.source, term.match.target][term.outcome] += 1
        if not self.inline:
            return text, None, lost
        source, target, links = units(self.text), [], []
        begins, ends = zip(*source, strict=True) if source else ((), ())
        for part, (_, (begin, _)) in zip(self.parts, joined, strict=True):
            aligned, back = part.aligned[part.clamped(rank)], inverse(part.edits)
            for s, t in aligned.links:
                span = _moved(map_span(aligned.source[s], back), part.span[0])
                low, high = map_span(span, source_edits)
                unit_numbers = range(
                    bisect.bisect_right(ends, low), bisect.bisect_left(begins, high)
                )
                links += [(n, len(target) + t) for n in unit_numbers]
            spans = (_moved(span, begin) for span in aligned.target)
            target += [map_span(span, target_edits) for span in spans]
        return text, Aligned(source, target, links), lost


def _moved(span: Span, offset: int) -> Span:
    return span[0] + offset, span[1] + offset


class PreparedText:
    """A text, prepared for a search, and made of its results.

    Args:
      number: of the text, for the report.

    Attributes:
      segments: how many there are.
      error: why there is no translation, if a part is refused.
    """

    def __init__(
        self,
        text: str,
        number: int,
        options: PreservingOptions,
        support: ModelSupport,
    ):
        self.text, self.number = text, number
        self._document = document_of(text, options, support.target)
        self.segments = len(self._document.segments)
        self._options = options, support
        self._segments: list[Segment] = []
        self.error: UserError | None = None

    def prepare(self) -> Iterator[None]:
        """Prepares the segments, a sentence at each step."""
        document = self._document
        for text, inline in zip(document.segments, document.inline, strict=True):
            segment = Segment(text, inline, *self._options, self.number)
            self._segments.append(segment)
            yield from segment.prepare()

    @property
    def parts(self) -> list[SearchedPart]:
        """What is searched; none if the text is refused."""
        segments = () if self.error else self._segments
        return [part for segment in segments for part in segment.parts]

    def take(self, results: Iterator[Translation | UserError]) -> None:
        """Takes the translation of each part, or why one is refused."""
        for part in self.parts:
            if isinstance(result := next(results), UserError):
                self.error = self.error or result
            else:
                part.take(result)

    def to_align(self) -> list[tuple[SearchedPart, Hypothesis]]:
        """Parts and hypotheses whose units have to be linked, in order."""
        return [
            (part, hypothesis)
            for part in self._inline()
            for hypothesis in part.translation.hypotheses
        ]

    def _inline(self) -> Iterator[SearchedPart]:
        segments = () if self.error else self._segments
        return (p for segment in segments if segment.inline for p in segment.parts)

    def finished(
        self, aligned: Iterator[Aligned], report: Report | None
    ) -> Translation | UserError:
        """Returns the translation of the text, or why there is none.

        Args:
          aligned: of each of `to_align`.
          report: counts what happened.
        """
        if self.error:
            return self.error
        for part in self._inline():
            part.aligned = [next(aligned) for _ in part.translation.hypotheses]
        parts = self.parts
        sizes = [len(part.translation.hypotheses) for part in parts]
        hypotheses: list[Hypothesis] = []
        for rank in range(max(sizes, default=1)):
            counted = None if rank else report
            rows = [x.translation(rank, counted) for x in self._segments]
            texts, aligned_units, lost = zip(*rows, strict=True) if rows else ((),) * 3
            text = self._document.assemble(texts, aligned_units)
            if counted is not None:
                report.markup.update(self._document.report)
                report.lost += [self.number] * any(lost)
            ranked = [part.hypothesis(rank) for part in parts]
            score = sum(hypothesis.score for hypothesis in ranked)
            log_prob = sum(hypothesis.log_prob for hypothesis in ranked)
            ended = all(hypothesis.ended for hypothesis in ranked)
            hypotheses.append(Hypothesis(text, score, log_prob, ended))
        # What was searched as it is stays as it was found.
        if len(parts) == 1:
            translation = parts[0].translation.surrounded(self.text)
            if [*map(str, translation.hypotheses)] == [*map(str, hypotheses)]:
                return translation
        cut = sum(part.translation.cut for part in parts)
        # Ranks of several parts may be the same text.
        return Translation(self.text, (*hypotheses,), cut).distinct()


class SearchStep(NamedTuple):
    """Asks for the translation of each part, or why it is refused.

    Attributes:
      is_repeat: some placeholders were lost, and are demanded now; if a part is
        refused, its first translation stays.
    """

    parts: Sequence[SearchedPart]
    is_repeat: bool = False


class AlignStep(NamedTuple):
    """Asks for the linked units of each pair; a part says which text it is of."""

    pairs: Sequence[tuple[SearchedPart, Hypothesis]]


def translated(
    texts: Iterable[PreparedText], report: Report | None = None
) -> Generator[SearchStep | AlignStep | None, Any, list[Translation | UserError]]:
    """Translates texts: prepares, searches, searches again, aligns, finishes.

    A generator, so that any kind of search can drive it. It returns the translations of
    the texts, and is sent what it asks for; at a None it only lets others have a turn.
    """
    prepared = []
    for text in texts:
        yield from text.prepare()
        prepared.append(text)
    parts = [part for text in prepared for part in text.parts]
    results = iter((yield SearchStep(parts)))
    for text in prepared:
        text.take(results)
    lost = [part for text in prepared for part in text.parts if part.demand_lost()]
    if report is not None:
        report.placeholders["searched again"] += len(lost)
    if lost:
        results = yield SearchStep(lost, is_repeat=True)
        for part, result in zip(lost, results, strict=True):
            if not isinstance(result, UserError):
                part.take(result)
    pairs = [pair for text in prepared for pair in text.to_align()]
    aligned = iter((yield AlignStep(pairs)) if pairs else ())
    translations = []
    for text in prepared:
        translations.append(text.finished(aligned, report))
        yield
    return translations


def support_of(translator: Any) -> ModelSupport:
    """What the model of a `Translator` can take of what is to be preserved."""
    fits = translator.reader(1, warn=False).fits
    return ModelSupport.of(translator.config.data, fits)


def translate(
    translator: Any,
    texts: Sequence[str],
    request: SearchRequest,
    preserved: Mapping[str, Any],
    report: Report | None,
) -> list[Translation]:
    """Translates texts, of which something is to be preserved, by a `Translator`."""
    # Commands check their flags with this module, before JAX is imported.
    from t2t_jax.decoding.constraints import phrases_for_each
    from t2t_jax.decoding.inputs import check_lines

    check_lines(texts)
    options = preserving_options(preserved)
    report = Report() if report is None else report
    check_constraints(options, request)
    if options.markup:  # before anything is searched
        translator.check_attention()
    first_line, support = request.first_line, translator.preserving_support
    phrases = phrases_for_each(request.must, len(texts), "must")
    lost_before, undivided = len(report.lost), False

    def search(parts: Sequence[SearchedPart], warn: bool) -> list[Translation]:
        selected, must = request, [part.must for part in parts]
        if undivided:
            rows = [part.number - first_line for part in parts]
            selected = request.for_lines(rows)
            must = [
                (*phrases[row], *part.must)
                for row, part in zip(rows, parts, strict=True)
            ]
        must = must if any(must) else ()
        selected = dataclasses.replace(selected, must=must, warn=warn)
        lines = [part.line for part in parts]
        return translator.choice.translate(translator, lines, selected)

    def search_again(parts: Sequence[SearchedPart]) -> list:
        try:
            return search(parts, warn=False)
        except UserError as e:  # one of them cannot be demanded, so each by itself
            if len(parts) == 1:
                return [e]
            return [result for part in parts for result in search_again([part])]

    prepared = (
        PreparedText(text, number, options, support)
        for number, text in enumerate(texts, first_line)
    )
    steps, answer = translated(prepared, report), None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            translations = end.value
            break
        answer = None
        if isinstance(step, AlignStep):
            pairs = [(part.line, hypothesis) for part, hypothesis in step.pairs]
            answer = translator.align_units(pairs)
        elif step and step.is_repeat:
            parts = chunks(step.parts, REPEATED)
            answer = [result for chunk in parts for result in search_again(chunk)]
        elif step:
            numbers = [part.number for part in step.parts]
            undivided = numbers == [*range(first_line, first_line + len(texts))]
            answer = search(step.parts, request.warn and undivided)
    reader = translator.reader(first_line, request.warn)
    if not undivided:
        reader.warn(
            [row for row, t in enumerate(translations) if t.cut],
            len(texts),
            ": a part is too long for the model, and its end is not translated; "
            "add split=sentences",
            "texts have parts that are too long for the model, and whose ends are "
            "not translated; add split=sentences",
        )
    rows = [number - first_line for number in report.lost[lost_before:]]
    problem = " a placeholder is lost or comes twice"
    reader.warn(rows, len(texts), f":{problem}", f"lines, in which{problem}")
    return translations
