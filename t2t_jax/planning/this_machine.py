"""Measures this machine as a `Chip`: its processor's rates and its memory."""

import time

import jax
import jax.numpy as jnp

from t2t_jax.planning.chips import Chip


def measured_cpu() -> Chip:
    """This machine's processor as a `Chip`, with rates measured now."""
    size = 1536
    x = jnp.ones((size, size), jnp.float32)
    product = _fastest(jax.jit(lambda x: x @ x), x, times=20)
    y = jnp.ones((64 << 20) // 4, jnp.float32)
    copy = _fastest(jax.jit(lambda y: y + 1), y)
    peak = 2 * size**3 / product
    return Chip(
        kind="cpu",
        memory=memory_here(),
        bfloat16=peak,
        float32=peak,
        # `y + 1` reads and writes the array.
        bandwidth=2 * y.nbytes / copy,
        link=2 * y.nbytes / copy,
        source="measured now: a 1536 x 1536 float32 product, an addition over 64 MiB",
        native=False,
    )


def _fastest(function, x, times: int = 5) -> float:
    """Seconds of the fastest of some calls."""
    jax.block_until_ready(function(x))  # compiles
    spent = []
    for _ in range(times):
        started = time.perf_counter()
        jax.block_until_ready(function(x))
        spent.append(time.perf_counter() - started)
    return min(spent)


def memory_here() -> float:
    """Bytes of this machine's memory; 8 GiB where the system does not say."""
    try:
        with open("/proc/meminfo") as file:  # its first line: `MemTotal: N kB`
            return float(file.readline().split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return 8.0 * 2**30
