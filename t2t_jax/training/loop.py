"""The training loop, top-down.

`run` is the whole of it: restore or start, then feed, step, watch, evaluate and save
until the last step. It trains on what it is given and knows neither text nor
translation: real translations are scored by a function handed in.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.feeding import feed
from t2t_jax.data.prepare import Pairs
from t2t_jax.errors import UserError
from t2t_jax.model.transformer import Model, Parameters
from t2t_jax.parallel.mesh import make_mesh, place_batch
from t2t_jax.screen import say
from t2t_jax.training.checkpoint import Checkpoints, Reached
from t2t_jax.training.metrics import Watch
from t2t_jax.training.step import Steps, TrainState, compile_steps
from t2t_jax.training.stopping import Clock, best_step, reason_to_stop
from t2t_jax.training.validation import cross_entropy_of, perplexity

# (parameters, step) -> metrics of real translations of the dev set, such as bleu
Evaluate = Callable[[Parameters, int], dict[str, float]]


class Outcome(NamedTuple):
    """What a call of `run` did: the steps it went from and to, and why it ended."""

    first: int
    last: int
    why: str


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
    initial: Callable[[], Parameters] | None = None,
) -> Outcome:
    """Trains from the newest checkpoint, or from the start, until `reason_to_stop`.

    Args:
      workdir: where checkpoints and metrics go.
      bos: the id that begins a target sentence.
      pairs, dev: tokenised text; without dev nothing is evaluated.
      evaluate: scores translations at an evaluation.
      initial: the parameters of another model to start from, not random ones.

    Raises:
      DivergedError: `config.train.max_skipped` gradients in a row were not finite.
    """
    steps = compile_steps(model, config, make_mesh(), bos)
    checkpoints = Checkpoints(workdir, config.decode.average)
    state, progress = checkpoints.restore(steps.shapes) or _start(steps, initial)
    first = step = int(state.step)
    position, clock = progress.position, Clock(progress.seconds)
    watch = Watch(workdir, first, config.train.steps)
    meter = Meter()
    batches = feed(pairs, config.data, config.train.seed, position)

    def save() -> None:
        average = step % config.train.save_every == 0
        average = average or checkpoints.none_to_translate_with()
        checkpoints.save(state, Reached(position, clock.seconds()), average)

    def examine() -> None:
        """Evaluates, unless a run before this one has done so at this step."""
        if dev is not None and not watch.has(step, "dev"):
            parameters = state.best_parameters()
            values = cross_entropy_of(steps, parameters, dev, config)
            values |= evaluate(parameters, step) if evaluate else {}
            if "bleu" in values:
                if best_step(watch.bleu() | {step: values["bleu"]}) == step:
                    checkpoints.save_best(parameters, step)
            watch.record(step, "dev", values)
            say(_dev_line(step, values))
        meter.pause()

    def reason(seconds: float) -> str:
        return reason_to_stop(config, step, seconds, watch.bleu())

    try:
        on_grid = first % config.train.eval_every == 0
        if first and (on_grid or reason(progress.seconds)):
            examine()  # stopped after saving, before this
        why = reason(progress.seconds)
        if first and not why:
            say(f"continuing after step {first:,}")
        while not why:
            position, batch = next(batches)
            state, metrics = steps.train(state, place_batch(steps.mesh, batch))
            step += 1
            meter.add(batch, metrics)
            if step == first + 1:
                seconds = meter.leave_out_compilation()
                say(f"the first step took {seconds:.1f} s, compilation included")
            why = reason(clock.seconds())
            if step % config.train.log_every == 0 or why:
                values = meter.read()
                watch.record(step, "train", values)
                watch.progress(step, values, _seconds_left(config, step, meter, clock))
                _stop_if_diverged(config, step, values)
            if step % config.train.save_every == 0 or why:
                save()
            if step % config.train.eval_every == 0 or why:
                examine()
                # Patience may end the run here, but not the clock: what it shows was
                # saved before the evaluation, and the next start has to agree.
                if not why and (why := reason(0.0)) and step % config.train.save_every:
                    save()
    finally:
        batches.close()
        checkpoints.close()
        watch.close()
    return Outcome(first, step, why)


def _start(
    steps: Steps, initial: Callable[[], Parameters] | None
) -> tuple[TrainState, Reached]:
    """The state before the first step, from scratch or from another model."""
    return (steps.start(initial()) if initial else steps.init()), Reached()


def _seconds_left(config: Config, step: int, meter: "Meter", clock: Clock) -> float:
    """Of training, at the pace last read."""
    left = meter.seconds_a_step * (config.train.steps - step)
    limit = config.train.minutes * 60
    return min(left, max(0.0, limit - clock.seconds())) if limit else left


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

    def __init__(self):
        self._metrics: list[dict[str, jax.Array]] = []
        self._real_tokens = 0
        self._timed = 0  # steps on the clock
        self._started = time.perf_counter()
        self.seconds_a_step = 0.0

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
            self.seconds_a_step = seconds / self._timed
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
