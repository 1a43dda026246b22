"""Facts about this machine that a run's results depend on, to the last bit."""

import os
import platform
from importlib import metadata
from pathlib import Path

import jax

from t2t_jax import __version__


def describe_machine() -> dict[str, str | int]:
    """Describes the machine and libraries, as far as they affect the bits of a result.

    On a CPU, two runs with equal descriptions, configs and texts give equal bytes. A
    float32 sum depends on its order, hence on the number of threads; on a GPU also on
    the choice of kernels, see `nondeterminism`.
    """
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


def core_count() -> int:
    """The number of cores that this process may use."""
    # The affinity mask knows of taskset and Slurm; `cpu_count` counts all cores.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Flags with which XLA computes the same bytes twice on a GPU.
GPU_FLAGS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"


def nondeterminism() -> str:
    """Explains why two runs on this machine would differ; empty if they would not."""
    if jax.default_backend() != "gpu":
        return ""
    missing = set(GPU_FLAGS.split()) - set(os.environ.get("XLA_FLAGS", "").split())
    if not missing:
        return ""
    return (
        "two runs on a GPU differ in their last bits, and more with every step, unless "
        "XLA uses deterministic kernels and does not choose them by timing: set "
        f"XLA_FLAGS='{GPU_FLAGS}'"
    )
