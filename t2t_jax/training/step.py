"""The training step: one update, as a pure function of state and batch.

`train_step` is the computation; `compile_steps` jits it, with its relatives, on a mesh.

Shape suffixes: b batch, t target.
"""

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from t2t_jax.config import Config
from t2t_jax.io.errors import UserError
from t2t_jax.model.embedding import collected
from t2t_jax.model.layers import DropoutRng, Parameters
from t2t_jax.model.model import Model
from t2t_jax.parallel import mesh as meshes
from t2t_jax.sections import Table
from t2t_jax.training.losses import Batch, Loss, loss_sums, real_tokens
from t2t_jax.training.optimizers import joined, optimizer, split_frozen
from t2t_jax.training.schedules import schedule


class Adapter(NamedTuple):
    """What trains in place of a model's own parameters, which stay as they are.

    Attributes:
      model: (model, config) -> what trains, as a `Model` of these parameters.
      applied: (the model's parameters, what trains, config) -> the parameters of a
        training step, whose weights `product` multiplies by.
      merged: the same arguments -> the parameters of a model without adapter.
      Options: a dataclass of hyperparameters, `config.train.options`.
    """

    model: Callable[[Model, Config], Model]
    applied: Callable[[Parameters, Parameters, Config], Parameters]
    merged: Callable[[Parameters, Parameters, Config], Parameters]
    Options: type | None = None


ADAPTERS = Table({"none": None, "lora": "extensions.training.adapters.LORA"})


class TrainState(NamedTuple):
    """Everything that training carries from one step to the next."""

    parameters: Parameters  # what trains: those of the model, or of an adapter
    ema: Parameters  # their exponential moving average; empty if not configured
    optimizer: optax.OptState
    step: Array  # batches seen
    skipped: Array  # updates skipped because a gradient was not finite
    skipped_in_a_row: Array  # the current streak of skipped updates

    def best_parameters(self) -> Parameters:
        """The parameters to evaluate and decode with: the moving average if any."""
        return self.ema or self.parameters


def initial_parameters(model: Model, seed: int) -> Parameters:
    """Draws random parameters, which depend on the seed alone."""
    # The other half of the split is for dropout.
    init_rng, _ = jax.random.split(jax.random.key(seed))
    return model.init(init_rng)


def _dropout_rng(seed: int, step: Array) -> Array:
    """The random key for the dropout of one step."""
    _, dropout_rng = jax.random.split(jax.random.key(seed))
    return jax.random.fold_in(dropout_rng, step)


def initial_state(parameters: Parameters, config: Config) -> TrainState:
    """The state before the first step."""
    # A copy: the step donates its state, and a buffer can be donated only once.
    ema = jax.tree.map(jnp.copy, parameters) if config.train.ema_decay else {}
    zeros = [jnp.zeros((), jnp.int32) for _ in range(3)]
    trained, _ = split_frozen(parameters, config.train.freeze)
    return TrainState(parameters, ema, optimizer(config).init(trained), *zeros)


def microbatches(batch: Batch, count: int) -> Batch:
    """Splits a batch: [rows, ...] -> [count, rows / count, ...].

    Each part gets every `count`-th row. Its rows are then spread over all devices as
    the batch's are, and none has to move.
    """

    def split(x):
        x = jnp.moveaxis(x.reshape(-1, count, *x.shape[1:]), 1, 0)
        axes = ["microbatch", "batch", "length", "features"][: x.ndim]
        return meshes.constrain(x, *axes)

    return jax.tree.map(split, batch)


