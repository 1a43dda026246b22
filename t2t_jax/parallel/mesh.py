"""The mesh of devices, and which axis of which array lies along which axis of it.

A weight names its logical axes where its shape is declared (`model/layers.py`); `RULES`
says where each of them goes. One jitted step then serves one CPU and many chips: XLA
divides the work as the arrays are divided (GSPMD).
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from t2t_jax.errors import UserError, nearest

# Logical axis -> mesh axis. None: every device holds the whole axis.
RULES: dict[str, str | None] = {
    "batch": "data",
    "vocab": None,
    "positions": None,
    "width": None,
    "norm": None,
    "hidden": None,
    "heads": None,
    "head": None,
}


def make_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """All devices (or those given) along one axis, `data`."""
    devices = jax.devices() if devices is None else devices
    return jax.make_mesh(
        (len(devices),), ("data",), axis_types=(AxisType.Auto,), devices=devices
    )


def sharding(mesh: Mesh, axes: Sequence[str]) -> NamedSharding:
    """Where an array with these axes lies. An axis without a rule is a UserError."""
    for axis in axes:
        if axis not in RULES:
            raise UserError(
                f"no sharding rule for the axis {axis!r}" + nearest(axis, RULES)
            )
    return NamedSharding(mesh, PartitionSpec(*(RULES[axis] for axis in axes)))


def shardings(mesh: Mesh, axes: Any) -> Any:
    """`sharding` for a pytree whose leaves are tuples of axis names."""
    return jax.tree.map(
        lambda names: sharding(mesh, names),
        axes,
        is_leaf=lambda x: isinstance(x, tuple),
    )


def place_batch(mesh: Mesh, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    """A batch [rows, ...] on its devices, rows divided along `data`.

    Raises:
      UserError: the rows do not divide.
    """
    check_rows(len(next(iter(batch.values()))), mesh.shape["data"])
    return jax.device_put(batch, sharding(mesh, ("batch",)))


def check_rows(rows: int, devices: int) -> None:
    """Raises a UserError where the rows of a batch do not divide into the devices."""
    if rows % devices:
        raise UserError(
            f"a batch of {rows} rows does not divide into {devices} devices; rows "
            "come in multiples of 8: use 1, 2, 4 or 8 devices, or another "
            "config.data.batch_tokens"
        )
