"""What all interfaces share: a request's fields, its direction, limits, the engine.

An interface is a row of a table: a path, the fields that it reads, a function of a
`Call` that returns the body of the answer, and the body of its errors.
"""

import asyncio
import dataclasses
import hashlib
import json
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from t2t_jax.decoding.inputs import check_text
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.messages import say
from t2t_jax.tools.serve.engine import Details, Direction, Engine, Options
from t2t_jax.tools.serve.metrics import Metrics
from t2t_jax.tools.serve.settings import Settings, Terms

MISSING = object()  # the default of a field that has to be given
OTHER = 9  # the rank of another language


class Refusal(Exception):  # noqa: N818  (most are a client's error)
    """An answer that is an error: its status, a code for programs, and a message."""

    def __init__(self, status: int, code: str, message: str, retry_after: int = 0):
        super().__init__(message)
        self.status, self.code = status, code
        self.headers = {"Retry-After": str(retry_after)} if retry_after else {}


class Gone(Exception):  # noqa: N818
    """The client has closed the connection."""


def bad(message: str) -> Refusal:
    return Refusal(400, "bad_request", message)


# ------------------------------------------------------------------------------- fields


def _text(value) -> str:
    if not isinstance(value, str):
        raise TypeError
    check_text(value)  # a lone surrogate has no UTF-8
    return value


def _count(value) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,9}", str(value)):
        raise ValueError
    return int(value)


def _number(value) -> float:
    if not math.isfinite(number := float(value)):
        raise ValueError
    return number


def _flag(value) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[str(value).lower()]


def _texts(value) -> list[str]:
    return [_text(each) for each in (value if isinstance(value, list) else [value])]


def _phrases(value) -> list:
    """One phrase, or a list of phrases, or a list of such lists."""
    value = value if isinstance(value, list) else [value]
    return [_texts(each) if isinstance(each, list) else _text(each) for each in value]


def _objects(value) -> list[dict]:
    return [dict(each) for each in value]


def _no_constant(name: str):
    raise ValueError(name)  # NaN and Infinity are not JSON


_STRING = {"type": "string"}
_STRINGS = {"type": "array", "items": _STRING}
# The kinds of fields: how they are read, what is wanted, and their JSON Schema. Forms
# and queries have only texts.
KINDS: dict[str, tuple[Callable[[Any], Any], str, dict]] = {
    "text": (_text, "a text", _STRING),
    "texts": (_texts, "a text or a list of texts", {"anyOf": [_STRING, _STRINGS]}),
    "phrases": (
        _phrases,
        "a phrase, a list of phrases, or a list of such lists",
        {
            "anyOf": [
                _STRING,
                {"type": "array", "items": {"anyOf": [_STRING, _STRINGS]}},
            ]
        },
    ),
    "count": (_count, "a whole number", {"type": "integer", "minimum": 0}),
    "number": (_number, "a number", {"type": "number"}),
    "flag": (_flag, "true or false", {"type": "boolean"}),
    "objects": (
        _objects,
        "a list of objects",
        {"type": "array", "items": {"type": "object"}},
    ),
}


class Field(NamedTuple):
    """A field that an interface reads, of JSON, a form or the query."""

    kind: str
    default: Any = None
    help: str = ""

    def read(self, name: str, given: Mapping[str, Any]) -> Any:
        value = given.get(name)
        if value is None:
            if self.default is MISSING:
                raise bad(f"{name} is missing; want {KINDS[self.kind][1]}")
            return self.default
        try:
            return KINDS[self.kind][0](value)
        except UserError as e:
            raise bad(f"{name}: {e}") from None
        except (LookupError, TypeError, ValueError):
            got = type(value).__name__
            raise bad(f"{name} is a {got}; want {KINDS[self.kind][1]}") from None


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


def row(path, methods, summary, answer, error, keyless=False, strict=False, **fields):
    """A `Row`; the other arguments are its fields."""
    return Row(path, methods, summary, answer, error, fields, keyless, strict)


async def read_fields(request: Request, most: int) -> dict[str, Any]:
    """Reads the fields of the query, and of a body of at most `most` bytes.

    A field that a form or query repeats is a list.
    """
    try:
        pairs = _pairs(request.scope["query_string"].decode("latin-1"))
        body = (await _body(request, most)).decode()
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/x-www-form-urlencoded":
            pairs += _pairs(body)
        elif kind == "multipart/form-data":
            form = Request(request.scope, _replay(body.encode()))
            pairs += (await form.form(max_files=0)).multi_items()
            boundary = re.search(
                r'boundary="?([^";]+)', request.headers["content-type"]
            )
            if f"--{boundary and boundary[1]}--" not in body:
                raise bad("the form has no end: the body is cut, or its boundary wrong")
        elif body.strip():
            document = json.loads(body, parse_constant=_no_constant)
            if not isinstance(document, dict):
                got = type(document).__name__
                raise bad(f"the body is a JSON {got}; want an object")
            return _joined(pairs) | document
    except HTTPException as e:  # of the parser of multipart forms
        raise bad(f"the form cannot be read: {e.detail}") from None
    except UnicodeDecodeError:
        raise bad("the body or the query is not UTF-8") from None
    except (ValueError, RecursionError):
        raise bad("the body is neither JSON nor a form; is it cut?") from None
    return _joined(pairs)


