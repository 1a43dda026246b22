"""Measurements of speed and memory that `verify --full` and the benchmarks share.

Steps of training, memory, filled batches and checkpoints. None is judged here.
"""

import dataclasses
import hashlib
import itertools
import os
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.config import Config
from t2t_jax.costs import chips, step_costs
from t2t_jax.costs.chips import Slice
from t2t_jax.data.feeding import AHEAD
from t2t_jax.data.filling import Ragged
from t2t_jax.data.pairs import Pairs
from t2t_jax.io import sealed
from t2t_jax.io.errors import first_line
from t2t_jax.io.messages import say
from t2t_jax.model.model import build
from t2t_jax.parallel import process_setup
from t2t_jax.parallel.mesh import make_mesh, place_batch
from t2t_jax.parallel.process_setup import set_up_process
from t2t_jax.tasks.table import task_of
from t2t_jax.tools.plan import forecast
from t2t_jax.tools.verify.own_process import PeakMemory, in_own_process
from t2t_jax.tools.verify.random_models import BOS, SPECIAL, random_batch
from t2t_jax.training.checkpoint import Checkpoints, RunProgress
from t2t_jax.training.step import TrainState, compile_steps
from t2t_jax.workdir import Workdir

Batch = dict[str, np.ndarray]

# --------------------------------------------------------------------- time of a step


class Trainer:
    """A model that trains, on the first device unless others are named.

    A loss that reads another model reads this one before training: that costs as much
    as a trained teacher.
    """

    def __init__(self, config: Config, *sizes: int, devices: Sequence[jax.Device] = ()):
        self.config, self.model = config, build(config.model, *sizes)
        mesh = make_mesh(devices=devices or jax.devices()[:1])
        frozen = (self.model,) if config.train.variant("loss").frozen else ()
        self.steps = compile_steps(self.model, config, mesh, BOS, frozen)
        self.state, self.metrics = self.steps.init(), None
        # Copies: the step donates its state.
        self._frozen = [jax.tree.map(jnp.copy, self.state.parameters) for _ in frozen]

    def step(self, batch: Batch) -> None:
        """Starts an update with a batch in the host's memory."""
        self.step_placed(place_batch(self.steps.mesh, batch))

    def step_placed(self, batch: dict[str, jax.Array]) -> None:
        """Starts an update with a batch on the devices, as `place_batch` puts it."""
        self.state, self.metrics = self.steps.train(self.state, batch, *self._frozen)

    def finish(self) -> None:
        """Waits for all updates."""
        jax.block_until_ready((self.state, self.metrics))

    def rate(self, batches: Iterable[Batch], sides=("source", "target")) -> float:
        """Trains on some batches; returns real tokens of these sides a second."""
        began, real = time.perf_counter(), 0
        for batch in batches:
            real += sum(np.count_nonzero(batch[f"{side}_segment"]) for side in sides)
            self.step(batch)
        self.finish()
        return real / (time.perf_counter() - began)


@dataclasses.dataclass(frozen=True)
class StepCost:
    """The cost of a training step on one device, and the forecast of `plan`."""

    parameters: int  # their number
    dtype: str  # of the activations
    rows: int  # the shape of the batch; no token is padding
    source: int
    target: int
    first: float  # seconds of the first step, compilation included
    seconds: float  # of a step, when none waits for the one before to have ended
    awaited: float  # of a step that is waited for, the median
    flops: float  # of the model's matrix products (`step_costs.model_flops`)
    memory: int | None  # bytes in use at most; None if unknown
    planned_memory: float | None  # None if there is no forecast
    planned_seconds: float | None  # None if it does not fit, or no forecast
    planned_by: str  # the compiler and the chip that the forecast is of

    @property
    def tokens_per_second(self) -> float:
        """Tokens of source and target in a second."""
        return self.rows * (self.source + self.target) / self.seconds


