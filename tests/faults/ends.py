"""Runs of a model that trains in no time, stopped and killed, whatever ends them.

A SIGTERM is a real one, of this process. A SIGKILL is an exception after which nothing
is sealed any more, as nothing would be. A step takes one second, by the run's clock.
"""

import contextlib
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

from t2t_jax.config import from_config_dict
from t2t_jax.data.filling import ragged
from t2t_jax.data.pairs import Pairs
from t2t_jax.io.interruption import Interrupted
from t2t_jax.training import checkpoint_folders, loop
from t2t_jax.training.averaging import choose_checkpoints
from t2t_jax.training.stopping import Clock
from t2t_jax.training.time_log import TimeLog
from t2t_jax.workdir import Workdir
from tests.small_run import assert_same_run
from tests.training.small_model import V, model_of

# Rises to step 12; then two evaluations (of every 6 steps) bring nothing.
SCORES = {6: 1.0, 12: 3.0, 18: 2.0, 24: 3.0}
MODEL = model_of(0.3)
TEXT = [[*np.random.default_rng(i).integers(3, V, 3 + i % 4), 2] for i in range(60)]
PAIRS = Pairs(ragged(TEXT), ragged(TEXT), {}, sizes=(len(TEXT),))


class End(NamedTuple):
    """What ends a run: the fields of each of its ends in turn, and the step of it."""

    step: int
    train: tuple[dict, ...]
    last: int | None = None


ENDS = {
    "all_steps": End(24, ({"steps": 24},)),
    "raised_steps": End(24, ({"steps": 7}, {"steps": 13}, {"steps": 24})),
    "minutes": End(20, ({"steps": 99, "minutes": 20 / 60},)),
    "raised_minutes": End(
        23, tuple({"steps": 99, "minutes": m / 60} for m in (4, 15, 23))
    ),
    "patience": End(24, ({"steps": 99, "patience": 2},)),
    "last": End(17, ({"steps": 99},), 17),
}


class Killed(BaseException):
    """A SIGKILL."""


class Stop(NamedTuple):
    """Ends a life after a step, or, killed, instead of sealing the Nth checkpoint."""

    kind: str  # "stopped", "killed" or "sealing"
    number: int


class SteppingClock(Clock):
    """A clock that the steps of all lives move on."""

    now = 0.0

    def __init__(self, before: float):
        self._began = SteppingClock.now - before

    def seconds(self) -> float:
        return SteppingClock.now - self._began


def config_with(save_every: int, **train):
    data = {"batching": "packed", "row_length": 16, "batch_tokens": 128}
    fields = {"log_every": 5, "eval_every": 6, "save_every": save_every, "warmup": 3}
    fields |= {"ema_decay": 0.8, "peak_learning_rate": 0.1} | train
    return from_config_dict(
        {
            "data": data | {"feeder": "numpy", "train": "x", "dev": "x"},
            "train": fields,
            "decode": {"average": 2},
        }
    )


def live(
    workdir: Path,
    config,
    stop: Stop | None = None,
    last: int | None = None,
    evaluate: Callable[[int], None] = lambda step: None,
) -> loop.Outcome | None:
    """Trains until the end, or a stop; returns None if the run did not come to its end.

    Args:
      evaluate: called with the step of each evaluation.
    """
    dead, sealing, seal = threading.Event(), [], checkpoint_folders.seal

    def count_seals(*arguments, **notes):
        sealing.append(arguments)
        if stop and stop.kind == "sealing" and len(sealing) >= stop.number:
            dead.set()
        if dead.is_set():
            raise Killed
        seal(*arguments, **notes)

    def after_step(step, loss, metrics, state):
        SteppingClock.now += 1
        if dead.is_set() or (stop == Stop("killed", step)):
            dead.set()
            raise Killed
        if stop == Stop("stopped", step):
            signal.raise_signal(signal.SIGTERM)

    def scored(parameters, step):
        evaluate(step)
        return {"bleu": SCORES.get(step, 0.5)}

    time = TimeLog()
    hooks = loop.Hooks(evaluate=scored, after_step=after_step, last=last, time=time)
    with contextlib.suppress(Killed, Interrupted), contextlib.ExitStack() as stack:
        stack.callback(time.stop)
        for owner, name, replacement in (
            (checkpoint_folders, "seal", count_seals),
            (loop, "Clock", SteppingClock),
            (threading, "excepthook", lambda _: None),  # a thread was killed, too
        ):
            stack.enter_context(mock.patch.object(owner, name, replacement))
        workdir = Workdir(workdir)
        outcome = loop.run(config, workdir, MODEL, 1, PAIRS, PAIRS, hooks)
        return None if dead.is_set() else outcome
    return None


def ended(workdir: Path, end: End, save_every: int, stops=()) -> int:
    """Trains to each end in turn; returns how many of the stops came.

    Each life is given the next stop; it may end before that comes.
    """
    stops_left, came = [*stops], 0
    workdir.mkdir(parents=True)
    for train in end.train:
        config = config_with(save_every, **train)
        while not (
            outcome := live(
                workdir, config, stops_left.pop(0) if stops_left else None, end.last
            )
        ):
            came += 1
        assert choose_checkpoints(workdir, config, "last").steps == [outcome.last_step]
    assert outcome.last_step == end.step, outcome
    return came


def assert_undisturbed(
    reference: Path, workdir: Path, end: End, save_every: int
) -> None:
    """The end has its parameters, and nothing else differs from the other run's."""
    config = config_with(save_every, **end.train[-1])
    for choice in ("average", "last", "best"):
        expected, actual = (
            choose_checkpoints(w, config, choice) for w in (reference, workdir)
        )
        assert expected.steps == actual.steps, choice
    assert choose_checkpoints(workdir, config, "last").steps == [end.step]
    if save_every > end.step:
        assert choose_checkpoints(workdir, config, "average").steps == [end.step]
    # An earlier end was evaluated, and that is kept.
    excluded = ("metrics",) if len(end.train) > 1 else ()
    assert_same_run(reference, workdir, *excluded)


def random_stops(chance: random.Random, count: int) -> list[Stop]:
    kinds = ["stopped", "stopped", "killed", "sealing"]
    return [Stop(chance.choice(kinds), chance.randint(1, 23)) for _ in range(count)]
