"""Checks of speed and memory: products, steps, the feeder, checkpoints, beam search.

On a CPU sizes shrink, so that all of it takes minutes. On other devices it measures
what docs/results/devices.md has no figures of. Figures are reported; bounds are those
that the documentation states.
"""

import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.config import Config, ModelConfig, changed
from t2t_jax.costs import chips
from t2t_jax.costs.timing import median_seconds
from t2t_jax.data.feeding import feed, plan_for
from t2t_jax.data.shapes import Shape
from t2t_jax.decoding.batches import block_rows, bucket_for
from t2t_jax.io.threads import core_count
from t2t_jax.model.attention import ATTENTION, KV
from t2t_jax.model.kernels import kernel_for
from t2t_jax.model.layers import Dropout
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.positions import Position
from t2t_jax.parallel.machine import tree_bytes
from t2t_jax.parallel.mesh import place_batch
from t2t_jax.tools.verify.check import Context, Measured, Unavailable, reported
from t2t_jax.tools.verify.measuring import (
    StepCost,
    Trainer,
    feed_rate,
    plain_file,
    random_pairs,
    saved_and_restored,
    step_cost,
    with_noise,
)
from t2t_jax.tools.verify.random_models import (
    random_batch,
    random_lines,
    random_translator,
)

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


def with_rows(config: Config, rows: tuple[int, int]) -> Config:
    """The config with rows of so many tokens, and batches of so many on each side."""
    length, tokens = rows
    sized = {"row_length": length, "batch_tokens": tokens, "vocab_size": PIECES}
    return changed(config, "data", **sized)


