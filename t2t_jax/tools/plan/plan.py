"""Plans a run on chips that are not here: whether it fits, and how long it takes.

The training step is compiled for the chips without having them. `docs/planning.md` says
which parts of the answer are measured and which are assumed.
"""

import importlib.util
import os

import jax
from ml_collections import ConfigDict

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.costs import chips, memory_check
from t2t_jax.costs.chips import Slice
from t2t_jax.io.errors import UserError, first_line
from t2t_jax.io.messages import say, waiting
from t2t_jax.tools.plan import forecast as forecasts


def plan(
    config: Config | ConfigDict, slice: str, measure: bool = False, remedy: bool = True
) -> dict:
    """Forecasts whether a run fits a slice, and how long it takes there.

    Call it before anything else starts JAX, as it needs virtual devices.

    Args:
      config: of `load_config`, or a `Config`.
      slice: `v5e:2x4`, `h100:8`, `cpu:1`.
      measure: for `cpu:1`, also runs and times some real steps.
      remedy: searches for a change that fits if the config does not.

    Returns:
      Strings, numbers, lists and dicts, as `--json` prints them. `remedy` holds the
      `change` that fits and its `forecast`; None if the config fits or no change does.

    Raises:
      UserError: no such slice, a mesh that does not divide, no TPU compiler.
    """
    if not isinstance(config, Config):
        config = fields.from_config_dict(config)
    if slice.lower().startswith("cpu:"):
        # Any chip does for checking the name. Measuring comes after `use_cpu`, as it
        # starts JAX.
        if chips.find_slice(slice, chips.CHIPS["h100"]).count > 1:
            raise UserError(f"--slice={slice}: want cpu:1; this machine is one chip")
        _use_cpu(1)
        rented = chips.find_slice(slice, chips.measured_cpu())
    else:
        rented = chips.find_slice(slice)
    devices = make_devices(rented)

    def compile_and_forecast(config: Config) -> dict:
        with waiting(f"compiling for {rented.topology}"):
            return forecasts.forecast(config, rented, devices)

    result = compile_and_forecast(config)
    result["remedy"] = None
    if not result["fits"] and remedy:
        suggestion = memory_check.find_suggestion(
            config, result, compile_and_forecast, say
        )
        if suggestion:
            result["remedy"] = {"change": suggestion[0], "forecast": suggestion[1]}
    if measure and rented.chip.kind == "cpu":
        config = fields.changed(config, "model", dtype="float32")
        result["measured_step"] = forecasts.measure_step(config, devices[:1])
    return result


def make_devices(rented: Slice) -> list:
    """Creates a device to compile for, for each chip of a slice.

    Call it before JAX starts. A TPU slice gets the devices of the TPU compiler, which
    the package `libtpu` contains and which needs no TPU. Other slices get virtual CPU
    devices: XLA partitions a program among them in the same way.

    Raises:
      UserError: `libtpu` is not installed or refuses the topology; JAX has already
        started with fewer devices.
    """
    _use_cpu(1 if rented.chip.kind == "tpu" else rented.count)
    if rented.chip.kind == "tpu":
        return _tpus(rented)
    devices = jax.devices("cpu")
    if len(devices) < rented.count:
        raise UserError(
            f"{rented.topology} needs {rented.count} virtual devices, but JAX has "
            f"started with {len(devices)}; plan in a new process, or first call "
            f"jax.config.update('jax_num_cpu_devices', {rented.count})"
        )
    return devices[: rented.count]


def _use_cpu(count: int) -> None:
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


def _tpus(rented: Slice) -> list:
    """The TPU compiler's devices for a slice."""
    if not has_tpu_compiler():
        raise UserError(
            f"--slice={rented.topology}: the TPU compiler is not installed; install it "
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
    if rented.chip.kind == "tpu" and rented.name == "v4":
        options["chip_config_name"] = "megacore"  # a chip's two cores as one device
    if rented.shape == (1, 1):
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        devices = topologies.get_topology_desc(
            platform="tpu", topology_name=rented.topology, **options
        ).devices
    except jax.errors.JaxRuntimeError as e:
        reason = first_line(e)
        raise UserError(
            f"--slice={rented.topology}: the TPU compiler refuses it: {reason}"
        ) from None
    if len(devices) != rented.count:
        raise UserError(
            f"--slice={rented.topology}: the TPU compiler has {len(devices)} devices "
            f"for {rented.count} chips; use another slice"
        )
    return devices
