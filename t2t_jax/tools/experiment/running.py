"""Runs the rows of an experiment: several processes take runs from one queue."""

import dataclasses
import errno
import gc
import json
import math
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import jax

from t2t_jax.io import interruption
from t2t_jax.io.atomic import keep_earlier, write_atomically
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.messages import say
from t2t_jax.model.model import build
from t2t_jax.parallel.machine import describe_machine
from t2t_jax.run.train import train
from t2t_jax.tools.experiment.experiment import LEASES, RUNS, Measure, Row, Run
from t2t_jax.tools.experiment.leases import Leases, LostError
from t2t_jax.tools.experiment.measures import MEASURES
from t2t_jax.tools.experiment.results import (
    DONE,
    FAILED,
    FAILURE,
    LEFT,
    MEASURED,
    OUTCOME,
    RUNNING,
    TRAINING,
    Context,
    Needs,
    RunResult,
    names_of,
    workdir_of,
)
from t2t_jax.workdir import Workdir

POLL = 5.0  # seconds between two looks at the runs of other processes


class Task(NamedTuple):
    """A run, and the row that asks for it."""

    row: Row
    run: Run


class Queue:
    """The runs of an experiment, some of them finished or run by other processes.

    Args:
      folder: the workdir, which experiments and processes share.
      rows: of the plan.

    Attributes:
      tasks: all runs, in order.
      runs: the folder of the runs' workdirs.
    """

    def __init__(self, folder: Path, rows: Sequence[Row]):
        self.tasks = [Task(row, run) for row in rows for run in row.runs]
        self.runs, self._leases = folder / RUNS, Leases(folder / LEASES)
        self._started = time.time()
        self._ended: set[Task] = set()  # those that this process ran to their end

    def workdir(self, task: Task) -> Path:
        """The workdir of a run."""
        return workdir_of(task.run, self.runs)

    def result(self, task: Task) -> RunResult:
        """Reads the results that a run has written so far."""
        return RunResult(task.run, self.workdir(task))

    def state(self, task: Task) -> str:
        """The state of a run, one of `STATES`."""
        recorded = self._recorded(task)
        running = recorded != DONE and self._leases.owner(task.run.hash)
        return RUNNING if running else recorded

    def run(
        self, rows: Sequence[Row], retry: bool, wait: bool, after: Callable[[], None]
    ) -> None:
        """Runs what no other process runs, until nothing is left.

        Args:
          rows: those to run.
          retry: also takes those that failed before this process started.
          wait: waits for the runs of other processes: those that `rows` need, and
            those to be taken over if their process dies.
          after: called after each run.

        Raises:
          KeyboardInterrupt: Ctrl-C or SIGTERM; the run that it interrupts is continued
            next time.
          OSError: an error of the disk.
        """
        selected = [task for task in self.tasks if task.row in rows]
        waiting = False
        while True:
            states = {task: self.state(task) for task in self.tasks}
            todo = [t for t in selected if self._is_open(t, states[t], retry)]
            missing = {t.row.name for t, state in states.items() if state != DONE}
            ready = [task for task in todo if not missing & {*task.row.needs}]
            # Runs whose processes died come last: one that takes more memory than there
            # is should not keep others waiting. The first seed of each row comes first:
            # a table of half the runs compares rows.
            ready.sort(
                key=lambda task: (
                    self._leases.starts(task.run.hash),
                    task.row.runs.index(task.run),
                )
            )
            if any(self._take(task, retry) for task in ready):
                waiting = False
                after()
                continue
            elsewhere = [task for task in self.tasks if states[task] == RUNNING]
            unfinished = todo or {*selected} & {*elsewhere}
            if not ready and not (wait and elsewhere and unfinished):
                _report_blocked(todo, missing)
                return
            # What was ready has been taken by others since this look at the states.
            if elsewhere and not waiting:
                runs = [task.run for task in elsewhere]
                owned = [f"{r.folder} ({self._leases.owner(r.hash)})" for r in runs]
                say(f"waiting for {', '.join(owned)}")
                waiting = True
            interruption.check()
            time.sleep(POLL)

    def _recorded(self, task: Task) -> str:
        return self.result(task).state(task.row, self._needs(task))

    def _needs(self, task: Task) -> dict[str, list[Path]]:
        """The workdirs of the rows that a task needs, by row."""
        return {
            name: [
                self.workdir(needed) for needed in self.tasks if needed.row.name == name
            ]
            for name in task.row.needs
        }

    def _is_open(self, task: Task, state: str, retry: bool) -> bool:
        """True if a run of this state is to be taken."""
        if task in self._ended:  # whatever the clocks of the machines say
            return False
        if state == FAILED and retry:
            return self.result(task).failure.get("unix_time", 0.0) < self._started
        return state == LEFT

    def _take(self, task: Task, retry: bool) -> bool:
        """Runs a task; returns False if another process has taken it."""
        lease = self._leases.take(task.run.hash)
        if lease is None:
            return False
        try:
            # Another process may have finished it before the lease was taken.
            if self._is_open(task, self._recorded(task), retry):
                number, workdir = self.tasks.index(task) + 1, self.workdir(task)
                say(f"\nrun {number} of {len(self.tasks)}: {workdir}")
                run(task, workdir, self._needs(task), lease.check)
                self._ended.add(task)
        except LostError as e:  # as after this machine was suspended
            say(f"{e}")
        finally:
            lease.release()
        return True