def train_step(
    state: TrainState,
    batch: Batch,
    frozen_parameters: Sequence[Parameters] = (),
    *,
    definition,
    config: Config,
    bos: int,
    frozen_models: Sequence[Model] = (),
):
    """One update. All randomness comes from (seed, step), so resuming is exact.

    The loss is a mean over the whole batch, by default over its real target tokens. If
    the gradient is not finite, only the counters change. Frozen parameters stay as they
    are: no gradient is computed for them.

    Args:
      frozen_parameters: of the models that the loss reads; with an adapter, then those
        of the model that it changes.

    Returns:
      The new state, and scalars: `loss`; the means that it brings as metrics, such as
      `nll`; for each of these NAME the number NAME_count that it is a mean over;
      `tokens`, `source_tokens`, `gradient_norm` (unclipped), `learning_rate`,
      `skipped`, `skipped_in_a_row`.
    """
    train = config.train
    objective = train.variant("loss")
    check_arrays(objective, batch, config)
    rng = _dropout_rng(train.seed, state.step)
    rows = len(batch["target"])
    # Dropout bits depend on the row's number in the global batch, so that every mesh
    # draws the same.
    batch = batch | {"row": jnp.arange(rows)}

    # Counted over the whole batch, before it is split into microbatches: the sum of
    # their gradients is then that of the mean. At least 1, for a batch of padding.
    count = jnp.maximum(objective.count(batch), 1)

    trained, frozen = split_frozen(state.parameters, train.freeze)

    def mean_loss(trained, batch):
        # Only dicts of arrays cross `jit` and `grad`; modules are rebuilt inside.
        of_loss, base = split_base(frozen_parameters, config)
        parameters = adapted(base, joined(trained, frozen), config)
        module = collected(nnx.merge(definition, parameters))
        frozen_modules = merged(frozen_models, of_loss)
        rngs = DropoutRng(rng, batch["row"])
        total, sums = objective.sums_of(
            module, frozen_modules, batch, rngs, config, bos
        )
        return total / count, sums

    gradient = jax.value_and_grad(mean_loss, has_aux=True)
    (loss, sums), gradients = accumulated(gradient, trained, batch, train.accumulate)
    norm = gradient_norm(gradients)  # not finite if any gradient is not
    finite = jnp.isfinite(norm) & jnp.isfinite(loss)

    def updated(old):
        trained, ema, moments = old
        updates, moments = optimizer(config).update(gradients, moments, trained)
        trained = optax.apply_updates(trained, updates)
        every = joined(trained, frozen)
        ema = moving_average(ema, every, train.ema_decay, _updates_made(state))
        return trained, ema, moments

    old = trained, state.ema, state.optimizer
    if meshes.target_device().platform == "cpu":
        # `where` on every array would copy, since it needs the old and the new value at
        # once. For Adam alone 67 ms instead of 188 (docs/notes/cpu-speed.md).
        new = jax.lax.cond(finite, updated, lambda old: old, old)
    else:  # a GPU would wait for the host at a condition
        new = jax.tree.map(partial(jnp.where, finite), updated(old), old)
    trained, ema, moments = new
    metrics = {
        "loss": loss,
        "loss_count": count,
        **means(sums),
        "tokens": jnp.maximum(real_tokens(batch), 1),
        "source_tokens": jnp.sum(batch["source_segment"] > 0),
        "gradient_norm": norm,
        "learning_rate": schedule(config)(_updates_made(state)),
        "skipped": state.skipped + ~finite,  # ~finite counts as 1 or 0
        "skipped_in_a_row": jnp.where(finite, 0, state.skipped_in_a_row + 1),
    }
    new = TrainState(
        joined(trained, frozen),
        ema,
        moments,
        step=state.step + 1,
        skipped=metrics["skipped"],
        skipped_in_a_row=metrics["skipped_in_a_row"],
    )
    return new, metrics


def gradient_norm(gradients: Parameters) -> Array:
    """The square root of the sum of squares of all gradients."""
    if meshes.target_device().platform == "cpu":
        return optax.tree.norm(gradients)
    # Sums over the last axis, added up where their shapes are equal, and then over all
    # that is left: a GPU starts a kernel to end each sum over several axes.
    sums_by_shape = dict[tuple[int, ...], Array]()
    for x in jax.tree.leaves(gradients):
        squares = jnp.square(x) if x.ndim < 2 else jnp.square(x).sum(-1)
        sums_by_shape[squares.shape] = sums_by_shape.get(squares.shape, 0.0) + squares
    return jnp.sqrt(sum(squares.sum() for squares in sums_by_shape.values()))


