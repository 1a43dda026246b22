"""Measures a training step beside `plan`'s forecast: time, memory, FLOPs."""

import concurrent.futures
import ctypes
import dataclasses
import gc
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import jax

from t2t_jax.config import Config
from t2t_jax.costs import chips, step_costs
from t2t_jax.costs.chips import Slice
from t2t_jax.model.model import build
from t2t_jax.parallel import process_setup
from t2t_jax.parallel.mesh import make_mesh, place_batch
from t2t_jax.parallel.process_setup import set_up_process
from t2t_jax.tasks.table import task_of
from t2t_jax.tools.plan import forecast
from t2t_jax.tools.verify.random_models import BOS, random_batch
from t2t_jax.training.step import compile_steps


@dataclasses.dataclass(frozen=True)
class StepCost:
    """The cost of a training step on one device, and the forecast of `plan`.

    Attributes:
      parameters: their number.
      dtype: of the activations.
      rows, source, target: the shape of the batch; no token is padding.
      first: seconds of the first step, compilation included.
      seconds: of a step, the median.
      flops: of the model's matrix products (`step_costs.model_flops`).
      memory: bytes in use at most; None if unknown.
      planned_memory, planned_seconds: the forecast; without a time if it does not fit.
      planned_by: the compiler and the chip that the forecast is of.
    """

    parameters: int
    dtype: str
    rows: int
    source: int
    target: int
    first: float
    seconds: float
    flops: float
    memory: int | None
    planned_memory: float
    planned_seconds: float | None
    planned_by: str

    @property
    def tokens_per_second(self) -> float:
        """Tokens of source and target in a second."""
        return self.rows * (self.source + self.target) / self.seconds


def step_cost(config: Config, count: int) -> StepCost:
    """Measures steps on the first device, on batches of the shape that `plan` assumes.

    On a CPU in a process of its own: memory that this process has freed, but kept,
    would be used again and not be counted.

    Args:
      count: steps after the first.
    """
    if jax.default_backend() == "cpu":
        return in_own_process(_in_new_process, config, count)
    return _measured(config, count)


def _in_new_process(config: Config, count: int) -> StepCost:
    """`set_up_process`, but memory is kept only after its peak was measured."""
    process_setup.skip_absent_tpu()
    process_setup.use_compilation_cache()
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return _measured(config, count)


def _measured(config: Config, count: int) -> StepCost:
    device = jax.devices()[0]
    name, chip = chips.chip_here(device)
    config = forecast.for_chip(config, chip)
    plan = _planned(config, Slice(name, chip, (1,)), device)
    model = build(config.model, *task_of(config).vocab_sizes)
    mesh = make_mesh(devices=[device])
    steps = compile_steps(model, config, mesh, bos=BOS)
    shape, _ = step_costs.assumed_shape(config, mesh)
    batch = random_batch(shape, min(task_of(config).vocab_sizes))
    # Compiled before, as the compiler's own memory is not the step's.
    began = time.perf_counter()
    batch = step_costs.batch_shapes(shape, mesh)
    train = steps.train.lower(steps.shapes, batch).compile()
    steps.init.lower().compile()
    compiled = time.perf_counter() - began
    peak = PeakMemory(device)
    state, spent = steps.init(), []
    for number in range(count + 1):
        began = time.perf_counter()
        state, metrics = train(state, place_batch(mesh, batch))
        jax.block_until_ready((state, metrics))
        spent.append(time.perf_counter() - began)
        if number == 0:
            memory = peak.bytes()
            set_up_process()  # from here on with training's settings
    return StepCost(
        parameters=model.count(),
        dtype=config.model.dtype,
        rows=shape.rows,
        source=shape.source,
        target=shape.target,
        first=compiled + spent[0],
        seconds=statistics.median(spent[1:]),
        flops=step_costs.model_flops(model, config, shape),
        memory=memory,
        **plan,
    )


def _planned(config: Config, chips: Slice, device: jax.Device) -> dict:
    """The forecast of `plan` for one such chip, as fields of a `StepCost`."""
    # For a GPU, `plan` compiles with the CPU's compiler: it needs no GPU.
    on = [device] if chips.chip.kind in ("cpu", "tpu") else jax.devices("cpu")[:1]
    result = forecast.forecast(config, chips, on)
    seconds = result["time"]
    return {
        "planned_memory": result["memory"]["needed"],
        "planned_seconds": None if seconds is None else seconds["step"],
        "planned_by": f"{result['memory']['by']}, for {chips.topology}",
    }


class PeakMemory:
    """Bytes that were in use at most since this object was created.

    On a CPU the process's resident memory, as Linux reports it, with XLA's buffers.
    On other devices the allocator's count, whose peak is that of the whole process: if
    an earlier computation took more, the peak of this one is unknown.
    """

    def __init__(self, device: jax.Device):
        self._device = device
        gc.collect()
        if device.platform == "cpu":
            _return_freed_memory()
            self._known = _forget_peak()
            self._before = _status("VmRSS")
        else:
            stats = device.memory_stats() or {}
            self._before = stats.get("bytes_in_use")
            self._earlier = stats.get("peak_bytes_in_use")

    def bytes(self) -> int | None:
        """The peak above what was in use before; None if it is unknown."""
        if self._before is None:
            return None
        if self._device.platform == "cpu":
            peak = _status("VmHWM") if self._known else None
        else:
            peak = (self._device.memory_stats() or {}).get("peak_bytes_in_use")
            if peak is not None and peak <= self._earlier:
                return None
        return None if peak is None else peak - self._before


def _return_freed_memory() -> None:
    """Makes glibc return freed memory to the kernel, so that it is not counted."""
    if sys.platform == "linux":
        _libc_call(lambda libc: libc.malloc_trim(0))


def _libc_call(call: Callable[[ctypes.CDLL], object]) -> None:
    try:
        call(ctypes.CDLL("libc.so.6"))
    except (OSError, AttributeError):  # another libc
        return


def _forget_peak() -> bool:
    """Sets the peak of resident memory to what it is now; False where it cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status(field: str) -> int | None:
    """A field of /proc/self/status in bytes; None where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return None


T = TypeVar("T")


def in_own_process(function: Callable[..., T], *arguments) -> T:
    """Calls a function in a new process and returns its result; raises its errors.

    The function must be at the top of a module; the arguments and the result must be
    picklable. The new process has this one's environment, but no state.

    Raises:
      concurrent.futures.process.BrokenProcessPool: the process died, such as when the
        machine runs out of memory.
    """
    context = multiprocessing.get_context("spawn")  # JAX does not survive a fork
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()
