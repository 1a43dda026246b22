"""Models with random weights and batches of random tokens, to check and measure.

Shape suffixes: b batch, s source, t target, v vocabulary.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t2t_jax.config import ModelConfig
from t2t_jax.data.shapes import Shape
from t2t_jax.model.architecture import logits
from t2t_jax.model.model import Model, build
from t2t_jax.model.transformer import teacher_forcing

PAD, BOS, EOS = 0, 1, 2
SPECIAL = 4  # the first ids, which random text does not have


def random_batch(shape: Shape, vocab_size: int) -> dict[str, np.ndarray]:
    """A batch of random tokens without padding, with the arrays of training.

    The n-th token is as frequent as 1 / n, as in text: many rows of a batch change the
    same row of the embedding table.
    """
    sum_v = np.cumsum(1 / np.arange(1, vocab_size - SPECIAL + 1))
    batch = {}
    for seed, side in enumerate(("source", "target")):
        sizes = shape.rows, getattr(shape, side)
        drawn = np.random.default_rng(seed).random(sizes) * sum_v[-1]
        batch[side] = SPECIAL + np.searchsorted(sum_v, drawn).astype(np.int32)
        batch[f"{side}_segment"] = np.ones(sizes, np.int32)
        positions = np.arange(sizes[1], dtype=np.int32)
        batch[f"{side}_position"] = np.broadcast_to(positions, sizes).copy()
    return batch


VOCABULARY = 17  # tokens of small models
SOURCE_LENGTH, TARGET_LENGTH = 13, 11
# Rows of sentence pairs, (source, target) lengths: packed, one that fills its row,
# a short one, none.
ROWS = [[(5, 3), (2, 4), (3, 1)], [(13, 11)], [(4, 6), (7, 2)], [(1, 1)], []]
# All axes of different lengths, so that none can be mistaken for another.
SIZES = {"width": 8, "heads": 2, "hidden": 20, "dropout": 0.0, "max_positions": 16}
SIZES |= {"dtype": "float32"}  # `auto` is bfloat16 on a GPU or TPU
PAPER = "the paper's, 2 layers"
CONFIGS = {
    PAPER: {"layers": 2},
    "pre-norm, learned positions": {
        "layers": 1,
        "norm": "pre",
        "positions": "learned",
        "head_width": 3,
    },
}


def packed(rows, seed: int) -> dict[str, np.ndarray]:
    """Random sentences as a batch of `data/batching.py`; BOS, PAD are not in them.

    Args:
      rows: for each row the (source, target) lengths of its sentence pairs.
      seed: of the tokens.
    """
    random = np.random.default_rng(seed)
    batch = {}
    for side, length in (("source", SOURCE_LENGTH), ("target", TARGET_LENGTH)):
        for part in ("", "_segment", "_position"):
            batch[side + part] = np.zeros((len(rows), length), np.int32)
        for b, row in enumerate(rows):
            place = 0
            for segment, pair in enumerate(row, start=1):
                for position in range(pair[side == "target"]):
                    batch[side][b, place] = random.integers(EOS, VOCABULARY)
                    batch[f"{side}_segment"][b, place] = segment
                    batch[f"{side}_position"][b, place] = position
                    place += 1
    return batch


def random_parameters(model: Model, seed: int) -> dict[str, Any]:
    """Draws all parameters anew.

    Nothing is left at its initial 0 or 1: that would hide a bias or a scale unused.
    """
    random = np.random.default_rng(seed)

    def draw(path, shape):
        name = path[-1].key
        spread = 0.2 if len(shape.shape) == 1 else 0.3 if name == "tokens" else 0.5
        x = random.normal(float(name == "scale"), spread, shape.shape)
        return x.astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, model.shapes)


@dataclasses.dataclass(frozen=True)
class SmallModel:
    """A small model with random parameters, and one packed batch for it."""

    config: ModelConfig
    seed: int = 1

    @functools.cached_property
    def model(self) -> Model:
        """The model of the config, for `VOCABULARY`."""
        return build(self.config, VOCABULARY)

    @functools.cached_property
    def parameters(self) -> dict[str, Any]:
        return random_parameters(self.model, self.seed)

    @functools.cached_property
    def batch(self) -> dict[str, np.ndarray]:
        """A packed batch, without `target_input`."""
        return packed(ROWS, self.seed + 1)

    def logits(self, batch: dict[str, np.ndarray] | None = None) -> np.ndarray:
        """Teacher-forced logits [b, t, v] of a batch, by default of its own."""
        return np.asarray(
            self._logits(self.parameters, self.batch if batch is None else batch),
            np.float32,
        )

    @functools.cached_property
    def _logits(self):
        def forced(parameters, batch):
            module = nnx.merge(self.model.definition, parameters)
            return logits(module, teacher_forcing(batch, BOS)).astype(jnp.float32)

        return jax.jit(forced)


def small_models() -> dict[str, SmallModel]:
    """The models of `CONFIGS`, in float32."""
    return {
        name: SmallModel(ModelConfig(**SIZES | changes))
        for name, changes in CONFIGS.items()
    }
