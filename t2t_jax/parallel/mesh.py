"""The device mesh, and the rules that shard arrays over it.

A weight names its logical axes where its shape is declared (`model/layers.py`), an
activation where it is computed (`constrain`). `RULES` maps logical axes to mesh axes.
One jitted step then serves one CPU and many chips: XLA partitions the computation like
the arrays, and inserts the collectives that this needs (GSPMD).
"""

import contextlib
import contextvars
import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    SingleDeviceSharding,
)

from t2t_jax.config import MeshConfig
from t2t_jax.io.errors import UserError, did_you_mean

# Along `data` each device has its rows of the batch. Along `fsdp` it also has its part
# of every weight and of Adam's moments. Along `tensor` it has its heads, hidden units
# and entries of the vocabulary.
AXES = ("data", "fsdp", "tensor")

# Logical axis -> mesh axes; None replicates the axis on every device.
RULES: dict[str, str | tuple[str, ...] | None] = {
    # of batches and activations
    "microbatch": None,
    "batch": ("data", "fsdp"),
    "length": None,
    "features": None,
    # of weights of recurrences and convolutions
    "gates": None,
    "kernel": None,
    # of weights; the last three also of activations
    "positions": None,
    "width": "fsdp",
    "norm": None,
    "head": None,
    "rank": None,
    "heads": "tensor",
    "hidden": "tensor",
    "vocab": "tensor",
}

# Replicated if the size is not divisible by the devices; other axes raise an error. The
# user may not be able to choose the size of a vocabulary: it can depend on the text.
REPLICATED_IF_UNEVEN = {"vocab"}


def make_mesh(
    config: MeshConfig = MeshConfig(),  # noqa: B008
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """Creates a mesh of all devices of all processes, or of those given."""
    devices = jax.devices() if devices is None else devices
    sizes = dataclasses.asdict(config)
    # An axis of -1 gets the devices that remain.
    fixed = math.prod(size for size in sizes.values() if size > 0)
    remaining, remainder = divmod(len(devices), fixed)
    if remainder or (remaining != 1 and -1 not in sizes.values()):
        named = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 0)
        raise UserError(
            f"config.mesh has {named} = {fixed} devices, but {len(devices)} are "
            "available; the axis sizes have to multiply to the number of devices, and "
            "one of them may be -1, for the rest"
        )
    shape = tuple(remaining if sizes[axis] == -1 else sizes[axis] for axis in AXES)
    # Auto lets XLA propagate shardings; JAX's default, Explicit, makes them part of
    # every array's type.
    return jax.make_mesh(
        shape, AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices
    )


def sharding(
    mesh: Mesh, axes: Sequence[str], shape: Sequence[int] | None = None
) -> NamedSharding:
    """The sharding of an array with these logical axes.

    Args:
      axes: one name for each dimension.
      shape: if given, its sizes are checked against the mesh.
    """
    return NamedSharding(mesh, _spec(mesh.shape, axes, shape))


def _spec(sizes, axes: Sequence[str], shape: Sequence[int] | None) -> PartitionSpec:
    """The partition of an array; `sizes` are the mesh's axis sizes, by name."""
    spec = []
    for axis, size in zip(axes, shape or [None] * len(axes), strict=True):
        if axis not in RULES:
            raise UserError(
                f"no sharding rule for the axis {axis!r}" + did_you_mean(axis, RULES)
            )
        rule = RULES[axis]
        parts = math.prod(sizes[name] for name in _names(rule))
        if size is not None and size % parts:
            if axis not in REPLICATED_IF_UNEVEN:
                named = " x ".join(f"{n} {sizes[n]}" for n in _names(rule))
                raise UserError(
                    f"the axis {axis!r} of size {size} is not divisible by {parts} "
                    f"devices (config.mesh: {named}); change its size or the mesh"
                )
            rule = None
        spec.append(rule)  # None replicates
    return PartitionSpec(*spec)


