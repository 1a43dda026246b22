"""The work of clients takes turns, and ends when nobody waits for it any more."""

import asyncio
import threading
import time

import pytest

from t2t_jax.tools.serve.turns import LateError, Turns


def forever(steps):
    while True:
        steps.append(time.monotonic())
        time.sleep(0.001)
        yield


def given(value):
    return value
    yield


def asking():
    first = yield 20
    yield
    second = yield first + 1
    return second


def failing():
    yield
    raise KeyError("a")


class Panic(BaseException):
    """As libraries in Rust raise it."""


def panicking():
    yield
    raise Panic


async def in_turns(work):
    turns = Turns()
    try:
        return await work(turns, time.monotonic() + 30)
    finally:
        turns.close()


def test_a_generator_is_sent_what_it_asks_for():
    async def work(turns, deadline):
        async def answer(request):
            return 2 * request

        with pytest.raises(KeyError):
            await turns.run(failing(), "a", deadline)
        for _ in range(3):  # and the threads are still there
            with pytest.raises(RuntimeError, match="no ordinary error"):
                await turns.run(panicking(), "a", deadline)
        return await turns.run(asking(), "a", deadline, answer)

    assert asyncio.run(in_turns(work)) == 82


def test_a_client_has_one_thread_and_the_others_the_other():
    async def work(turns, deadline):
        entered, leave = [], threading.Event()

        def stuck():
            entered.append(1)
            leave.wait(30)
            return 3
            yield

        bad = [asyncio.create_task(turns.run(stuck(), "bad", deadline)) for _ in "12"]
        for client in "ab":
            assert await turns.run(given(client), client, deadline) == client
        assert entered == [1]
        assert turns.longest() > 0
        leave.set()
        assert await asyncio.gather(*bad) == [3, 3]
        assert turns.longest() == 0

    asyncio.run(in_turns(work))


@pytest.mark.parametrize("late", [True, False])
def test_work_ends_with_its_deadline_and_with_its_client(late):
    async def work(turns, deadline):
        steps = []
        end = time.monotonic() + 0.05 if late else deadline
        running = asyncio.create_task(turns.run(forever(steps), "a", end))
        while not steps:
            await asyncio.sleep(0.001)
        if not late:
            running.cancel()
        with pytest.raises(LateError if late else asyncio.CancelledError):
            await running
        assert await turns.run(given(1), "a", deadline) == 1  # it has its turn again
        count = len(steps)
        await asyncio.sleep(0.05)
        assert len(steps) == count

    asyncio.run(in_turns(work))
