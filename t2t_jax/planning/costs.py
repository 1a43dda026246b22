"""What a training step costs, by arithmetic: shapes of batches, FLOPs, bytes."""

import math

import jax
import numpy as np
from jax.sharding import Mesh

from t2t_jax.config import Config
from t2t_jax.data.shapes import ROWS_MULTIPLE, Shape, round_up, rows_within
from t2t_jax.model.model import Model
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training.step import TrainState


def assumed_shape(config: Config, mesh: Mesh) -> tuple[Shape, str]:
    """The static shape of a batch before there is any text, and what was assumed.

    Raises:
      UserError: no room for any row.
    """
    data = config.data
    if data.batching == "packed":
        length = round_up(data.row_length, 8)
        told = f"packed rows of row_length on both sides ({length} + {length} tokens)"
    else:
        length = round_up(data.max_length, 8)
        told = f"the bucket of the longest pairs ({length} + {length} tokens a row)"
    rows = real_rows(config)
    on_devices = meshes.padded_rows(mesh, rows, config.train.accumulate)
    if on_devices > rows:
        told += (
            f"; {rows} rows do not divide into the devices, {on_devices - rows} of the "
            f"{on_devices} are padding"
        )
    return Shape(on_devices, length, length), told


def real_rows(config: Config) -> int:
    """Rows of a batch without those that are added for the devices."""
    data = config.data
    length = data.row_length if data.batching == "packed" else data.max_length
    length = round_up(length, 8)
    return rows_within(data.batch_tokens, length, length, ROWS_MULTIPLE)


def step_flops(model: Model, config: Config, shape: Shape) -> dict[str, float]:
    """FLOPs of matrix products in a step of a batch, on all devices together.

    A multiplication and an addition for each weight and token forward, twice that
    backward; for attention, which computes scores and weighted sums for all pairs of
    positions in a row, masked or not, the same with both factors activations.

    Returns:
      `model`: what the step needs. `computed`: with what `config.model.remat` makes a
      second time.
    """
    rows, s, t = shape.rows, shape.source, shape.target
    weights = weighted = 0
    for path, leaf in jax.tree.leaves_with_path(model.shapes):
        name = ".".join(str(part.key) for part in path)
        if len(leaf.shape) < 2 or name == "embedding.positions":
            continue
        of_source = name.startswith("encoder") or name.endswith(
            ("cross.key", "cross.value")
        )
        each = 2 * math.prod(leaf.shape) * rows * (s if of_source else t)
        weights += each
        weighted += each * (name != "embedding.tokens" and "cross.key" not in name)
    heads, head_width = config.model.heads, config.model.width_of_head
    pairs = config.model.layers * (s * s + t * t + t * s)
    attention = 4 * rows * heads * head_width * pairs
    forward = weights + attention
    again = {"none": 0, "dots": attention, "full": attention + weighted}
    return {
        "model": 3.0 * forward,
        "computed": 3.0 * forward + again[config.model.remat],
    }


def bytes_on_device(tree) -> int:
    """Bytes of arrays on one device, of `jax.ShapeDtypeStruct`s with shardings."""
    return sum(
        int(np.prod(x.sharding.shard_shape(x.shape))) * x.dtype.itemsize
        for x in jax.tree.leaves(tree)
    )


def state_bytes(state: TrainState) -> dict[str, int]:
    """Bytes on a device: parameters, their moving average, Adam's moments."""
    return {
        "parameters": bytes_on_device(state.parameters),
        "average": bytes_on_device(state.ema),
        "optimizer": bytes_on_device(state.optimizer),
    }
