"""Checks of speed and memory: matrix products, training steps, `plan`'s forecast.

On a CPU sizes shrink, so that all of it takes minutes. On other devices it measures
what docs/performance.md has no figures of. Figures are reported; bounds are those that
the documentation states.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax

from t2t_jax.config import Config, changed
from t2t_jax.costs import chips
from t2t_jax.tools.verify.check import Measured, Unavailable
from t2t_jax.tools.verify.context import Context
from t2t_jax.tools.verify.step_cost import StepCost, step_cost

BIG = {"width": 1024, "heads": 16, "hidden": 4096, "dropout": 0.3}  # configs/big.py
PIECES = 37_000  # of the vocabulary, as in configs/base.py
# What a process takes beside XLA's buffers, and what the forecast may be short of.
BESIDE, SHORT = 64 << 20, 0.05


# Seconds: on a GPU or TPU, --full shall end within 8 minutes, and a check takes one.
LAST_BEGIN = 420


def check_time(context: Context) -> None:
    """Raises `Unavailable` if a measurement would begin too late; never on a CPU."""
    spent = time.monotonic() - context.began
    if spent > LAST_BEGIN and jax.default_backend() != "cpu":
        raise Unavailable(
            f"{spent:.0f} s are spent, and --full shall end within 8 minutes; it runs "
            "alone with --only"
        )


def in_time(run: Callable[[Context], Measured]) -> Callable[[Context], Measured]:
    """Makes a check unavailable that would begin too late."""

    @functools.wraps(run)
    def in_time(context: Context) -> Measured:
        check_time(context)
        return run(context)

    return in_time


class Sizes(NamedTuple):
    """How much is measured on a kind of device.

    Attributes:
      matrix: dtype -> size of the square matrices, and the number of products.
      traffic: bytes of the array that measures the memory.
      rows: tokens of a row, and of a side of a batch, by model.
      shrunk: changes to the models, by model; empty for the paper's.
      small: changes to base for checks that compare two steps.
      small_rows: as `rows`, of these.
      steps: that are timed.
      attention: lengths of rows, and the number of tokens.
    """

    matrix: dict[str, tuple[int, int]]
    traffic: int
    rows: dict[str, tuple[int, int]]
    shrunk: dict[str, dict]
    small: dict
    small_rows: tuple[int, int]
    steps: int
    attention: tuple[tuple[int, ...], int]


ACCELERATOR = Sizes(
    matrix={"float32": (8192, 10), "bfloat16": (8192, 20)},
    traffic=1 << 30,
    # Those of configs/base.py and big.py.
    rows={"base": (128, 25_000), "big": (128, 25_000)},
    shrunk={"base": {}, "big": {}},
    small={},
    small_rows=(128, 25_000),
    steps=12,
    attention=((128, 512, 2048), 16_384),
)
# Platform -> sizes; `ACCELERATOR` for all others.
SIZES = {
    "cpu": Sizes(
        # XLA converts bfloat16 on most processors, which takes many times as long.
        matrix={"float32": (2048, 5), "bfloat16": (1024, 3)},
        traffic=64 << 20,
        rows={"base": (32, 512), "big": (32, 256)},
        shrunk={"base": {}, "big": {"layers": 2}},
        small={"layers": 1, "width": 256, "heads": 4, "hidden": 1024},
        small_rows=(32, 512),
        steps=3,
        attention=((128,), 1_024),
    )
}


def sizes() -> Sizes:
    """The sizes for this machine's devices."""
    return SIZES.get(jax.default_backend(), ACCELERATOR)


def matrix_peaks(context: Context) -> dict[str, float]:
    """FLOP/s of large square matrix products by dtype, measured once."""
    return context.shared(
        "matrix peaks",
        lambda: {
            dtype: chips.matrix_rate(dtype, *of_dtype)
            for dtype, of_dtype in sizes().matrix.items()
        },
    )


def matrix(context: Context) -> Measured:
    """Measures matrix products and the memory's rate; compares with the data sheet."""
    peaks = matrix_peaks(context)
    traffic = chips.memory_rate(sizes().traffic)
    listed = ", ".join(f"{dtype} {flops(peak)}" for dtype, peak in peaks.items())
    squares = ", ".join(f"{d} {n} x {n}" for d, (n, _) in sizes().matrix.items())
    details = [f"square matrices ({squares}); memory: an addition, read and write"]
    kind = jax.devices()[0].device_kind
    for dtype, peak in peaks.items():
        if sheet := chips.peak(kind, dtype):
            details.append(f"{dtype}: {peak / sheet:.0%} of the data sheet's peak")
    return Measured(
        f"{listed}; memory {traffic / 1e9:,.0f} GB/s",
        "",
        None,
        {"flops": peaks, "bytes_per_second": traffic},
        tuple(details),
    )


