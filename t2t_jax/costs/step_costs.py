"""Cost of a training step without running it: batch shapes, FLOPs and bytes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from t2t_jax.config import Config
from t2t_jax.costs import flops
from t2t_jax.data.shapes import ROWS_MULTIPLE, Shape, round_up, rows_within
from t2t_jax.model import kernels
from t2t_jax.model.layers import DropoutRng, Parameters
from t2t_jax.model.model import Model
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.batch_placement import padded_rows
from t2t_jax.tasks.table import task_of
from t2t_jax.training.cross_entropy import SPARSE_CHUNKS
from t2t_jax.training.frozen_models import frozen_here, frozen_workdirs
from t2t_jax.training.optimizers import joined, split_frozen
from t2t_jax.training.step import Steps, adapted, merged, split_base

BOS = 1  # any token would do: its value does not affect the cost


def assumed_shape(config: Config, mesh: Mesh) -> tuple[Shape, str]:
    """Chooses the static shape of a batch without reading any text.

    Returns:
      The shape, and a phrase that says what was assumed.

    Raises:
      UserError: the token budget has no room for a single row.
    """
    length, rows = _row_length(config), real_rows(config)
    assumed = f"the bucket of the longest pairs ({length} + {length} tokens a row)"
    if config.data.batching == "packed":
        assumed = (
            f"packed rows of row_length on both sides ({length} + {length} tokens)"
        )
    on_devices = padded_rows(mesh, rows, config.train.accumulate)
    if on_devices > rows:
        assumed += (
            f"; {rows} rows do not divide into the devices, so {on_devices - rows} of "
            f"the {on_devices} are padding"
        )
    return Shape(on_devices, length, length), assumed


def real_rows(config: Config) -> int:
    """Rows of a batch, without the padding rows added to divide into the devices."""
    length = _row_length(config)
    return rows_within(config.data.batch_tokens, length, length, ROWS_MULTIPLE)


def _row_length(config: Config) -> int:
    data = config.data
    packed = data.batching == "packed"
    return round_up(data.row_length if packed else data.max_length, 8)


def batch_shapes(
    shape: Shape, mesh: Mesh | None = None, config: Config | None = None
) -> dict[str, Any]:
    """Shapes and types of a batch's arrays, by name; on a mesh also their shardings.

    With a config, also those that its loss needs.
    """
    sharding = mesh and meshes.sharding(mesh, ("batch",))
    arrays = {
        side + suffix: (side, ())
        for side in ("source", "target")
        for suffix in ("", "_segment", "_position")
    }
    arrays |= config.train.variant("loss").arrays if config else {}
    return {
        name: jax.ShapeDtypeStruct(
            (shape.rows, getattr(shape, side), *axes), jnp.int32, sharding=sharding
        )
        for name, (side, axes) in arrays.items()
    }


def model_flops(
    model: Model, config: Config, shape: Shape, frozen: Sequence[Model] | None = None
) -> float:
    """FLOPs of the matrix products that one step needs, on all devices together.

    Three times those of the loss without its gradient: the backward pass takes two
    products for each product. With frozen parts or models, those of the gradient that
    is left. Attention is counted as `dense` computes it: for all pairs of positions in
    a row, masked or not. The output layer is counted for the tokens that are predicted.

    Args:
      frozen: the models that the loss reads; None: those of the workdirs that the
        config names, with the vocabulary that the task assumes.
    """
    frozen = frozen_models(model, config) if frozen is None else frozen

    def loss(parameters, batch):
        return _loss(model, config, parameters, batch, None)[0]

    share, batch = task_of(config).predicted_share, batch_shapes(shape, None, config)
    with kernels.disabled():
        if config.train.freeze or frozen or config.train.variant("adapter"):
            gradient = _gradient(model, config, None, frozen)
            shapes = _gradient_shapes(model, config, frozen)
            return flops.count(gradient, shapes[0], batch, shapes[1], taken=share)
        return 3 * flops.count(loss, model.shapes, batch, taken=share)


def frozen_models(model: Model, config: Config) -> tuple[Model, ...]:
    """The models that the loss reads, built for a forecast: see `frozen_here`."""
    if not frozen_workdirs(config):
        return ()
    return frozen_here(config, model, task_of(config).vocab_sizes)


def step_flops(model: Model, config: Config, shape: Shape) -> dict[str, float]:
    """FLOPs of the matrix products in one step, on all devices together.

    Returns:
      `model`: of `model_flops`. `computed`: those of the loss and its gradient as they
      are traced, with what `config.model.remat` computes again.
    """
    frozen = frozen_models(model, config)
    # The output layer is computed for whole chunks of positions.
    chunks = math.ceil(task_of(config).predicted_share * SPARSE_CHUNKS)

    def gradient(*arguments):
        # With random keys, since only training recomputes activations.
        rng = DropoutRng(jax.random.key(0), jnp.arange(shape.rows))
        return _gradient(model, config, rng, frozen)(*arguments)

    batch = batch_shapes(shape, None, config)
    trained, frozen_shapes = _gradient_shapes(model, config, frozen)
    share = chunks / SPARSE_CHUNKS
    with kernels.disabled():
        computed = flops.count(gradient, trained, batch, frozen_shapes, taken=share)
    return {"model": model_flops(model, config, shape, frozen), "computed": computed}


def _gradient(
    model: Model, config: Config, rng: DropoutRng | None, frozen_models: Sequence[Model]
) -> Callable:
    """Returns (parameters, batch, those of frozen models) -> the loss, its gradient."""

    def gradient(parameters, batch, frozen_parameters):
        trained, frozen = split_frozen(parameters, config.train.freeze)
        of_loss, base = split_base(frozen_parameters, config)
        frozen_modules = merged(frozen_models, of_loss)

        def loss(trained):
            parameters = adapted(base, joined(trained, frozen), config)
            return _loss(model, config, parameters, batch, rng, frozen_modules)

        return jax.value_and_grad(loss, has_aux=True)(trained)

    return gradient


def _gradient_shapes(
    model: Model, config: Config, frozen: Sequence[Model]
) -> tuple[Parameters, list[Parameters]]:
    """The shapes of what trains, and of the parameters that `_gradient` reads."""
    shapes, adapter = [f.shapes for f in frozen], config.train.variant("adapter")
    if adapter is None:
        return model.shapes, shapes
    return adapter.model(model, config).shapes, [*shapes, model.shapes]


def _loss(model: Model, config: Config, parameters, batch, rng, frozen_modules=()):
    """The training loss of a batch, and the sums that it reports besides."""
    module = nnx.merge(model.definition, parameters)
    objective = config.train.variant("loss")
    return objective.sums_of(module, frozen_modules, batch, rng, config, BOS)


def row_flops(model: Model, config: Config) -> dict[tuple[int, int], float] | None:
    """`model_flops` of a row, as a polynomial of its lengths s (source) and t (target).

    Of degree 2: products with weights are computed for each token, and attention for
    each pair of tokens. Found from six pairs of lengths, and tried with a seventh. The
    two sides of a model that predicts in place are as long as each other: then it is a
    polynomial of s alone.

    Returns:
      {(i, j): the coefficient of s^i t^j}; None if there is no such polynomial.
    """
    n = min(8, (model.longest or 32) // 4)  # the unit of lengths
    frozen, f = frozen_models(model, config), {}
    for s, t in ((1, 1), (2, 1), (3, 1), (1, 2), (1, 3), (2, 2), (4, 3)):
        shape = Shape(1, n * s, n * (s if model.predicts == "source" else t))
        f[s, t] = model_flops(model, config, shape, frozen)
    # Differences, which are exact where solving a linear system would round.
    ss = (f[3, 1] - 2 * f[2, 1] + f[1, 1]) / 2
    tt = (f[1, 3] - 2 * f[1, 2] + f[1, 1]) / 2
    st = f[2, 2] - f[2, 1] - f[1, 2] + f[1, 1]
    s = f[2, 1] - f[1, 1] - 3 * ss - st
    t = f[1, 2] - f[1, 1] - 3 * tt - st
    coefficients = {(1, 0): s, (0, 1): t, (2, 0): ss, (1, 1): st, (0, 2): tt}
    coefficients[0, 0] = f[1, 1] - sum(coefficients.values())
    seventh = sum(value * 4**i * 3**j for (i, j), value in coefficients.items())
    if not math.isclose(seventh, f[4, 3], rel_tol=1e-9):
        return None
    return {(i, j): value / n ** (i + j) for (i, j), value in coefficients.items()}


def bytes_on_device(tree) -> int:
    """Bytes on one device of a tree of `jax.ShapeDtypeStruct`s with shardings."""
    return sum(
        int(np.prod(x.sharding.shard_shape(x.shape))) * x.dtype.itemsize
        for x in jax.tree.leaves(tree)
    )


def temporary_bytes(memory) -> int:
    """Bytes that a compiled step takes in addition to its arguments."""
    # The state is donated, so most outputs are stored over the arguments.
    extra = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return memory.temp_size_in_bytes + max(0, extra)


def state_bytes(steps: Steps) -> dict[str, int]:
    """Bytes on one device of what stays there for the whole run.

    Returns:
      Those of parameters, moving average, the optimizer's state; `frozen`: those of
      models that the loss reads, if there are any.
    """
    state = steps.shapes
    parts = {
        "parameters": state.parameters,
        "average": state.ema,
        "optimizer": state.optimizer,
    }
    if steps.frozen:
        parts["frozen"] = steps.frozen
    return {name: bytes_on_device(part) for name, part in parts.items()}