def _report_blocked(todo: Sequence[Task], missing: Collection[str]) -> None:
    """Says which runs cannot start, as the rows that they need are not done."""
    for row in dict.fromkeys(task.row for task in todo):
        if needs := ", ".join(need for need in row.needs if need in missing):
            say(f"not run: {row.name}; it needs {needs}, which is not done")


def select(rows: Sequence[Row], patterns: str) -> list[Row]:
    """The rows that --rows names, separated by commas, with `*` and `?`; empty: all."""
    names = [row.name for row in rows]
    globs = [p for p in map(str.strip, patterns.split(",")) if p] or ["*"]
    for pattern in globs:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(
                f"--rows={pattern}: no such row{did_you_mean(pattern, names)} "
                f"(rows: {', '.join(names)})"
            )
    return [row for row in rows if any(fnmatchcase(row.name, p) for p in globs)]


# These errors of a disk would fail every row, so they end the process instead.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE}


def run(
    task: Task, workdir: Path, needs: Needs, check_owner: Callable[[], None]
) -> None:
    """Trains and measures what is not done yet; records an error as `failure.json`.

    A run that was interrupted continues. Ctrl-C and errors of the disk are raised.

    Args:
      check_owner: raises an error once the run belongs to another process.
    """
    keep_earlier(workdir / FAILURE)
    step, config, result = TRAINING, task.run.config, RunResult(task.run, workdir)
    try:
        if config is not None and not (workdir / OUTCOME).exists():
            started = time.monotonic()
            train(config, workdir)
            check_owner()
            seconds = time.monotonic() - started
            _write(workdir / OUTCOME, totals(workdir) | {"seconds": seconds})
        for measure in task.row.measures:
            step = measure.name
            if not result.has(measure, needs):
                say(f"measuring {measure.name}")
                content = _measured(measure, Context(workdir, config, needs))
                check_owner()
                file = workdir / MEASURED / f"{measure.name}.json"
                keep_earlier(file)  # of other arguments or needs
                _write(file, content)
    except Exception as e:
        if isinstance(e, OSError) and e.errno in _DISK:
            raise
        check_owner()
        say(f"failed: {e}")
        failure = {
            "step": step,
            "error": f"{e}" if isinstance(e, UserError) else repr(e),
            "traceback": "".join(traceback.format_exception(e)),
            "unix_time": time.time(),
            "machine": describe_machine(),
        }
        _write(workdir / FAILURE, failure)
    finally:
        # The next row has other programs: free the memory of these.
        jax.clear_caches()
        gc.collect()


def totals(workdir: Path) -> dict[str, Any]:
    """Sums over a finished training run, from its config and `metrics.jsonl`.

    Returns:
      `parameters`; `steps`; `tokens` (real ones of both sides), `flops` (of the matrix
      products of all steps; None if they cannot be counted) and `minutes`, all of
      training alone, without validation, translation, and steps that a killed process
      repeated; `machine`.
    """
    opened = Workdir.open(workdir)
    model = build(opened.config().model, *opened.vocabulary().sizes)
    entries = RunResult(None, workdir).trained
    steps = [0, *(entry["step"] for entry in entries)]

    def total(name: str) -> float | None:
        values = [entry[name] for entry in entries]
        return None if None in values else math.fsum(values)

    # Not their `seconds`, which leave out what a restart finds trained already.
    seconds = [
        (end - start) * entry["seconds_per_step"]
        for start, end, entry in zip(steps, steps[1:], entries, strict=False)
    ]
    return {
        "parameters": model.count(),
        "steps": steps[-1],
        "tokens": total("tokens"),
        "flops": total("flops"),
        "minutes": math.fsum(seconds) / 60,
        "machine": describe_machine(),
    }


def _measured(measure: Measure, context: Context) -> dict[str, Any]:
    """Computes a measure; returns the content of its file."""
    if measure.function not in MEASURES:
        raise UserError(
            f"no measure {measure.function!r}"
            f"{did_you_mean(measure.function, MEASURES)}; add it to MEASURES of "
            "t2t_jax/tools/experiment/measures.py, or import the module of "
            "experiments/measures/ that adds it"
        )
    started = time.monotonic()
    result = MEASURES[measure.function](context, **measure.arguments)
    return dataclasses.asdict(measure) | {
        "needs": names_of(context.needs),
        "result": result,
        "seconds": time.monotonic() - started,
        "machine": describe_machine(),
    }


def _write(file: Path, content: Mapping[str, Any]) -> None:
    write_atomically(file, json.dumps(content, indent=1).encode() + b"\n")