def _pairs(text: str) -> list[tuple[str, str]]:
    # Starlette's parser takes bytes that are not escaped for Latin-1; curl sends UTF-8.
    return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=9999)


def _joined(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    fields: dict[str, list] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return {name: v[0] if len(v) == 1 else v for name, v in fields.items()}


def _replay(body: bytes) -> Callable[[], Awaitable[dict]]:
    async def receive() -> dict:
        return {"type": "http.request", "body": body}

    return receive


async def _body(request: Request, most: int) -> bytes:
    length = request.headers.get("content-length", "0")
    body = bytearray()
    if not length.isdecimal() or int(length) <= most:
        async for chunk in request.stream():  # chunked bodies do not give a length
            body += chunk
            if len(body) > most:
                break
        else:
            return bytes(body)
    raise Refusal(413, "too_large", f"the body has more than {most:,} bytes")


# ----------------------------------------------------------------------------- requests


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
        raise Refusal(
            400, "unknown_pair", f"no translation {pair}; there are: {self.names()}"
        )

    def names(self) -> str:
        return ", ".join(self.engine.directions)

    def named(self, name: str) -> Direction:
        """The direction of this name."""
        if name not in self.engine.directions:
            near = did_you_mean(name, self.engine.directions)
            raise Refusal(400, "unknown_pair", f"no direction {name!r}{near}")
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

    def terms(self, name: str, direction: Direction) -> Terms:
        """The terms of this name, which are of one direction."""
        terms = self.settings.terms.get(name)
        if terms is None or terms.direction != direction.name:
            of = [t.name for t in self.settings.terms.values()]
            known = ", ".join(of) or "none (--terms=NAME=FILE)"
            raise bad(f"no terms {name!r} of {direction.name}; there are: {known}")
        return terms

    async def provenance(self, direction: Direction) -> dict:
        """What the direction's translations depend on; of large models a digest."""
        translator = direction.translator
        if self._provenance.get(direction.name, (None,))[0] is not translator:
            made = await asyncio.to_thread(translator.provenance)
            self._provenance[direction.name] = translator, made
        return self._provenance[direction.name][1]


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
                raise bad(f"no field {name!r}{did_you_mean(name, self.row.fields)}")
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
        choose = self.service.choose
        if name is not None:
            direction = self.service.named(name)
            chosen = [Chosen(direction, direction.source, None)] * len(texts)
        else:
            chosen = [choose(text, source, target) for text in texts]
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
            joined = [join(text, found, rank) for rank in range(nbest)]
            ended = all(translation.ended for translation in found)
            answer = [*dict.fromkeys(joined)], language, sureness, ended
            answers.append(Answer(*answer))
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
        service, beams = self.service, self.service.engine.limits.beams
        if service.stopping:
            raise Refusal(503, "stopping", "the server stops", retry_after=5)
        if not service.engine.ready:
            raise Refusal(503, "not_ready", "programs are being compiled", 5)
        most, many = service.settings.characters, sum(map(len, lines))
        if many > most:
            raise Refusal(
                413, "too_large", f"{many:,} characters; want at most {most:,}"
            )
        most = service.settings.lines
        if len(lines) > most:
            raise Refusal(
                413, "too_large", f"{len(lines):,} lines; want at most {most:,}"
            )
        for each in {(each.beam, each.nbest) for each in options}:
            beam = each[0] or beams[0]
            if beam not in beams:
                listed = ", ".join(map(str, beams))
                raise bad(f"beam={beam} is not compiled; there are: {listed}")
            if not 1 <= each[1] <= beam:
                raise bad(
                    f"{each[1]} translations of a line; want 1 to {beam}, the beam"
                )


def split(text: str) -> list[str]:
    """The lines of a text."""
    return re.split("\r?\n", text)


def join(text: str, found: Sequence[Translation], rank: int = 0) -> str:
    """Joins translations as the lines of a text were; blank lines stay."""
    lines = [
        each.hypotheses[min(rank, len(each.hypotheses) - 1)].text for each in found
    ]
    return ("\r\n" if "\r\n" in text else "\n").join(lines)


def _unchanged(line: str) -> Translation:
    return Translation(line, (Hypothesis(line, 0.0, 0.0, ended=True),))
