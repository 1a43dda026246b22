"""Metrics of single steps -> what is told of a stretch of them."""

import math
import time
from collections.abc import Sequence

import jax
import numpy as np

from t2t_jax.data.feeding import Position
from t2t_jax.metrics.perplexity import perplexity

Row = dict[
    str, float
]  # metrics of one step; `step`, and `epoch` and `batch` of its data


class Meter:
    """Gathers metrics of steps; waits for the device only when they are looked at.

    Args:
      unread: rows of steps before this meter, that were not read.
      peak: FLOP/s of all devices together; None where it is not known.
    """

    def __init__(self, unread: Sequence[Row] = (), peak: float | None = None):
        self._rows: list[dict] = list(unread)
        self._on_device: list[dict[str, jax.Array]] = []
        self._peak = peak
        self._timed, self._flops = 0, 0.0  # steps on the clock, and what they took
        self._started = time.perf_counter()
        self.seconds_a_step = 0.0

    def add(
        self,
        step: int,
        at: Position,
        metrics: dict[str, jax.Array],
        flops: float = 0.0,
    ) -> None:
        """Takes the metrics of one step, still on the device.

        Args:
          at: where the batch stands in the data.
          flops: that the model needs for a batch of this shape.
        """
        self._rows.append({"step": step, **at._asdict()})
        self._on_device.append(metrics)
        self._timed += 1
        self._flops += flops

    def unread(self) -> list[Row]:
        """The rows of all steps since the last reading; of plain numbers."""
        fetched = jax.device_get(self._on_device)
        self._on_device = []
        for row, metrics in zip(self._rows[-len(fetched) :], fetched, strict=False):
            row |= {name: value.item() for name, value in metrics.items()}
        return list(self._rows)

    def read(self, keep: bool = False) -> Row:
        """Metrics since the last reading: means over target tokens, worst, latest.

        With `keep` it does not count as a reading, but for the time that it took.
        Steps whose loss is not finite are left out of the means; `nan` if all are.
        `mfu`, the share of the peak that the model's FLOPs make up (PaLM, appendix B),
        is there where the peak is known.
        """
        rows = self.unread()
        seconds = time.perf_counter() - self._started
        if self._timed:
            self.seconds_a_step = seconds / self._timed
        timed = rows[len(rows) - self._timed :]
        real_tokens = sum(row["source_tokens"] + row["tokens"] for row in timed)
        column = {
            name: np.array([row[name] for row in rows], np.float64) for name in rows[0]
        }
        finite = np.isfinite(column["loss"])

        def mean(name: str) -> float:
            tokens = column["tokens"][finite].sum()
            total = (column[name][finite] * column["tokens"][finite]).sum()
            return total / tokens if tokens else math.nan

        values = {
            "loss": mean("loss"),
            "perplexity": perplexity(mean("nll")),
            "learning_rate": column["learning_rate"][-1],
            "gradient_norm": column["gradient_norm"].max(),
            "skipped": column["skipped"][-1],
            "skipped_in_a_row": column["skipped_in_a_row"].max(),
            "tokens_per_second": real_tokens / seconds,
            "seconds": seconds,
            "seconds_per_step": self.seconds_a_step,
        }
        if self._peak:
            values["mfu"] = self._flops / seconds / self._peak
        if not keep:
            self._rows = []
        self.pause()
        return {name: float(value) for name, value in values.items()}

    def leave_out_compilation(self) -> float:
        """Waits for the first step and starts the clock again; the seconds it took."""
        jax.block_until_ready(self._on_device)
        seconds = time.perf_counter() - self._started
        self.pause()
        return seconds

    def pause(self) -> None:
        """Starts the clock again: what happened since the reading does not count."""
        self._timed, self._flops = 0, 0.0
        self._started = time.perf_counter()
