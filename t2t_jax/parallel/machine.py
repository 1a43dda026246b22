"""What the bytes of a run depend on, beside its config and its text."""

import os
import platform
from importlib import metadata
from pathlib import Path

import jax

from t2t_jax import __version__


def describe_machine() -> dict[str, str | int]:
    """The machine and the libraries, as far as they shape a result to the last bit.

    The same here, config and text the same: the same bytes, on a CPU. A sum in float32
    depends on its order, and so on how many threads share it; on a GPU also on which
    kernels are picked, and see `not_exact`.
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
        "XLA_FLAGS": " ".join(sorted(os.environ.get("XLA_FLAGS", "").split())),
        "matmul_precision": jax.config.jax_default_matmul_precision or "default",
        "prng": jax.config.jax_default_prng_impl,
    }


def processor_name() -> str:
    """The kind of this machine's processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def core_count() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# What XLA needs on a GPU to give the same bytes twice.
GPU_FLAGS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"


def nondeterminism() -> str:
    """Why a run here would not end in the same bytes twice; empty where it would."""
    if jax.default_backend() != "gpu":
        return ""
    missing = set(GPU_FLAGS.split()) - set(os.environ.get("XLA_FLAGS", "").split())
    if not missing:
        return ""
    return (
        "on a GPU two runs differ in their last bits, and more with every step, unless "
        "kernels are deterministic and none is chosen by its time: "
        f"XLA_FLAGS='{GPU_FLAGS}'"
    )
