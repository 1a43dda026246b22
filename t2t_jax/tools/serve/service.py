"""A request between an interface and the engine: its key, direction, limits, lines.

An interface is a `Row` of a table: a path, the fields that it reads, a function of a
`Call` that returns the body of the answer, and the body of its errors.
"""

import asyncio
import dataclasses
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect, Request

from t2t_jax.decoding.preserving import PreparedText, Report, preserving_options
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.messages import say
from t2t_jax.text.languages import OTHER, distance, identify
from t2t_jax.text.sentences import core
from t2t_jax.tools.serve.engine import (
    Details,
    Direction,
    Engine,
    Options,
    OverloadedError,
)
from t2t_jax.tools.serve.fields import Refusal, bad, fields, read_fields
from t2t_jax.tools.serve.metrics import Metrics
from t2t_jax.tools.serve.precision import Precision
from t2t_jax.tools.serve.settings import Glossary, Settings

MEASURED = 500  # lines of a dev set at a time
COLUMNS = "core", "options"  # of a line, as the engine takes them


class Gone(Exception):  # noqa: N818
    """The client has closed the connection."""


class Row(NamedTuple):
    """A row of a table of interfaces.

    Attributes:
      answer: returns what becomes JSON, or a `Response`.
      error: the body of an error, of the refusal and the request's id.
      fields: declared as `fields.fields` parses them.
      keyless: no key is needed, as nothing is translated.
      strict: a field that is not known is refused.
    """

    path: str
    methods: tuple[str, ...]
    summary: str
    answer: Callable[["Call"], Awaitable[Any]]
    error: Callable[[Refusal, str], Any]
    fields: str = ""
    keyless: bool = False
    strict: bool = False


class Answer(NamedTuple):
    """The translation of a text, as clients' interfaces give it.

    Attributes:
      texts: distinct translations, best first.
      language: that of the source, in BCP 47.
      sureness: of the guess of the language, 0 to 1; None if it was given.
      ended: every line's translation has ended within the length limit.
    """

    texts: list[str]
    language: str
    sureness: float | None
    ended: bool


@dataclasses.dataclass(eq=False)
class Line:
    """A line of a request, and what is known of it.

    Attributes:
      direction: None if it stays as it is: in the target's language, or in none that
        is served.
      language, sureness: of the source, as in `Answer`.
      found: its translation, or why there is none.
    """

    text: str
    direction: Direction | None
    language: str
    sureness: float | None = None
    options: Options = dataclasses.field(default_factory=Options)
    found: Any = dataclasses.field(init=False)
    details: Details | None = None

    def __post_init__(self):
        unchanged = Hypothesis(self.text, 0.0, 0.0, ended=True)
        self.found = Translation(self.text, (unchanged,))

    @property
    def core(self) -> str:
        """The text without the white space around it, which is not searched."""
        return self.text[slice(*core(self.text))]


