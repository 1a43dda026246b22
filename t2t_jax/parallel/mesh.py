"""The mesh of devices, and which axis of which array lies along which axis of it.

A weight names its logical axes where its shape is declared (`model/layers.py`), an
activation where it is made (`constrain`); `RULES` says where each of them goes. One
jitted step then serves one CPU and many chips: XLA divides the work as the arrays are
divided, and puts in the collectives that this takes (GSPMD).
"""

import contextlib
import contextvars
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from t2t_jax.config import MeshConfig
from t2t_jax.data.batching import Layout
from t2t_jax.data.shapes import round_up
from t2t_jax.terminal.errors import UserError, did_you_mean

# data: each device has its rows of the batch. fsdp: that, and its part of every weight
# and of Adam's moments. tensor: its heads, hidden units and pieces of the vocabulary.
AXES = ("data", "fsdp", "tensor")

# Logical axis -> mesh axes. None: every device holds the whole axis.
RULES: dict[str, str | tuple[str, ...] | None] = {
    # of batches and activations
    "microbatch": None,
    "batch": ("data", "fsdp"),
    "length": None,
    "features": None,
    # of weights; the last three of activations, too
    "positions": None,
    "width": "fsdp",
    "norm": None,
    "head": None,
    "heads": "tensor",
    "hidden": "tensor",
    "vocab": "tensor",
}

# What lies whole on every device where it does not divide; anything else is refused.
# The size of a vocabulary may be a matter of the text.
REPLICATED_IF_UNEVEN = {"vocab"}


def make_mesh(
    config: MeshConfig = MeshConfig(),  # noqa: B008
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """A mesh of all devices (or those given), of all processes.

    Raises:
      UserError: the axes do not multiply to the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    sizes = dataclasses.asdict(config)
    given = math.prod(size for size in sizes.values() if size > 0)
    rest, left = divmod(len(devices), given)
    if left or (rest != 1 and -1 not in sizes.values()):
        told = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 0)
        raise UserError(
            f"config.mesh has {told} = {given} devices, but there are {len(devices)}; "
            "the axes multiply to the number of devices, and one of them may be -1, "
            "the rest"
        )
    shape = tuple(rest if sizes[axis] == -1 else sizes[axis] for axis in AXES)
    return jax.make_mesh(
        shape, AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices
    )


def sharding(
    mesh: Mesh, axes: Sequence[str], shape: Sequence[int] | None = None
) -> NamedSharding:
    """Where an array with these axes lies.

    Args:
      shape: its sizes, which are then checked.

    Raises:
      UserError: an axis without a rule; a size that does not divide into the devices.
    """
    return NamedSharding(mesh, _spec(mesh.shape, axes, shape))


def _spec(sizes, axes: Sequence[str], shape: Sequence[int] | None) -> PartitionSpec:
    """`sizes`: of the mesh's axes, by name."""
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
                    f"the axis {axis!r} of {size} does not divide into {parts} devices "
                    f"(config.mesh: {named}); change one of the two"
                )
            rule = None
        spec.append(rule)
    return PartitionSpec(*spec)


def _names(rule: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (rule,) if isinstance(rule, str) else rule or ()


def shardings(mesh: Mesh, axes: Any, shapes: Any) -> Any:
    """`sharding` for a pytree whose leaves are tuples of axis names."""
    return jax.tree.map(
        lambda names, x: sharding(mesh, names, x.shape),
        axes,
        shapes,
        is_leaf=lambda x: isinstance(x, tuple),
    )


_target: contextvars.ContextVar[jax.Device | None] = contextvars.ContextVar(
    "target", default=None
)


@contextlib.contextmanager
def targeting(mesh: Mesh) -> Iterator[None]:
    """While a function is traced in here, `target_device` is a device of `mesh`."""
    token = _target.set(mesh.devices.flat[0])
    try:
        yield
    finally:
        _target.reset(token)


def target_device() -> jax.Device:
    """A device that the traced function is compiled for; it need not be attached."""
    return _target.get() or jax.devices()[0]


@contextlib.contextmanager
def compiling_for(mesh: Mesh) -> Iterator[None]:
    """While a function is traced in here, `constrain` shards its activations."""
    with targeting(mesh), jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        yield


def constrain(x: jax.Array, *axes: str) -> jax.Array:
    """Shards an activation along logical axes; does nothing outside `compiling_for`.

    Without it XLA has to guess, and may shard activations as weights are, at the price
    of a sum across devices in every layer.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or AxisType.Manual in mesh.axis_types:  # Manual: decoding/programs.py
        return x
    return jax.lax.with_sharding_constraint(x, _spec(mesh.shape, axes, x.shape))


def batch_shards() -> int:
    """The number of devices that share the batch, inside `compiling_for`; else 1."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or AxisType.Manual in mesh.axis_types:
        return 1
    return math.prod(mesh.shape[name] for name in _names(RULES["batch"]))


def spec(axes: Sequence[str]) -> PartitionSpec:
    """The partition of an array with these axes, inside `compiling_for`."""
    return _spec(jax.sharding.get_abstract_mesh().shape, axes, None)


def padded_rows(mesh: Mesh, rows: int, accumulate: int = 1) -> int:
    """`rows`, or the next number that divides into devices and microbatches."""
    parts = math.prod(mesh.shape[name] for name in _names(RULES["batch"]))
    return round_up(rows, parts * accumulate)


def local_layout(mesh: Mesh, layout: Layout, accumulate: int = 1) -> Layout:
    """A batch as this process feeds it: with the pairs of the rows on its devices.

    Rows without a pair are added until they divide into the devices; they are padding,
    which changes no number.
    """
    rows = padded_rows(mesh, layout.shape.rows, accumulate)
    shape = dataclasses.replace(layout.shape, rows=rows)
    layout = dataclasses.replace(layout, shape=shape)
    if jax.process_count() == 1:
        return layout
    ours_r = np.zeros(rows, bool)
    for (part,) in _batch(mesh).addressable_devices_indices_map((rows,)).values():
        ours_r[part] = True
    return layout.only(ours_r[layout.row_p])


def _batch(mesh: Mesh) -> NamedSharding:
    return sharding(mesh, ("batch",))


def place_batch(mesh: Mesh, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    """A batch [rows, ...] of a `share` on the devices, rows divided among them."""
    where = _batch(mesh)
    if jax.process_count() == 1:
        return jax.device_put(batch, where)
    return {
        name: jax.make_array_from_callback(x.shape, where, x.__getitem__)
        for name, x in batch.items()
    }
