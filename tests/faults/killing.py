"""Kills training runs at moments that are seen from outside, in what they write."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import NamedTuple

from t2t_jax.tools.verify.child_runs import ChildRuns

EVAL_EVERY = 15  # steps
A_MOMENT = 0.02  # seconds: as long as a few files take to be written
FIELDS = {
    "model": {"norm": "pre"},
    # Metrics are gathered across saves and evaluations. Lines of dev are trained on, so
    # that their BLEU rises within the few steps, and a best checkpoint is replaced.
    "train": {"log_every": 11, "eval_every": EVAL_EVERY, "save_every": 5, "warmup": 10}
    | {"peak_learning_rate": 0.02},
    "decode": {"average": 3},
}


def runs_in(folder: Path) -> ChildRuns:
    """Runs that can be killed."""
    runs = ChildRuns(folder, translate=True)
    for section, values in FIELDS.items():
        runs.fields[section] |= values
    runs.fields["train"]["steps"] = 60
    return runs


def _entries(folder: Path) -> list[os.DirEntry]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


def _being_written(kind: str) -> Callable[[ChildRuns, Path], Iterable]:
    def see(runs, workdir):
        for entry in _entries(workdir / "checkpoints" / kind):
            if "orbax-checkpoint-tmp" in entry.name:
                # By its inode it is not one that a killed process left behind.
                yield entry.name, entry.inode()

    return see


def _states(runs, workdir):
    found = [entry.name for entry in _entries(workdir / "checkpoints/state")]
    return {int(name) for name in found if name.isdigit()}


def _evaluations(runs, workdir):
    """An evaluation begins while the state of its step is still being written."""
    steps = (e.name.partition(".")[0] for e in _entries(workdir / "checkpoints/state"))
    return {step for step in steps if step.isdigit() and int(step) % EVAL_EVERY == 0}


def _metrics(runs, workdir):
    found = _entries(workdir)
    return [e.stat().st_size for e in found if e.name == "metrics.jsonl"]


def _preparations(runs, workdir):
    kinds = _entries(runs.folder / "cache")
    parts = [part for kind in kinds for part in _entries(kind)]
    return [part.name for part in parts if part.name.startswith(".writing-")]


class Moment(NamedTuple):
    """A run is killed up to `within` seconds after something new is seen of it.

    Attributes:
      see: what is there now; new is what was not there before.
      pass_by: up to so many new things are let pass, so that a run advances.
    """

    see: Callable[[ChildRuns, Path], Iterable[Hashable]]
    within: float = A_MOMENT
    pass_by: int = 0


MOMENTS = {
    "any time": Moment(lambda *_: [time.monotonic()], within=8.0),
    # The first of all states: the first metrics are gathered from before it and after.
    "first state written": Moment(_states),
    "parameters being written": Moment(_being_written("parameters"), pass_by=2),
    "state being written": Moment(_being_written("state"), pass_by=2),
    "state written": Moment(_states, pass_by=2),
    "best being written": Moment(_being_written("best")),
    "metrics written": Moment(_metrics, pass_by=4),
    "evaluation": Moment(_evaluations, within=0.4),
    "text being prepared": Moment(_preparations, within=0.4),
    "end and scoring": Moment(
        lambda runs, workdir: _states(runs, workdir) & {runs.fields["train"]["steps"]},
        within=1.0,
    ),
}


def kill(runs, name, moment, chance, signum=signal.SIGKILL) -> bool:
    """Trains, and kills the run at a moment; False if it came to its end before."""
    if MOMENTS[moment].see is _preparations:
        shutil.rmtree(runs.folder / "cache", ignore_errors=True)
    see, within, pass_by = MOMENTS[moment]
    workdir = runs.folder / name
    seen = set(see(runs, workdir))
    left = chance.randint(0, pass_by)

    def reached():
        nonlocal left
        new = set(see(runs, workdir)) - seen
        seen.update(new)
        left -= len(new)
        if left < 0:
            time.sleep(chance.uniform(0, within))
        return left < 0

    status = runs.life(name, reached, signum)
    assert status in (0, -signum, 128 + signum), (runs.folder, name, status)
    return status != 0


def killed_at(runs, moments, kills, seed, signals=(signal.SIGKILL,)):
    """Runs that are killed at each of the moments in turn, and their workdirs.

    A moment that does not come before a run has ended is waited for in the next.
    """
    chance, workdirs, left, in_vain = random.Random(seed), [], kills, 0
    while left:
        assert in_vain < 5, f"{moments[-left % len(moments)]!r} does not come"
        name, before = f"killed{len(workdirs)}", left
        while left and kill(
            runs, name, moments[-left % len(moments)], chance, chance.choice(signals)
        ):
            left -= 1
        in_vain = 0 if left < before else in_vain + 1
        workdirs.append(runs.finished(name))
    return workdirs
