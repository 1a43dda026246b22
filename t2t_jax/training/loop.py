"""The training loop, top-down.

`run` is the whole of it: restore or start, then feed, step, watch, evaluate and save
until the last step. It trains on what it is given and knows neither text nor
translation: real translations are scored by a function handed in.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.feeding import Position, feed
from t2t_jax.data.prepare import Pairs
from t2t_jax.errors import UserError
from t2t_jax.model.transformer import Model, Parameters
from t2t_jax.parallel.mesh import make_mesh, place_batch
from t2t_jax.screen import say
from t2t_jax.training.checkpoint import Checkpoints
from t2t_jax.training.metrics import Watch
from t2t_jax.training.step import Steps, TrainState, compile_steps
from t2t_jax.training.validation import cross_entropy_of, perplexity

# (parameters, step) -> metrics of real translations of the dev set, such as bleu
Evaluate = Callable[[Parameters, int], dict[str, float]]


class DivergedError(UserError):
    """Too many gradients in a row were not finite."""


def run(
    config: Config,
    workdir: Path,
    model: Model,
    bos: int,
    pairs: Pairs,
    dev: Pairs | None,
    evaluate: Evaluate | None = None,
) -> int:
    """Trains from the newest checkpoint, or from scratch, to `config.train.steps`.

    Args:
      workdir: where checkpoints and metrics go.
      bos: the id that begins a target sentence.
      pairs, dev: tokenised text; without dev nothing is evaluated.
      evaluate: scores translations at an evaluation.

    Returns:
      The step at which training started, `config.train.steps` if it was finished.

    Raises:
      DivergedError: `config.train.max_skipped` gradients in a row were not finite.
    """
    steps = compile_steps(model, config, make_mesh(), bos)
    checkpoints = Checkpoints(workdir, config.decode.average)
    state, position = _restore_or_start(checkpoints, steps)
    first = int(state.step)
    if first >= config.train.steps:
        checkpoints.close()
        return first

    watch = Watch(workdir, first, config.train.steps)

    def examine(parameters: Parameters, step: int) -> None:
        """Evaluates, unless a run before this one has done so at this step."""
        if dev is not None and not watch.has(step, "dev"):
            values = cross_entropy_of(steps, parameters, dev, config)
            values |= evaluate(parameters, step) if evaluate else {}
            watch.record(step, "dev", values)
            say(_dev_line(step, values))

    meter = Meter(config.train.steps)
    batches = feed(pairs, config.data, config.train.seed, position)
    if first:
        say(f"continuing after step {first:,}")
    try:
        if first and first % config.train.eval_every == 0:
            examine(state.parameters, first)  # stopped after saving, before this
            meter.pause()
        for step in range(first + 1, config.train.steps + 1):
            position, batch = next(batches)
            state, metrics = steps.train(state, place_batch(steps.mesh, batch))
            meter.add(batch, metrics)
            if step == first + 1:
                seconds = meter.leave_out_compilation()
                say(f"the first step took {seconds:.1f} s, compilation included")
            last = step == config.train.steps
            if step % config.train.log_every == 0 or last:
                values = meter.read()
                watch.record(step, "train", values)
                watch.progress(step, values, meter.seconds_left(step))
                _stop_if_diverged(config, step, values)
            on_schedule = step % config.train.save_every == 0
            if on_schedule or last:
                average = on_schedule or checkpoints.none_to_translate_with()
                checkpoints.save(state, position, average)
            if step % config.train.eval_every == 0 or last:
                examine(state.parameters, step)
                meter.pause()
    finally:
        batches.close()
        checkpoints.close()
        watch.close()
    return first


def _restore_or_start(
    checkpoints: Checkpoints, steps: Steps
) -> tuple[TrainState, Position]:
    return checkpoints.restore(steps.shapes) or (steps.init(), Position())


def _dev_line(step: int, values: dict[str, float]) -> str:
    told = "  ".join(f"{name} {value:.3f}" for name, value in values.items())
    return f"step {step:,}  dev  {told}"


def _stop_if_diverged(config: Config, step: int, values: dict[str, float]) -> None:
    if values["skipped_in_a_row"] >= config.train.max_skipped:
        raise DivergedError(
            f"before step {step:,}, {values['skipped_in_a_row']:.0f} gradients in a "
            "row were not finite and were skipped (config.train.max_skipped="
            f"{config.train.max_skipped}). A longer config.train.warmup may help, or "
            "config.model.dtype='float32' where it is bfloat16, in another --workdir"
        )


class Meter:
    """Gathers metrics of steps; waits for the device only when they are read."""

    def __init__(self, steps: int):
        self._steps = steps
        self._metrics: list[dict[str, jax.Array]] = []
        self._real_tokens = 0
        self._timed = 0  # steps on the clock
        self._started = time.perf_counter()
        self._seconds_a_step = 0.0

    def add(self, batch: dict[str, np.ndarray], metrics: dict[str, jax.Array]) -> None:
        """Takes the metrics of one step, still on the device."""
        self._metrics.append(metrics)
        self._timed += 1
        for side in ("source", "target"):
            self._real_tokens += np.count_nonzero(batch[f"{side}_segment"])

    def read(self) -> dict[str, float]:
        """Metrics since the last reading: means over target tokens, worst, latest.

        Steps whose loss is not finite are left out of the means; `nan` if all are.
        """
        steps = jax.device_get(self._metrics)
        seconds = time.perf_counter() - self._started
        if self._timed:
            self._seconds_a_step = seconds / self._timed
        column = {
            name: np.array([s[name] for s in steps], np.float64) for name in steps[0]
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
            "tokens_per_second": self._real_tokens / seconds,
            "seconds": seconds,
        }
        self.pause()
        return {name: float(value) for name, value in values.items()}

    def leave_out_compilation(self) -> float:
        """Waits for the first step and starts the clock again; the seconds it took."""
        jax.block_until_ready(self._metrics)
        seconds = time.perf_counter() - self._started
        self._real_tokens, self._timed = 0, 0
        self._started = time.perf_counter()
        return seconds

    def pause(self) -> None:
        """Starts the clock again: what happened since the reading does not count."""
        self._metrics, self._real_tokens, self._timed = [], 0, 0
        self._started = time.perf_counter()

    def seconds_left(self, step: int) -> float:
        """Of training, at the pace last read."""
        return self._seconds_a_step * (self._steps - step)
