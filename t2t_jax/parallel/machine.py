"""Facts about this machine: those that change the bits of a result, and its memory."""

import math
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from t2t_jax import __version__
from t2t_jax.io.threads import core_count


def describe_machine() -> dict[str, str | int]:
    """Describes the machine and libraries, as far as they affect the bits of a result.

    On a CPU, two runs with equal descriptions, configs and texts give equal bytes. A
    float32 sum depends on its order, hence on the number of threads; on a GPU also on
    the choice of kernels, see `nondeterminism.py`.
    """
    import jax

    devices = jax.devices()
    return {
        "t2t_jax": __version__,
        **{name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax")},
        "devices": len(devices),
        "device": devices[0].device_kind,
        "processes": jax.process_count(),
        "processor": processor_name(),
        "cores": core_count(),
        # Sorted, so that the same flags in another order are not a change.
        "XLA_FLAGS": " ".join(sorted(os.environ.get("XLA_FLAGS", "").split())),
        "matmul_precision": jax.config.jax_default_matmul_precision or "default",
        "prng": jax.config.jax_default_prng_impl,
    }


# Field of `describe_machine` -> why another value changes the bits of a result.
EFFECTS = {
    "t2t_jax": "another version of this package may compute in another order",
    "jax": "another version may turn the same program into other operations",
    "jaxlib": "another compiler (XLA) fuses and orders operations in another way",
    "flax": "another version may compute in another order",
    "optax": "another version may compute the update in another order",
    "devices": "sums over a batch are divided among the devices, and added up in "
    "another order",
    "device": "another kind of device has other kernels",
    "processes": "sums over a batch are divided among the processes",
    "processor": "XLA compiles for the vector instructions of the processor, whose "
    "width decides the order of a sum",
    "cores": "XLA divides the sums of a program for a CPU among one thread a core; "
    "floating-point sums depend on their order",
    "XLA_FLAGS": "flags choose kernels and passes of the compiler",
    "matmul_precision": "products of matrices are rounded in another way",
    "prng": "other random numbers: initial parameters and dropout",
}


def machine_differences(a: dict, b: dict) -> dict[str, tuple]:
    """The fields in which two descriptions differ, with both values; None if absent."""
    return {
        name: (a.get(name), b.get(name))
        for name in {**a, **b}
        if a.get(name) != b.get(name)
    }


def processor_name() -> str:
    """The model name of this machine's processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    # Not Linux, or a processor whose /proc/cpuinfo has no model name (ARM).
    return platform.processor() or platform.machine()


def memory_here() -> float:
    """Bytes of this machine's memory; 8 GiB where the system does not say."""
    try:
        with open("/proc/meminfo") as file:  # its first line: `MemTotal: N kB`
            return float(file.readline().split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return 8.0 * 2**30


def device_memory(device: Any) -> float:
    """Bytes that programs on a JAX device can take; for a CPU, this machine's memory.

    Infinite where the device does not say.
    """
    if limit := (device.memory_stats() or {}).get("bytes_limit"):
        return limit
    return memory_here() if device.platform == "cpu" else math.inf


def tree_bytes(tree: Any) -> int:
    """Bytes of the arrays of a tree, or of their shapes; other leaves count nothing."""
    import jax

    arrays = (x for x in jax.tree.leaves(tree) if hasattr(x, "dtype"))
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays)