def check_arrays(loss: Loss, batch: Batch, config: Config) -> None:
    """Raises UserError if the batch lacks an array that the loss needs."""
    missing = [name for name in loss.arrays if name not in batch]
    if missing:
        raise UserError(
            f"config.train.loss={config.train.loss!r} needs {', '.join(missing)} in "
            f"each batch, which has {', '.join(sorted(batch))}; add the arrays where "
            "batches are filled, or choose another loss"
        )


def means(sums: dict[str, tuple[Array, Array]]) -> dict[str, Array]:
    """Each metric's mean, and as NAME_count what it is over; at least 1."""
    means = {}
    for name, (total, count) in sums.items():
        means[f"{name}_count"] = count = jnp.maximum(count, 1)
        means[name] = total / count
    return means


def accumulated(gradient, parameters: Parameters, batch: Batch, count: int):
    """Sums `gradient(parameters, part)` over `count` parts of a batch.

    Computes one part after the other, so that only the activations of one are in
    memory.
    """
    if count == 1:
        return gradient(parameters, batch)

    def add(total, microbatch):
        result = gradient(parameters, microbatch)
        return jax.tree.map(jnp.add, total, result), None

    parts = microbatches(batch, count)
    # The initial value of the sum; the shapes do not depend on the number of rows.
    shapes = jax.eval_shape(gradient, parameters, batch)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.scan(add, zeros, parts)[0]


def moving_average(
    ema: Parameters, parameters: Parameters, decay: float, updates: Array
) -> Parameters:
    """Updates an exponential moving average of the parameters; keeps an empty `ema`.

    After `updates` updates the decay is at most (1 + updates) / (10 + updates), so that
    the random initial parameters soon lose their weight, as in TensorFlow's
    ExponentialMovingAverage.
    """
    updates = updates.astype(jnp.float32)
    decay = jnp.minimum(decay, (1 + updates) / (10 + updates))
    return jax.tree.map(
        lambda old, new: old + (1 - decay) * (new - old),
        ema,
        parameters if ema else {},  # two trees of one structure
    )


def _updates_made(state: TrainState) -> Array:
    # Skipped steps do not advance the learning rate schedule.
    return state.step - state.skipped


def state_shardings(model: Model, config: Config, mesh: Mesh) -> TrainState:
    """The sharding of each array of the state; the optimizer's as their parameters."""
    parameters = meshes.shardings(mesh, model.axes, model.shapes)
    replicated = meshes.sharding(mesh, ())
    transform = optimizer(config)
    trained, _ = split_frozen(parameters, config.train.freeze)
    trained_shapes, _ = split_frozen(model.shapes, config.train.freeze)
    shapes = jax.eval_shape(transform.init, trained_shapes)
    # The optimizer's state nests trees like that of the parameters, among counters.
    moments = optax.tree_utils.tree_map_params(
        transform,
        _sharding_like,
        shapes,
        trained,
        trained_shapes,
        transform_non_params=lambda _: replicated,
    )
    ema = parameters if config.train.ema_decay else {}
    return TrainState(parameters, ema, moments, replicated, replicated, replicated)


def _sharding_like(x, sharding: NamedSharding, parameter) -> NamedSharding:
    """The sharding of an array that an optimizer keeps for a parameter.

    Its parameter's. If the array lacks one of the parameter's axes, like Adafactor's
    means of rows and columns, those of the other axes. Else it is replicated.
    """
    if x.shape == parameter.shape:
        return sharding
    spec = PartitionSpec()
    for axis in range(len(parameter.shape)):
        shape, axes = list(parameter.shape), list(sharding.spec)
        del shape[axis], axes[axis]
        if x.shape == tuple(shape):
            spec = PartitionSpec(*axes)
            break  # of two axes of equal size either will do
    return NamedSharding(sharding.mesh, spec)


class Steps(NamedTuple):
    """Jitted functions of a run, on a mesh."""

    mesh: Mesh
    shapes: TrainState  # the shape, dtype and sharding of each array of the TrainState
    # The same of the parameters of each model that the loss reads, and of an adapter's.
    frozen: tuple[Parameters, ...]
    init: Any  # () -> TrainState with random parameters, created sharded
    start: Any  # parameters -> TrainState that starts from them
    # (state, batch, *parameters of those models) -> (state, metrics); donates the state
    # passed in.
    train: Any
    evaluate: Any  # (parameters, batch) -> (sum of -log p, number of tokens)
    # (what trains, *parameters of those models) -> the parameters of the model
    whole: Any


