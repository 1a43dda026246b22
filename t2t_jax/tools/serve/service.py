"""A request between an interface and the engine: its key, direction, limits, lines.

An interface is a `Row` of a table: a path, the fields that it reads, a function of a
`Call` that returns the body of the answer, and the body of its errors.
"""

import asyncio
import dataclasses
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect, Request

from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.messages import say
from t2t_jax.tools.serve.engine import Details, Direction, Engine, Options
from t2t_jax.tools.serve.fields import Field, Refusal, bad, read_fields
from t2t_jax.tools.serve.metrics import Metrics
from t2t_jax.tools.serve.precision import Precision
from t2t_jax.tools.serve.settings import Settings, Terms

OTHER = 9  # the distance of another language
MEASURED = 500  # lines of a dev set at a time


class Gone(Exception):  # noqa: N818
    """The client has closed the connection."""


class Row(NamedTuple):
    """A row of a table of interfaces.

    Attributes:
      answer: returns what becomes JSON, or a `Response`.
      error: the body of an error, of the refusal and the request's id.
      keyless: no key is needed, as nothing is translated.
      strict: a field that is not known is refused.
    """

    path: str
    methods: tuple[str, ...]
    summary: str
    answer: Callable[["Call"], Awaitable[Any]]
    error: Callable[[Refusal, str], Any]
    fields: Mapping[str, Field] = {}
    keyless: bool = False
    strict: bool = False


class Answer(NamedTuple):
    """The translation of a text, as clients' interfaces give it.

    Attributes:
      texts: distinct translations, best first.
      language: that of the source.
      sureness: of the guess of the language, 0 to 1; None if it was given.
      ended: every line's translation has ended within the length limit.
    """

    texts: list[str]
    language: str
    sureness: float | None
    ended: bool


class Chosen(NamedTuple):
    """The direction that a text takes; None if it is in the target's language."""

    direction: Direction | None
    language: str
    sureness: float | None


