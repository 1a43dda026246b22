"""Batches on a mesh: the rows of each process and device."""

import dataclasses
import math
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from t2t_jax.parallel.mesh import RULES, sharding

if TYPE_CHECKING:
    from t2t_jax.data.filling import Layout


def padded_rows(mesh: Mesh, rows: int, accumulate: int = 1) -> int:
    """Rounds `rows` up to a multiple of the devices times the microbatches."""
    parts = math.prod(mesh.shape[name] for name in RULES["batch"]) * accumulate
    return -(-rows // parts) * parts


def local_layout(mesh: Mesh, layout: "Layout", accumulate: int = 1) -> "Layout":
    """The part of a batch that this process fills: the pairs on its own devices' rows.

    Adds empty rows until the batch divides into the devices. They are padding, which
    changes no result.

    Args:
      accumulate: the number of microbatches.
    """
    rows = padded_rows(mesh, layout.shape.rows, accumulate)
    shape = dataclasses.replace(layout.shape, rows=rows)
    layout = dataclasses.replace(layout, shape=shape)
    if jax.process_count() == 1:
        return layout
    ours_r = np.zeros(rows, bool)
    # A slice of rows for each device of this process.
    for (rows_slice,) in _batch(mesh).addressable_devices_indices_map((rows,)).values():
        ours_r[rows_slice] = True
    return layout.only(ours_r[layout.row_p])


def _batch(mesh: Mesh) -> NamedSharding:
    """The sharding of a batch: rows over devices, the rest replicated."""
    return sharding(mesh, ("batch",))


def place_batch(mesh: Mesh, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    """Puts a batch [rows, ...] of a `local_layout` on the devices, sharded by rows."""
    by_rows = _batch(mesh)
    if jax.process_count() == 1:
        return jax.device_put(batch, by_rows)
    # The arrays have all rows; JAX asks only for those on this process's devices.
    return {
        name: jax.make_array_from_callback(x.shape, by_rows, x.__getitem__)
        for name, x in batch.items()
    }
