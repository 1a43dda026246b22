"""Cost of a training step by arithmetic: batch shapes, FLOPs and bytes."""

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
    """Chooses the static shape of a batch without reading any text.

    Returns:
      The shape, and a phrase that says what was assumed.

    Raises:
      UserError: the token budget has no room for a single row.
    """
    data = config.data
    if data.batching == "packed":
        length = round_up(data.row_length, 8)
        assumed = (
            f"packed rows of row_length on both sides ({length} + {length} tokens)"
        )
    else:
        length = round_up(data.max_length, 8)
        assumed = f"the bucket of the longest pairs ({length} + {length} tokens a row)"
    rows = real_rows(config)
    on_devices = meshes.padded_rows(mesh, rows, config.train.accumulate)
    if on_devices > rows:
        assumed += (
            f"; {rows} rows do not divide into the devices, so {on_devices - rows} of "
            f"the {on_devices} are padding"
        )
    return Shape(on_devices, length, length), assumed


def real_rows(config: Config) -> int:
    """Rows of a batch, without the padding rows added to divide into the devices."""
    data = config.data
    length = data.row_length if data.batching == "packed" else data.max_length
    length = round_up(length, 8)
    return rows_within(data.batch_tokens, length, length, ROWS_MULTIPLE)


def step_flops(model: Model, config: Config, shape: Shape) -> dict[str, float]:
    """FLOPs of the matrix products in one step, on all devices together.

    Forward: a multiplication and an addition for each weight and token. Attention adds
    scores and weighted sums for all pairs of positions in a row, masked or not. The
    backward pass costs twice the forward pass.

    Returns:
      `model`: the FLOPs that the step needs. `computed`: those and the recomputation
      of `config.model.remat`.
    """
    rows, s, t = shape.rows, shape.source, shape.target
    weights = weighted = 0
    for path, leaf in jax.tree.leaves_with_path(model.shapes):
        name = ".".join(str(part.key) for part in path)
        # Biases and norms are no matrices; learned positions are only looked up.
        if len(leaf.shape) < 2 or name == "embedding.positions":
            continue
        # Cross-attention computes its keys and values from the encoder's output.
        source_side = name.startswith("encoder") or name.endswith(
            ("cross.key", "cross.value")
        )
        each = 2 * math.prod(leaf.shape) * rows * (s if source_side else t)
        weights += each
        # Remat recomputes neither the output projection (the embedding) nor the keys
        # of cross-attention, which are computed outside the layers.
        weighted += each * (name != "embedding.tokens" and "cross.key" not in name)
    heads, head_width = config.model.heads, config.model.width_of_head
    # Per layer: self-attention of the encoder and of the decoder, cross-attention.
    pairs = config.model.layers * (s * s + t * t + t * s)
    # 2 FLOPs for the score and 2 for the weighted sum, for each pair and feature.
    attention = 4 * rows * heads * head_width * pairs
    forward = weights + attention
    # `dots` keeps the products with weights, so only attention is recomputed.
    recomputed = {"none": 0, "dots": attention, "full": attention + weighted}
    return {
        "model": 3.0 * forward,
        "computed": 3.0 * forward + recomputed[config.model.remat],
    }


def bytes_on_device(tree) -> int:
    """Bytes on one device of a tree of `jax.ShapeDtypeStruct`s with shardings."""
    return sum(
        int(np.prod(x.sharding.shard_shape(x.shape))) * x.dtype.itemsize
        for x in jax.tree.leaves(tree)
    )


def state_bytes(state: TrainState) -> dict[str, int]:
    """Bytes of the state on one device: parameters, moving average, the optimizer's."""
    return {
        "parameters": bytes_on_device(state.parameters),
        "average": bytes_on_device(state.ema),
        "optimizer": bytes_on_device(state.optimizer),
    }