class Service:
    """An engine with the limits of requests.

    Attributes:
      compiled: what the engine's warm-up has reported.
      measured: by direction, a translator and the precision of its translations.
      stopping: no more requests are taken.
    """

    def __init__(self, engine: Engine, settings: Settings, guesser=None):
        if guesser is None:
            from t2t_jax.text.language_identification import Guesser

            guesser = Guesser(each.source for each in engine.directions.values())
        self.engine, self.settings, self.guesser = engine, settings, guesser
        self.metrics = Metrics()
        self.compiled: list[str] = []
        self.measured: dict[str, tuple[Any, Precision]] = {}
        self.stopping = False
        self._provenance: dict[str, tuple[Any, dict]] = {}

    @property
    def ready(self) -> bool:
        """True once everything is compiled, and measured."""
        return self.engine.ready and len(self.measured) == len(self.settings.dev)

    def report(self, text: str) -> None:
        """Notes and prints what is compiled; ends the warm-up if the server stops."""
        if self.stopping:
            raise Refusal(503, "stopping", "the server stops")
        self.compiled.append(text)
        say(text)

    async def measure(self) -> None:
        """Translates the dev sets of directions whose parameters are new.

        Clients come first: while the queue is too long, it waits.
        """
        for name, pairs in self.settings.dev.items():
            translator, found = self.engine.directions[name].translator, []
            if self.measured.get(name, (None,))[0] is translator:
                continue
            most = min(MEASURED, self.engine.limits.queue)
            while len(found) < len(pairs):
                lines = [source for source, _ in pairs[len(found) :][:most]]
                call = {"client": "", "deadline": time.monotonic() + 3600}
                options = [Options()] * len(lines)
                try:
                    found += await self.engine.translate(name, lines, options, **call)
                except OverloadedError as e:
                    await asyncio.sleep(e.retry_after)
                    continue
                self.report(f"{name}: {len(found):,} of {len(pairs):,} dev lines")
            of = pairs, found, self.settings.good_chrf
            self.measured[name] = translator, await asyncio.to_thread(Precision, *of)

    def precision(
        self, direction: Direction, beam: int | None, wanted: bool
    ) -> Precision | None:
        """The precision of translations with a beam; refuses if it is wanted only."""
        translator, made = self.measured.get(direction.name, (None, None))
        default, name = self.engine.limits.beams[0], direction.name
        of_dev = name in self.settings.dev and beam in (None, default)
        if of_dev and translator is direction.translator:
            return made
        if of_dev and wanted:
            raise Refusal(503, "not_ready", "precision is being measured", 5)
        if wanted:
            raise bad(
                f"precision of {name} is measured at the start, with beam={default}, "
                f"if the server has --dev={name}=PREFIX, a dev set"
            )
        return None

    async def provenance(self, direction: Direction, beam: int | None) -> dict:
        """What translations with a beam, or the default one, depend on."""
        translator = direction.translator
        if self._provenance.get(direction.name, (None,))[0] is not translator:
            made = await asyncio.to_thread(translator.provenance)
            self._provenance[direction.name] = translator, made
        made = self._provenance[direction.name][1]
        beam = beam or self.engine.limits.beams[0]
        limits = self.engine.limits
        sampling = dataclasses.asdict(limits.sampling) | {"samples": limits.samples}
        del sampling["seed"]  # a request has it
        return made | {
            "decode": {**made["decode"], "beam": beam},
            "sampling": sampling,
        }

    # ---------------------------------------------------------------- directions

    def fitting(self, source: str | None, target: str | None) -> list[Direction]:
        """The directions between languages, the nearest codes; None: any language."""
        ranked: dict[int, list[Direction]] = {}
        for each in self.engine.directions.values():
            pairs = (source, each.source), (target, each.target)
            rank = sum(distance(*pair) for pair in pairs if pair[0])
            ranked.setdefault(rank, []).append(each)
        if (nearest := min(ranked)) < OTHER:
            return ranked[nearest]
        pair = f"from {source or 'any language'} to {target or 'any language'}"
        names = ", ".join(self.engine.directions)
        message = f"no translation {pair}; there are: {names}"
        raise Refusal(400, "unknown_pair", message)

    def choose(
        self, text: str, source: str | None, target: str | None, name: str | None
    ) -> Line:
        """Chooses the direction of a text: that of a name, or between languages.

        The language of the source is guessed if it is `auto`, or not given though the
        target is, or several are served. A text that is in no served language stays.
        """
        if name:
            if (direction := self.engine.directions.get(name)) is None:
                near = did_you_mean(name[:60], self.engine.directions)
                raise Refusal(400, "unknown_pair", f"no direction {name[:60]!r}{near}")
            return Line(text, direction, direction.source)
        given = None if (source or "auto").lower() == "auto" else source
        fits, sureness = self.fitting(given, target), None
        several = len({each.source for each in fits}) > 1
        if given is None and (source or target or several):
            given, sureness, among = self.guesser.guess(text)
            foreign = among < self.settings.min_served
            if foreign or (target and distance(target, given) < OTHER):
                return Line(text, None, given, sureness)
            fits = self.fitting(given, target)
        if len({(each.source, each.target) for each in fits}) > 1:
            names = ", ".join(each.name for each in fits)
            raise bad(f"several directions fit: {names}; name both languages")
        return Line(text, fits[0], given or fits[0].source, sureness)

    def lines(self, text: str, *pair: str | None) -> list[Line]:
        """The lines of a text, in one direction, as `choose` takes it."""
        chosen = self.choose(text, *pair)
        parts = re.split("\r?\n", text)
        return [dataclasses.replace(chosen, text=part) for part in parts]

    def terms(self, name: str | None, direction: str) -> Glossary | None:
        """The terms of this name, if they are of the direction."""
        if not name:
            return None
        terms = self.settings.terms.get(name)
        if terms is None or terms.direction != direction:
            known = ", ".join(self.settings.terms) or "none (--terms=NAME=FILE)"
            raise bad(f"no glossary {name!r} of {direction}; there are: {known}")
        return terms


