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
from t2t_jax.decoding.search_options import PreservingOptions
from t2t_jax.extensions.decoding.preserving import (
    Align,
    Part,
    PreparedText,
    Search,
    preserving_options,
    translated,
)
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
from t2t_jax.tools.serve.fields import Refusal, bad, fields, parse, read_body
from t2t_jax.tools.serve.metrics import Metrics
from t2t_jax.tools.serve.precision import Precision
from t2t_jax.tools.serve.settings import Glossary, Settings

MEASURED = 500  # lines of a dev set at a time


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


@dataclasses.dataclass(eq=False)
class Line:
    """A line or text of a request, and what is known of it.

    Attributes:
      direction: None if it stays as it is: in the target's language, or in none that
        is served.
      language: that of the source.
      sureness: of the guess of the language, 0 to 1; None if it was given.
      options: of its search; a phrase in `must` is of a line that is not divided.
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
    def tag(self) -> str:
        """The language in BCP 47."""
        return identify(self.language).tag

    @property
    def texts(self) -> list[str]:
        """Distinct translations, best first."""
        return [*map(str, self.found.hypotheses)]

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
            from t2t_jax.extensions.text.language_identification import Guesser

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
        """Notes and prints what is compiled."""
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

    def terms(self, name: str | None, direction: str) -> Glossary | None:
        """The terms of this name, if they are of the direction."""
        if not name:
            return None
        terms = self.settings.terms.get(name)
        if terms is None or terms.direction != direction:
            known = ", ".join(self.settings.terms) or "none (--terms=NAME=FILE)"
            raise bad(f"no glossary {name!r} of {direction}; there are: {known}")
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

    def __init__(self, request: Request, service: Service, row: Row):
        self.request, self.service, self.row = request, service, row
        self.id: str = request.state.id
        self.deadline = time.monotonic() + service.settings.seconds
        self.given: dict[str, Any] = {}
        self.fields: dict[str, Any] = {}
        self.label, self.status, self.key = "", 200, ""
        self._client = request.client.host if request.client else ""

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
        if body or self.request.scope["query_string"]:
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
            most = settings.lines if field.kind == "texts" else settings.characters
            if entries > most:
                raise too_large(entries, f"entries of {name}", most)
            # Codes and names do not count, but none is longer than a text may be.
            whole = characters if field.kind == "text" else count + characters
            if whole > settings.characters:
                raise too_large(whole, "characters", settings.characters)
            count += characters * (field.kind != "text")
        return {name: field.read(name, given) for name, field in declared.items()}

    async def turn(self, work: Generator, answer: Callable | None = None) -> Any:
        """Does work in this client's turns; as `Turns.run`."""
        turns = self.service.engine.turns
        return await turns.run(work, self._client, self.deadline, answer)

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
        source: str | None = None,
        target: str | None = None,
        name: str | None = None,
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

        if (count := sum(map(len, texts))) > (most := service.settings.characters):
            raise too_large(count, "characters", most)

        def line(text: str) -> Line:
            check_text(text)  # those of chats are not checked as fields
            # Many `<` are read once each.
            plain = re.sub("<[^<>]*>", " ", text) if markup else text
            chosen = service.choose(plain, source, target, name)
            return dataclasses.replace(chosen, text=text)

        with service.engine.expected(self._client, len(texts), self.deadline):
            return await self.turn(steps(line, texts))

    async def answers(
        self,
        texts: Sequence[str],
        source: str | None = None,
        target: str | None = None,
        name: str | None = None,
        nbest: int = 1,
        terms: str | None = None,
        term_mode: str | None = None,
        **preserved: Any,
    ) -> list[Line]:
        """Translates texts as clients of other servers want them, by sentences.

        Args:
          source, target, name: as for `lines`.
          nbest: at most as many translations of each text.
          terms, term_mode: as for `translate`.
          preserved: fields of `PreservingOptions`, such as `markup="html"`.

        Raises:
          Refusal: what any text is refused for.
        """
        split = self.service.settings.split
        options = preserving_options({"split": split} | preserved)
        lines = await self.lines(texts, source, target, name, options.markup)
        for line in lines:
            line.options = Options(nbest=nbest)
        await self.translate(lines, options, terms, term_mode)
        for number, line in enumerate(lines, 1):
            if isinstance(line.found, UserError):
                place = f"text {number}: " if len(lines) > 1 else ""
                raise bad(f"{place}{line.found}")
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
        def of_direction(name: str) -> tuple:
            of = service.terms(terms, name) or ""
            direction = service.engine.directions[name]
            support = direction.translator.preserving_support
            fits = partial(support.fits, longest=service.engine.limits.longest)
            codes = {"source": direction.source, "target": direction.target}
            mode = {"terms": of, "term_mode": term_mode or ""}
            of_model = support._replace(fits=fits, **codes)
            return dataclasses.replace(options, **mode), of_model

        work = [
            line
            for line in lines
            if line.direction and not isinstance(line.found, UserError)
        ]
        names = {line.direction.name for line in lines if line.direction}
        self.label = "several" if len(names) > 1 else next(iter(names), "")

        def texts() -> Iterator[PreparedText]:
            count, most = 0, service.settings.lines
            for number, line in enumerate(work):
                of = of_direction(line.direction.name)
                text = PreparedText(line.text, number, *of)
                if (count := count + text.segments) > most:
                    raise too_large(count, "lines", most)
                yield text

        stack = contextlib.ExitStack()

        async def answer(step: Search | Align) -> list:
            if isinstance(step, Align):
                of, found = zip(*step.pairs, strict=True)
                texts = [*zip((part.line for part in of), found, strict=True)]
                align = service.engine.align_units
                return await self._by_direction(
                    [work[p.number] for p in of], align, texts
                )
            stack.close()  # the engine counts its lines itself
            if not step.again:
                count = self._client, len(step.parts), self.deadline
                service.engine.check_load(*count)
            return await self._search(step.parts, [work[p.number] for p in step.parts])

        expected = service.engine.expected(self._client, len(work), self.deadline)
        with stack:
            stack.enter_context(expected)
            found = await self.turn(translated(texts()), answer)
        for line, translation in zip(work, found, strict=True):
            line.found = translation

    async def _search(
        self, parts: Sequence[Part], lines: Sequence[Line]
    ) -> list[Translation | UserError]:
        """Translates parts of lines; a blank one is its own translation."""
        found: list = [
            Translation(p.line, (Hypothesis(p.line, 0, 0, True),)) for p in parts
        ]
        rows = [row for row, part in enumerate(parts) if part.line.strip()]
        options, metrics = [], self.service.metrics
        for row in rows:
            of, part = lines[row].options, parts[row]
            if part.must:
                must = dict.fromkeys((*of.must, *part.must))
                of = dataclasses.replace(of, must=(*must,))
            options.append(of)
            metrics.lines.labels(lines[row].direction.name).inc()
            metrics.characters += len(part.line)
        searched = [lines[row] for row in rows]
        texts = [parts[row].line for row in rows]
        work = partial(self.service.engine.translate, checked=True)
        of_rows = await self._by_direction(searched, work, texts, options)
        for row, translation in zip(rows, of_rows, strict=True):
            found[row] = translation
        return found

    async def explain(self, lines: Sequence[Line]) -> None:
        """Finds the details of those translations that the engine searched."""
        rows = [
            line
            for line in lines
            if isinstance(line.found, Translation) and line.found.best.tokens
        ]
        pairs = [(line.core, line.found) for line in rows]
        details = self.service.engine.details
        found = await self._by_direction(rows, details, pairs)
        for line, each in zip(rows, found, strict=True):
            line.details = each

    async def _by_direction(
        self, lines: Sequence[Line], work: Callable, *columns: Sequence
    ) -> list:
        """Asks the engine about lines, of all directions at once; in order.

        Args:
          columns: what it takes of each line.
        """
        of: dict[str, list[int]] = {}
        for row, line in enumerate(lines):
            of.setdefault(line.direction.name, []).append(row)
        call = {"client": self._client, "deadline": self.deadline}
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    work(name, *([c[row] for row in rows] for c in columns), **call)
                )
                for name, rows in of.items()
            ]
        found: dict[int, Any] = {}
        for rows, task in zip(of.values(), tasks, strict=True):
            found |= zip(rows, task.result(), strict=True)
        return [found[row] for row in range(len(lines))]


def steps(work: Callable, items: Iterable) -> Generator[None, None, list]:
    """Work of a step for each item; returns the results."""
    made = []
    for item in items:
        made.append(work(item))
        yield
    return made


def too_large(count: int, what: str, most: int) -> Refusal:
    return Refusal(413, "too_large", f"{count:,} {what}; want at most {most:,}")
