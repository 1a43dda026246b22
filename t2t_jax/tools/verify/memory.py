"""The check that a training step takes no more memory than `plan` forecasts."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from t2t_jax.config import Config, changed
from t2t_jax.costs import chips, step_costs
from t2t_jax.costs.chips import Slice
from t2t_jax.io.errors import first_line
from t2t_jax.io.messages import say
from t2t_jax.model.model import build
from t2t_jax.parallel import process_setup
from t2t_jax.parallel.batch_placement import place_batch
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.tasks.table import task_of
from t2t_jax.tools.plan import forecast
from t2t_jax.tools.verify.check import Context, Measured, Unavailable
from t2t_jax.tools.verify.own_process import PeakMemory, in_own_process
from t2t_jax.tools.verify.random_models import BOS, random_batch
from t2t_jax.training.step import compile_steps

T = TypeVar("T")

# A process takes this besides XLA's buffers, and the forecast may lack this share.
BESIDE, SHORT = 64 << 20, 0.05
# Base is large enough that `BESIDE` is a small part of its memory; two layers on each
# side and few rows are quick.
MODEL = {"layers": 2}
DATA = {"row_length": 32, "batch_tokens": 512, "vocab_size": 37_000}


def memory(context: Context) -> Measured:
    """Compares the peak memory of a training step with `plan`'s forecast.

    A run that fits by the forecast should fit: memory may exceed it by little.
    """
    config = changed(changed(Config(), "model", **MODEL), "data", **DATA)
    peak, planned = without_kept_memory(_peak_and_forecast, config)
    if peak is None:
        raise Unavailable(
            "the peak is not known: this system does not report it, or an earlier "
            "computation in this process took more; try --only=memory"
        )
    if planned is None:
        raise Unavailable("plan has no forecast, as the warning above says")
    needed = planned["memory"]["needed"]
    allowed = needed * (1 + SHORT) + BESIDE
    return Measured(
        f"{peak / 2**30:.2f} GiB; forecast {needed / 2**30:.2f} "
        f"({peak / needed:.2f} of it)",
        f"<= {allowed / 2**30:.2f} (forecast + {SHORT:.0%} + {BESIDE >> 20} MiB)",
        peak <= allowed,
        {"peak": peak, "forecast": needed, "allowed": allowed},
        (f"{planned['dtype']}; forecast by {planned['memory']['by']}",),
    )


def _peak_and_forecast(config: Config) -> tuple[int | None, dict | None]:
    step = FirstStep(config)
    return step.memory, step.forecast


def without_kept_memory(function: Callable[..., T], *arguments) -> T:
    """Calls a function that measures memory; on a CPU in a process of its own.

    In this one, memory that was freed but not returned would be used again, uncounted.
    """
    if jax.default_backend() == "cpu":
        return in_own_process(_in_new_process, function, *arguments)
    return function(*arguments)


def _in_new_process(function: Callable[..., T], *arguments) -> T:
    """Does what `set_up_process` does, but lets glibc return freed memory."""
    process_setup.skip_absent_tpu()
    process_setup.use_compilation_cache()
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return function(*arguments)


class FirstStep:
    """A training step that was compiled and called once, on the first device.

    The batch has the shape that `plan` assumes, and no padding.

    Attributes:
      config: with the dtype of this device.
      model: its model.
      shape: of the batch.
      forecast: that of `plan` for one such chip; None if there is none.
      memory: bytes in use at most; None if unknown.
      seconds: those of compiling and of the first call.
    """

    def __init__(self, config: Config):
        device = jax.devices()[0]
        name, chip = chips.chip_here(device)
        self.config = config = forecast.for_chip(config, chip)
        self.forecast = _forecast(config, Slice(name, chip, (1,)), device)
        self.model = build(config.model, *task_of(config).vocab_sizes)
        self._mesh = make_mesh(devices=[device])
        steps = compile_steps(self.model, config, self._mesh, bos=BOS)
        self.shape, _ = step_costs.assumed_shape(config, self._mesh)
        self._batch = random_batch(self.shape, min(task_of(config).vocab_sizes))
        # Compiled before, as the compiler's own memory is not the step's.
        began = time.perf_counter()
        shapes = step_costs.batch_shapes(self.shape, self._mesh)
        self._train = steps.train.lower(steps.shapes, shapes).compile()
        steps.init.lower().compile()
        # The forecast may have compiled it, and the cache have it from there.
        planning = self.forecast["compile_seconds"] if self.forecast else 0.0
        compiled = max(time.perf_counter() - began, planning)
        peak = PeakMemory(device)
        self._state = steps.init()
        began = time.perf_counter()
        jax.block_until_ready(self.update())
        self.seconds = compiled + time.perf_counter() - began
        self.memory = peak.bytes()

    def update(self) -> Any:
        """Starts an update, and returns arrays that are ready when it ends."""
        batch = place_batch(self._mesh, self._batch)
        self._state, metrics = self._train(self._state, batch)
        return self._state, metrics


def _forecast(config: Config, chips: Slice, device: jax.Device) -> dict | None:
    """The forecast of `plan` for one such chip.

    On a GPU or TPU, one that fails does not hide what is measured.
    """
    try:
        return forecast.forecast(config, chips, [device])
    except Exception as e:
        if device.platform == "cpu":
            raise
        say(f"warning: plan has no forecast: {type(e).__name__}: {first_line(e)}")
        return None
