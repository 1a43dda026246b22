"""One line about an experiment: what is done, running, failed and left, and its end."""

import collections
import datetime
import math
from collections.abc import Mapping, Sequence

from t2t_jax.tools.experiment.queue import Queue, Task
from t2t_jax.tools.experiment.results import FAILURE, RunResult, read_json

STATES = ("done", "running", "failed", "left")


def status(queue: Queue, joining: bool = False) -> str:
    """Says how far the runs are, with an estimate of the time that is left.

    Args:
      joining: True if this process is about to take a run, as the running ones do.
    """
    states = {task: queue.state(task) for task in queue.tasks}
    counts = collections.Counter(states.values())
    listed = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    return ", ".join(listed) + _end(queue, states, counts["running"] + joining)


def failures(queue: Queue) -> list[str]:
    """A line for each failed run, with its error."""
    lines = []
    for task in queue.tasks:
        if queue.state(task) == "failed":
            error = read_json(queue.workdir(task) / FAILURE).get("error", "")
            first, _, _ = error.partition("\n")
            lines.append(f"failed: {queue.workdir(task)}: {first}")
    return lines


def _end(queue: Queue, states: Mapping[Task, str], processes: int) -> str:
    """Estimates when the runs that are left will end, by the speed of all so far."""
    finished = [_Cost(queue, task) for task in states if states[task] == "done"]
    # Rows may share a run, which is trained once.
    left = {
        task.run.hash: _Cost(queue, task)
        for task, state in states.items()
        if state in ("running", "left")
    }
    if not left:
        return ""
    started = [cost for cost in (*finished, *left.values()) if cost.step_seconds]
    if not started and not finished:
        return "; the first run will tell how long the others take"
    # The time outside of training: compilation, translation, measures.
    others = [max(0.0, cost.seconds - cost.training) for cost in finished]
    fixed = math.fsum(others) / len(others) if others else 0.0
    seconds = [fixed + cost.to_train(started) for cost in left.values()]
    # A run is not divided among processes.
    rest = max(math.fsum(seconds) / max(1, processes), *seconds)
    end = datetime.datetime.now() + datetime.timedelta(seconds=rest)
    return (
        f"; about {datetime.timedelta(minutes=math.ceil(rest / 60))} more, until "
        f"{end:%a %H:%M}"
    )


class _Cost:
    """The time of a run, as far as it is known.

    Attributes:
      row: its row's name.
      steps: that it is to train; 0 if it only measures.
      done: steps trained so far.
      training: seconds that those took.
      seconds: of a finished run, from its start to its end.
    """

    def __init__(self, queue: Queue, task: Task):
        result = RunResult(task.run, queue.workdir(task))
        self.row = task.row.name
        self.steps = task.run.config.train.steps if task.run.config else 0
        trained = [entry for entry in result.metrics if entry["kind"] == "train"]
        self.done = trained[-1]["step"] if trained else 0
        self.training = math.fsum(entry["seconds"] for entry in trained)
        measured = [result.measured(measure.name) for measure in task.row.measures]
        self.seconds = math.fsum(
            [
                # An interrupted run's outcome has the time of the last process alone.
                max(self.training, result.outcome.get("seconds", 0.0)),
                *(measure.get("seconds", 0.0) for measure in measured),
            ]
        )

    @property
    def step_seconds(self) -> float:
        """Seconds of a step; 0 until that is known."""
        return self.training / self.done if self.done else 0.0

    def to_train(self, started: Sequence["_Cost"]) -> float:
        """Seconds of the steps that are left.

        Args:
          started: runs whose speed stands for that of this one, if it has not started:
            those of the same row, else all.
        """
        known = [cost.step_seconds for cost in started if cost.row == self.row]
        known = known or [cost.step_seconds for cost in started]
        rate = self.step_seconds or (math.fsum(known) / len(known) if known else 0.0)
        return max(0, self.steps - self.done) * rate
