"""When a run is killed: moments that are seen from outside, in what it writes.

All is found by listing single folders: that is cheap enough for a thousand times a
second.
"""

import itertools
import os
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

STEPS, EVAL_EVERY = 60, 15  # of the runs that are watched
A_MOMENT = 0.02  # seconds: as long as a few files take to be written


class Watched(Protocol):
    """What moments look at of a run.

    Attributes:
      workdir: where it trains.
      prepared: where its text is prepared.
      usual_seconds: of such a run from start to end, if nobody kills it.
    """

    workdir: Path
    prepared: Path
    usual_seconds: float


@dataclass(frozen=True)
class Moment:
    """A run is killed up to `within` seconds after something new is seen of it.

    Attributes:
      see: what can be seen now; new is what was not there before.
      within: seconds; None is all that such a run takes.
      pass_by: up to so many new things are let pass, so that a run comes forward.
      unprepared: before, what was prepared of the training text is taken away.
    """

    name: str
    see: Callable[[Watched], Iterable]
    within: float | None = A_MOMENT
    pass_by: int = 0
    unprepared: bool = False

    def watch(self, run: Watched, chance: random.Random) -> Callable[[], bool]:
        """A function that tells, asked often, whether something new was seen."""
        seen = set(self.see(run))
        left = chance.randint(0, self.pass_by)

        def is_seen() -> bool:
            nonlocal left
            new = set(self.see(run)) - seen
            seen.update(new)
            left -= len(new)
            return left < 0

        return is_seen

    def delay(self, run: Watched, chance: random.Random) -> float:
        """Seconds from what was seen to the kill."""
        within = run.usual_seconds if self.within is None else self.within
        return chance.uniform(0, within)


def entries(folder: Path) -> list[os.DirEntry]:
    """What is in a folder, if there is one."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


def states(run: Watched) -> set[int]:
    """The steps whose state is written."""
    found = entries(run.workdir / "checkpoints/state")
    return {int(entry.name) for entry in found if entry.name.isdigit()}


def _time(run: Watched) -> Iterable[float]:
    return [time.monotonic()]  # always new


def _being_written(kind: str) -> Callable[[Watched], Iterable]:
    def see(run: Watched) -> Iterable[tuple[str, int]]:
        for entry in entries(run.workdir / "checkpoints" / kind):
            if "orbax-checkpoint-tmp" in entry.name:
                # By its inode it is not one that a killed process left behind.
                yield entry.name, entry.inode()

    return see


def _last_state(run: Watched) -> Iterable[int]:
    return states(run) & {STEPS}


def _states_before_evaluations(run: Watched) -> Iterable[str]:
    """An evaluation begins while the state of its step is written behind."""
    for entry in entries(run.workdir / "checkpoints/state"):
        step = entry.name.partition(".")[0]
        if step.isdigit() and int(step) % EVAL_EVERY == 0:
            yield step


def _size_of_metrics(run: Watched) -> Iterable[int]:
    found = entries(run.workdir)
    return [entry.stat().st_size for entry in found if entry.name == "metrics.jsonl"]


def _preparations(run: Watched) -> Iterable[str]:
    parts = itertools.chain.from_iterable(map(entries, entries(run.prepared)))
    return [entry.name for entry in parts if entry.name.startswith(".writing-")]


ALL = (
    Moment("any time", _time, within=None),
    Moment("parameters being written", _being_written("parameters"), pass_by=2),
    Moment("state being written", _being_written("state"), pass_by=2),
    Moment("state written", states, pass_by=2),
    Moment("best being written", _being_written("best")),
    Moment("metrics written", _size_of_metrics, pass_by=4),
    Moment("evaluation", _states_before_evaluations, within=0.4),
    Moment("text being prepared", _preparations, within=0.4, unprepared=True),
    Moment("end and scoring", _last_state, within=1.0),
)
MOMENTS = {moment.name: moment for moment in ALL}
