"""Metrics of a run: aggregated over logging intervals, kept in `metrics.jsonl`.

A line of that file is an object with an integer `step` and a string `kind`, and has its
line end. Any other line is damaged, except a last one without its end: a run is writing
it, or was killed.
"""

import functools
import json
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from t2t_jax.data.feeding import Position
from t2t_jax.io.growing import open_log
from t2t_jax.io.json_lines import read_lines
from t2t_jax.io.messages import say
from t2t_jax.metrics.likelihoods import perplexity
from t2t_jax.parallel import processes

# Metrics of one step, with its `step` and the `epoch` and `batch` of its data.
StepMetrics = dict[str, float]

COUNT = "_count"  # NAME_count is the number that the metric NAME is a mean over


class Meter:
    """Collects the metrics of steps, and waits for the device only when they are read.

    Args:
      unread: rows of steps before this meter that no one has read yet.
      peak: FLOP/s of all devices together; None if unknown.
    """

    def __init__(self, unread: Sequence[StepMetrics] = (), peak: float | None = None):
        self._rows: list[dict] = list(unread)
        self._on_device: list[dict[str, Any]] = []  # arrays of the last rows
        self._peak = peak
        # Steps since the clock started. Rows from before a restart count in the means
        # and sums, but not in the timing.
        self._timed = 0
        self._started = time.perf_counter()
        self.seconds_a_step = 0.0

    def add(
        self, step: int, position: Position, metrics: dict[str, Any], flops: float = 0.0
    ) -> None:
        """Adds the metrics of one step, still on the device."""
        # Fetching a value here would wait for the step and stall the device.
        self._rows.append({"step": step, **position._asdict(), "flops": float(flops)})
        self._on_device.append(metrics)
        self._timed += 1

    def unread(self) -> list[StepMetrics]:
        """Fetches and returns the rows of all steps since the last `read`."""
        import jax

        fetched = jax.device_get(self._on_device)
        self._on_device = []
        # Not strict: if nothing was fetched, the slice [-0:] is all rows.
        for row, metrics in zip(self._rows[-len(fetched) :], fetched, strict=False):
            # Python numbers: rows are saved as JSON with a checkpoint.
            row |= {name: value.item() for name, value in metrics.items()}
        return list(self._rows)

    def read(self, keep: bool = False) -> StepMetrics:
        """Aggregates the metrics since the last `read`, and starts a new interval.

        The loss, and each metric NAME that comes with a NAME_count, are means over all
        that was counted; `nll` becomes `perplexity`. `gradient_norm` and
        `skipped_in_a_row` are maxima, `learning_rate` and `skipped` the latest values.
        Steps whose loss is not finite are left out of the means, which are `nan` if no
        step remains.

        Args:
          keep: leaves the rows unread; only the clock starts again.

        Returns:
          The metrics. `tokens` and `flops` are sums over all steps: real tokens of both
          sides, and the FLOPs that the model needs. Includes `mfu` if the peak is
          known: the model's FLOPs as a fraction of the peak (PaLM, appendix B).
        """
        rows = self.unread()
        seconds = time.perf_counter() - self._started
        if self._timed:
            self.seconds_a_step = seconds / self._timed
        timed = slice(len(rows) - self._timed, None)
        tokens = [row["source_tokens"] + row["tokens"] for row in rows]
        flops = [row.get("flops", 0.0) for row in rows]
        # Rows that an earlier version saved with a checkpoint have no counts: all of
        # their means are over tokens.
        column = {
            name: np.array([row.get(name, row["tokens"]) for row in rows], np.float64)
            for name in rows[-1]
        }
        finite = np.isfinite(column["loss"])

        def mean(name: str) -> float:
            # Each row is a mean over its own tokens, or what else the loss counts,
            # hence the weights.
            weights = column[f"{name}{COUNT}"][finite]
            total = (column[name][finite] * weights).sum()
            return total / weights.sum() if weights.any() else math.nan

        names = [n.removesuffix(COUNT) for n in column if n.endswith(COUNT)]
        means = {name: mean(name) for name in names}
        if "nll" in means:
            means["perplexity"] = perplexity(means.pop("nll"))
        values = {
            **means,
            "learning_rate": column["learning_rate"][-1],
            "gradient_norm": column["gradient_norm"].max(),
            "skipped": column["skipped"][-1],
            "skipped_in_a_row": column["skipped_in_a_row"].max(),
            "tokens": sum(tokens),
            "flops": sum(flops),
            "tokens_per_second": sum(tokens[timed]) / seconds,
            "seconds": seconds,
            "seconds_per_step": self.seconds_a_step,
        }
        if self._peak:
            values["mfu"] = sum(flops[timed]) / seconds / self._peak
        if not keep:
            self._rows = []
        self.pause()
        return {name: float(value) for name, value in values.items()}

    def leave_out_compilation(self) -> float:
        """Waits for the first step, restarts the clock, and returns its seconds."""
        import jax

        jax.block_until_ready(self._on_device)
        seconds = time.perf_counter() - self._started
        self.pause()
        return seconds

    def pause(self) -> None:
        """Restarts the clock, to leave out time that was not spent on training."""
        self._timed = 0
        self._started = time.perf_counter()


