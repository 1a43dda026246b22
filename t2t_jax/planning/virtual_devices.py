"""Devices that are not here, for compiling what they would run."""

import importlib.util
import os

import jax

from t2t_jax.planning.chips import Slice
from t2t_jax.terminal.errors import UserError


def make_devices(chips: Slice) -> list:
    """As many devices to compile for as the slice has chips. Call before JAX starts.

    For TPUs those of their compiler, which is in the package `libtpu` and needs no TPU.
    For others as many virtual ones of this machine's processor: XLA divides a program
    among them in the same way.

    Raises:
      UserError: no `libtpu`; a topology that it refuses; JAX has started with fewer.
    """
    use_cpu(1 if chips.chip.kind == "tpu" else chips.count)
    if chips.chip.kind == "tpu":
        return _tpus(chips)
    here = jax.devices("cpu")
    if len(here) < chips.count:
        raise UserError(
            f"{chips.topology} needs {chips.count} virtual devices, but JAX has "
            f"started with {len(here)}; plan in a new process, or first call "
            f"jax.config.update('jax_num_cpu_devices', {chips.count})"
        )
    return here[: chips.count]


def use_cpu(count: int) -> None:
    """No accelerator is taken from whoever uses it, if JAX has not started."""
    try:
        if count > 1:
            jax.config.update("jax_num_cpu_devices", count)
        jax.config.update("jax_platforms", "cpu")
    except RuntimeError:  # started; then what is there has to do
        pass


def has_tpu_compiler() -> bool:
    return importlib.util.find_spec("libtpu") is not None


def _tpus(chips: Slice) -> list:
    if not has_tpu_compiler():
        raise UserError(
            f"--slice={chips.topology}: the TPU compiler is not installed (it needs no "
            "TPU, but Linux); install it with: pip install -e '.[plan]'"
        )
    # It would ask Google's servers which TPU this is, and lock out another program.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("TPU_STDERR_LOG_LEVEL", "3")
    os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
    from jax.experimental import topologies

    options = {}
    if chips.chip.kind == "tpu" and chips.name == "v4":  # a chip's two cores as one
        options["chip_config_name"] = "megacore"
    if chips.shape == (1, 1):
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        found = topologies.get_topology_desc(
            platform="tpu", topology_name=chips.topology, **options
        ).devices
    except jax.errors.JaxRuntimeError as e:
        told = str(e).splitlines()[0]
        raise UserError(
            f"--slice={chips.topology}: the TPU compiler refuses it: {told}"
        ) from None
    if len(found) != chips.count:
        raise UserError(
            f"--slice={chips.topology}: the TPU compiler has {len(found)} devices for "
            f"{chips.count} chips; use another slice"
        )
    return found