def join(text: str, lines: Iterable[str]) -> str:
    """Joins the translations of the lines of a text as they were."""
    return ("\r\n" if "\r\n" in text else "\n").join(lines)


class Call:
    """One request to an interface.

    Attributes:
      id: the request's id.
      given, fields: as they came; those of the row, checked; after `read`.
      status: of the answer, unless it is an error.
      deadline: of `time.monotonic()`.
      label: the direction, for the metrics; `several` if there are.
      key: the SHA-256 of the client's API key, if it has one.
    """

    def __init__(self, request: Request, service: Service, row: Row):
        self.request, self.service, self.row = request, service, row
        self.id: str = request.state.id
        self.deadline = time.monotonic() + service.settings.seconds
        self.given: dict[str, Any] = {}
        self.fields: dict[str, Any] = {}
        self.label, self.status, self.key = "", 200, ""
        self._client = request.client.host if request.client else ""

    async def read(self) -> None:
        """Reads and checks key and fields."""
        settings = self.service.settings
        wanted = settings.keys and not self.row.keyless
        if wanted and (key := self._header_key()):  # before the body is read
            self._check_key(key)
        try:
            async with asyncio.timeout(settings.seconds):
                self.given = await read_fields(self.request, settings.bytes)
        except TimeoutError:
            raise Refusal(408, "slow_body", "the body took too long to come") from None
        except ClientDisconnect:
            raise Gone from None
        if wanted and not key:
            # Google's clients call the field `key`, DeepL's old ones `auth_key`.
            names = "api_key", "key", "auth_key"
            self._check_key(next(filter(None, map(self.given.get, names)), None))
        declared = fields(self.row.fields)
        for name in self.given if self.row.strict else ():
            if name not in declared and name != "api_key":
                near = did_you_mean(name[:60], declared)
                raise bad(f"no field {name[:60]!r}{near}")
        self.fields = {name: f.read(name, self.given) for name, f in declared.items()}

    def _header_key(self) -> str | None:
        headers = self.request.headers
        scheme, _, key = headers.get("authorization", "").partition(" ")
        key = key.strip() if scheme.lower() in ("bearer", "deepl-auth-key") else ""
        return key or headers.get("x-api-key")

    def _check_key(self, key: Any) -> None:
        if key is None:
            raise Refusal(401, "no_key", "this server wants an API key")
        digest = hashlib.sha256(str(key).encode(errors="replace")).digest()
        if not self.service.settings.knows(digest):
            raise Refusal(403, "wrong_key", "the API key is wrong")
        self._client = self.key = digest.hex()

    async def translate(
        self,
        texts: Sequence[str],
        source: str | None = None,
        target: str | None = None,
        name: str | None = None,
        nbest: int = 1,
        terms: str | None = None,
        **preserved: Any,
    ) -> list[Answer]:
        """Translates texts, each line by itself. Raises what any line is refused for.

        Args:
          name: of the direction, in place of the languages.
          nbest: at most as many translations of each text.
          terms: the name of terms to use.
          preserved: fields of `PreservingOptions`, such as `markup="html"`.
        """
        service, mode = self.service, preserved.pop("term_mode", "")
        if mode and not terms:
            raise bad("term_mode needs terms, the name of a glossary")
        options = preserving_options(preserved)
        if (count := sum(map(len, texts))) > service.settings.characters:
            raise _too_large(count, "characters", service.settings.characters)
        lines = []
        for text in texts:
            # A language is guessed without tags; many `<` are read once each.
            plain = re.sub("<[^<>]*>", " ", text) if options.markup else text
            chosen = service.choose(plain, source, target, name)
            lines.append(dataclasses.replace(chosen, text=text))

        @cache
        def of_direction(name: str) -> tuple:
            given = {"terms": service.terms(terms, name) or "", "term_mode": mode}
            support = service.engine.directions[name].translator.preserving_support
            fits = partial(support.fits, longest=service.engine.limits.longest)
            return dataclasses.replace(options, **given), support._replace(fits=fits)

        def prepare() -> list[tuple[Line, PreparedText]]:
            return [
                (line, PreparedText(line.text, n, *of_direction(line.direction.name)))
                for n, line in enumerate(lines, 1)
                if line.direction
            ]

        work = await asyncio.to_thread(prepare)
        await self._search_parts(work, nbest)
        await self._search_parts(work, nbest, again=True)
        to_align = []
        for line, text in work:
            for source, hypothesis in text.to_align():
                to_align.append(row := dataclasses.replace(line, text=source))
                row.found = hypothesis
        align, pair = service.engine.align_units, attrgetter("text", "found")
        await self._by_direction(to_align, align, "details", pair)
        aligned = (row.details for row in to_align)
        for line, text in work:
            line.found = text.finished(aligned, Report())
        return [
            Answer(
                [*map(str, line.found.hypotheses)],
                identify(line.language).tag,
                line.sureness,
                line.found.ended,
            )
            for line in lines
        ]

    async def _search_parts(
        self, work: Sequence[tuple[Line, PreparedText]], nbest: int, again: bool = False
    ) -> None:
        """Searches for the parts of texts, or for those again that lack placeholders.

        What is refused is an error, but not again.
        """
        parts = [
            (line, text, part)
            for line, text in work
            for part in text.parts
            if not again or part.demand_lost()
        ]
        searched = [
            dataclasses.replace(
                line, text=part.line, options=Options(nbest=nbest, must=part.must)
            )
            for line, _, part in parts
        ]
        # What has been taken is answered, even if the server stops meanwhile.
        await (self._search if again else self.search)(searched)
        for each, (_, text, part) in zip(searched, parts, strict=True):
            if not isinstance(each.found, UserError):
                part.take(each.found)
            elif not again:
                place = f"text {text.number}: " if len(work) > 1 else ""
                raise bad(f"{place}{each.found}")

    async def search(self, lines: Sequence[Line]) -> None:
        """Finds the translations of lines that have a direction and are not blank."""
        self._check(lines)
        await self._search(lines)

    async def _search(self, lines: Sequence[Line]) -> None:
        names = {line.direction.name for line in lines if line.direction}
        names |= {self.label} - {""}
        self.label = "several" if len(names) > 1 else next(iter(names), "")
        searched, metrics = [], self.service.metrics
        for line in lines:
            if line.direction and re.search("[\r\n]", line.text):
                line.found = UserError("has a line feed in it; send it as two lines")
            elif line.direction and line.text.strip():
                searched.append(line)
                metrics.lines[line.direction.name] += 1
                metrics.characters += len(line.text)
        work, columns = self.service.engine.translate, map(attrgetter, COLUMNS)
        await self._by_direction(searched, work, "found", *columns)
        for line in searched:
            if isinstance(line.found, Translation):
                line.found = line.found.surrounded(line.text)

    async def explain(self, lines: Sequence[Line]) -> None:
        """Finds the details of those translations that the engine searched."""
        translated = [
            line
            for line in lines
            if isinstance(line.found, Translation) and line.found.best.tokens
        ]
        work, pair = self.service.engine.details, attrgetter("core", "found")
        await self._by_direction(translated, work, "details", pair)

    async def _by_direction(
        self, lines: Sequence[Line], work: Callable, result: str, *columns: Callable
    ) -> None:
        """Asks the engine for an attribute of lines, of all directions at once."""
        of: dict[str, list[Line]] = {}
        for line in lines:
            of.setdefault(line.direction.name, []).append(line)
        call = {"client": self._client, "deadline": self.deadline}
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    work(name, *([*map(c, same)] for c in columns), **call)
                )
                for name, same in of.items()
            ]
        for same, task in zip(of.values(), tasks, strict=True):
            for line, value in zip(same, task.result(), strict=True):
                setattr(line, result, value)

    def _check(self, lines: Sequence[Line]) -> None:
        """Refuses what is too much for one request, before anything is queued."""
        service, settings = self.service, self.service.settings
        if service.stopping:
            raise Refusal(503, "stopping", "the server stops", retry_after=5)
        if not service.ready:
            raise Refusal(503, "not_ready", "programs are being compiled", 5)
        # Those phrases count once that are the same for all lines.
        options = [line.options for line in lines]
        phrases = {p for each in options for p in (*each.must, *each.must_not)}
        texts = [*(line.text for line in lines), *(of.prefix for of in options)]
        counts = {"characters": sum(map(len, [*texts, *phrases])), "lines": len(lines)}
        for name, count in counts.items():
            if count > (most := getattr(settings, name)):
                raise _too_large(count, name, most)


def _too_large(count: int, what: str, most: int) -> Refusal:
    return Refusal(413, "too_large", f"{count:,} {what}; want at most {most:,}")
