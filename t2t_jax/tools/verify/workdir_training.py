"""Check that a workdir's config trains on: one step from its newest state."""

import dataclasses
import math

import jax
import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.feeding import Position, feed
from t2t_jax.data.pairs import Pairs
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.run.step_lookup import open_text
from t2t_jax.tools.verify.check import Measured, Unavailable
from t2t_jax.tools.verify.context import Context
from t2t_jax.tools.verify.workdir_files import newest_intact, opened
from t2t_jax.training.checkpoint import read_state
from t2t_jax.training.divergence import Rollbacks
from t2t_jax.training.frozen_models import open_frozen
from t2t_jax.training.metrics_log import METRICS, read_log
from t2t_jax.training.step import compile_steps
from t2t_jax.workdir import Workdir

NEAR = 0.25  # a step's loss may be so far, relatively, from the last one logged


def trains(context: Context) -> Measured:
    """Trains one step from the newest state, on the batch that would come next.

    On one device, in memory. The loss must be near the last one logged, and parameters
    must change and stay finite.
    """
    workdir, config, vocabulary = opened(context)
    folder = workdir.checkpoints / "state"
    if not folder.exists():
        raise Unavailable(f"{workdir} holds no state to continue from")
    try:
        pairs = open_text(workdir).pairs
        model = build(config.model, *vocabulary.sizes)
        frozen = open_frozen(config, model, vocabulary).frozen
    except UserError as e:
        raise Unavailable(str(e)) from None
    mesh = meshes.make_mesh(devices=jax.devices()[:1])
    steps = compile_steps(model, config, mesh, vocabulary.bos, frozen.models)
    number, (state, progress) = newest_intact(
        folder, lambda path: read_state(path, steps.shapes)
    )
    position = Rollbacks(workdir).position(number, progress.position)
    batch = _batch(config, pairs, position, mesh)
    placed = jax.device_put(state, jax.tree.map(lambda x: x.sharding, steps.shapes))
    of_frozen = tuple(
        jax.device_put(p, jax.tree.map(lambda x: x.sharding, shapes))
        for p, shapes in zip(frozen.read(), steps.frozen, strict=True)
    )
    after, values = steps.train(placed, batch, *of_frozen)
    loss, rate = float(values["loss"]), float(values["learning_rate"])
    # A schedule may have fallen to 0 at the end of the run.
    if not _trained(state.parameters, after.parameters, moved=rate > 0):
        figure = f"loss {loss:.3f}; no parameter changed, or one is not finite"
        return Measured(figure, "parameters change, and stay finite", False)
    return _judged(number, loss, _logged_loss(workdir, number))


def _batch(
    config: Config, pairs: Pairs, position: Position, mesh: jax.sharding.Mesh
) -> dict[str, jax.Array]:
    """The batch at a data position, on the device."""
    # Both feeders give the same bytes; this one needs no TensorFlow.
    data = dataclasses.replace(config.data, feeder="numpy")
    accumulate = config.train.accumulate

    def local(layout):
        return meshes.local_layout(mesh, layout, accumulate)

    batches = feed(pairs, data, config.train.seed, position, local)
    try:
        return meshes.place_batch(mesh, next(batches)[1])
    finally:
        batches.close()


def _trained(before: Parameters, after: Parameters, moved: bool) -> bool:
    """True if parameters are finite, and, if `moved`, not all as they were."""
    pairs = [
        (np.asarray(a), np.asarray(b))
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    ]
    finite = all(np.isfinite(b).all() for _, b in pairs)
    return finite and (not moved or any((a != b).any() for a, b in pairs))


def _logged_loss(workdir: Workdir, step: int) -> float:
    """The last training loss that was logged up to a step; nan if there is none."""
    losses = [
        metrics["loss"]
        for of_step, metrics in read_log(workdir / METRICS).metrics("train").items()
        if of_step <= step and metrics.get("loss")
    ]
    return losses[-1] if losses else math.nan


def _judged(step: int, loss: float, recorded: float) -> Measured:
    """Compares the loss of a step with the one recorded before it."""
    numbers = {"step": step + 1, "loss": loss, "recorded": recorded}
    if math.isnan(recorded):
        numbers["recorded"] = None
        return Measured(f"loss {loss:.3f}", "finite", math.isfinite(loss), numbers)
    low, high = sorted((recorded * (1 - NEAR), recorded * (1 + NEAR)))
    return Measured(
        f"loss {loss:.3f} at step {step + 1:,}",
        f"{low:.3f} to {high:.3f} (logged: {recorded:.3f})",
        bool(low <= loss <= high),
        numbers,
    )
