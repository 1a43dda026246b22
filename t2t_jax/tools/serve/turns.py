"""Threads in which the work of clients takes turns, a slice of time each."""

import asyncio
import contextlib
import dataclasses
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from t2t_jax.tools.serve.fair_queue import FairQueue

SLICE = 0.005  # seconds of a turn, or one step if that takes longer
LATE = "the time of a request is over"
QUICK = 2_000  # characters or bytes, at most, of text whose steps are quick


class LateError(Exception):
    """The deadline has passed; what was asked for is given up."""


@dataclasses.dataclass(eq=False)
class _Job:
    """A generator that is advanced until it asks for something, ends, or fails."""

    steps: Generator
    sent: Any
    client: str
    loop: asyncio.AbstractEventLoop | None = None  # if a thread advances it
    done: asyncio.Future | None = None
    dropped: bool = False

    def advance(self) -> tuple[str, Any] | None:
        """Advances for a slice; returns the event if it does not only go on."""
        end = time.monotonic() + SLICE
        try:
            while not self.dropped:
                question, self.sent = self.steps.send(self.sent), None
                if question is not None:
                    return "asked", question
                if time.monotonic() > end:
                    return None
        except StopIteration as e:
            return "ended", e.value
        except Exception as e:
            return "failed", e
        except BaseException as e:  # such as a panic of a library: the thread goes on
            error = RuntimeError("a step has ended in no ordinary error")
            error.__cause__ = e
            return "failed", error
        return None

    def finish(self, event: tuple[str, Any]) -> None:
        """Tells what happened, in the event loop."""
        if not self.done.done():  # or it is cancelled
            self.done.set_result(event)


class Turns:
    """Advances generators in threads; of each client one in turn, for a slice.

    A generator yields None wherever another may have its turn, and a client has one
    thread at most. So one whose work takes minutes delays no other one; and work whose
    deadline is over, or whose client has left, ends at the next step.
    """

    def __init__(self, threads: int = 2):
        self._changed = threading.Condition()
        self._queue: FairQueue[_Job] = FairQueue()
        self._begun: dict[str, float] = {}  # client -> when its slice has begun
        self._closing = False
        for number in range(threads):
            name = f"turns-{number}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(
        self,
        steps: Generator,
        client: str,
        deadline: float,
        answer: Callable[[Any], Awaitable[Any]] | None = None,
        quick: bool = False,
    ) -> Any:
        """Advances a generator to its end; returns what it returns.

        Args:
          client: whose turns it takes.
          deadline: of `time.monotonic()`.
          answer: awaited for what the generator yields, and keeps to the deadline; the
            result is sent to it.
          quick: each step takes about a millisecond. While nobody waits for a turn, a
            slice is done in the event loop, since to wake a thread takes longer.

        Raises:
          LateError: the deadline has passed.
          What the generator or `answer` raises.
        """
        sent = None
        while True:
            if time.monotonic() > deadline:
                raise LateError(LATE)
            job = _Job(steps, sent, client)
            event = job.advance() if quick and not self._queue else None
            outcome, value = event or await self._in_thread(job, deadline)
            if outcome == "failed":
                raise value
            if outcome == "ended":
                return value
            sent = await answer(value)

    async def _in_thread(self, job: _Job, deadline: float) -> tuple[str, Any]:
        """Waits until a thread has advanced a job to an event."""
        job.loop = asyncio.get_running_loop()
        job.done = job.loop.create_future()
        try:
            with self._changed:
                self._queue.put(job.client, job, job)
                self._changed.notify()
            async with asyncio.timeout(deadline - time.monotonic()):
                return await job.done
        except TimeoutError:
            raise LateError(LATE) from None
        finally:
            job.dropped = True
            with self._changed:  # a body may be large
                self._queue.remove(job.client, job)

    def longest(self) -> float:
        """Seconds for which a thread has been in its slice."""
        now = time.monotonic()
        with self._changed:
            return max((now - began for began in self._begun.values()), default=0.0)

    def close(self) -> None:
        """Ends the threads, after the slices that they are in."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while (client := self._queue.next(self._begun)) is None:
                    if self._closing:
                        return
                    self._changed.wait()
                job = self._queue.pop(client)
                self._begun[client] = time.monotonic()
            event = job.advance()
            with self._changed:
                del self._begun[client]
                if event is None and not job.dropped:
                    self._queue.put(client, job, job)
                self._changed.notify()  # for what has waited for this client's turn
            if event is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    job.loop.call_soon_threadsafe(job.finish, event)
            del job, event  # not kept until there is another
