"""Sends random requests at all limits to a server of translations, in a process.

A job comes as a line on standard input, in JSON. Each further line names a phase, and
what begins from then on is counted under it. At the end of the input, the counts go to
standard output: phase -> kind of request -> status -> number. Besides statuses:

  left        the client has left before the answer, on purpose
  closed      the server has closed the connection without an answer
  refused     no connection was opened
  open after  the seconds in which nothing came

It imports little, so that it takes little of the machine that it measures.

  port            where the server is
  key             the client's API key; some requests have it, some none
  lines           captions, of which requests are made
  source, target  languages of the direction
  kinds           names of `requests_by_kind`, drawn at random
  clients         connections that are kept busy
"""

import asyncio
import contextlib
import json
import random
import resource
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.load import LEFT, Connection, head, sent

# The limits of docs/serving.md: characters, lines and bytes of a request.
CHARACTERS, LINES, BYTES = 20_000, 500, 1 << 20
SEED, VARIANTS = 0, 3  # requests of each kind are drawn so many times
IDLE, IDLE_SECONDS = 100, 5  # connections without a request, left after the seconds
WAIT = 60  # seconds for an answer
LOCAL = "127.0.0.2"  # Linux has it; servers count the connections of an address
SYNTAX = b"{}[]\"',:;<>/&=\\%\n\r\t \0\xc3a0"  # that mutations insert
TRANSLATE, FORM = "/v1/translate", "application/x-www-form-urlencoded"


class Request(NamedTuple):
    """A request; `leave` is the seconds after which its client leaves."""

    path: str
    body: bytes
    content_type: str = "application/json"
    key: str | None = None
    leave: float | None = None


