"""Measures this machine as a `Chip`: its rates and its memory."""

import time

import jax
import jax.numpy as jnp

from t2t_jax.costs import chips
from t2t_jax.costs.chips import Chip

CPU_SIZE = 1536  # of the square matrices that measure a processor


def measured_cpu() -> Chip:
    """This machine's processor as a `Chip`, with rates measured now."""
    peak = matrix_rate("float32", CPU_SIZE, 20)
    traffic = memory_rate(64 << 20)
    return Chip(
        kind="cpu",
        memory=memory_here(),
        bfloat16=peak,
        float32=peak,
        bandwidth=traffic,
        link=traffic,
        source=f"measured now: a {CPU_SIZE} x {CPU_SIZE} float32 product, an addition "
        "over 64 MiB",
        native=False,
    )


def chip_here(device: jax.Device) -> tuple[str, Chip]:
    """Returns the chip that `plan` would use for a device of this machine.

    A chip that `CHIPS` does not have is measured now.

    Returns:
      Its name, as in `CHIPS` or `cpu`, and its numbers.
    """
    if device.platform == "cpu":
        return "cpu", measured_cpu()
    name = chips.DEVICES.get(device.device_kind)
    if name:
        return name, chips.CHIPS[name]
    limit = (device.memory_stats() or {}).get("bytes_limit", 8 * chips.GIB)
    traffic = memory_rate(1 << 30)
    chip = Chip(
        kind="tpu" if device.platform == "tpu" else "gpu",
        memory=float(limit),
        bfloat16=matrix_rate("bfloat16", 8192, 10),
        float32=matrix_rate("float32", 8192, 10),
        bandwidth=traffic,
        link=traffic,
        source="measured now: products of 8192 x 8192, an addition over 1 GiB",
    )
    return device.device_kind, chip


def matrix_rate(dtype: str, size: int, times: int) -> float:
    """FLOP/s of the fastest of some products of two square matrices.

    Args:
      dtype: of the matrices; products have JAX's default precision.
      size: rows and columns.
      times: the number of products.
    """
    # Random numbers: some GPUs are faster, as they stay cooler, on constants.
    x = jax.random.normal(jax.random.key(0), (size, size), dtype)
    return 2 * size**3 / _fastest(jax.jit(lambda x: x @ x), x, times)


def memory_rate(size: int) -> float:
    """Bytes/s to and from the memory: those of an addition over `size` bytes."""
    y = jnp.ones(size // 4, jnp.float32)
    # `y + 1` reads and writes the array.
    return 2 * y.nbytes / _fastest(jax.jit(lambda y: y + 1), y)


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
