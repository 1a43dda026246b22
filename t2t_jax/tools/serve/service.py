"""A request between an interface and the engine: its key, direction, limits, lines.

An interface is a `Row` of a table: a path, the fields that it reads, a function of a
`Call` that returns the body of the answer, and the body of its errors.
"""

import asyncio
import contextlib
import dataclasses
import hashlib
import re
import time
from collections import Counter
from collections.abc import (
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import cache, partial
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect, Request

from t2t_jax.decoding.inputs import check_text
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.decoding.search_options import (
    DEFAULTS,
    PreservingOptions,
    SearchRequest,
)
from t2t_jax.extensions.decoding.preserving import (
    AlignStep,
    ModelSupport,
    PreparedText,
    SearchedPart,
    SearchStep,
    preserving_options,
    translated,
)
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.messages import say
from t2t_jax.text.languages import OTHER, distance, identify
from t2t_jax.text.units import core
from t2t_jax.tools.serve.engine import (
    Details,
    Direction,
    Engine,
    OverloadedError,
)
from t2t_jax.tools.serve.fields import Refusal, bad, fields, parse, read_body
from t2t_jax.tools.serve.metrics import Metrics
from t2t_jax.tools.serve.precision import Precision
from t2t_jax.tools.serve.settings import Glossary, Settings
from t2t_jax.tools.serve.turns import QUICK

MEASURED = 500  # lines of a dev set at a time


class Gone(Exception):  # noqa: N818
    """The client has closed the connection."""


class Endpoint(NamedTuple):
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


@dataclasses.dataclass(eq=False)
class Line:
    """A line or text of a request, and what is known of it.

    Attributes:
      direction: None if it stays as it is: in the target's language, or in none that
        is served.
      language: that of the source.
      sureness: of the guess of the language, 0 to 1; None if it was given.
      request: to the search; a phrase in `must` is of a line that is not divided.
      result: its translation, or why there is none.
    """

    text: str
    direction: Direction | None
    language: str
    sureness: float | None = None
    request: SearchRequest = DEFAULTS
    result: Any = dataclasses.field(init=False)
    details: Details | None = None

    def __post_init__(self):
        unchanged = Hypothesis(self.text, 0.0, 0.0, ended=True)
        self.result = Translation(self.text, (unchanged,))

    @property
    def tag(self) -> str:
        """The language in BCP 47."""
        return identify(self.language).tag

    @property
    def texts(self) -> list[str]:
        """Distinct translations, best first."""
        return [*map(str, self.result.hypotheses)]

    @property
    def core(self) -> str:
        """The text without the white space around it, which is not searched."""
        return self.text[slice(*core(self.text))]


class DirectionQuery(NamedTuple):
    """What a client says of a direction: its languages, its name, or nothing."""

    source: str | None = None
    target: str | None = None
    name: str | None = None


class Service:
    """An engine with the limits of requests.

    Attributes:
      compiled: what the engine's warm-up has reported.
      measured: by direction, a translator and the precision of its translations.
      stopping: no more requests are taken.
    """

    def __init__(self, engine: Engine, settings: Settings, guesser=None):
        if guesser is None:
            from t2t_jax.extensions.text.language_identification import Guesser

            guesser = Guesser(x.source for x in engine.directions.values())
        self.engine, self.settings, self.guesser = engine, settings, guesser
        self.metrics = Metrics()
        self.compiled: list[str] = []
        self.measured: dict[str, tuple[Any, Precision]] = {}
        self.stopping = False
        self._provenance: dict[str, tuple[Any, dict]] = {}

    @property
    def ready(self) -> bool:
        """True once short lines are answered, and precision is measured."""
        return self.engine.ready and len(self.measured) == len(self.settings.dev)

    def report(self, text: str) -> None:
        """Notes and prints what is compiled."""
        self.compiled.append(text)
        say(text)

    async def measure(self) -> None:
        """Translates the dev sets of directions whose parameters are new.

        Clients come first: while the queue is too long, it waits.
        """
        for name, pairs in self.settings.dev.items():
            translator, results = self.engine.directions[name].translator, []
            if self.measured.get(name, (None,))[0] is translator:
                continue
            limit = min(MEASURED, self.engine.limits.queue)
            while len(results) < len(pairs):
                lines = [source for source, _ in pairs[len(results) :][:limit]]
                requests, deadline = [DEFAULTS] * len(lines), time.monotonic() + 3600
                try:
                    results += await self.engine.translate(
                        name, lines, requests, client="", deadline=deadline
                    )
                except OverloadedError as e:
                    await asyncio.sleep(e.retry_after)
                    continue
                self.report(f"{name}: {len(results):,} of {len(pairs):,} dev lines")
            table = await asyncio.to_thread(
                Precision, pairs, results, self.settings.good_chrf
            )
            self.measured[name] = translator, table

    def precision(
        self, direction: Direction, beam: int | None, required: bool
    ) -> Precision | None:
        """The measured precision of translations with a beam.

        If there is none: None, or a Refusal if it is `required`.
        """
        translator, table = self.measured.get(direction.name, (None, None))
        default, name = self.engine.limits.beams[0], direction.name
        is_measured = name in self.settings.dev and beam in (None, default)
        if is_measured and translator is direction.translator:
            return table
        if is_measured and required:
            raise Refusal(503, "not_ready", "precision is being measured", 5)
        if required:
            raise bad(
                f"precision of {name} is measured at the start, with beam={default}, "
                f"if the server has --dev={name}=PREFIX, a dev set"
            )
        return None

    async def provenance(self, direction: Direction, beam: int | None) -> dict:
        """What translations with a beam, or the default one, depend on."""
        translator = direction.translator
        if self._provenance.get(direction.name, (None,))[0] is not translator:
            record = await asyncio.to_thread(translator.provenance)
            self._provenance[direction.name] = translator, record
        record = self._provenance[direction.name][1]
        beam = beam or self.engine.limits.beams[0]
        limits = self.engine.limits
        sampling = dataclasses.asdict(limits.sampling) | {"samples": limits.samples}
        del sampling["seed"]  # a request has it
        return record | {
            "decode": {**record["decode"], "beam": beam},
            "sampling": sampling,
        }

    # ---------------------------------------------------------------- directions

    def fitting(self, source: str | None, target: str | None) -> list[Direction]:
        """The directions between languages, the nearest codes; None: any language."""
        ranked: dict[int, list[Direction]] = {}
        for direction in self.engine.directions.values():
            pairs = (source, direction.source), (target, direction.target)
            rank = sum(distance(*pair) for pair in pairs if pair[0])
            ranked.setdefault(rank, []).append(direction)
        if (nearest := min(ranked)) < OTHER:
            return ranked[nearest]
        pair = f"from {source or 'any language'} to {target or 'any language'}"
        names = ", ".join(self.engine.directions)
        message = f"no translation {pair}; there are: {names}"
        raise Refusal(400, "unknown_pair", message)

    def choose(self, text: str, query: DirectionQuery) -> Line:
        """Chooses the direction of a text: that of a name, or between languages.

        The language of the source is guessed if it is `auto`, or not given though the
        target is, or several are served. A text that is in no served language stays.
        """
        source, target, name = query
        if name:
            if (direction := self.engine.directions.get(name)) is None:
                near = did_you_mean(name[:60], self.engine.directions)
                raise Refusal(400, "unknown_pair", f"no direction {name[:60]!r}{near}")
            return Line(text, direction, direction.source)
        language = None if (source or "auto").lower() == "auto" else source
        fits, sureness = self.fitting(language, target), None
        several = len({direction.source for direction in fits}) > 1
        if language is None and (source or target or several):
            language, sureness, among = self.guesser.guess(text)
            foreign = among < self.settings.min_served
            if foreign or (target and distance(target, language) < OTHER):
                return Line(text, None, language, sureness)
            fits = self.fitting(language, target)
        if len({(direction.source, direction.target) for direction in fits}) > 1:
            names = ", ".join(direction.name for direction in fits)
            raise bad(f"several directions fit: {names}; name both languages")
        return Line(text, fits[0], language or fits[0].source, sureness)

    def terms(self, name: str | None, direction: str) -> Glossary | None:
        """The terms of this name, if they are of the direction."""
        if not name:
            return None
        terms = self.settings.terms.get(name)
        if terms is None or terms.direction != direction:
            names = ", ".join(self.settings.terms) or "none (--terms=NAME=FILE)"
            raise bad(f"no glossary {name!r} of {direction}; there are: {names}")
        return terms


class Call:
    """One request to an interface.

    Attributes:
      id: the request's id.
      given, fields: as they came; those of the row, checked; once `answer` has them.
      status: of the answer, unless it is an error.
      deadline: of `time.monotonic()`.
      label: the direction, for the metrics; `several` if there are.
      key: the SHA-256 of the client's API key, if it has one.
    """

    def __init__(self, request: Request, service: Service, row: Endpoint):
        self.request, self.service, self.row = request, service, row
        self.id: str = request.state.id
        self.deadline = time.monotonic() + service.settings.seconds
        self.given: dict[str, Any] = {}
        self.fields: dict[str, Any] = {}
        self.label, self.status, self.key = "", 200, ""
        self._client = request.client.host if request.client else ""
        self._quick = False  # until the size is known

    async def read(self) -> bytes:
        """Checks a key of the header, and reads the body."""
        settings = self.service.settings
        if self._wants_key and (key := self._header_key()):
            self._check_key(key)
        try:
            async with asyncio.timeout(settings.seconds):
                return await read_body(self.request, settings.bytes)
        except TimeoutError:
            raise Refusal(408, "slow_body", "the body took too long to come") from None
        except ClientDisconnect:
            raise Gone from None

    async def answer(self, body: bytes) -> Any:
        """Reads and checks the fields; returns what the row answers."""
        query = self.request.scope["query_string"]
        # The parser of multipart forms wants an event loop of its own.
        form = "multipart" in self.request.headers.get("content-type", "").lower()
        self._quick = len(body) + len(query) <= QUICK and not form
        if body or query:
            [self.given] = await self.turn(steps(partial(parse, self.request), [body]))
        if self._wants_key and not self._header_key():
            # Google's clients call the field `key`, DeepL's old ones `auth_key`.
            names = "api_key", "key", "auth_key"
            self._check_key(next(filter(None, map(self.given.get, names)), None))
        checked = steps(self._checked, [self.given])
        # Probes wait for nobody.
        [self.fields] = await self.turn(checked) if self.given else [self._checked({})]
        return await self.row.answer(self)

    @property
    def _wants_key(self) -> bool:
        return bool(self.service.settings.keys) and not self.row.keyless

    def _checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the row; their sizes are checked before they are read."""
        declared, settings = fields(self.row.fields), self.service.settings
        for name in given if self.row.strict else ():
            if name not in declared and name != "api_key":
                near = did_you_mean(name[:60], declared)
                raise bad(f"no field {name[:60]!r}{near}")
        count = 0
        for name, field in declared.items():
            entries, characters = field.size(given.get(name))
            limit = settings.lines if field.kind == "texts" else settings.characters
            if entries > limit:
                raise too_large(entries, f"entries of {name}", limit)
            # Codes and names do not count, but none is longer than a text may be.
            total = characters if field.kind == "text" else count + characters
            if total > settings.characters:
                raise too_large(total, "characters", settings.characters)
            count += characters * (field.kind != "text")
        return {name: field.read(name, given) for name, field in declared.items()}

    async def turn(self, work: Generator, answer: Callable | None = None) -> Any:
        """Does work in this client's turns; as `Turns.run`."""
        turns = self.service.engine.turns
        return await turns.run(work, self._client, self.deadline, answer, self._quick)

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

    async def lines(
        self,
        texts: Sequence[str],
        query: DirectionQuery,
        markup: str = "",
    ) -> list[Line]:
        """Chooses the direction of each text, as `Service.choose`.

        Args:
          markup: of texts, whose language is guessed without tags.
        """
        service = self.service
        if service.stopping:
            raise Refusal(503, "stopping", "the server stops", retry_after=5)
        if not service.ready:
            raise Refusal(503, "not_ready", "programs are being compiled", 5)

        if (count := sum(map(len, texts))) > (limit := service.settings.characters):
            raise too_large(count, "characters", limit)

        def line(text: str) -> Line:
            check_text(text)  # those of chats are not checked as fields
            # Many `<` are read once each.
            plain = re.sub("<[^<>]*>", " ", text) if markup else text
            return dataclasses.replace(service.choose(plain, query), text=text)

        with service.engine.expected(self._client, len(texts), self.deadline):
            return await self.turn(steps(line, texts))

    async def answers(
        self,
        texts: Sequence[str],
        query: DirectionQuery,
        nbest: int = 1,
        terms: str | None = None,
        term_mode: str | None = None,
        **preserved: Any,
    ) -> list[Line]:
        """Translates texts as clients of other servers want them, by sentences.

        Args:
          nbest: at most as many translations of each text.
          terms, term_mode: as for `translate`.
          preserved: fields of `PreservingOptions`, such as `markup="html"`.

        Raises:
          Refusal: the first text's refusal.
        """
        split = self.service.settings.split
        options = preserving_options({"split": split} | preserved)
        lines = await self.lines(texts, query, options.markup)
        for line in lines:
            line.request = SearchRequest(nbest=nbest)
        await self.translate(lines, options, terms, term_mode)
        for number, line in enumerate(lines, 1):
            if isinstance(line.result, UserError):
                place = f"text {number}: " if len(lines) > 1 else ""
                raise bad(f"{place}{line.result}")
        return lines

    async def translate(
        self,
        lines: Sequence[Line],
        options: PreservingOptions,
        terms: str | None = None,
        term_mode: str | None = None,
    ) -> None:
        """Finds the translations of lines that have a direction.

        Args:
          options: what is preserved besides terms.
          terms: the name of terms to use.
          term_mode: as in `PreservingOptions`.
        """
        service = self.service
        if term_mode and not terms:
            raise bad("term_mode needs terms, the name of a glossary")

        @cache
        def direction_options(name: str) -> tuple[PreservingOptions, ModelSupport]:
            glossary = service.terms(terms, name) or ""
            direction = service.engine.directions[name]
            support = direction.translator.preserving_support
            fits = partial(support.fits, longest=service.engine.limits.longest)
            support = support._replace(
                fits=fits, source=direction.source, target=direction.target
            )
            preserved = dataclasses.replace(
                options, terms=glossary, term_mode=term_mode or ""
            )
            return preserved, support

        directed = [line for line in lines if line.direction]
        work = [line for line in directed if not isinstance(line.result, UserError)]
        names = {line.direction.name for line in directed}
        self.label = "several" if len(names) > 1 else next(iter(names), "")

        def texts() -> Iterator[PreparedText]:
            count, limit = 0, service.settings.lines
            for number, line in enumerate(work):
                preserved, support = direction_options(line.direction.name)
                text = PreparedText(line.text, number, preserved, support)
                if (count := count + text.segments) > limit:
                    raise too_large(count, "lines", limit)
                yield text

        stack = contextlib.ExitStack()

        async def answer(step: SearchStep | AlignStep) -> list:
            if isinstance(step, AlignStep):
                lines = [work[part.number] for part, _ in step.pairs]
                texts = [(part.line, hypothesis) for part, hypothesis in step.pairs]
                align = service.engine.align_units
                return await self._by_direction(lines, align, texts)
            stack.close()  # the engine counts its lines itself
            count = len(step.parts)
            if not step.is_repeat:
                service.engine.check_load(self._client, count, self.deadline)
            return await self._search(step.parts, [work[p.number] for p in step.parts])

        expected = service.engine.expected(self._client, len(work), self.deadline)
        with stack:
            stack.enter_context(expected)
            results = await self.turn(translated(texts()), answer)
        for line, result in zip(work, results, strict=True):
            line.result = result

    async def _search(
        self, parts: Sequence[SearchedPart], lines: Sequence[Line]
    ) -> list[Translation | UserError]:
        """Translates parts of lines; a blank one is its own translation."""
        results: list = [
            Translation(p.line, (Hypothesis(p.line, 0, 0, True),)) for p in parts
        ]
        rows = [row for row, part in enumerate(parts) if part.line.strip()]
        requests, metrics = [], self.service.metrics
        for row in rows:
            request, part = lines[row].request, parts[row]
            if part.must:
                must = dict.fromkeys((*request.must, *part.must))
                request = dataclasses.replace(request, must=(*must,))
            requests.append(request)
            metrics.characters += len(part.line)
        searched = [lines[row] for row in rows]
        for name, count in Counter(line.direction.name for line in searched).items():
            metrics.lines.labels(name).inc(count)
        texts = [parts[row].line for row in rows]
        work = partial(self.service.engine.translate, checked=True)
        translations = await self._by_direction(searched, work, texts, requests)
        for row, translation in zip(rows, translations, strict=True):
            results[row] = translation
        return results

    async def explain(self, lines: Sequence[Line]) -> None:
        """Finds the details of those translations that the engine searched."""
        lines = [x for x in lines if isinstance(x.result, Translation)]
        lines = [line for line in lines if line.result.best.tokens]
        pairs = [(line.core, line.result) for line in lines]
        work = self.service.engine.details
        details = await self._by_direction(lines, work, pairs)
        for line, line_details in zip(lines, details, strict=True):
            line.details = line_details

    async def _by_direction(
        self, lines: Sequence[Line], work: Callable, *columns: Sequence
    ) -> list:
        """Asks the engine about lines, of all directions at once; in order.

        Args:
          columns: what it takes of each line.
        """
        rows_of: dict[str, list[int]] = {}
        for row, line in enumerate(lines):
            rows_of.setdefault(line.direction.name, []).append(row)
        work = partial(work, client=self._client, deadline=self.deadline)
        if len(rows_of) == 1:
            return await work(next(iter(rows_of)), *columns)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    work(name, *([column[row] for row in rows] for column in columns))
                )
                for name, rows in rows_of.items()
            ]
        results: dict[int, Any] = {}
        for rows, task in zip(rows_of.values(), tasks, strict=True):
            results |= zip(rows, task.result(), strict=True)
        return [results[row] for row in range(len(lines))]


def steps(work: Callable, items: Iterable) -> Generator[None, None, list]:
    """Work of a step for each item; returns the results."""
    results = []
    for item in items:
        results.append(work(item))
        yield
    return results


def too_large(count: int, unit: str, limit: int) -> Refusal:
    return Refusal(413, "too_large", f"{count:,} {unit}; want at most {limit:,}")
