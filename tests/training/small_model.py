"""A model that compiles in no time, for the laws of losses and optimizers."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t2t_jax.config import Config, from_config_dict
from t2t_jax.data.filling import LINKS_OF_A_WORD
from t2t_jax.model.architecture import Architecture
from t2t_jax.model.layers import constant, dropout, weight
from t2t_jax.model.model import Model, from_constructor
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.batch_placement import place_batch
from t2t_jax.training.step import compile_steps

V, WIDTH, ROWS, LENGTH = 16, 8, 8, 6


class Table(nnx.Module):
    def __init__(self, rng):
        self.tokens = weight(rng, {"vocab": V}, {"width": WIDTH})


class Bigrams(Architecture):
    """Each token by the one before; a weight of three axes, and a bias."""

    generates = has_source = False
    cross_layers = 1  # only a trace sees the source

    def __init__(self, rate, rng):
        table_rng, weight_rng = jax.random.split(rng)
        self.embedding = Table(table_rng)
        self.query = weight(weight_rng, {"width": WIDTH}, {"heads": 2, "head": 4})
        self.bias = constant(0.0, {"norm": WIDTH})
        self.rate = rate

    def output_layer(self):
        return self.embedding.tokens[...], None

    def outputs(self, batch, rng=None, trace=None):
        x_btd = self.embedding.tokens[...][batch["target_input"]]
        x_btd = meshes.constrain(x_btd, "batch", "length", "features")
        x_bthk = jnp.einsum("btd,dhk->bthk", x_btd, self.query[...])
        if trace is not None:
            keys_bsk = self.embedding.tokens[..., :4][batch["source"]]
            scores_bts = jnp.einsum("btk,bsk->bts", x_bthk[:, :, 0], keys_bsk)
            source, target = (batch[f"{s}_segment"] for s in ("source", "target"))
            crosses = target[..., None] != source[:, None]
            weights_bts = jax.nn.softmax(jnp.where(crosses, -1e9, scores_bts))
            trace.cross.append(weights_bts[:, None])
        x_btd = x_bthk.reshape(x_btd.shape) + self.bias[...]
        x_btd = meshes.constrain(x_btd, "batch", "length", "features")
        return dropout(x_btd, self.rate, rng)


def model_of(rate: float = 0.0) -> Model:
    return from_constructor(lambda rng: Bigrams(rate, rng))


def batch_of(rows: int = ROWS, seed: int = 0):
    """Sentences of all lengths up to the row's."""
    random = np.random.default_rng(seed)
    target = random.integers(0, V, (rows, LENGTH)).astype(np.int32)
    lengths = random.integers(1, LENGTH + 1, (rows, 1))
    real = (np.arange(LENGTH) < lengths).astype(np.int32)
    position = np.arange(LENGTH, dtype=np.int32) * real
    # Two tokens are a word; a word is linked to up to two words, or none.
    word = (np.arange(LENGTH, dtype=np.int32) // 2 + 1) * real
    link = np.zeros((rows, LENGTH, LINKS_OF_A_WORD), np.int32)
    link[..., :2] = random.integers(0, 4, (rows, LENGTH, 2)) * real[..., None]
    link[link[..., 0] == 0] = 0
    return {"target": target, "target_segment": real, "target_position": position} | {
        "source": target,
        "source_segment": real,
        "source_position": position,
        "source_word": word,
        "link": link,
    }


def config_of(mesh: dict | None = None, **train) -> Config:
    train = {"warmup": 1, "peak_learning_rate": 0.1, "steps": 100} | train
    return from_config_dict({"train": train, "mesh": mesh or {}})


def frozen_of(config: Config):
    """A frozen model, if the loss reads one, and parameters; also an adapter's base."""
    model = model_of(0.5)  # its dropout is off
    other = (model.init(jax.random.key(7)),)
    count = bool(config.train.variant("loss").frozen)
    return (model,) * count, other * (count + (config.train.adapter != "none"))


def steps_of(config: Config, rate: float = 0.0, devices: int = 1):
    mesh = meshes.make_mesh(config.mesh, jax.devices()[:devices])
    frozen, _ = frozen_of(config)
    return compile_steps(model_of(rate), config, mesh, 1, frozen)


def trained(config: Config, batch=None, rate: float = 0.0, devices: int = 1):
    """(state, metrics) after one step, as NumPy arrays."""
    steps = steps_of(config, rate, devices)
    placed = place_batch(steps.mesh, batch or batch_of())
    frozen = jax.tree.map(
        lambda x, shape: jax.device_put(x, shape.sharding),
        frozen_of(config)[1],
        steps.frozen,
    )
    return jax.tree.map(np.asarray, steps.train(steps.init(), placed, *frozen))