def compile_steps(
    model: Model, config: Config, mesh: Mesh, bos: int, frozen: Sequence[Model] = ()
) -> Steps:
    """Jits the functions of a run; each is compiled at its first call."""
    adapter = config.train.variant("adapter")
    trained = adapter.model(model, config) if adapter else model
    shardings = state_shardings(trained, config, mesh)
    replicated = meshes.sharding(mesh, ())

    def train(state, batch, *frozen_parameters):
        # Closed over, hence static: the config and the models' structure.
        with meshes.compiling_for(mesh):
            return train_step(
                state,
                batch,
                frozen_parameters,
                definition=model.definition,
                config=config,
                bos=bos,
                frozen_models=frozen,
            )

    def evaluate(parameters, batch):
        module = nnx.merge(model.definition, parameters)
        with meshes.compiling_for(mesh):
            # Without smoothing and, since no key is given, without dropout.
            return loss_sums(module, batch, 0.0, bos)[1:]

    def whole(parameters, *frozen_parameters):
        return adapter.merged(frozen_parameters[-1], parameters, config)

    def start(parameters):
        return initial_state(parameters, config)

    init = jax.jit(
        lambda: start(initial_parameters(trained, config.train.seed)),
        out_shardings=shardings,
    )
    shapes = jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        jax.eval_shape(init),
        shardings,
    )
    return Steps(
        mesh=mesh,
        shapes=shapes,
        frozen=frozen_shapes((*frozen, model) if adapter else frozen, mesh),
        init=init,
        start=jax.jit(start, out_shardings=shardings),
        # The new state takes the buffers of the old one.
        train=jax.jit(
            train,
            donate_argnums=0,
            out_shardings=(shardings, replicated),
            compiler_options=_options(mesh.devices.flat[0]),
        ),
        evaluate=jax.jit(evaluate, out_shardings=replicated),
        whole=jax.jit(whole) if adapter else lambda parameters, *_: parameters,
    )


def split_base(
    frozen: Sequence[Parameters], config: Config
) -> tuple[Sequence[Parameters], Parameters | None]:
    """Splits parameters that do not train into those of the loss and an adapter's."""
    if config.train.variant("adapter") is None:
        return frozen, None
    return frozen[:-1], frozen[-1]


def adapted(base: Parameters | None, trained: Parameters, config: Config) -> Parameters:
    """The model's parameters in a training step, from what trains."""
    if base is None:
        return trained
    return config.train.variant("adapter").applied(base, trained, config)


@functools.cache
def _options(device: jax.Device) -> dict | None:
    """Options of XLA for a training step on a device."""
    if device.platform != "gpu":
        return None
    # Queries, keys and values are a product each: from one product of all three, XLA
    # copies them out, in more bytes than reading the layer's input three times.
    return meshes.accepted_options({"xla_gpu_dot_merger_threshold_mb": 0}, device)


class FrozenModels(NamedTuple):
    """Models besides the trained one, and a function that reads their parameters."""

    # Without parameters, in the order in which the loss names them.
    models: tuple[Model, ...] = ()
    # () -> the parameters of each as NumPy arrays; called once, by process 0.
    read: Callable[[], Sequence[Parameters]] = tuple
    sha256: Sequence[str] = ()  # of the parameters of each


def frozen_shapes(models: Sequence[Model], mesh: Mesh) -> tuple[Parameters, ...]:
    """The parameters of each model as `jax.ShapeDtypeStruct`s with shardings."""

    def shapes_of(model: Model) -> Parameters:
        return jax.tree.map(
            lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
            model.shapes,
            meshes.shardings(mesh, model.axes, model.shapes),
        )

    return tuple(map(shapes_of, models))


def merged(models: Sequence[Model], parameters: Sequence[Parameters]) -> list[Any]:
    """The modules of models with their parameters, inside a jitted function."""
    return [
        nnx.merge(model.definition, arrays)
        for model, arrays in zip(models, parameters, strict=True)
    ]
