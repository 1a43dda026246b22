"""Sends requests to a server of translations: a closed or an open loop, in a process.

A job comes on standard input, what was measured goes to standard output, as JSON. It
imports little, so that it takes little of the machine that it measures. Lines of a
request that the clock covers in part count in that proportion.

  port, path  where the server is
  headers     of each request, besides those of its body
  requests    [{"body": ..., "lines": N, "leave": seconds}], sent again from the first
              on. With `leave`, the client closes its connection before the answer.
  clients     closed loop: so many send, wait for the answer, and send again
  rate        open loop: requests a second at random times (Poisson), whoever waits; the
              latency begins at the time of the request, also if it was sent later
  regular     open loop: at equal intervals instead
  warm        seconds before the clock starts; what begins in them has no latency
  seconds     that the clock runs at least: in a closed loop, until each client has had
              an answer to what it sent while the clock ran
  count       requests in place of seconds; all count
  pid         the server's process, whose processor time is read
  keep        answer with all answers, in the order of the requests
"""

import asyncio
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

LEFT = 0  # the status of a request whose client left
WAIT = 100  # seconds in which the server has to close what it closes


def head(path: str, length: int, headers: Mapping[str, str] = {}) -> bytes:
    """The head of a request with a body of `length` bytes, JSON by default."""
    headers = {"Host": "localhost", "Content-Type": "application/json", **headers}
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    head = f"POST {path} HTTP/1.1\r\n{''.join(lines)}Content-Length: {length}\r\n\r\n"
    return head.encode()


async def opened(port: int, local: str | None = None):
    """Opens a connection, from a local address if one is given."""
    address = local and (local, 0)
    return await asyncio.open_connection("127.0.0.1", port, local_addr=address)


async def sent(
    port: int,
    data: bytes,
    slow: bytes = b"",
    end: bool = False,
    wait: float = WAIT,
    local: str | None = None,
) -> str:
    """Sends data, then a byte a second of `slow`; returns the status, or `closed`."""
    reader, writer = await opened(port, local)
    writer.write(data)
    if end:
        writer.write_eof()
    answer = asyncio.create_task(asyncio.wait_for(reader.readline(), wait))
    try:
        for byte in slow:
            await asyncio.wait({answer}, timeout=1)
            if answer.done():
                break
            writer.write(bytes([byte]))
        return ((await answer).split() or [b"", b"closed"])[1].decode()
    except ConnectionError:
        return "unanswered"
    except TimeoutError:
        return f"open after {wait} s"
    finally:
        answer.cancel()
        writer.close()


class Connection:
    """HTTP/1.1 to 127.0.0.1 that is kept open; from the address `local`, if given."""

    def __init__(self, port: int, local: str | None = None):
        self.port, self.local, self._writer = port, local, None

    @property
    def is_open(self) -> bool:
        """True if a request will be sent on the connection of an earlier one."""
        return self._writer is not None

    async def post(
        self,
        path: str,
        body: bytes,
        leave: float | None = None,
        headers: Mapping[str, str] = {},
    ) -> tuple[int, bytes]:
        """Returns the status and the body of an answer; `LEFT` after leaving."""
        try:
            async with asyncio.timeout(leave):  # a connection may take long, too
                if self._writer is None:
                    streams = await opened(self.port, self.local)
                    self._reader, self._writer = streams
                self._writer.write(head(path, len(body), headers) + body)
                return await self._answer()
        except TimeoutError:
            self.close()
            return LEFT, b""

    async def _answer(self) -> tuple[int, bytes]:
        lines = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", lines, re.IGNORECASE)
        body = await self._reader.readexactly(int(length[1]))
        if b"connection: close" in lines.lower():
            self.close()
        return int(lines.split(None, 2)[1]), body

    def close_if_ended(self) -> None:
        """Closes it if the server has; `post` opens another one then."""
        if self._writer and (self._reader.at_eof() or self._writer.is_closing()):
            self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def cpu_seconds(pid: int) -> float:
    """The processor time of a process with its threads, from Linux's /proc."""
    # The name, in parentheses, may have spaces in it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else 0.0


