"""A model that trains without a run: the steps that benchmarks time."""

import time
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.config import Config
from t2t_jax.model.model import build
from t2t_jax.parallel.batch_placement import place_batch
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.tools.verify.random_models import BOS
from t2t_jax.training.step import compile_steps

Batch = dict[str, np.ndarray]


class Trainer:
    """A model that trains, on the first device unless others are named.

    A loss that reads another model reads this one before training: that costs as much
    as a trained teacher.
    """

    def __init__(self, config: Config, *sizes: int, devices: Sequence[jax.Device] = ()):
        self.config, self.model = config, build(config.model, *sizes)
        mesh = make_mesh(devices=devices or jax.devices()[:1])
        frozen = (self.model,) if config.train.variant("loss").frozen else ()
        self.steps = compile_steps(self.model, config, mesh, BOS, frozen)
        self.state, self.metrics = self.steps.init(), None
        # Copies: the step donates its state.
        self._frozen = [jax.tree.map(jnp.copy, self.state.parameters) for _ in frozen]

    def step(self, batch: Batch) -> None:
        """Starts an update with a batch in the host's memory."""
        placed = place_batch(self.steps.mesh, batch)
        self.state, self.metrics = self.steps.train(self.state, placed, *self._frozen)

    def finish(self) -> None:
        """Waits for all updates."""
        jax.block_until_ready((self.state, self.metrics))

    def rate(self, batches: Iterable[Batch], sides=("source", "target")) -> float:
        """Trains on some batches; returns real tokens of these sides a second."""
        began, real = time.perf_counter(), 0
        for batch in batches:
            real += sum(np.count_nonzero(batch[f"{side}_segment"]) for side in sides)
            self.step(batch)
        self.finish()
        return real / (time.perf_counter() - began)
