"""One update, as a pure function of state and batch.

Shape suffixes: b batch, t target.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import Array
from jax.sharding import Mesh

from t2t_jax.config import Config
from t2t_jax.model.layers import DropoutRng, Parameters
from t2t_jax.model.model import Model
from t2t_jax.model.teacher_forcing import teacher_forcing
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training.loss import projected
from t2t_jax.training.optimizer import adam, schedule

Batch = dict[str, Array]


class TrainState(NamedTuple):
    """All that training carries from step to step. What is not here is not kept."""

    parameters: Parameters
    ema: Parameters  # their exponential moving average; empty without one
    optimizer: optax.OptState
    step: Array  # batches seen
    skipped: Array  # updates left out because a gradient was not finite
    skipped_in_a_row: Array

    def best_parameters(self) -> Parameters:
        """What is evaluated and translated with: the average where there is one."""
        return self.ema or self.parameters


def initial_parameters(model: Model, seed: int) -> Parameters:
    """Random parameters, from the seed alone."""
    init_key, _ = jax.random.split(jax.random.key(seed))
    return model.init(init_key)


def initial_state(parameters: Parameters, config: Config) -> TrainState:
    """The state before the first step."""
    ema = jax.tree.map(jnp.copy, parameters) if config.train.ema_decay else {}
    zeros = [jnp.zeros((), jnp.int32) for _ in range(3)]
    return TrainState(parameters, ema, adam(config).init(parameters), *zeros)


def microbatches(batch: Batch, count: int) -> Batch:
    """[rows, ...] -> [count, rows / count, ...], every `count`-th row in each.

    So the rows of every part lie on all devices, and none has to move.
    """

    def split(x):
        x = jnp.moveaxis(x.reshape(-1, count, *x.shape[1:]), 1, 0)
        axes = ["microbatch", "batch", "length"][: x.ndim]
        return meshes.constrain(x, *axes)

    return jax.tree.map(split, batch)


def loss_sums(module, batch: Batch, smoothing: float, bos: int, key=None):
    """Sums over the real target tokens: (smoothed loss, -log p, number of tokens)."""
    x_btd = module.outputs(teacher_forcing(batch, bos), key)
    table_vd = module.embedding.tokens[...]
    real_bt = batch["target_segment"] > 0
    sums = projected(x_btd, table_vd, batch["target"], real_bt, smoothing)
    return *sums, jnp.sum(real_bt)


def train_step(
    state: TrainState, batch: Batch, *, definition, config: Config, bos: int
):
    """One update. All randomness comes from (seed, step), so resuming is exact.

    The loss is the mean over the real target tokens of the whole batch. A gradient that
    is not finite changes nothing but the counters.

    Returns:
      The new state, and scalars: `loss`, `nll` (means over target tokens), `tokens`,
      `source_tokens`, `gradient_norm`, `learning_rate`, `skipped`, `skipped_in_a_row`.
    """
    train = config.train
    _, dropout_key = jax.random.split(jax.random.key(train.seed))
    key = jax.random.fold_in(dropout_key, state.step)
    rows = len(batch["target"])
    batch = batch | {"row": jnp.arange(rows)}  # which dropout knows them by

    tokens = jnp.maximum(jnp.sum(batch["target_segment"] > 0), 1)

    def mean_loss(parameters, batch):
        module = nnx.merge(definition, parameters)
        drawn = DropoutRng(key, batch["row"])
        loss, nll, _ = loss_sums(module, batch, train.label_smoothing, bos, drawn)
        return loss / tokens, nll / tokens

    gradient = jax.value_and_grad(mean_loss, has_aux=True)
    (loss, nll), gradients = accumulated(
        gradient, state.parameters, batch, train.accumulate
    )
    norm = optax.tree.norm(gradients)
    finite = jnp.isfinite(norm) & jnp.isfinite(loss)

    def updated(old):
        parameters, ema, optimizer = old
        updates, optimizer = adam(config).update(gradients, optimizer, parameters)
        parameters = optax.apply_updates(parameters, updates)
        ema = moving_average(ema, parameters, train.ema_decay, _updates_made(state))
        return parameters, ema, optimizer

    # A branch, not a choice array by array: that would keep the old beside the new.
    old = state.parameters, state.ema, state.optimizer
    parameters, ema, optimizer = jax.lax.cond(finite, updated, lambda old: old, old)
    metrics = {
        "loss": loss,
        "nll": nll,
        "tokens": tokens,
        "source_tokens": jnp.sum(batch["source_segment"] > 0),
        "gradient_norm": norm,
        "learning_rate": schedule(config)(_updates_made(state)),
        "skipped": state.skipped + ~finite,
        "skipped_in_a_row": jnp.where(finite, 0, state.skipped_in_a_row + 1),
    }
    new = TrainState(
        parameters,
        ema,
        optimizer,
        step=state.step + 1,
        skipped=metrics["skipped"],
        skipped_in_a_row=metrics["skipped_in_a_row"],
    )
    return new, metrics


def accumulated(gradient, parameters: Parameters, batch: Batch, count: int):
    """The sum of `gradient(parameters, part)` over `count` parts of a batch.

    One after the other, so that only one part's activations are in memory.
    """
    if count == 1:
        return gradient(parameters, batch)

    def add(total, microbatch):
        found = gradient(parameters, microbatch)
        return jax.tree.map(jnp.add, total, found), None

    parts = microbatches(batch, count)
    shapes = jax.eval_shape(gradient, parameters, batch)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.scan(add, zeros, parts)[0]


def moving_average(
    ema: Parameters, parameters: Parameters, decay: float, updates: Array
) -> Parameters:
    """One step of an exponential moving average, if `ema` is not empty.

    After `updates` updates the decay is at most (1 + updates) / (10 + updates), so that
    the random start is soon forgotten (as TensorFlow's ExponentialMovingAverage).
    """
    updates = updates.astype(jnp.float32)
    decay = jnp.minimum(decay, (1 + updates) / (10 + updates))
    return jax.tree.map(
        lambda old, new: old + (1 - decay) * (new - old),
        ema,
        parameters if ema else {},
    )


def _updates_made(state: TrainState) -> Array:
    return state.step - state.skipped


def state_shardings(model: Model, config: Config, mesh: Mesh) -> TrainState:
    """Where each array of the state lies: Adam's moments beside their parameters."""
    parameters = meshes.shardings(mesh, model.axes, model.shapes)
    whole = meshes.sharding(mesh, ())
    optimizer = adam(config)
    shapes = jax.eval_shape(optimizer.init, model.shapes)
    moments = optax.tree_utils.tree_map_params(
        optimizer,
        lambda _, where: where,
        shapes,
        parameters,
        transform_non_params=lambda _: whole,
    )
    ema = parameters if config.train.ema_decay else {}
    return TrainState(parameters, ema, moments, whole, whole, whole)


class Steps(NamedTuple):
    """The jitted functions of a run, on a mesh.

    Attributes:
      mesh: the devices.
      shapes: of the TrainState, with the place of each array.
      init: () -> TrainState with random parameters, made where it lies.
      start: parameters -> TrainState that starts from them.
      train: (state, batch) -> (state, metrics); the state given is used up.
      evaluate: (parameters, batch) -> (sum of -log p, number of tokens).
    """

    mesh: Mesh
    shapes: TrainState
    init: Any
    start: Any
    train: Any
    evaluate: Any


def compile_steps(model: Model, config: Config, mesh: Mesh, bos: int) -> Steps:
    """Jits the functions of a run; nothing is compiled before its first use."""
    where = state_shardings(model, config, mesh)
    whole = meshes.sharding(mesh, ())

    def train(state, batch):
        options = {"definition": model.definition, "config": config, "bos": bos}
        with meshes.compiling_for(mesh):
            return train_step(state, batch, **options)

    def evaluate(parameters, batch):
        module = nnx.merge(model.definition, parameters)
        with meshes.compiling_for(mesh):
            return loss_sums(module, batch, 0.0, bos)[1:]

    def start(parameters):
        return initial_state(parameters, config)

    init = jax.jit(
        lambda: start(initial_parameters(model, config.train.seed)),
        out_shardings=where,
    )
    shapes = jax.tree.map(
        lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
        jax.eval_shape(init),
        where,
    )
    return Steps(
        mesh=mesh,
        shapes=shapes,
        init=init,
        start=jax.jit(start, out_shardings=where),
        train=jax.jit(train, donate_argnums=0, out_shardings=(where, whole)),
        evaluate=jax.jit(evaluate, out_shardings=whole),
    )
