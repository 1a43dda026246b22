"""Whether a GPU computes the same bytes twice, and by which kernels it did."""

import hashlib
import os
from pathlib import Path

import jax

# Flags with which XLA computes the same bytes twice on a GPU, by the same kernels.
GPU_FLAGS = "--xla_gpu_exclude_nondeterministic_ops=true"
# The folder of JAX's cache for the choices of XLA's autotuner: one file for each, which
# is never written again.
AUTOTUNING = "xla_gpu_per_fusion_autotune_cache_dir"


def nondeterminism() -> str:
    """Explains why two runs on this machine would differ; empty if they would not."""
    if jax.default_backend() != "gpu":
        return ""
    flags = os.environ.get("XLA_FLAGS", "").split()
    if missing := set(GPU_FLAGS.split()) - set(flags):
        return (
            "two runs on a GPU differ in their last bits, and more with every step, "
            "unless XLA uses deterministic kernels: add to XLA_FLAGS "
            f"'{' '.join(missing)}'"
        )
    if not jax.config.jax_compilation_cache_dir and not any(
        flag.startswith("--xla_gpu_autotune_level=0") for flag in flags
    ):
        return (
            "two runs on a GPU differ in their last bits, as XLA chooses kernels by "
            "their time, and nothing keeps its choices: set T2T_JAX_CACHE to a folder"
        )
    return ""


def kernel_choices(first: int | None = None) -> str:
    """Hashes the kernels that XLA's autotuner has chosen, by all programs of the cache.

    Args:
      first: only so many, from the oldest on; None is all.

    Returns:
      Their number and SHA-256, such as `212 5f0e...`; empty if none is kept.
    """
    folder = Path(jax.config.jax_compilation_cache_dir or "") / AUTOTUNING
    if not jax.config.jax_compilation_cache_dir or not folder.is_dir():
        return ""
    files = [file for file in folder.iterdir() if file.is_file()]
    files.sort(key=lambda file: (file.stat().st_mtime_ns, file.name))
    digest = hashlib.sha256()
    for file in files[:first]:
        digest.update(f"{file.name} {len(content := file.read_bytes())} ".encode())
        digest.update(content)
    return f"{len(files[:first])} {digest.hexdigest()}" if files[:first] else ""


def keeps_kernel_choices(before: str) -> bool:
    """True if all that `kernel_choices` once returned is still so; more may be new."""
    return not before or before == kernel_choices(int(before.split()[0]))