def cost_of(context: Context, name: str) -> StepCost:
    """The cost of a step of `base` or `big`, measured once."""

    def measure() -> StepCost:
        check_time(context)
        own, fields = sizes(), BIG if name == "big" else {}
        config = changed(Config(), "model", **fields | own.shrunk[name])
        return step_cost(with_rows(config, own.rows[name]), own.steps)

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
        f"{cost.first:.1f} s, compilation included; a step that is waited for takes "
        f"{cost.awaited * 1e3:,.1f} ms",
    ]
    sheet = chips.peak(jax.devices()[0].device_kind, cost.dtype)
    if sheet:
        share = cost.flops / cost.seconds / sheet
        details.append(f"MFU of the data sheet's {flops(sheet)}: {share:.1%}")
    if cost.planned_seconds:
        ratio = cost.seconds / cost.planned_seconds
        details.append(
            f"plan forecasts {cost.planned_seconds * 1e3:,.1f} ms: measured / forecast "
            f"{ratio:.2f}"
        )
    return reported(
        f"{cost.seconds * 1e3:,.1f} ms, {cost.tokens_per_second:,.0f} tokens/s, MFU "
        f"{mfu:.0%}",
        _numbers(cost) | {"mfu": mfu, "peak": peak, "sheet": sheet},
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
    if cost.planned_memory is None:
        raise Unavailable("plan has no forecast, as the warning above says")
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


# ------------------------------------------------- around a step: input, disk, search

BEAM = 4


def feeder(context: Context) -> Measured:
    """Compares the rate of filled batches with what a step of base consumes.

    Both in tokens a second of source and target. Without planning, which happens once
    an epoch during training; its seconds are in the details.
    """
    check_time(context)
    step = cost_of(context, "base").tokens_per_second
    config = with_rows(Config(), ACCELERATOR.rows["base"])  # configs/base.py
    config = changed(config, "data", feeder="numpy")  # needs no TensorFlow
    pairs = random_pairs(_lengths(sizes().pairs), PIECES)
    began = time.perf_counter()
    plan = plan_for(pairs, config.data, seed=0, epoch=0)
    planning = time.perf_counter() - began
    stream = (batch for _, batch in feed(pairs, config.data, seed=0))
    rate = feed_rate(stream, sizes().batches)
    return Measured(
        f"{rate / 1e6:,.1f}M tokens/s, {rate / step:,.0f} times a step of base",
        ">= 1 times",
        rate >= step,
        {"feeder": rate, "step": step, "planning": planning, "pairs": len(pairs)},
        (
            f"NumPy; {len(pairs):,} random pairs, batches of "
            f"{config.data.batch_tokens:,} tokens in rows of {config.data.row_length}, "
            f"{plan.efficiency:.3f} of them filled; an epoch is planned in "
            f"{planning:.2f} s, during training",
        ),
    )


def _lengths(count: int) -> list[np.ndarray]:
    """Log-normal lengths of sentences, of mean 28 and 31 tokens."""
    rng = np.random.default_rng(0)
    spread = 0.5  # of the logarithm; the mean is exp(mu + spread^2 / 2)
    return [
        np.clip(
            rng.lognormal(np.log(mean) - spread**2 / 2, spread, count).astype(int),
            2,
            128,
        )
        for mean in (28, 31)
    ]


def saving(context: Context) -> Measured:
    """Saves and restores a state; compares with one plain file of as many bytes.

    The file is written, fsynced and hashed. Ours has a SHA-256 of every file, which is
    compared when it is restored (docs/surviving.md).
    """
    check_time(context)
    config = changed(Config(), "model", **sizes().state)
    trainer = Trainer(config, sizes().state_pieces)
    state = with_noise(trainer.state)
    size = tree_bytes(state)
    folder = context.folder("saving")
    plain = plain_file(folder, size)
    ours = saved_and_restored(folder / "run", state, trainer.steps.shapes)
    disk = size / (plain["written"] + plain["hashed"])
    return reported(
        f"blocks {ours['blocked']:.2f} s, complete after {ours['complete']:.2f} s "
        f"(plain file: {plain['written'] + plain['hashed']:.2f} s), restored in "
        f"{ours['restored']:.2f} s",
        {"bytes": size, "plain": plain, **ours},
        (
            f"{size / 1e6:,.0f} MB of state ({trainer.model.count():,} parameters"
            f"{', base shrunk for a CPU' if sizes().state else ''}), "
            f"{ours['on_disk'] / 1e6:,.0f} MB on disk, in {tempfile.gettempdir()}",
            f"plain file: written and fsynced in {plain['written']:.2f} s, read and "
            f"hashed in {plain['hashed']:.2f} s, {disk / 1e6:,.0f} MB/s",
        ),
    )


def decode(context: Context) -> Measured:
    """Translates with a random base model, to a fixed length."""
    check_time(context)
    count, source, target = sizes().decoded
    rate, _ = _decoded("decode", sizes().decoded, batch_tokens=0)
    return reported(
        f"{rate:,.1f} sentences/s, {rate * target:,.0f} tokens/s",
        {"sentences_per_second": rate, "tokens_per_second": rate * target},
        (
            f"{_model('decode')}, beam {BEAM}, {PIECES:,} tokens; {count} lines of "
            f"{source} tokens to exactly {target}",
        ),
    )


def decode_batch(context: Context) -> Measured:
    """Compares how many lines are searched together: `config.decode.batch_tokens`."""
    check_time(context)
    count, source, target = sizes().compared
    rates, rows = {}, []
    for batch_tokens in sizes().batch_tokens:
        rate, in_block = _decoded("decode_batch", sizes().compared, batch_tokens)
        rates[batch_tokens] = rate
        rows.append(f"{batch_tokens:,} ({in_block} lines): {rate:,.1f} sentences/s")
    best = max(rates, key=rates.get)
    default = 512 if jax.default_backend() == "cpu" else 16_384
    return reported(
        f"best {best:,}; the default, {default:,}, reaches "
        f"{rates[default] / rates[best]:.0%} of it",
        {str(tokens): rate for tokens, rate in rates.items()},
        (
            f"{_model('decode_batch')}, beam {BEAM}; {count:,} lines of {source} "
            f"tokens to exactly {target}",
            *rows,
        ),
    )


def _model(check: str) -> str:
    changes = in_words(sizes().decoders[check])
    shrunk = f" shrunk to {changes}" if changes else ""
    return f"one device, random base model{shrunk}"


def _decoded(
    check: str, lengths: tuple[int, int, int], batch_tokens: int
) -> tuple[float, int]:
    """Sentences/s of the second of two calls, and the lines in a block."""
    count, source, target = lengths
    model = dataclasses.replace(ModelConfig(), **sizes().decoders[check])
    one = jax.devices()[:1]
    translator = random_translator(model, PIECES, 1, source, target, batch_tokens, one)
    lines = random_lines(count, source, PIECES)
    spent = []
    for _ in range(2):  # the first one compiles
        began = time.perf_counter()
        translations = translator.translate(lines, beam=BEAM, warn=False)
        spent.append(time.perf_counter() - began)
    lengths = {len(each.best.tokens) for each in translations}
    if lengths != {target}:
        raise Unavailable(f"outputs have {sorted(lengths)} tokens, not {target}")
    decode = translator.config.decode
    return count / spent[-1], block_rows(bucket_for(source), decode)
