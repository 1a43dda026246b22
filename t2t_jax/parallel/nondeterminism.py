"""Equal bytes on a GPU: what they need, and the kernels that were chosen."""

import hashlib
import os
from pathlib import Path

# Flags with which XLA computes the same bytes twice on a GPU, by the same kernels.
GPU_FLAGS = "--xla_gpu_exclude_nondeterministic_ops=true"
# The folder of JAX's cache for the choices of XLA's autotuner: one file for each, which
# is never written again.
AUTOTUNING = "xla_gpu_per_fusion_autotune_cache_dir"


def nondeterminism() -> str:
    """Explains why two runs on this machine would differ; empty if they would not."""
    import jax

    if jax.default_backend() != "gpu":
        return ""
    flags = {*os.environ.get("XLA_FLAGS", "").split()}
    if not flags & {GPU_FLAGS, "--xla_gpu_deterministic_ops=true"}:
        return (
            "two runs on a GPU differ in their last bits, and more with every step, "
            f"unless XLA uses deterministic kernels: add to XLA_FLAGS '{GPU_FLAGS}'"
        )
    if not _folder() and "--xla_gpu_autotune_level=0" not in flags:
        return (
            "two runs on a GPU differ in their last bits, as XLA chooses kernels by "
            "their time, and nothing keeps its choices: let JAX keep compiled programs "
            "(T2T_JAX_CACHE)"
        )
    return ""


def _folder() -> Path | None:
    """Where JAX lets XLA keep its choices; None if nowhere."""
    from jax import config

    caches = config.jax_persistent_cache_enable_xla_caches or ""
    if not config.jax_enable_compilation_cache or not config.jax_compilation_cache_dir:
        return None
    if caches != "all" and AUTOTUNING not in caches:
        return None
    return Path(config.jax_compilation_cache_dir) / AUTOTUNING


def kernel_choices() -> str:
    """Short hashes of the kernels that XLA's autotuner has chosen, with spaces.

    They are those of all programs in the cache; empty if none is kept.
    """
    folder, hashes = _folder(), []
    try:
        for file in sorted(folder.iterdir()) if folder else ():
            if file.is_file():  # in `tmp`, XLA writes what is not whole yet
                content = file.name.encode() + b" " + file.read_bytes()
                hashes.append(hashlib.sha256(content).hexdigest()[:8])
    except OSError:  # no such folder; a run does not end because of it
        return ""
    return " ".join(hashes)


def keeps_kernel_choices(choices: str) -> bool:
    """True if all that `kernel_choices` once returned is still so; more may be new."""
    return {*choices.split()} <= {*kernel_choices().split()}
