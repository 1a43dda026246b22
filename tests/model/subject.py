"""The model that laws are tried on: random weights, batches, compiled functions.

Shape suffixes: b batch, t target, v vocabulary.
"""

import dataclasses
import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t2t_jax.config import ModelConfig
from t2t_jax.data.batching import plan_epoch
from t2t_jax.data.filling import fill, ragged
from t2t_jax.model.architecture import logits
from t2t_jax.model.attention import LayerTrace
from t2t_jax.model.model import build
from t2t_jax.model.transformer import teacher_forcing
from tests.compiler import quick_jit
from tests.model import cases

V, BOS = 24, 1
ROWS, LENGTH, BEAMS = 6, 24, 3


class Excused(Exception):  # noqa: N818  (no error: the law does not apply)
    """The law does not apply, because of the property named."""


class Subject:
    """A model with random weights, and its functions, each compiled once."""

    def __init__(self, config: ModelConfig):
        rates = ("dropout", "attention_dropout", "activation_dropout")
        exact = {"dtype": "float32", **dict.fromkeys(rates, 0.0)}
        self.config = dataclasses.replace(config, **exact)
        joint = config.tied != "none" and config.kind == "encoder_only"
        joint |= config.tied == "all" and config.reads("tied")
        source_size = V if joint else V + 6
        self.sizes = (V, None if joint else source_size)
        self.model = build(self.config, *self.sizes)
        self.source_size = source_size
        self.drawn = drawn = self.model.init(jax.random.key(0))
        # Biases and scales begin at 0 and 1, where mistakes do not show. NumPy draws
        # the noise, since JAX would compile a program for each shape.
        rng = np.random.default_rng(1)
        self.parameters = jax.tree.map(
            lambda x: jnp.asarray(x + 0.1 * rng.standard_normal(x.shape, np.float32)),
            jax.device_get(drawn),
        )
        table = importlib.import_module("t2t_jax.model.attention").ATTENTION
        self.traces = bool(
            (self.model.cross_layers or config.reads("attention"))
            and table[config.attention].weights is not None
        )
        self.forced_and_trace = self.compiled(self._forced_and_trace)
        self.loss_and_gradient = quick_jit(
            jax.value_and_grad(self.compiled(mean_nll, jit=False))
        )

    def compiled(self, function, definition=None, jit=True):
        """`function(module, ...)` as a function of (parameters, ...)."""
        definition = definition or self.model.definition

        def with_parameters(parameters, *arguments):
            return function(nnx.merge(definition, parameters), *arguments)

        return quick_jit(with_parameters) if jit else with_parameters

    def _forced_and_trace(self, module, batch):
        trace = LayerTrace([], [], []) if self.traces else None
        return logits(module, batch, trace=trace), trace

    def forced(self, batch):
        """Teacher-forced logits."""
        return np.asarray(self.forced_and_trace(self.parameters, batch)[0])

    @functools.cached_property
    def texts(self):
        rng = np.random.default_rng(0)
        lengths = rng.integers(1, 10, (2, 4 * ROWS))
        lengths[:, 0] = LENGTH - 2
        lengths[:, 7] = LENGTH - 3  # packed behind another: far keys, not at the start
        if self.model.predicts == "source":
            lengths[1] = lengths[0]
        elif self.model.predicts == "label":
            lengths[1] = 1
        sizes = self.source_size, V
        return [
            [rng.integers(3, size, n).tolist() for n in side]
            for size, side in zip(sizes, lengths, strict=True)
        ]

    @functools.cached_property
    def packed(self):
        """A batch of packed rows, and its layout."""
        if not self.model.packs:
            raise Excused("packs = False")
        sides = [ragged(side) for side in self.texts]
        plan = plan_epoch(
            *(side.lengths for side in sides),
            seed=0,
            epoch=0,
            shuffle=False,
            batching="packed",
            batch_tokens=2 * ROWS * LENGTH,
            row_length=LENGTH,
        )
        assert len(plan) == 1
        batch = teacher_forcing(fill(plan[0], *sides), BOS)
        return _shaped(batch, 2 * ROWS), plan[0]

    def alone(self, pairs):
        """A batch with a sentence pair in each row, and empty rows."""
        batch = {
            f"{side}{part}": np.zeros((2 * ROWS, LENGTH), np.int32)
            for side in ("source", "target")
            for part in ("", "_segment", "_position")
        }
        for row, pair in enumerate(pairs):
            for side, text in zip(("source", "target"), self.texts, strict=True):
                ids = text[pair]
                batch[side][row, : len(ids)] = ids
                batch[f"{side}_segment"][row, : len(ids)] = 1
                batch[f"{side}_position"][row, : len(ids)] = range(len(ids))
        return teacher_forcing(batch, BOS)

    @functools.cached_property
    def batch(self):
        return self.packed[0] if self.model.packs else self.alone(range(2 * ROWS))

    @functools.cached_property
    def gradient(self):
        return self.loss_and_gradient(self.parameters, self.batch)


def _shaped(batch, rows: int):
    """Rows and lengths as of all other batches, so that nothing is compiled again."""
    return {
        name: np.pad(x, [(0, rows - len(x)), (0, LENGTH - x.shape[1])])
        for name, x in batch.items()
    }


def mean_nll(module, batch, rng=None):
    log_probs = jax.nn.log_softmax(logits(module, batch, rng))
    true = jnp.take_along_axis(log_probs, batch["target"][..., None], 2)[..., 0]
    real = batch["target_segment"] > 0
    return -jnp.sum(true, where=real) / jnp.sum(real)


@functools.lru_cache(maxsize=2)
def subject(name: str, group: str = "alone") -> "Subject":
    """The model of a case; kept while its laws run one after another."""
    return Subject(cases.config_of(**getattr(cases, group)()[name]))
