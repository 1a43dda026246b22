"""Reads the log of a run for plots: `metrics.jsonl`, while it grows or when it ended.

A run that returned to an earlier checkpoint has logged some steps twice. Both are
kept here, as the axes of tokens and hours count what was spent: `Segment.undone` is
True for what the run discarded.
"""

import dataclasses
import json
import math
import os
import re
from collections.abc import Iterable, Sequence

import numpy as np
from etils import epath

from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import is_local, locate
from t2t_jax.io.messages import say
from t2t_jax.training.metrics_log import METRICS, Log, read_log
from t2t_jax.training.provenance_log import read_starts
from t2t_jax.training.time_log import read_times, summarize
from t2t_jax.workdir import CONFIG, Workdir


class NothingLoggedError(UserError):
    """A workdir in which nothing is logged yet."""


@dataclasses.dataclass
class Segment:
    """Values that were logged one after the other, and belong to one line of a plot.

    Attributes:
      kind: "train" or "dev".
      undone: True if the run returned to a step before these and discarded them.
      x: for each axis (steps, and tokens and hours if logged) a number per entry.
      values: for each metric a number per entry; nan where it is missing.
    """

    kind: str
    undone: bool
    x: dict[str, list[float]]
    values: dict[str, list[float]]


@dataclasses.dataclass
class Event:
    """Something that happened at a moment of a run.

    Attributes:
      kind: "restart", "rollback" or "alarm".
      metric: the metric whose panel marks it.
      x: its place on each axis.
      text: one sentence.
      value: for an alarm, the gradient norm of its step; nan if it was not finite.
    """

    kind: str
    metric: str
    x: dict[str, float]
    text: str
    value: float = math.nan


@dataclasses.dataclass
class RunLog:
    """The log of a run.

    Attributes:
      path: its workdir.
      segments: what was logged, in order.
      events: restarts, rollbacks and alarms.
      axes: the names of the axes that this log allows.
      time: where its time went, a row for each phase; empty if an earlier version ran.
    """

    path: str
    segments: list[Segment]
    events: list[Event]
    axes: list[str]
    time: list[str] = dataclasses.field(default_factory=list)

    @property
    def last_step(self) -> int:
        """The last step that was logged and not discarded."""
        last_steps = [s.x["steps"][-1] for s in self.segments if not s.undone]
        return int(max(last_steps, default=0))


def read_run(workdir: epath.PathLike) -> RunLog:
    """Reads the log of a workdir; changes nothing in it.

    Damaged lines are left out with a warning. The last line may be half written, since
    the run may be writing it: it is left out without one.

    Raises:
      NothingLoggedError: nothing is logged yet.
      UserError: not a workdir.
    """
    folder = locate(workdir)
    log = folder / METRICS
    if not log.is_file():
        raise _without_log(folder)
    logged = read_log(log)
    for number in logged.damaged:
        say(f"warning: {log}, line {number} is damaged; left out")
    if not any(entry["kind"] in ("train", "dev") for entry in logged.entries):
        raise NothingLoggedError(
            f"{log} holds no metrics yet: a run logs every config.train.log_every "
            "steps; wait for the first"
        )
    starts = [start.step for start in read_starts(Workdir(workdir))]
    run = _run_log(str(workdir), logged, starts, _log_every(folder / CONFIG))
    times = read_times(Workdir(workdir))
    return dataclasses.replace(run, time=summarize(times).lines())


def find_runs(pattern: str) -> list[str]:
    """Expands a workdir with `*`, such as runs/*, to the folders that hold a log.

    Raises:
      UserError: there is none.
    """
    if not any(c in pattern for c in "*?"):
        return [pattern]
    top, pattern_below = re.match(r"((?:[^*?/]*/)*)(.*)", pattern).groups()
    folders = sorted(
        str(file.parent)
        for file in locate(top or ".").glob(f"{pattern_below}/{METRICS}")
    )
    if not folders:
        raise UserError(f"--workdir={pattern} matches no folder with a {METRICS}")
    return folders


def _without_log(folder: epath.Path) -> UserError:
    """Says why a folder without a log cannot be plotted, and what can."""
    if (folder / CONFIG).is_file():
        if (folder / "imported.json").is_file():
            return UserError(
                f"{folder} holds an imported or saved model: it has no log"
            )
        return NothingLoggedError(
            f"{folder} has no {METRICS} yet: the run has not logged its first "
            "config.train.log_every steps; wait for them"
        )
    if not folder.is_dir():
        return UserError(f"--workdir={folder} does not exist; want the folder of a run")
    for depth in ("*", "*/*"):
        if count := len([*folder.glob(f"{depth}/{METRICS}")]):
            return UserError(
                f"{folder} is a folder of {count} runs and not a run; for all of them "
                f"in one picture give --workdir='{folder}/{depth}', for some their "
                "folders, separated by commas"
            )
    return UserError(
        f"{folder} is not a workdir: it has no {METRICS}. A workdir is created by "
        "python -m t2t_jax.main --workdir=DIR"
    )


def _log_every(file: epath.Path) -> int:
    """The run's logging interval; 1 if its config cannot be read."""
    try:
        return max(1, int(json.loads(file.read_bytes())["train"]["log_every"]))
    except (OSError, ValueError, LookupError, TypeError):
        return 1


def _number(value) -> float:
    """A logged value; nan for null, which the log writes for all that is not finite."""
    return float(value) if isinstance(value, int | float) else math.nan


