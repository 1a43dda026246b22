"""Metrics aggregated over one logging interval."""

import math
import time
from collections.abc import Sequence

import jax
import numpy as np

from t2t_jax.data.feeding import Position
from t2t_jax.metrics.likelihoods import perplexity

# Metrics of one step, with its `step` and the `epoch` and `batch` of its data.
Row = dict[str, float]

COUNT = "_count"  # NAME_count is the number that the metric NAME is a mean over


class Meter:
    """Collects the metrics of steps, and waits for the device only when they are read.

    Args:
      unread: rows of steps before this meter that no one has read yet.
      peak: FLOP/s of all devices together; None if unknown.
    """

    def __init__(self, unread: Sequence[Row] = (), peak: float | None = None):
        self._rows: list[dict] = list(unread)
        self._on_device: list[dict[str, jax.Array]] = []  # of the last rows
        self._peak = peak
        # Steps since the clock started. Rows from before a restart count in the means
        # and sums, but not in the timing.
        self._timed = 0
        self._started = time.perf_counter()
        self.seconds_a_step = 0.0

    def add(
        self,
        step: int,
        at: Position,
        metrics: dict[str, jax.Array],
        flops: float = 0.0,
    ) -> None:
        """Adds the metrics of one step, still on the device.

        Args:
          at: the batch's position in the data.
          flops: FLOPs that the model needs for a batch of this shape.
        """
        # Fetching a value here would wait for the step and stall the device.
        self._rows.append({"step": step, **at._asdict(), "flops": float(flops)})
        self._on_device.append(metrics)
        self._timed += 1

    def unread(self) -> list[Row]:
        """Fetches and returns the rows of all steps since the last `read`."""
        fetched = jax.device_get(self._on_device)
        self._on_device = []
        # Not strict: if nothing was fetched, the slice [-0:] is all rows.
        for row, metrics in zip(self._rows[-len(fetched) :], fetched, strict=False):
            # Python numbers: rows are saved as JSON with a checkpoint.
            row |= {name: value.item() for name, value in metrics.items()}
        return list(self._rows)

    def read(self, keep: bool = False) -> Row:
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
        timed = rows[len(rows) - self._timed :]

        def tokens(rows: list[Row]) -> float:
            return sum(row["source_tokens"] + row["tokens"] for row in rows)

        def flops(rows: list[Row]) -> float:
            return sum(row.get("flops", 0.0) for row in rows)

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
            "tokens": tokens(rows),
            "flops": flops(rows),
            "tokens_per_second": tokens(timed) / seconds,
            "seconds": seconds,
            "seconds_per_step": self.seconds_a_step,
        }
        if self._peak:
            values["mfu"] = flops(timed) / seconds / self._peak
        if not keep:
            self._rows = []
        self.pause()
        return {name: float(value) for name, value in values.items()}

    def leave_out_compilation(self) -> float:
        """Waits for the first step, restarts the clock, and returns its seconds."""
        jax.block_until_ready(self._on_device)
        seconds = time.perf_counter() - self._started
        self.pause()
        return seconds

    def pause(self) -> None:
        """Restarts the clock, to leave out time that was not spent on training."""
        self._timed = 0
        self._started = time.perf_counter()
