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
    cache = jax.config.jax_compilation_cache_dir
    digest, count = hashlib.sha256(), 0
    try:
        files = [file for file in (Path(cache or "") / AUTOTUNING).iterdir() if cache]
        # In `tmp` below, XLA writes what is not whole yet.
        files = [(f.stat().st_mtime_ns, f.name, f) for f in files if f.is_file()]
        for *_, name, file in sorted(files)[:first]:
            content = file.read_bytes()
            digest.update(f"{name} {len(content)} ".encode() + content)
            count += 1
    except OSError:  # no such folder; a run does not end because of it
        return ""
    return f"{count} {digest.hexdigest()}" if count else ""


def keeps_kernel_choices(before: str) -> bool:
    """True if all that `kernel_choices` once returned is still so; more may be new."""
    return not before or before == kernel_choices(int(before.split()[0]))
