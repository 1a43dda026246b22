"""Checks of speed and memory: matrix products, training steps, `plan`'s forecast.

On a CPU sizes shrink, so that all of it takes minutes. On other devices it measures
what docs/performance.md has no figures of. Figures are reported; bounds are those that
the documentation states.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from t2t_jax.config import Config, ModelConfig, changed
from t2t_jax.costs import chips
from t2t_jax.costs.timing import median_seconds
from t2t_jax.data.shapes import Shape
from t2t_jax.io.threads import core_count
from t2t_jax.model.attention import ATTENTION, KV
from t2t_jax.model.kernels import kernel_for
from t2t_jax.model.layers import Dropout
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.positions import Position
from t2t_jax.parallel.mesh import place_batch
from t2t_jax.tools.verify.check import Context, Measured, Unavailable, reported
from t2t_jax.tools.verify.measuring import (
    StepCost,
    Trainer,
    step_cost,
)
from t2t_jax.tools.verify.random_models import random_batch

BIG = {"width": 1024, "heads": 16, "hidden": 4096, "dropout": 0.3}  # configs/big.py
PIECES = 37_000  # of the vocabulary, as in configs/base.py
# What a process takes besides XLA's buffers, and what the forecast may be short of.
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


class Sizes(NamedTuple):
    """The amounts that are measured on a kind of device."""

    # By dtype, the size of the square matrices, and the number of products.
    matrix: dict[str, tuple[int, int]]
    traffic: int  # bytes of the array that measures the memory
    # Tokens of a row, and of a side of a batch, by model.
    rows: dict[str, tuple[int, int]]
    shrunk: dict[str, dict]  # changes to the models, by model; empty for the paper's
    small: dict  # changes to base for checks that compare two steps
    small_rows: tuple[int, int]  # as `rows`, of these
    steps: int  # that are timed
    attention: tuple[tuple[int, ...], int]  # lengths of rows, and the number of tokens
    pairs: int  # of the feeder's text
    batches: int  # that are filled
    state: dict  # changes to base for the state that is saved
    state_pieces: int  # of its vocabulary
    decoders: dict[str, dict]  # changes to base, by check of beam search
    decoded: tuple[int, int, int]  # sentences, tokens of each source, of each output
    compared: tuple[int, int, int]  # as `decoded`, for each of `batch_tokens`
    batch_tokens: tuple[int, ...]  # values of `config.decode.batch_tokens` to compare


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
    pairs=500_000,
    batches=200,
    state={},
    state_pieces=PIECES,
    decoders={"decode": {}, "decode_batch": {"layers": 2}},  # fewer compile sooner
    decoded=(512, 32, 64),
    compared=(2_048, 32, 64),
    batch_tokens=(4_096, 16_384, 65_536),
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
        pairs=100_000,
        batches=200,
        state={"layers": 1},
        state_pieces=8_000,
        decoders={
            "decode": {"layers": 2},
            "decode_batch": {"layers": 2, "width": 128, "heads": 4, "hidden": 512},
        },
        decoded=(16, 16, 32),
        compared=(64, 16, 32),
        batch_tokens=(256, 512, 1_024),
    )
}


def sizes() -> Sizes:
    """The sizes for this machine's devices."""
    return SIZES.get(jax.default_backend(), ACCELERATOR)


