"""Tries faults on the translation server: what they do to it, and to its other clients.

    python -m benchmarks.serve_faults --workdir=DIR --lines=FILE

While each fault is tried on a real server, CLIENTS others translate single lines; their
answers are compared, to the bit, with `Translator.translate` of the line alone. `seen`
are the statuses that the faulty requests were answered with, or

  closed      the server has closed the connection without an answer
  refused     no connection was opened
  unanswered  the connection ended after a request was sent

`others` is how many answers of the other clients were right, and what else they got.
Open files and memory are those of the server before and after; the files are waited
for. The last fault is SIGTERM, with `IN_FLIGHT` requests over `CONNECTIONS`.
"""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from absl import flags

from benchmarks import measuring, run
from benchmarks.load import WAIT, Connection, head, sent
from benchmarks.serve import Server, expected, read_lines
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.messages import say

CLIENTS, LINES = 4, 16
IN_FLIGHT, CONNECTIONS = 300, 64
PATH = "/v1/translate"
BODY = json.dumps({"lines": ["A dog runs."]}).encode()


async def all_of(requests) -> Counter:
    return Counter(await asyncio.gather(*requests))


def post(body: bytes, length: int | None = None) -> bytes:
    return head(PATH, len(body) if length is None else length) + body


async def slow_bodies(server: Server) -> Counter:
    request = head(PATH, len(BODY) * 10)
    return await all_of(sent(server.port, request, BODY) for _ in range(20))


async def connections(server: Server) -> Counter:
    """Half of them send a byte of a head each second, and half nothing."""
    slow = 500 * (head(PATH, 1000), b"")
    return await all_of(sent(server.port, b"", data) for data in slow)


async def never_reading(server: Server) -> Counter:
    """Clients who ask for 16 MB and do not read them; ends when they are closed."""
    files_before, sockets = server.files(), []
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400
    for _ in range(20):
        sockets.append(socket.socket())
        sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sockets[-1].connect(("127.0.0.1", server.port))
        sockets[-1].sendall(request)
    await asyncio.sleep(2)
    opened = server.files() - files_before
    await server.files_return(files_before, WAIT)
    still_open = server.files() - files_before
    for connection in sockets:
        connection.close()
    return +Counter({"closed": opened - still_open, "open": still_open})


async def cut_bodies(server: Server) -> Counter:
    """With the length of what comes; with that of the whole, then the end."""
    parts = [BODY[:length] for length in range(len(BODY))]
    counts = await all_of(sent(server.port, post(part)) for part in parts)
    cut = (sent(server.port, post(part, len(BODY)), end=True) for part in parts)
    return counts + await all_of(cut)


async def large_bodies(server: Server) -> Counter:
    large = json.dumps({"lines": ["a" * 10_000_000]}).encode()
    unknown = post(b"", 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(large), large)
    requests = [post(large), unknown + chunk, post(b"[" * 1_000_000)] * 3
    return await all_of(sent(server.port, request) for request in requests)


async def leaving(server: Server) -> Counter:
    """Clients who leave before the answer."""
    posts = (Connection(server.port).post(PATH, BODY, 0.02) for _ in "x" * 50)
    return Counter(str(status or "left") for status, _ in await asyncio.gather(*posts))


async def device_error(server: Server) -> Counter:
    os.kill(server.pid, signal.SIGUSR1)
    await asyncio.sleep(3)
    return Counter()


async def deleted_workdir(server: Server) -> Counter:
    """And SIGHUP, which wants to load from it; provenance, which is of it."""
    shutil.rmtree(server.workdir)
    os.kill(server.pid, signal.SIGHUP)
    await asyncio.sleep(3)
    detailed = json.dumps({"lines": ["A dog runs."], "provenance": True}).encode()
    return await all_of(sent(server.port, post(body)) for body in (BODY, detailed))


async def stopped(server: Server) -> Counter:
    """SIGTERM while requests are in flight."""
    idle, counts = asyncio.Queue(), Counter()
    for _ in range(CONNECTIONS):
        idle.put_nowait(Connection(server.port))

    async def request() -> None:
        connection = await idle.get()
        try:
            status, _ = await connection.post(PATH, BODY)
            counts[str(status)] += 1
        except ConnectionRefusedError:
            counts["refused"] += 1
        except (OSError, EOFError):
            counts["unanswered"] += 1
            connection.close()
        idle.put_nowait(connection)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(request())
        await asyncio.sleep(0.5)
        os.kill(server.pid, signal.SIGTERM)
    return counts