def _run_log(path: str, log: Log, starts: list[int], log_every: int) -> RunLog:
    entries, undone = log.entries, log.undone()
    lives = _lives(entries)
    places = _places(entries, lives, {step for step in starts if step % log_every})
    segments = [
        segment
        for kind in ("train", "dev")
        for segment in _segments(kind, entries, lives, undone, places)
    ]
    events = []
    for entry, place in zip(entries, places, strict=True):
        step = f"step {entry['step']:,}"
        if entry["kind"] == "rollback":
            text = f"back to {step}: {entry.get('why', '')}"
            events.append(Event("rollback", "loss", place, text))
        elif entry["kind"] == "alarm":
            norm = _number(entry.get("gradient_norm"))
            size = f"{norm:.3g}" if math.isfinite(norm) else "not finite"
            text = f"alarm at {step}: gradient norm {size}"
            events.append(Event("alarm", "gradient_norm", place, text, norm))
    final = [place for place, lost in zip(places, undone, strict=True) if not lost]
    for step in sorted({step for step in starts if step > 0}):
        place = {axis: _place_of_step(step, final, axis) for axis in places[0]}
        text = f"continued after step {step:,}"
        events.append(Event("restart", "loss", place, text))
    return RunLog(path, segments, events, [*places[0]])


def _lives(entries: list[dict]) -> list[list[int]]:
    """The indices of entries, in parts that end with a rollback or with the log."""
    lives = [[]]
    for i, entry in enumerate(entries):
        lives[-1].append(i)
        if entry["kind"] == "rollback":
            lives.append([])
    return lives


def _segments(kind, entries, lives, undone, places) -> list[Segment]:
    """Splits a kind into one line that is kept and what each rollback discarded."""
    kind_lives = [[i for i in life if entries[i]["kind"] == kind] for life in lives]
    kept_entries = [i for life in kind_lives for i in life if not undone[i]]
    lost = [
        discarded
        for life in kind_lives
        if (discarded := [i for i in life if undone[i]])
    ]
    # From the last point before that is kept, where the lines part.
    lines = [
        (True, [i for i in kept_entries if i < discarded[0]][-1:] + discarded)
        for discarded in lost
    ]
    lines.insert(0, (False, kept_entries))
    names = _metric_names(entries[i] for life in kind_lives for i in life)
    return [
        Segment(
            kind,
            discarded,
            {axis: [places[i][axis] for i in line] for axis in places[0]},
            {name: [_number(entries[i].get(name)) for i in line] for name in names},
        )
        for discarded, line in lines
        if line
    ]


def _metric_names(entries: Iterable[dict]) -> list[str]:
    """The metrics of some entries, in the order of their first appearance."""
    names = {
        name: None
        for entry in entries
        for name, value in entry.items()
        if value is None or type(value) in (int, float)
    }
    return [name for name in names if name not in ("step", "kind")]


def _places(
    entries: list[dict], lives: list[list[int]], logged_twice: set[int]
) -> list[dict[str, float]]:
    """The place of each entry on each axis that the log allows.

    Tokens and hours count what was spent up to an entry, discarded steps included.

    Args:
      lives: of `_lives`.
      logged_twice: steps after which a run continued in the middle of a logging
        interval; the tokens logged there are logged again with the whole interval.
    """
    places = [{"steps": entry["step"]} for entry in entries]
    train = [entry for entry in entries if entry["kind"] == "train"]
    for axis, name, unit in (("tokens", "tokens", 1.0), ("hours", "seconds", 3600.0)):
        if not train or any(math.isnan(_number(e.get(name))) for e in train):
            continue
        total, start = 0.0, 0
        for life in lives:
            steps, sums = [start], [total / unit]
            for i in life:
                if entries[i]["kind"] == "train":
                    steps.append(entries[i]["step"])
                    sums.append((total + entries[i][name]) / unit)
                    if not (name == "tokens" and steps[-1] in logged_twice):
                        total += entries[i][name]
            life_steps = [entries[i]["step"] for i in life]
            spent = np.interp(life_steps, steps, sums)
            for i, place in zip(life, spent.tolist(), strict=True):
                # A rollback stands at the end of its life.
                rollback = entries[i]["kind"] == "rollback"
                places[i][axis] = _rounded_place(axis, sums[-1] if rollback else place)
            start = life_steps[-1] if life_steps else start
    return places


def _place_of_step(step: int, places: list[dict[str, float]], axis: str) -> float:
    """The place of a step on an axis, by the entries around it."""
    steps = [0.0, *(place["steps"] for place in places)]
    value = np.interp(step, steps, [0.0, *(place[axis] for place in places)])
    return _rounded_place(axis, float(value))


def _rounded_place(axis: str, place: float) -> float:
    # The page rounds fractions to five digits, but not whole numbers.
    return place if axis == "hours" else round(place)


def short_names(paths: Sequence[str]) -> list[str]:
    """The shortest ends of paths that tell them apart: a/x, b/x, c/y -> a/x, b/x, y.

    The hash at the end of an experiment's workdirs is left out where it can be.
    """
    parts = [
        (os.path.abspath(path) if is_local(path) else path).rstrip("/").split("/")
        for path in paths
    ]
    names = []
    for own in parts:
        count = 1
        while count < len(own) and any(
            other != own and other[-count:] == own[-count:] for other in parts
        ):
            count += 1
        names.append("/".join(own[-count:]))
    bare = [re.sub(r"-[0-9a-f]{12}$", "", name) for name in names]
    return [b if bare.count(b) == 1 else n for b, n in zip(bare, names, strict=True)]