# ------------------------------------------------------------------------ metrics.jsonl

METRICS = "metrics.jsonl"

Metrics = dict[str, float | None]  # None: a value that was not finite


class Log(NamedTuple):
    """The entries of a log file, and what was wrong with its lines."""

    entries: list[dict]  # the objects on its lines, in order
    damaged: list[int]  # the numbers of the damaged lines, from 1

    def undone(self) -> list[bool]:
        """Marks the entries that a later return to an earlier step has undone."""
        undone, lowest = [], math.inf
        for entry in reversed(self.entries):
            undone.append(entry["step"] > lowest)
            if entry["kind"] == "rollback":
                lowest = min(lowest, entry["step"])
        return undone[::-1]

    def counted(self) -> list[dict]:
        """The entries that count: not undone, and not of kind `rollback`."""
        return [
            entry
            for entry, undone in zip(self.entries, self.undone(), strict=True)
            if not undone and entry["kind"] != "rollback"
        ]

    def metrics(self, kind: str) -> dict[int, Metrics]:
        """The metrics of a kind, `train` or `dev`, by step; none that was discarded."""
        return {
            entry["step"]: {n: v for n, v in entry.items() if n not in ("step", "kind")}
            for entry in self.counted()
            if entry["kind"] == kind
        }


def read_log(file: epath.PathLike) -> Log:
    """Reads a log, also while a run writes it; it is empty if there is no file."""
    return _log_of(read_lines(file, _parsed).entries)


def _parsed(entry: dict) -> dict | None:
    valid = type(entry["step"]) is int and isinstance(entry["kind"], str)
    return entry if valid else None


def _log_of(lines: list[dict | None]) -> Log:
    damaged = [number for number, entry in enumerate(lines, 1) if entry is None]
    return Log([entry for entry in lines if entry is not None], damaged)


class MetricsLog:
    """Appends objects to a file, each of them once.

    A run that was killed repeats some steps: an object whose step and kind are already
    in the file is not written again. Half a line left by a crash is cut off. After an
    object of kind `rollback`, later steps are different ones and are written again.

    Process 0 owns the file; the other processes keep the same entries in memory.

    Attributes:
      entries: the objects that count, in order; those undone by a rollback do not.
      rollbacks: the number of objects of kind `rollback`.
    """

    def __init__(self, path: epath.PathLike):
        self._last: dict[str, int] = {}  # kind -> last step
        self.entries: list[dict] = []
        self.rollbacks = 0
        self._file = None
        # All processes decide alike (patience, divergence), so all need the entries.
        opened = functools.partial(self._open, epath.Path(path))
        for entry in processes.from_first("metrics", opened):
            self._remember(entry)

    def _open(self, path: epath.Path) -> list[dict]:
        """Opens the file for appending, and returns the objects that it holds."""
        lines, self._file = open_log(path, _parsed, begin=b'{"step": ')
        log = _log_of(lines)
        for number in log.damaged:
            say(f"warning: {path}, line {number} is damaged; ignored, not removed")
        return log.entries

    def write(self, step: int, kind: str, values: dict[str, float]) -> bool:
        """Writes one object; returns False if `has` it already."""
        if self.has(step, kind):
            return False
        # JSON has neither nan nor infinity: write null.
        finite = {
            n: None if isinstance(v, float) and not math.isfinite(v) else v
            for n, v in values.items()
        }
        entry = {"step": step, "kind": kind, **finite}
        if self._file:
            self._file.write(json.dumps(entry).encode() + b"\n")
            self._file.flush()
        self._remember(entry)
        return True

    def _remember(self, entry: dict) -> None:
        kind, step = entry["kind"], entry["step"]
        if kind == "rollback":
            self.rollbacks += 1
            # Forget everything after the step, so that it is written again.
            self._last = {k: min(newest, step) for k, newest in self._last.items()}
            self.entries = [e for e in self.entries if e["step"] <= step]
        else:
            self._last[kind] = max(self._last.get(kind, -1), step)
            self.entries.append(entry)

    def has(self, step: int, kind: str) -> bool:
        """True if an object of this kind exists for this step or a later one."""
        return kind != "rollback" and step <= self._last.get(kind, -1)

    def close(self) -> None:
        """Closes the file."""
        if self._file:
            self._file.close()