def post(path: str, **fields) -> Request:
    """A request with fields as compact JSON: more of them fit into the limit."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return Request(path, text.encode())


def multipart(content: bytes, parts: int = 1, charset: str = "utf-8") -> Request:
    disposition = b'Content-Disposition: form-data; name="lines"'
    part = b"--b\r\n%s\r\n\r\n%s\r\n" % (disposition, content)
    kind = f"multipart/form-data; boundary=b; charset={charset}"
    return Request(TRANSLATE, part * parts + b"--b--\r\n", kind)


def letters(rng: random.Random, low: int, high: int, count: int) -> str:
    return "".join(map(chr, rng.choices(range(low, high + 1), k=count)))


def requests_by_kind(
    captions: Sequence[str], source: str, target: str, rng: random.Random
) -> dict[str, list[Request]]:
    """Draws requests of each kind; `BadClient.send` makes those of empty lists."""
    size = CHARACTERS // LINES
    lines = [line[:size] for line in rng.choices(captions, k=LINES)]
    # Latin, Greek, Cyrillic, Arabic, Devanagari, Thai, kana, Han, Hangul, emoji.
    scripts = (
        *((97, 122), (945, 969), (1072, 1103), (1569, 1610), (2309, 2361)),
        *((3585, 3630), (12353, 12435), (19968, 40869), (44032, 55203)),
        (128512, 128591),
    )
    mixed = [letters(rng, *rng.choice(scripts), size) for _ in range(LINES)]
    han, points = letters(rng, 19968, 40869, CHARACTERS), "A. " * 6000
    numbers = [str(n) for n in range(CHARACTERS)]
    names = ",".join(f"t{n}" for n in range(100_000))
    pair = {"source": source, "target": target}
    deepl = {"target_lang": target, "tag_handling": "html"}
    empty, nested = [""] * 300_000, "<b>" * 2850 + "</b>" * 2850
    lists: list[list] = [[]] * 300_000

    def tagged(text: str) -> list[Request]:
        libretranslate = post("/translate", q=text, format="html", **pair)
        return [post(TRANSLATE, text=text, markup="html"), libretranslate]

    return {
        "500 lines": [
            post(TRANSLATE, lines=lines),
            post("/translate", q=lines, **pair),
        ],
        "details": [post(TRANSLATE, lines=lines, details=True)],
        "samples": [post(TRANSLATE, lines=lines, samples=n, seed=1) for n in (1, 100)],
        "newlines": [
            Request(TRANSLATE, b"text=" + b"\n" * (BYTES - 5), FORM),
            post(TRANSLATE, text="\r\n" * (BYTES // 5)),
            post("/translate", q="\n" * (BYTES // 2 - 100), **pair),
        ],
        "empty lines": [
            post(TRANSLATE, lines=empty),
            post("/translate", q=empty, **pair),
        ],
        "empty lists": [
            post(TRANSLATE, lines=lists),
            post(TRANSLATE, lines="A", must=lists),
        ],
        "must_not of all lines": [
            post(TRANSLATE, lines=["a"] * CHARACTERS, must_not=numbers)
        ],
        "characters as must_not": [
            post(TRANSLATE, lines=lines[:1], must_not=[*dict.fromkeys(han)][:5000])
        ],
        "long phrases": [
            post(TRANSLATE, lines="a", **{name: ["a" * (CHARACTERS - 1)]})
            for name in ("must", "must_not", "prefix")
        ],
        "charsets": [
            multipart(b"a" + b"\xc3\xbc-" * (BYTES // 3 - 50), charset=charset)
            for charset in ("punycode", "idna", "utf-7")
        ],
        "parts": [multipart(b"a", parts) for parts in (LINES, BYTES // 64)],
        "deep JSON": [
            Request(TRANSLATE, opened * (BYTES // len(opened)))
            for opened in (b"[", b'{"a":')
        ]
        + [Request(TRANSLATE, b'{"lines":%s%s}' % (b"[" * 500_000, b"]" * 500_000))],
        "less than": tagged("<" * CHARACTERS),
        "nested tags": tagged(nested),
        "closing tags": tagged("</i>" * (CHARACTERS // 4)),
        "placeholders": [post(TRANSLATE, text="@ " + "a+" * 9990, placeholders=True)],
        "sentences": [
            post(TRANSLATE, text=t, split="sentences") for t in (han, points)
        ],
        "/v1/sentences": [
            post("/v1/sentences", lines=texts, direction=f"{source}-{target}")
            for texts in ([han], [points], lines, empty, ["\n" * (BYTES // 2 - 100)])
        ],
        "ignored tags": [
            post("/v2/translate", text=nested, ignore_tags=names, **deepl),
            post(TRANSLATE, text=nested, markup="html", ignored=names),
        ],
        "guessing": [
            post(TRANSLATE, lines=mixed, target=target),
            post("/translate", q=mixed, target=target),
            post("/detect", q=letters(rng, 1072, 1103, 1000) * (BYTES // 2100)),
        ],
        "wrong keys": [
            post(TRANSLATE, lines=["a" * (BYTES - 100)])._replace(key=key)
            for key in ("wrong", "k" * 10_000)
        ],
        "leaving": [
            post(TRANSLATE, lines=lines)._replace(leave=rng.uniform(0, 2))
            for _ in range(5)
        ],
        **{kind: [] for kind in ("mutations", "slow bodies", "idle connections")},
    }


def mutated(body: bytes, rng: random.Random) -> bytes:
    """Deletes, repeats or replaces parts of a body."""
    changed = bytearray(body)
    for _ in range(rng.randint(1, 5)):
        begin, size = rng.randrange(len(changed) + 1), rng.choice((1, 2, 50, 5000))
        part, syntax = changed[begin : begin + size], rng.choices(SYNTAX, k=size)
        changed[begin : begin + size] = rng.choice((b"", part * 2, bytes(syntax)))
    return bytes(changed[:BYTES])


class BadClient:
    """A job while it runs."""

    def __init__(self, job: dict):
        self.job, self.port, self.phase = job, job["port"], ""
        self.rng = rng = random.Random(SEED)
        texts = job["lines"], job["source"], job["target"]
        self.requests: dict[str, list[Request]] = defaultdict(list)
        for _ in range(VARIANTS):
            for kind, requests in requests_by_kind(*texts, rng).items():
                self.requests[kind] += requests
        self.all = [r for drawn in self.requests.values() for r in drawn]
        self.counts: dict = defaultdict(lambda: defaultdict(Counter))

    def headers(self, request: Request) -> dict[str, str]:
        """Those of the content; the API key in seven of ten, if it has no other."""
        key = request.key or (self.job["key"] if self.rng.random() < 0.7 else None)
        keyed = {"Authorization": f"Bearer {key}"} if key else {}
        return {"Content-Type": request.content_type} | keyed

    async def send(self, kind: str, connection: Connection) -> list[str]:
        """Sends a request of a kind; returns its statuses."""
        if kind == "idle connections":
            each = {"wait": IDLE_SECONDS, "local": LOCAL}
            idle = [sent(self.port, b"", **each) for _ in range(IDLE)]
            return await asyncio.gather(*idle)
        request = self.rng.choice(self.requests[kind] or self.all)
        headers, path, body = self.headers(request), request.path, request.body
        if kind == "slow bodies":
            request_head = head(path, len(body) + 1000, headers)
            return [await sent(self.port, request_head, body[:1000], local=LOCAL)]
        if kind == "mutations":
            body = mutated(body, self.rng)
        if "Authorization" not in headers and self.rng.random() < 0.5:
            path += f"?api_key={self.job['key']}"  # known after the body is read
        leave = request.leave or WAIT
        status, _ = await connection.post(path, body, leave, headers)
        ending = "left" if request.leave else f"open after {WAIT} s"
        return [ending if status == LEFT else str(status)]

    async def client(self) -> None:
        connection = Connection(self.port, LOCAL)
        while True:
            kind, phase = self.rng.choice(self.job["kinds"]), self.phase
            connection.close_if_ended()
            try:
                statuses = await self.send(kind, connection)
            except ConnectionRefusedError:
                statuses = ["refused"]
                await asyncio.sleep(1)
            except (OSError, EOFError):
                statuses = ["closed"]
                connection.close()
            self.counts[phase][kind].update(statuses)

    async def run(self) -> dict:
        """Sends until the input ends; returns the counts."""
        clients = range(self.job["clients"])
        tasks = [asyncio.create_task(self.client()) for _ in clients]
        while line := await asyncio.to_thread(sys.stdin.readline):
            self.phase = line.strip()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return self.counts


if __name__ == "__main__":
    with contextlib.suppress(ValueError, OSError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(json.dumps(asyncio.run(BadClient(json.loads(sys.stdin.readline())).run())))