def _matrix_peaks(context: Context) -> dict[str, float]:
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
    peaks = _matrix_peaks(context)
    traffic = chips.memory_rate(sizes().traffic)
    listed = ", ".join(f"{dtype} {flops(peak)}" for dtype, peak in peaks.items())
    squares = ", ".join(f"{d} {n} x {n}" for d, (n, _) in sizes().matrix.items())
    details = [f"square matrices ({squares}); memory: an addition, read and write"]
    kind = jax.devices()[0].device_kind
    for dtype, peak in peaks.items():
        if sheet := chips.peak(kind, dtype):
            details.append(f"{dtype}: {peak / sheet:.0%} of the data sheet's peak")
    return reported(
        f"{listed}; memory {traffic / 1e9:,.0f} GB/s",
        {"flops": peaks, "bytes_per_second": traffic},
        details,
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


def step(context: Context, name: str) -> Measured:
    """Measures training steps of the paper's base or big model."""
    before = _matrix_peaks(context)
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
    return reported(
        f"{cost.seconds * 1e3:,.1f} ms, {cost.tokens_per_second:,.0f} tokens/s, MFU "
        f"{mfu:.0%}",
        _numbers(cost) | {"mfu": mfu, "peak": peak},
        details,
    )


def _numbers(cost: StepCost) -> dict:
    return dataclasses.asdict(cost) | {"tokens_per_second": cost.tokens_per_second}


def in_words(changes: dict) -> str:
    """Fields of a model and their values."""
    return ", ".join(f"{field}={value}" for field, value in changes.items())


def _batch(cost: StepCost) -> str:
    return f"{cost.rows} rows of {cost.source} + {cost.target} tokens"


def _size(name: str, cost: StepCost) -> str:
    """The model's size, and what was shrunk for this machine."""
    text = f"{cost.parameters:,} parameters"
    shrunk = sizes().shrunk[name]
    if shrunk:
        text += f" ({name} shrunk for a CPU: {in_words(shrunk)})"
    return text


def memory(context: Context, name: str) -> Measured:
    """Compares the memory of a step of base or big with `plan`'s forecast.

    A run that fits by the forecast must fit: memory may not exceed it.
    """
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


def _small_config() -> Config:
    """A config for checks that compare two steps; base where there is the time."""
    return with_rows(changed(Config(), "model", **sizes().small), sizes().small_rows)


def dtypes(context: Context) -> Measured:
    """Compares a step in bfloat16 with one in float32."""
    check_time(context)
    seconds = {}
    for dtype in ("float32", "bfloat16"):
        config = changed(_small_config(), "model", dtype=dtype)
        seconds[dtype] = _step_seconds(config, jax.devices()[:1])
    faster = seconds["float32"] / seconds["bfloat16"]
    both = ", ".join(f"{dtype} {s * 1e3:,.1f} ms" for dtype, s in seconds.items())
    details = [_small_size()]
    if jax.default_backend() == "cpu":
        details.append("`auto` is float32 on a CPU")
    return reported(
        f"{both}: bfloat16 {faster:.2f} times as fast",
        seconds,
        details,
    )


def _small_size() -> str:
    """The model of `small_config`, in words."""
    length, tokens = sizes().small_rows
    small = in_words(sizes().small)
    model = f"base with {small}" if small else "base"
    return f"{model}; {tokens:,} tokens a side and device, in rows of {length}"


def attention(context: Context) -> Measured:
    """Compares the fused attention kernel of this backend with dense attention.

    Forward and backward pass of one layer's attention, 8 heads of 64, causal.
    """
    check_time(context)
    lengths, tokens = sizes().attention
    config = ModelConfig()
    dtype = jnp.bfloat16
    rows, numbers = [], {}
    for length in lengths:
        arrays, mask = _attention_inputs(max(1, tokens // length), length, dtype)
        rest = mask, Position(config, True, jax.random.key(0)), Dropout(0.0, None)
        if kernel_for(arrays[0], KV(*arrays[1:]), *rest) is None:
            device = jax.devices()[0]
            raise Unavailable(
                f"no fused kernel for this backend ({device.platform}, "
                f"{device.device_kind}): config.model.attention='fused' computes dense"
            )
        seconds = {
            name: median_seconds(
                functools.partial(_gradient(ATTENTION[name].attend, rest), *arrays), 10
            )
            for name in ("fused", "dense")
        }
        numbers[str(length)] = seconds
        rows.append(
            f"rows of {length:,}: fused {seconds['fused'] * 1e3:.2f} ms, dense "
            f"{seconds['dense'] * 1e3:.2f} ms"
        )
    faster = [of["dense"] / of["fused"] for of in numbers.values()]
    listed = ", ".join(
        f"{ratio:.1f} (rows of {length:,})"
        for ratio, length in zip(faster, lengths, strict=True)
    )
    about = f"forward and backward, 8 heads of 64, causal, {tokens:,} tokens, bfloat16"
    return reported(f"fused times as fast as dense: {listed}", numbers, [about, *rows])


def _attention_inputs(rows: int, length: int, dtype) -> tuple[list, Mask]:
    """Queries, keys and values [rows, length, 8, 64], and the mask of a decoder."""
    keys = jax.random.split(jax.random.key(0), 3)
    arrays = [jax.random.normal(key, (rows, length, 8, 64), dtype) for key in keys]
    position = jnp.broadcast_to(jnp.arange(length), (rows, length))
    at = Tokens(jnp.ones_like(position), position)
    return arrays, Mask(at, at, causal=True, aligned=True)


def _gradient(attend: Callable, rest: tuple) -> Callable:
    """The gradient by queries, keys and values of a sum over the results."""

    def total(q, k, v):
        return attend(q, KV(k, v), *rest).astype(jnp.float32).sum()

    return jax.jit(jax.grad(total, (0, 1, 2)))


def scaling(context: Context) -> Measured:
    """Compares the rate of all devices of this process with that of one.

    Each device gets as many rows as the one had (weak scaling), by data parallelism.
    """
    check_time(context)
    devices = jax.local_devices()
    if len(devices) == 1:
        raise Unavailable(
            "there is one device; to rehearse on a CPU set "
            "XLA_FLAGS=--xla_force_host_platform_device_count=4"
        )
    config = _small_config()
    length, _ = sizes().small_rows
    one, every = (
        2 * _rows() * length * len(on) / _step_seconds(config, on)
        for on in (devices[:1], devices)
    )
    share = every / one / len(devices)
    details = [_small_size()]
    if devices[0].platform == "cpu":
        details.append(
            f"virtual devices of one CPU share its {core_count()} cores: this shows "
            "that it runs, not what more devices are worth"
        )
    return reported(
        f"{len(devices)} devices: {every:,.0f} tokens/s, {every / one:.2f} times one "
        f"({share:.0%} each)",
        {"devices": len(devices), "one": one, "all": every},
        details,
    )


def _rows() -> int:
    """The rows of a batch of `small_config` on a device."""
    length, tokens = sizes().small_rows
    return tokens // length // 8 * 8


def _step_seconds(config: Config, devices: Sequence[jax.Device]) -> float:
    """Median seconds of a training step, with as many rows on each device."""
    trainer = Trainer(config, PIECES, devices=devices)
    shape = Shape(_rows() * len(devices), *[sizes().small_rows[0]] * 2)
    batch = place_batch(trainer.steps.mesh, random_batch(shape, PIECES))

    def step() -> None:
        trainer.step_placed(batch)
        trainer.finish()

    return median_seconds(step, sizes().steps)