# Fault -> what tries it, what may be seen, what others may get besides right answers.
FAULTS: dict[str, tuple[Callable[..., Awaitable[Counter]], set[str], set[str]]] = {
    "slow bodies": (slow_bodies, {"408"}, set()),
    "1000 connections": (connections, {"closed"}, set()),
    "never reading": (never_reading, {"closed"}, set()),
    "truncated bodies": (cut_bodies, {"400", "closed"}, set()),
    "large bodies": (large_bodies, {"413", "400"}, set()),
    "leaving": (leaving, {"left", "200"}, set()),
    "device error": (device_error, set(), {"500"}),
    "workdir deleted": (deleted_workdir, {"200"}, set()),
    "SIGTERM": (stopped, {"200", "503", "refused"}, set()),
}


class Faulty(Server):
    """A server whose next batch fails at SIGUSR1, with a workdir of its own."""

    def __init__(self, args, folder: Path):
        self.workdir = shutil.copytree(args.workdir, folder / "workdir")
        words = [sys.executable, "-m", "benchmarks.serve_faults", "serve"]
        words += [f"--workdir={self.workdir}", "--port=PORT"]
        limits = [f"--beams={args.beam}", f"--longest={args.longest}"]
        limits.append(f"--max_seconds={args.seconds}")
        super().__init__([*words, *limits])

    async def files_return(self, count: int, seconds: float) -> None:
        """Waits until not more than `count` files are open."""
        end = time.monotonic() + seconds
        while self.files() > count and time.monotonic() < end:
            await asyncio.sleep(0.5)


class Others:
    """Clients who translate lines; `counts` has what they got."""

    def __init__(self, port: int, alone: dict[str, list]):
        self.port, self.alone, self.counts = port, alone, Counter()
        self._lines = itertools.cycle(alone)

    async def client(self) -> None:
        connection = Connection(self.port)
        while True:
            line = next(self._lines)
            body = json.dumps({"lines": [line]}).encode()
            try:
                status, answer = await connection.post(PATH, body)
            except (OSError, EOFError):
                connection = Connection(self.port)
                self.counts["unanswered"] += 1
                continue
            kind = str(status)
            if status == 200:
                hypotheses = json.loads(answer)["translations"][0]["hypotheses"]
                kind = "right" if hypotheses == self.alone[line] else "different"
            self.counts[kind] += 1


async def tried(server: Faulty, fault: str, alone: dict[str, list]) -> dict:
    """Tries a fault; returns its row."""
    try_it, may_see, may_get = FAULTS[fault]
    clients = Others(server.port, alone)
    ends = try_it is stopped
    tasks = [asyncio.create_task(clients.client()) for _ in range(CLIENTS * (not ends))]
    await asyncio.sleep(1)
    files, memory = server.files(), server.megabytes()
    kinds = await try_it(server)
    await asyncio.sleep(1)
    row: dict = {
        "fault": fault,
        "seen": _counted(kinds),
        "files": "",
        "megabytes": "",
    }
    if not ends:
        await server.files_return(files, 10)
        row["files"] = f"{files} → {server.files()}"
        row["megabytes"] = f"{memory:.0f} → {server.megabytes():.0f}"
        ends = server.files() <= files
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    row["others"] = _counted(clients.counts)
    right = {*kinds} <= may_see and {*clients.counts} <= {"right", *may_get}
    return row | {"as_expected": "yes" if right and ends else "no"}


def _counted(counts: Counter) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def fail_at_signals() -> None:
    """Makes the next batch fail, as a device does, at SIGUSR1."""
    from t2t_jax.decoding.batch_decoding import Bucket

    advance, signals = Bucket.advance, []

    def failing(self, batch):
        with contextlib.suppress(IndexError):
            signals.pop()
            raise RuntimeError("RESOURCE_EXHAUSTED: made up")
        return advance(self, batch)

    Bucket.advance = failing
    signal.signal(signal.SIGUSR1, lambda *_: signals.append(None))


def define_flags():
    measuring.define_flags(rounds=None)
    flags.DEFINE_string("workdir", None, "Workdir to serve.", required=True)
    flags.DEFINE_string("lines", None, "Text file of source lines.", required=True)
    flags.DEFINE_list("faults", list(FAULTS), "Faults to try, in this order.")
    flags.DEFINE_integer("beam", 4, "Beam of all programs.")
    flags.DEFINE_integer("longest", 32, "Tokens of a source, with its end.")
    flags.DEFINE_float("seconds", 10.0, "Seconds after which a request is given up.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    names = measuring.chosen(args.faults, FAULTS, "faults")
    translator = Translator.load(args.workdir).with_options(beam=args.beam)
    lines = read_lines(args.lines, LINES, translator, args.longest)
    alone = {line: expected(translator, line, {}) for line in lines}
    rows = []
    with tempfile.TemporaryDirectory() as name, Faulty(args, Path(name)) as server:
        for fault in names:
            rows.append(asyncio.run(tried(server, fault, alone)))
            say(str(rows[-1]))
    measuring.publish(rows, args.output)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        from t2t_jax.commands import launch

        fail_at_signals()
        launch.main()
    else:
        run(main, define_flags)