def _names(rule: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """The mesh axes of a rule."""
    return (rule,) if isinstance(rule, str) else rule or ()


def shardings(mesh: Mesh, axes: Any, shapes: Any) -> Any:
    """`sharding` for each array of a pytree.

    Args:
      axes: the pytree, with tuples of axis names in place of arrays.
      shapes: the same pytree, with arrays or their shapes.
    """
    return jax.tree.map(
        lambda names, x: sharding(mesh, names, x.shape),
        axes,
        shapes,
        is_leaf=lambda x: isinstance(x, tuple),  # which JAX would take for a subtree
    )


_target: contextvars.ContextVar[jax.Device | None] = contextvars.ContextVar(
    "target", default=None
)


@contextlib.contextmanager
def targeting(mesh: Mesh) -> Iterator[None]:
    """Sets `target_device` to a device of `mesh` while a function is traced inside."""
    token = _target.set(mesh.devices.flat[0])
    try:
        yield
    finally:
        _target.reset(token)


def target_device() -> jax.Device:
    """A device that the traced function is compiled for.

    It need not be attached to this machine: forecasts compile for other devices.
    """
    return _target.get() or jax.devices()[0]


def cuda_capability(device: jax.Device) -> float:
    """NVIDIA's compute capability of a GPU, such as 9.0; 0 for any other device."""
    try:
        return float(getattr(device, "compute_capability", 0))
    except ValueError:  # an AMD GPU's is a name
        return 0.0


def has_bfloat16(device: jax.Device) -> bool:
    """True if a device multiplies matrices of bfloat16 natively."""
    # Ampere or newer; of AMD, Instinct from MI200 on and Radeon from RDNA 3 on.
    amd = re.match(
        r"gfx(90a|9[45]|1[12])", str(getattr(device, "compute_capability", ""))
    )
    return device.platform == "tpu" or cuda_capability(device) >= 8 or bool(amd)


@contextlib.contextmanager
def compiling_for(mesh: Mesh) -> Iterator[None]:
    """Lets `constrain` shard the activations of a function that is traced inside."""
    # An abstract mesh has names and sizes but no devices: the same code also compiles
    # for devices that are not attached.
    with targeting(mesh), jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        yield


def constrain(x: jax.Array, *axes: str) -> jax.Array:
    """Shards an activation along logical axes; does nothing outside `compiling_for`.

    Without it XLA has to guess, and may shard activations like weights, at the price of
    a sum across devices in every layer.
    """
    mesh = jax.sharding.get_abstract_mesh()
    # Manual: inside a shard_map, where arrays are one device's (decoding/programs.py).
    if mesh.empty or AxisType.Manual in mesh.axis_types:
        return x
    return jax.lax.with_sharding_constraint(x, _spec(mesh.shape, axes, x.shape))


def gather(x: jax.Array, axes: Sequence[str]) -> jax.Array:
    """Gathers a weight with these logical axes along `fsdp`, inside `compiling_for`."""
    return constrain(x, *("features" if RULES.get(a) == "fsdp" else a for a in axes))


def batch_shards() -> int:
    """The number of devices that share the batch, inside `compiling_for`; else 1."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or AxisType.Manual in mesh.axis_types:
        return 1
    return math.prod(mesh.shape[name] for name in _names(RULES["batch"]))


def sum_over_batch(partial_gvd: jax.Array) -> jax.Array:
    """Sums partial gradients [g, v, d], one of each device that shares the batch.

    Returns:
      The sum, sharded as a weight of ("vocab", "width").
    """
    axes = "vocab", "width"
    sharded = constrain(partial_gvd, "batch", "vocab", "features")
    sizes = jax.sharding.get_abstract_mesh().shape
    if batch_shards() == 1 or sizes["fsdp"] == 1:
        return constrain(sharded.sum(0), *axes)
    # Written out, since XLA sums everything on every device before each keeps its part.

    def device_sum(partial_1vd):
        part_vd = jax.lax.psum_scatter(
            partial_1vd.sum(0), "fsdp", scatter_dimension=1, tiled=True
        )
        return jax.lax.psum(part_vd, "data")

    shape = partial_gvd.shape
    return jax.shard_map(
        device_sum,
        in_specs=_spec(sizes, ("batch", "vocab", "features"), shape),
        out_specs=_spec(sizes, axes, shape[1:]),
    )(sharded)


def spec(axes: Sequence[str]) -> PartitionSpec:
    """The partition of an array with these logical axes, inside `compiling_for`."""
    return _spec(jax.sharding.get_abstract_mesh().shape, axes, None)


def accepted_options(options: dict[str, Any], device: jax.Device) -> dict | None:
    """Options of XLA, if the compiler of a device knows them all; otherwise None."""
    number = jax.ShapeDtypeStruct((), jnp.int32, sharding=SingleDeviceSharding(device))
    try:
        jax.jit(lambda x: x, compiler_options=options).lower(number).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return options
