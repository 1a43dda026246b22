"""Virtual devices, to compile for hardware that is not here."""

import importlib.util
import os

import jax

from t2t_jax.costs.chips import Slice
from t2t_jax.io.errors import UserError


def make_devices(chips: Slice) -> list:
    """Creates a device to compile for, for each chip of a slice.

    Call it before JAX starts. A TPU slice gets the devices of the TPU compiler, which
    the package `libtpu` contains and which needs no TPU. Other slices get virtual CPU
    devices: XLA partitions a program among them in the same way.

    Raises:
      UserError: `libtpu` is not installed or refuses the topology; JAX has already
        started with fewer devices.
    """
    use_cpu(1 if chips.chip.kind == "tpu" else chips.count)
    if chips.chip.kind == "tpu":
        return _tpus(chips)
    devices = jax.devices("cpu")
    if len(devices) < chips.count:
        raise UserError(
            f"{chips.topology} needs {chips.count} virtual devices, but JAX has "
            f"started with {len(devices)}; plan in a new process, or first call "
            f"jax.config.update('jax_num_cpu_devices', {chips.count})"
        )
    return devices[: chips.count]


def use_cpu(count: int) -> None:
    """Makes JAX use the CPU, unless it has started; leaves accelerators to others."""
    try:
        if count > 1:
            jax.config.update("jax_num_cpu_devices", count)
        jax.config.update("jax_platforms", "cpu")
    except RuntimeError:  # JAX has started: use the devices that it has
        pass


def has_tpu_compiler() -> bool:
    """True if `libtpu` is installed."""
    return importlib.util.find_spec("libtpu") is not None


def _tpus(chips: Slice) -> list:
    """The TPU compiler's devices for a slice."""
    if not has_tpu_compiler():
        raise UserError(
            f"--slice={chips.topology}: the TPU compiler is not installed; install it "
            "with: pip install -e '.[plan]' (needs Linux, but no TPU)"
        )
    # Otherwise libtpu asks Google's metadata server which TPU this is, and locks out
    # other programs that use it.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("TPU_STDERR_LOG_LEVEL", "3")
    os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
    from jax.experimental import topologies

    options = {}
    if chips.chip.kind == "tpu" and chips.name == "v4":
        options["chip_config_name"] = "megacore"  # a chip's two cores as one device
    if chips.shape == (1, 1):
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        devices = topologies.get_topology_desc(
            platform="tpu", topology_name=chips.topology, **options
        ).devices
    except jax.errors.JaxRuntimeError as e:
        reason = str(e).splitlines()[0]
        raise UserError(
            f"--slice={chips.topology}: the TPU compiler refuses it: {reason}"
        ) from None
    if len(devices) != chips.count:
        raise UserError(
            f"--slice={chips.topology}: the TPU compiler has {len(devices)} devices "
            f"for {chips.count} chips; use another slice"
        )
    return devices