class Service:
    """An engine with the limits of requests.

    Attributes:
      compiled: what the engine's warm-up has reported.
      stopping: no more requests are taken.
    """

    def __init__(self, engine: Engine, settings: Settings, guesser=None):
        if guesser is None:
            from t2t_jax.tools.serve.languages import Guesser

            guesser = Guesser(engine.directions)
        self.engine, self.settings, self.guesser = engine, settings, guesser
        self.metrics = Metrics()
        self.compiled: list[str] = []
        self.stopping = False
        self._provenance: dict[str, tuple[Any, dict]] = {}
        # By direction: the translator, and the precision of its translations.
        self.measured: dict[str, tuple[Any, Precision]] = {}

    @property
    def ready(self) -> bool:
        """True once everything is compiled, and measured."""
        return self.engine.ready and len(self.measured) == len(self.settings.dev)

    async def measure(self) -> None:
        """Translates the dev sets of directions whose parameters are new."""
        for name, pairs in self.settings.dev.items():
            translator, found = self.engine.directions[name].translator, []
            if self.measured.get(name, (None,))[0] is translator:
                continue
            while len(found) < len(pairs):
                lines = [source for source, _ in pairs[len(found) :][:MEASURED]]
                call = {"client": "", "deadline": time.monotonic() + 3600}
                options = [Options()] * len(lines)
                found += await self.engine.translate(name, lines, options, **call)
                self.report(f"{name}: {len(found):,} of {len(pairs):,} dev lines")
            of = pairs, found, self.settings.good_chrf
            self.measured[name] = translator, await asyncio.to_thread(Precision, *of)

    def precision(
        self, direction: Direction, beam: int | None, wanted: bool
    ) -> Precision | None:
        """The precision of translations with a beam; refuses if it is wanted only."""
        translator, made = self.measured.get(direction.name, (None, None))
        default = self.engine.limits.beams[0]
        if made and translator is direction.translator and beam in (None, default):
            return made
        if wanted and direction.name in self.settings.dev and beam in (None, default):
            raise Refusal(503, "not_ready", "precision is being measured", 5)
        if wanted:
            raise bad(
                f"precision of {direction.name} is measured at the start, with beam="
                f"{default}, if the server has --dev={direction.name}=PREFIX, a dev set"
            )
        return None

    def report(self, text: str) -> None:
        """Notes and prints what is compiled; ends the warm-up if the server stops."""
        if self.stopping:
            raise Refusal(503, "stopping", "the server stops")
        self.compiled.append(text)
        say(text)

    def fitting(self, source: str | None, target: str | None) -> list[Direction]:
        """The directions between languages, the nearest codes; None: any language."""
        ranked: dict[int, list[Direction]] = {}
        for each in self.engine.directions.values():
            rank = distance(source, each.source) + distance(target, each.target)
            ranked.setdefault(rank, []).append(each)
        if (nearest := min(ranked)) < OTHER:
            return ranked[nearest]
        pair = f"from {source or 'any language'} to {target or 'any language'}"
        names = ", ".join(self.engine.directions)
        message = f"no translation {pair}; there are: {names}"
        raise Refusal(400, "unknown_pair", message)

    def named(self, name: str) -> Direction:
        """The direction of this name."""
        if name not in self.engine.directions:
            near = did_you_mean(name, self.engine.directions)
            raise Refusal(400, "unknown_pair", f"no direction {name[:60]!r}{near}")
        return self.engine.directions[name]

    def choose(self, text: str, source: str | None, target: str | None) -> Chosen:
        """Chooses the direction of a text; guesses its language if that is `auto`."""
        given = None if (source or "auto").lower() == "auto" else source
        fits, sureness = self.fitting(given, target or None), None
        if given is None and (source or len({each.source for each in fits}) > 1):
            given, sureness = self.guesser.guess(text)
            if target and distance(target, given) < OTHER:
                return Chosen(None, given, sureness)
            fits = self.fitting(given, target or None)
        if len({(each.source, each.target) for each in fits}) > 1:
            names = ", ".join(each.name for each in fits)
            raise bad(f"several directions fit: {names}; give source and target")
        return Chosen(fits[0], given or fits[0].source, sureness)

    def chosen(
        self,
        texts: Sequence[str],
        source: str | None,
        target: str | None,
        name: str | None,
    ) -> list[Chosen]:
        """Chooses the direction of each text; that of this name, if it is given."""
        if name is None:
            return [self.choose(text, source, target) for text in texts]
        direction = self.named(name)
        return [Chosen(direction, direction.source, None)] * len(texts)

    def terms(self, name: str, direction: Direction) -> Terms:
        """The terms of this name, which are of one direction."""
        terms = self.settings.terms.get(name)
        if terms is None or terms.direction != direction.name:
            of = [t.name for t in self.settings.terms.values()]
            known = ", ".join(of) or "none (--terms=NAME=FILE)"
            raise bad(f"no terms {name!r} of {direction.name}; there are: {known}")
        return terms

    async def provenance(self, direction: Direction, beam: int | None) -> dict:
        """What translations with a beam, or the default one, depend on."""
        translator = direction.translator
        if self._provenance.get(direction.name, (None,))[0] is not translator:
            made = await asyncio.to_thread(translator.provenance)
            self._provenance[direction.name] = translator, made
        made = self._provenance[direction.name][1]
        beam = beam or self.engine.limits.beams[0]
        return made | {"decode": {**made["decode"], "beam": beam}}


def distance(code: str | None, served: str) -> int:
    """0: the same language, or any; 1: it and a variant, such as pt-BR; 2: variants."""
    if not code or (code := code.lower().replace("_", "-")) == served.lower():
        return 0
    (one, *variant), (other, *another) = (
        each.split("-") for each in (code, served.lower().replace("_", "-"))
    )
    if one != other:
        return OTHER
    return 0 if variant == another else 1 + bool(variant and another)


