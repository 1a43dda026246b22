"""Checks that compare two training steps, or two ways to attend, on this machine."""

import statistics
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from t2t_jax.config import Config, ModelConfig, changed
from t2t_jax.data.shapes import Shape
from t2t_jax.model.attention import ATTENTION, KV
from t2t_jax.model.kernels import kernel_for
from t2t_jax.model.layers import Dropout
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.model import build
from t2t_jax.model.positions import Position
from t2t_jax.parallel.machine import core_count
from t2t_jax.parallel.mesh import make_mesh, place_batch
from t2t_jax.tools.verify.check import Measured, Unavailable
from t2t_jax.tools.verify.context import Context
from t2t_jax.tools.verify.random_models import BOS, random_batch
from t2t_jax.tools.verify.speed import PIECES, in_time, sizes, with_rows
from t2t_jax.training.step import compile_steps


def small_config() -> Config:
    """A config for checks that compare two steps; base where there is the time."""
    return with_rows(changed(Config(), "model", **sizes().small), sizes().small_rows)


@in_time
def dtypes(context: Context) -> Measured:
    """Compares a step in bfloat16 with one in float32."""
    seconds = {}
    for dtype in ("float32", "bfloat16"):
        config = changed(small_config(), "model", dtype=dtype)
        seconds[dtype] = _step(config, jax.devices()[:1])
    faster = seconds["float32"] / seconds["bfloat16"]
    both = ", ".join(f"{dtype} {s * 1e3:,.1f} ms" for dtype, s in seconds.items())
    details = [_small_size()]
    if jax.default_backend() == "cpu":
        details.append("`auto` is float32 on a CPU")
    return Measured(
        f"{both}: bfloat16 {faster:.2f} times as fast",
        "",
        None,
        seconds,
        tuple(details),
    )


def _small_size() -> str:
    """The model of `small_config`, in words."""
    length, tokens = sizes().small_rows
    small = ", ".join(f"{k}={v}" for k, v in sizes().small.items())
    model = f"base with {small}" if small else "base"
    return f"{model}; {tokens:,} tokens a side and device, in rows of {length}"


@in_time
def attention(context: Context) -> Measured:
    """Compares the fused attention kernel of this backend with dense attention.

    Forward and backward pass of one layer's attention, 8 heads of 64, causal.
    """
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
            name: _seconds(_gradient(ATTENTION[name].attend, rest), arrays)
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
    return Measured(
        f"fused times as fast as dense: {listed}", "", None, numbers, (about, *rows)
    )


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


def _seconds(function: Callable, arguments: Sequence, times: int = 10) -> float:
    """Median seconds of a call after the first."""
    jax.block_until_ready(function(*arguments))  # compiles
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


@in_time
def scaling(context: Context) -> Measured:
    """Compares the rate of all devices of this process with that of one.

    Each device gets as many rows as the one had (weak scaling), by data parallelism.
    """
    devices = jax.local_devices()
    if len(devices) == 1:
        raise Unavailable(
            "there is one device; to rehearse on a CPU set "
            "XLA_FLAGS=--xla_force_host_platform_device_count=4"
        )
    config = small_config()
    length, _ = sizes().small_rows
    one, every = (
        2 * _rows() * length * len(on) / _step(config, on)
        for on in (devices[:1], devices)
    )
    share = every / one / len(devices)
    details = [_small_size()]
    if devices[0].platform == "cpu":
        details.append(
            f"virtual devices of one CPU share its {core_count()} cores: this shows "
            "that it runs, not what more devices are worth"
        )
    return Measured(
        f"{len(devices)} devices: {every:,.0f} tokens/s, {every / one:.2f} times one "
        f"({share:.0%} each)",
        "",
        None,
        {"devices": len(devices), "one": one, "all": every},
        tuple(details),
    )


def _rows() -> int:
    """The rows of a batch of `small_config` on a device."""
    length, tokens = sizes().small_rows
    return tokens // length // 8 * 8


def _step(config: Config, devices: Sequence[jax.Device]) -> float:
    """Median seconds of a training step, with as many rows on each device."""
    mesh = make_mesh(devices=devices)
    steps = compile_steps(build(config.model, PIECES), config, mesh, bos=BOS)
    shape = Shape(_rows() * len(devices), *[sizes().small_rows[0]] * 2)
    batch = place_batch(mesh, random_batch(shape, PIECES))
    state, spent = steps.init(), []
    for _ in range(1 + sizes().steps):
        began = time.perf_counter()
        state, metrics = steps.train(state, batch)
        jax.block_until_ready((state, metrics))
        spent.append(time.perf_counter() - began)
    return statistics.median(spent[1:])  # the first one compiles