class Load:
    """A job while it runs."""

    def __init__(self, job: dict):
        self.job = job
        self.bodies = [json.dumps(r["body"]).encode() for r in job["requests"]]
        self.idle: list[Connection] = []
        self.sent: list[tuple] = []  # (begin, end, status, lines) of each request
        self.kept: dict[int, tuple[int, str]] = {}
        self.next = 0

    async def send(self, number: int, began: float) -> None:
        """Sends a request and waits for its answer."""
        request = self.job["requests"][number % len(self.bodies)]
        connection = self.idle.pop() if self.idle else Connection(self.job["port"])
        connection.close_if_ended()
        try:
            status, body = await connection.post(
                self.job["path"],
                self.bodies[number % len(self.bodies)],
                request.get("leave"),
                self.job.get("headers", {}),
            )
            self.idle.append(connection)
        except (OSError, EOFError):  # closed by the server
            status, body = -1, b""
        lines = request["lines"]
        self.sent.append((began, time.perf_counter(), status, lines))
        if self.job.get("keep"):
            self.kept[number] = status, body.decode()

    async def client(self) -> None:
        is_first = True
        while not self.is_over():
            number, self.next = self.next, self.next + 1
            began = time.perf_counter()
            await self.send(number, began)
            if is_first and began >= self.start:
                is_first, self.unanswered = False, self.unanswered - 1

    def is_over(self) -> bool:
        """True if a client has to send no more; then the clock has stopped."""
        if (count := self.job.get("count")) is not None:
            return self.next >= count
        if not self.unanswered and time.perf_counter() >= self.end:
            self.stop_clock()
        return self.stopped

    def stop_clock(self) -> None:
        if not self.stopped:
            self.end, self.stopped = time.perf_counter(), True
            self.used.append(self.processor_seconds())

    def processor_seconds(self) -> tuple[float, float]:
        """Of the server, and of the clients."""
        pid = self.job.get("pid")
        return cpu_seconds(pid) if pid else 0.0, time.process_time()

    async def arrivals(self, began: float) -> None:
        rng, arrival = random.Random(self.job.get("seed", 0)), began
        rate, regular = self.job["rate"], self.job.get("regular")

        def pause() -> float:
            return 1 / rate if regular else rng.expovariate(rate)

        async with asyncio.TaskGroup() as group:
            while (arrival := arrival + pause()) < self.end:
                await asyncio.sleep(max(0.0, arrival - time.perf_counter()))
                number, self.next = self.next, self.next + 1
                group.create_task(self.send(number, arrival))
            await asyncio.sleep(max(0.0, self.end - time.perf_counter()))
            self.stop_clock()

    async def run(self) -> dict:
        """Runs the job; returns what was measured."""
        job = self.job
        began = time.perf_counter()
        counted = job.get("count") is not None
        warm = 0 if counted else job.get("warm", 0)
        self.start = began + warm
        self.end = float("inf") if counted else self.start + job["seconds"]
        self.stopped, self.unanswered = False, job.get("clients", 0)
        self.used: list[tuple[float, float]] = []
        asyncio.get_running_loop().call_later(
            warm, lambda: self.used.append(self.processor_seconds())
        )
        if job.get("rate"):
            await self.arrivals(began)
        else:
            await asyncio.gather(*(self.client() for _ in range(job["clients"])))
        self.stop_clock()  # of a count
        start, end = self.start, self.end
        seconds = end - start
        inside = [request for request in self.sent if start <= request[0] < end]
        answered = [b - a for a, b, status, _ in inside if status == 200]
        lines = sum(
            n * max(0.0, min(b, end) - max(a, start)) / (b - a)
            for a, b, status, n in self.sent
            if status == 200
        )
        (server, clients), (server_end, clients_end) = self.used
        measured = {
            "seconds": seconds,
            "lines_per_second": lines / seconds,
            **{f"p{p}_ms": 1e3 * percentile(answered, p / 100) for p in (50, 95, 99)},
            "cpu_ms_per_line": 1e3 * (server_end - server) / max(1, lines),
            "client_cores": (clients_end - clients) / seconds,
            "statuses": Counter(str(status) for _, _, status, _ in inside),
        }
        if job.get("keep"):
            measured["answers"] = [self.kept[n] for n in sorted(self.kept)]
        return measured


if __name__ == "__main__":
    print(json.dumps(asyncio.run(Load(json.load(sys.stdin)).run())))
