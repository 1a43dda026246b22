"""Platforms that JAX should not try to start."""

import importlib.util
import os
from pathlib import Path

import jax


def skip_absent_tpu() -> None:
    """Keeps JAX from starting a TPU that is not there.

    `libtpu` is also installed to compile for TPUs on other machines (`pip install
    '.[plan]'`). JAX would then try to start a TPU in every command, and libtpu prints
    pages of warnings. Does nothing if the user chose the platforms, or if this cannot be
    decided.
    """
    if os.environ.get("JAX_PLATFORMS") or jax.config.jax_platforms:
        return
    if importlib.util.find_spec("libtpu") is None or _has_tpu():
        return
    if not Path("/dev/nvidia0").exists():
        if not Path("/dev/kfd").exists():  # an AMD GPU: let JAX find it
            jax.config.update("jax_platforms", "cpu")
    elif any(importlib.util.find_spec(f"jax_cuda{n}_plugin") for n in (12, 13)):
        jax.config.update("jax_platforms", "cuda,cpu")


def _has_tpu() -> bool:
    """True if a TPU is attached, or if that is unknown."""
    try:
        # JAX has no public name for its own check of the PCI devices.
        from jax._src.hardware_utils import num_available_tpu_chips_and_device_id

        return num_available_tpu_chips_and_device_id()[0] > 0
    except Exception:
        return True