def flops(rate: float) -> str:
    """A rate for people: `989 TFLOP/s`, `342 GFLOP/s`."""
    return (
        f"{rate / 1e12:,.0f} TFLOP/s" if rate >= 1e13 else f"{rate / 1e9:,.0f} GFLOP/s"
    )


def model_config(name: str) -> Config:
    """The config of `base` or `big`, with the sizes for this machine."""
    own = sizes()
    config = changed(Config(), "model", **(BIG if name == "big" else {}))
    config = changed(config, "model", **own.shrunk[name])
    return with_rows(config, own.rows[name])


def with_rows(config: Config, rows: tuple[int, int]) -> Config:
    """The config with rows of so many tokens, and batches of so many on each side."""
    length, tokens = rows
    sized = {"row_length": length, "batch_tokens": tokens, "vocab_size": PIECES}
    return changed(config, "data", **sized)


def cost_of(context: Context, name: str) -> StepCost:
    """The cost of a step of `base` or `big`, measured once."""

    def measure() -> StepCost:
        check_time(context)
        return step_cost(model_config(name), sizes().steps)

    return context.shared(f"step of {name}", measure)


def base_step(context: Context) -> Measured:
    """Measures training steps of the paper's base model."""
    return _step(context, "base")


def big_step(context: Context) -> Measured:
    """Measures training steps of the paper's big model."""
    return _step(context, "big")


def _step(context: Context, name: str) -> Measured:
    before = matrix_peaks(context)
    cost = cost_of(context, name)
    # Other programs may have slowed the products down: measured once more.
    after = chips.matrix_rate(cost.dtype, *sizes().matrix[cost.dtype])
    peak = max(before[cost.dtype], after)
    mfu = cost.flops / cost.seconds / peak
    details = [
        f"{cost.dtype}, {_batch(cost)}, on one device; {_size(name, cost)}",
        f"MFU: of the product measured now, {flops(peak)}; the first step took "
        f"{cost.first:.1f} s, compilation included",
    ]
    if cost.planned_seconds:
        ratio = cost.seconds / cost.planned_seconds
        details.append(
            f"plan forecasts {cost.planned_seconds * 1e3:,.1f} ms: measured / forecast "
            f"{ratio:.2f}"
        )
    return Measured(
        f"{cost.seconds * 1e3:,.1f} ms, {cost.tokens_per_second:,.0f} tokens/s, MFU "
        f"{mfu:.0%}",
        "",
        None,
        _numbers(cost) | {"mfu": mfu, "peak": peak},
        tuple(details),
    )


def _numbers(cost: StepCost) -> dict:
    return dataclasses.asdict(cost) | {"tokens_per_second": cost.tokens_per_second}


def _batch(cost: StepCost) -> str:
    return f"{cost.rows} rows of {cost.source} + {cost.target} tokens"


def _size(name: str, cost: StepCost) -> str:
    """The model's size, and what was shrunk for this machine."""
    text = f"{cost.parameters:,} parameters"
    shrunk = sizes().shrunk[name]
    if shrunk:
        changes = ", ".join(f"{field}={value}" for field, value in shrunk.items())
        text += f" ({name} shrunk for a CPU: {changes})"
    return text


def base_memory(context: Context) -> Measured:
    """Compares the memory of a step of base with `plan`'s forecast."""
    return _memory(context, "base")


def big_memory(context: Context) -> Measured:
    """Compares the memory of a step of big with `plan`'s forecast."""
    return _memory(context, "big")


def _memory(context: Context, name: str) -> Measured:
    """A run that fits by the forecast must fit: memory may not exceed it."""
    cost = cost_of(context, name)
    if cost.memory is None:
        raise Unavailable(
            f"the peak of {name} is not known: this system does not report it, or an "
            "earlier computation in this process took more"
        )
    allowed = cost.planned_memory * (1 + SHORT) + BESIDE
    ratio = cost.memory / cost.planned_memory
    return Measured(
        f"{cost.memory / 2**30:.2f} GiB; forecast {cost.planned_memory / 2**30:.2f} "
        f"({ratio:.2f} of it)",
        f"<= {allowed / 2**30:.2f} (forecast + {SHORT:.0%} + {BESIDE >> 20} MiB)",
        cost.memory <= allowed,
        _numbers(cost) | {"ratio": ratio},
        (f"{_batch(cost)}, {cost.dtype}; forecast by {cost.planned_by}",),
    )