def step_cost(config: Config, count: int) -> StepCost:
    """Measures steps on the first device, on batches of the shape that `plan` assumes.

    On a CPU in a process of its own: memory that this process has freed, but kept,
    would be used again and not be counted.
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
    plan, planning = _planned(config, Slice(name, chip, (1,)), device)
    model = build(config.model, *task_of(config).vocab_sizes)
    mesh = make_mesh(devices=[device])
    steps = compile_steps(model, config, mesh, bos=BOS)
    shape, _ = step_costs.assumed_shape(config, mesh)
    batch = random_batch(shape, min(task_of(config).vocab_sizes))
    # Compiled before, as the compiler's own memory is not the step's.
    began = time.perf_counter()
    shapes = step_costs.batch_shapes(shape, mesh)
    train = steps.train.lower(steps.shapes, shapes).compile()
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
    began = time.perf_counter()
    for _ in range(count):
        state, metrics = train(state, place_batch(mesh, batch))
    jax.block_until_ready((state, metrics))
    seconds = (time.perf_counter() - began) / count
    return StepCost(
        parameters=model.count(),
        dtype=config.model.dtype,
        rows=shape.rows,
        source=shape.source,
        target=shape.target,
        # The forecast may have compiled it, and the cache have it from there.
        first=max(compiled, planning) + spent[0],
        seconds=seconds,
        awaited=statistics.median(spent[1:]),
        flops=step_costs.model_flops(model, config, shape),
        memory=memory,
        **plan,
    )


def _planned(config: Config, chips: Slice, device: jax.Device) -> tuple[dict, float]:
    """The forecast of `plan` for one such chip, as fields of a `StepCost`.

    On a GPU or TPU, one that fails does not hide what is measured.

    Returns:
      The fields, and the seconds that compiling took.
    """
    try:
        result = forecast.forecast(config, chips, [device])
    except Exception as e:
        if device.platform == "cpu":
            raise
        say(f"warning: plan has no forecast: {type(e).__name__}: {first_line(e)}")
        nothing = {"planned_memory": None, "planned_seconds": None, "planned_by": ""}
        return nothing, 0.0
    seconds = result["time"]
    return {
        "planned_memory": result["memory"]["needed"],
        "planned_seconds": None if seconds is None else seconds["step"],
        "planned_by": f"{result['memory']['by']}, for {chips.topology}",
    }, result["compile_seconds"]


# --------------------------------------------------------------- batches, checkpoints


def random_pairs(lengths: Iterable[np.ndarray], pieces: int) -> Pairs:
    """Random tokens in sentences of these lengths, int [pairs] for each side."""
    rng = np.random.default_rng(0)
    sides = []
    for length_p in lengths:
        offsets = np.append(0, np.cumsum(length_p, dtype=np.int64))
        tokens = rng.integers(SPECIAL, min(pieces, 1 << 16), offsets[-1], np.uint16)
        sides.append(Ragged(tokens, offsets))
    return Pairs(*sides, {}, sizes=(len(offsets) - 1,))


def feed_rate(stream: Iterator[Batch], batches: int) -> float:
    """Real tokens a second, source and target, of batches that are being filled.

    Those that were filled ahead are used up before the clock starts.
    """
    for _ in range(2 * AHEAD):
        next(stream)
    real, began = 0, time.perf_counter()
    for batch in itertools.islice(stream, batches):
        real += sum(int(np.count_nonzero(batch[s])) for s in ("source", "target"))
    rate = real / (time.perf_counter() - began)
    stream.close()
    return rate


class Stopwatch:
    """A call returns the seconds since the last call, or since its creation."""

    def __init__(self):
        self._last = time.perf_counter()

    def __call__(self) -> float:
        last, self._last = self._last, time.perf_counter()
        return self._last - last


def with_noise(state: TrainState) -> TrainState:
    """A state with random moments, as after some training: zeros are compressed."""
    random = np.random.default_rng(0)

    def noise(x):
        if not x.ndim:
            return x
        return jax.device_put(random.standard_normal(x.shape, np.float32), x.sharding)

    noisy = jax.tree.map(noise, state.optimizer)
    return state._replace(optimizer=noisy, step=state.step + 1)


def plain_file(folder: Path, size: int) -> dict[str, float]:
    """Seconds to write and fsync a file of random bytes, and to read and hash it."""
    file, content = folder / "plain", np.random.default_rng(0).bytes(size)
    lap = Stopwatch()
    with open(file, "wb") as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())
    written = lap()
    with open(file, "rb") as f:
        hashlib.file_digest(f, "sha256")
    hashed = lap()
    file.unlink()
    return {"written": written, "hashed": hashed}


def saved_and_restored(folder: Path, state: TrainState, shapes) -> dict[str, float]:
    """Seconds that training waits, until all is on disk, and to restore it; bytes."""
    checkpoints = Checkpoints(Workdir(folder), keep_parameters=1, keep_best=1)
    try:
        lap = Stopwatch()
        checkpoints.save(state, RunProgress(), parameters=False)
        blocked = lap()
        checkpoints.wait()
        complete = blocked + lap()
        checkpoints.restore(shapes)
        restored = lap()
    finally:
        checkpoints.close()
    return {
        "blocked": blocked,
        "complete": complete,
        "restored": restored,
        "on_disk": sealed.size(state_folder(folder, state)),
    }


def state_folder(folder: Path, state: TrainState):
    """The folder of a workdir in which a state was saved."""
    return Workdir(folder).checkpoints / "state" / str(int(state.step))