class Call:
    """One request to an interface.

    Attributes:
      id: the request's id.
      given, fields: as they came; those of the row, checked; after `read`.
      status: of the answer, unless it is an error.
      deadline: of `time.monotonic()`.
      label: the direction, for the metrics; `several` if there are.
    """

    def __init__(self, request: Request, service: Service, row: Row):
        self.request, self.service, self.row = request, service, row
        self.id: str = request.state.id
        self.fields: dict[str, Any] = {}
        self.deadline = time.monotonic() + service.settings.seconds
        self.label = ""
        self.given: dict[str, Any] = {}
        self.status = 200
        self._client = request.client.host if request.client else ""

    async def read(self) -> None:
        """Reads and checks key and fields."""
        try:
            async with asyncio.timeout(self.service.settings.seconds):
                given = await read_fields(self.request, self.service.settings.bytes)
        except TimeoutError:
            raise Refusal(408, "slow_body", "the body took too long to come") from None
        except ClientDisconnect:
            raise Gone from None
        self._check_key(given)
        for name in given if self.row.strict else ():
            if name not in self.row.fields and name != "api_key":
                near = did_you_mean(name, self.row.fields)
                raise bad(f"no field {name[:60]!r}{near}")
        self.given = given
        self.fields = {n: f.read(n, given) for n, f in self.row.fields.items()}

    def _check_key(self, given: Mapping[str, Any]) -> None:
        settings, headers = self.service.settings, self.request.headers
        if not settings.keys or self.row.keyless:
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        key = key.strip() if scheme.lower() in ("bearer", "deepl-auth-key") else ""
        # Google's clients call the field `key`, DeepL's old ones `auth_key`.
        fields = (given.get(name) for name in ("api_key", "key", "auth_key"))
        key = next(filter(None, (key, headers.get("x-api-key"), *fields)), None)
        if key is None:
            raise Refusal(401, "no_key", "this server wants an API key")
        digest = hashlib.sha256(str(key).encode(errors="replace")).digest()
        if not settings.knows(digest):
            raise Refusal(403, "wrong_key", "the API key is wrong")
        self._client = digest.hex()

    async def translate(
        self,
        texts: Sequence[str],
        source: str | None,
        target: str | None,
        nbest: int = 1,
        terms: str | None = None,
        name: str | None = None,
    ) -> list[Answer]:
        """Translates texts, each line by itself. Raises what any line is refused for.

        Args:
          nbest: at most as many translations of each text.
          terms: the name of terms to use.
          name: of the direction, in place of the languages.
        """
        chosen = self.service.chosen(texts, source, target, name)
        options = Options(nbest=nbest)
        lines, directions, of_line = [], [], []
        for text, (direction, *_) in zip(texts, chosen, strict=True):
            used = self.service.terms(terms, direction) if terms and direction else None
            for line in split(text):
                must = used.phrases(line) if used else ()
                lines.append(line)
                directions.append(direction)
                of_line.append(dataclasses.replace(options, must=must))
        rest = iter(await self.lines(lines, directions, of_line))
        answers, number = [], 0
        for text, (_, language, sureness) in zip(texts, chosen, strict=True):
            found = []
            for _ in split(text):
                number += 1
                found.append(next(rest))
                if isinstance(found[-1], UserError):
                    place = f"line {number}: " if len(lines) > 1 else ""
                    raise bad(f"{place}{found[-1]}")
            # A blank line has one hypothesis, for all ranks.
            ranked = [(each.hypotheses * nbest)[:nbest] for each in found]
            texts_of = [join(text, map(str, of)) for of in zip(*ranked, strict=True)]
            ended = all(translation.ended for translation in found)
            distinct = [*dict.fromkeys(texts_of)]
            answers.append(Answer(distinct, language, sureness, ended))
        return answers

    async def lines(
        self,
        lines: Sequence[str],
        directions: Sequence[Direction | None],
        options: Sequence[Options],
    ) -> list[Translation | UserError]:
        """Translates lines, each in its direction; None: it stays as it is."""
        self._check(lines, options)
        found: list = [_unchanged(line) for line in lines]
        rows = [row for row, line in enumerate(lines) if directions[row]]
        self.label = "several" if len({directions[r].name for r in rows}) > 1 else ""
        rows = [row for row in rows if lines[row].strip()]
        for row in [row for row in rows if re.search("[\r\n]", lines[row])]:
            found[row] = UserError("has a line feed in it; send it as two lines")
            rows.remove(row)

        async def translate(name: str, of: list[int]) -> list:
            self.service.metrics.lines[name] += len(of)
            self.service.metrics.characters += sum(len(lines[row]) for row in of)
            return await self.service.engine.translate(
                name,
                [lines[row] for row in of],
                [options[row] for row in of],
                client=self._client,
                deadline=self.deadline,
            )

        await self._by_direction(directions, rows, translate, found)
        return found

    async def details(
        self,
        directions: Sequence[Direction | None],
        found: Sequence[Translation | UserError],
    ) -> list[Details | None]:
        """Scores and aligns the best translations of lines that the engine searched."""
        rows = [r for r, each in enumerate(found) if getattr(each, "best", 0)]
        rows = [row for row in rows if directions[row] and found[row].best.tokens]

        async def details(name: str, of: list[int]) -> list:
            return await self.service.engine.details(
                name,
                [(found[row].source, found[row]) for row in of],
                client=self._client,
                deadline=self.deadline,
            )

        results: list[Details | None] = [None] * len(found)
        await self._by_direction(directions, rows, details, results)
        return results

    async def _by_direction(self, directions, rows, work, results: list) -> None:
        """Does `work(name, rows)` of all directions at once; puts in its results."""
        of: dict[str, list[int]] = {}
        for row in rows:
            of.setdefault(directions[row].name, []).append(row)
        if len(of) == 1:
            self.label = self.label or next(iter(of))
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(work(name, r)) for name, r in of.items()}
        for name, task in tasks.items():
            for row, result in zip(of[name], task.result(), strict=True):
                results[row] = result

    def _check(self, lines: Sequence[str], options: Sequence[Options]) -> None:
        """Refuses what is too much, or not compiled; before anything is queued."""
        service, settings = self.service, self.service.settings
        limits = service.engine.limits
        if service.stopping:
            raise Refusal(503, "stopping", "the server stops", retry_after=5)
        if not service.ready:
            raise Refusal(503, "not_ready", "programs are being compiled", 5)
        prefixes = sum(len(each.prefix) for each in options)
        for many, most, of in (
            (sum(map(len, lines)) + prefixes, settings.characters, "characters"),
            (len(lines), settings.lines, "lines"),
        ):
            if many > most:
                message = f"{many:,} {of}; want at most {most:,}"
                raise Refusal(413, "too_large", message)
        for each in {*options}:
            beam = each.beam or limits.beams[0]
            if beam not in limits.beams:
                listed = ", ".join(map(str, limits.beams))
                raise bad(f"beam={beam} is not compiled; there are: {listed}")
            if not 1 <= each.nbest <= beam:
                raise bad(
                    f"{each.nbest} hypotheses of a line; want 1 to {beam}, the beam"
                )
            # An automaton has about one state a character, and is slow to build.
            many, most = sum(map(len, each.must + each.must_not)), limits.states - 1
            if many > most:
                raise bad(f"phrases of {many:,} characters for a line; want {most:,}")


def split(text: str) -> list[str]:
    """The lines of a text."""
    return re.split("\r?\n", text)


def join(text: str, lines: Iterable[str]) -> str:
    """Joins the translations of the lines of a text as they were."""
    return ("\r\n" if "\r\n" in text else "\n").join(lines)


def _unchanged(line: str) -> Translation:
    return Translation(line, (Hypothesis(line, 0.0, 0.0, ended=True),))
