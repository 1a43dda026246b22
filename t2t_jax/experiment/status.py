"""One line about an experiment: what is done, running, failed and left, and its end."""

import collections
import datetime
import math

from t2t_jax.experiment.queue import Queue, Task
from t2t_jax.experiment.results import FAILURE, RunResult, read_json

STATES = ("done", "running", "failed", "left")


def status(queue: Queue) -> str:
    """Says how far the runs are, with an estimate of the time that is left."""
    states = {task: queue.state(task) for task in queue.tasks}
    counts = collections.Counter(states.values())
    listed = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    return ", ".join(listed) + _end(queue, states)


def failures(queue: Queue) -> list[str]:
    """A line for each failed run, with its error."""
    lines = []
    for task in queue.tasks:
        if queue.state(task) == "failed":
            error = read_json(queue.workdir(task) / FAILURE).get("error", "")
            lines.append(f"failed: {queue.workdir(task)}: {error.splitlines()[0]}")
    return lines


def _end(queue: Queue, states: dict[Task, str]) -> str:
    """When the runs that are left will end, by the time that the finished ones took."""
    steps = {task: _steps(queue, task) for task in states}
    finished = [task for task, state in states.items() if state == "done"]
    spent = math.fsum(_seconds(queue, task) for task in finished)
    done = sum(steps[task] for task in finished)
    left = sum(
        steps[task] * (1 - _share(queue, task, states[task]))
        for task, state in states.items()
        if state in ("running", "left")
    )
    if not left:
        return ""
    if not spent:
        return "; the first run to end will tell how long the others take"
    at_once = max(1, [*states.values()].count("running"))
    seconds = left * spent / done / at_once
    end = datetime.datetime.now() + datetime.timedelta(seconds=seconds)
    return (
        f"; about {datetime.timedelta(minutes=math.ceil(seconds / 60))} more, until "
        f"{end:%a %H:%M}"
    )


def _steps(queue: Queue, task: Task) -> int:
    """The work of a run: its steps; 1 if it only measures."""
    return task.run.config.train.steps if task.run.config else 1


def _share(queue: Queue, task: Task, state: str) -> float:
    """The share of the steps that a running or interrupted run has done."""
    entries = RunResult(task.run, queue.workdir(task)).metrics
    last = max((entry["step"] for entry in entries), default=0)
    return min(1.0, last / _steps(queue, task))


def _seconds(queue: Queue, task: Task) -> float:
    """The time that a finished run took, measures included."""
    result = RunResult(task.run, queue.workdir(task))
    measures = [result.measured(measure.name) for measure in task.row.measures]
    training = result.outcome.get("seconds", 0.0)
    return training + math.fsum(measure["seconds"] for measure in measures)
