"""Compilers of chips that are not here: devices to compile for, which run nothing.

TPUs have the compiler of `libtpu`, NVIDIA's GPUs that of JAX's CUDA plugin; neither
needs a chip. Others are virtual CPUs, among which XLA divides a program in the same
way.
"""

import importlib.util
import os
from importlib import metadata

import jax

from t2t_jax.costs.chips import GPU_USABLE, MULTIPROCESSORS, Chip, Slice
from t2t_jax.io.errors import UserError, first_line

# JAX's plugins for NVIDIA's GPUs -> the version of CUDA that they compile for.
PLUGINS = {"jax_cuda13_plugin": (13, 0), "jax_cuda12_plugin": (12, 8)}
CUDNN = (9, 8)  # what JAX's attention wants at least


def devices_of(rented: Slice) -> list:
    """Creates a device to compile for, for each chip of a slice, before JAX starts."""
    compiler = compiler_of(rented.chip)
    use_cpu(1 if compiler else rented.count)
    if compiler:
        devices = compiler(rented)
        if len(devices) != rented.count:
            raise UserError(
                f"--slice={rented.topology}: the compiler has {len(devices)} devices "
                f"for {rented.count} chips; use another slice"
            )
        return devices
    devices = jax.devices("cpu")
    if len(devices) < rented.count:
        raise UserError(
            f"{rented.topology} needs {rented.count} virtual devices, but JAX has "
            f"started with {len(devices)}; plan in a new process, or first call "
            f"jax.config.update('jax_num_cpu_devices', {rented.count})"
        )
    return devices[: rented.count]


def compiler_of(chip: Chip):
    """The function that makes a chip's devices; None if virtual CPUs stand for them."""
    if chip.kind == "tpu":
        return _tpus
    return _gpus if chip.nvidia and cuda_plugin() else None


def check_kernels(rented: Slice) -> None:
    """Raises UserError if the chips' own compiler, which makes kernels, is missing."""
    if not compiler_of(rented.chip):
        has = "JAX's CUDA plugin: pip install -e '.[cuda13]'"
        if not rented.chip.nvidia:
            has = "a TPU, or an NVIDIA GPU of Ampere or newer, such as --slice=h100:1"
        raise UserError(
            f"--slice={rented.topology}: no compiler here makes kernels for it; "
            f"--kernels wants {has}"
        )


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


def cuda_plugin() -> str | None:
    """The name of JAX's CUDA plugin, if one of JAX's own version is installed."""
    for name in PLUGINS:
        if importlib.util.find_spec(name) is not None:
            version = metadata.version(name.replace("_", "-"))
            if version == metadata.version("jaxlib"):
                return name
    return None


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
    options = {}
    if rented.name == "v4":
        options["chip_config_name"] = "megacore"  # a chip's two cores as one device
    if rented.shape == (1, 1):
        options["chips_per_host_bounds"] = (1, 1, 1)
    return _described(rented, "tpu", rented.topology, **options)


def _gpus(rented: Slice) -> list:
    """The GPU compiler's devices for a slice."""
    return _described(
        rented,
        "cuda",
        "",
        target_config=description(rented.name, rented.chip),
        topology=f"1x1x{rented.count}",  # partitions, hosts, devices of a host
    )


def _described(rented: Slice, platform: str, name: str, **options) -> list:
    """The devices that the compiler of a platform makes of a description."""
    from jax.experimental import topologies

    try:
        return topologies.get_topology_desc(name, platform, **options).devices
    except jax.errors.JaxRuntimeError as e:
        raise UserError(
            f"--slice={rented.topology}: the {rented.chip.kind.upper()} compiler "
            f"refuses it: {first_line(e)}"
        ) from None


def description(name: str, chip: Chip) -> str:
    """A GPU as XLA's compiler wants it, of the type GpuTargetConfigProto.

    Only fields that all supported versions of XLA know.
    """
    gpu, core = chip.nvidia, MULTIPROCESSORS[chip.nvidia.capability]
    major, minor = divmod(round(10 * gpu.capability), 10)
    cuda = PLUGINS[cuda_plugin() or "jax_cuda13_plugin"]
    extended = "feature_extension: ACCELERATED_FEATURES" if major >= 9 else ""
    fields = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "threads_per_core_limit": core.threads,
        "core_count": gpu.multiprocessors,
        "fpus_per_core": core.float32_units,
        "clock_rate_ghz": gpu.clock,
        "shared_memory_per_block": 48 * 1024,
        "shared_memory_per_core": core.shared * 1024,
        # The system keeps 1 KiB of each block.
        "shared_memory_per_block_optin": (core.shared - 1) * 1024,
        "registers_per_core_limit": 65_536,
        "registers_per_block_limit": 65_536,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65_535,
        "block_dim_limit_z": 65_535,
        "memory_bandwidth": round(chip.bandwidth),
        "l2_cache_size": gpu.cache * 2**20,
        "device_memory_size": round(chip.memory / GPU_USABLE),
    }
    lines = "\n".join(f"  {field}: {value}" for field, value in fields.items())
    return f"""\
gpu_device_info {{
{lines}
  cuda_compute_capability {{ major: {major} minor: {minor} {extended} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: {CUDNN[0]} minor: {CUDNN[1]} patch: 0 }}
runtime_version {{ major: {cuda[0]} minor: {cuda[1]} patch: 0 }}
device_description_str: "{name}"
"""
