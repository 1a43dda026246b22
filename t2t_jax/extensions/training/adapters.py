"""Adapters: small arrays that train while the model's own parameters stay as they are.

An adapter's workdir holds these arrays alone. The model that they change is that of
`config.train.init_from`, the base, whose parameters are known by their SHA-256.
"""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array

from t2t_jax.config import Config
from t2t_jax.extensions.model.low_rank import LowRank
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.model.layers import Parameters, named
from t2t_jax.model.model import Model
from t2t_jax.model.products import Rounded
from t2t_jax.sections import field
from t2t_jax.training.averaging import (
    CheckpointChoice,
    average_checkpoints,
    choose_checkpoints,
    parameters_sha256,
    read_translating,
)
from t2t_jax.training.step import Adapter
from t2t_jax.workdir import Workdir


def check(config: Config) -> None:
    """Refuses an adapter without a base, or with fields that contradict it."""
    train, name = config.train, f"config.train.adapter={config.train.adapter!r}"
    if not train.init_from:
        raise UserError(
            f"{name} changes a trained model, and none is named; set "
            "config.train.init_from, or choose --config=finetune:DIR"
        )
    for field_name in ("freeze", "init_parts", "remap_vocabulary"):
        if value := getattr(train, field_name):
            raise UserError(
                f"{name} keeps all parameters of {train.init_from} as they are; leave "
                f"out config.train.{field_name}={value!r}"
            )
    base = Workdir(train.init_from)
    choose_checkpoints(base, base.config(), train.init_checkpoint)


def check_base(workdir: Workdir, base: str, parameters: Parameters) -> None:
    """Refuses to put an adapter on other parameters than it was trained on.

    Args:
      base: their name for the message.
      parameters: float32.
    """
    # Behind those of the models that the loss reads: see `frozen_models.open_frozen`.
    expected, sha256 = workdir.text()["frozen"][-1], parameters_sha256(parameters)
    train = workdir.config().train
    if sha256 != expected:
        raise UserError(
            f"the adapter {workdir} was trained on other parameters than those of "
            f"{base}: SHA-256 {expected[:12]} then, {sha256[:12]} here. Give the model "
            "that it was trained on, at the same checkpoint: "
            f"--workdir={train.init_from} --checkpoint={train.init_checkpoint}"
        )


def read_merged(
    workdir: Workdir, config: Config, model: Model, choice: CheckpointChoice
) -> tuple[Sequence[int], Parameters]:
    """Reads an adapter and its base as one model; as `average_checkpoints`."""
    adapter, base = config.train.variant("adapter"), Workdir(config.train.init_from)
    steps, trained = average_checkpoints(choice, adapter.model(model, config).shapes)
    if not base.has_run():
        raise UserError(
            f"{workdir} is an adapter of {base}, which is not there; put it back, or "
            f"name where it is: --workdir=BASE --adapter={workdir}"
        )
    checkpoint = config.train.init_checkpoint
    _, parameters = read_translating(base, base.config(), model, checkpoint)
    check_base(workdir, str(base), parameters)
    return steps, adapter.merged(parameters, trained, config)


# ------------------------------------------------------------------------------ entries


@dataclasses.dataclass(frozen=True)
class Lora:
    """Options of `lora`."""

    # The rank r of the change of each weight.
    lora_rank: int = field(8, low=1)
    # The change is divided by r and multiplied by this (section 4.1).
    lora_alpha: float = field(16.0, above=0)
    # The weights that change, by their names or those of what they are in, separated by
    # commas: "query", "decoder.cross", "encoder.0.ff", or "all".
    lora_weights: str = field("all")


def lora_model(model: Model, config: Config) -> Model:
    """LoRA's factors of each weight (Hu et al. 2021), `down` random and `up` 0."""
    rank = _options(config).lora_rank
    axes, shapes, new_axes = flatten_dict(model.axes), {}, {}
    weights = _weights(model, config)
    for path, (x, n) in weights.items():
        shapes[*path, "down"] = x.shape[:n] + (rank,)
        shapes[*path, "up"] = (rank,) + x.shape[n:]
        new_axes[*path, "down"] = (*axes[path][:n], "rank")
        new_axes[*path, "up"] = ("rank", *axes[path][n:])

    def init(rng: Array) -> Parameters:
        arrays = {}
        for path, shape in shapes.items():
            arrays[path] = jnp.zeros(shape, jnp.float32)
            if path[-1] == "down":
                deviation = 1 / math.sqrt(math.prod(shape[:-1]))
                arrays[path] = deviation * jax.random.normal(named(rng, *path), shape)
        return unflatten_dict(arrays)

    structs = {p: jax.ShapeDtypeStruct(s, jnp.float32) for p, s in shapes.items()}
    return model._replace(
        init=init,
        shapes=unflatten_dict(structs),
        axes=unflatten_dict(new_axes),
        summed=unflatten_dict(dict.fromkeys(shapes, ())),
    )


def _options(config: Config) -> Lora:
    return config.train.own_options(LORA)


def _weights(model: Model, config: Config) -> dict[tuple, tuple]:
    """The chosen weights by their paths, each with its number of input axes."""
    summed = flatten_dict(model.summed)
    weights = {
        path: (x, len(summed[path]))
        for path, x in flatten_dict(model.shapes).items()
        # Not tables, which are looked up in, too.
        if summed[path] and summed[path] == (*range(len(summed[path])),)
    }
    chosen, names = set[tuple](), _options(config).lora_weights.split(",")
    for name in map(str.strip, names):
        matches = {p for p in weights if name == "all" or _is_called(name, p)}
        if not matches:
            known = {word for path in weights for word in map(str, path)}
            raise UserError(
                f"config.train.options.lora_weights has {name!r}, and no weight of the "
                f"model is called so{did_you_mean(name, sorted(known | {'all'}))}"
            )
        chosen |= matches
    return {path: weights[path] for path in weights if path in chosen}


def _is_called(name: str, path: tuple) -> bool:
    """True if the path has the parts of the name, others in between."""
    words = iter(map(str, path))
    return all(part in words for part in name.split("."))


def _pairs(trained: Parameters, config: Config) -> dict[tuple, tuple]:
    """The factors of each weight by its path, `up` scaled."""
    options, arrays = _options(config), flatten_dict(trained)
    scale = np.float32(options.lora_alpha / options.lora_rank)
    return {
        path[:-1]: (x, arrays[*path[:-1], "up"] * scale)
        for path, x in arrays.items()
        if path[-1] == "down"
    }


def lora_applied(base: Parameters, trained: Parameters, config: Config) -> Parameters:
    """The model's parameters, whose chosen weights are `LowRank`."""
    arrays, rounded = flatten_dict(base), config.model.products == "bfloat16"
    for path, pair in _pairs(trained, config).items():
        weight = Rounded(arrays[path]) if rounded else arrays[path]
        arrays[path] = LowRank(weight, *pair)
    return unflatten_dict(arrays)


def lora_merged(base: Parameters, trained: Parameters, config: Config) -> Parameters:
    """The model's parameters, all of them arrays, with the changes added."""
    arrays = flatten_dict(base)
    for path, (down, up) in _pairs(trained, config).items():
        numpy = jnp if isinstance(down, jax.Array) else np
        arrays[path] = arrays[path] + numpy.tensordot(down, up, 1)
    return unflatten_dict(arrays)


LORA = Adapter(lora_model, lora_applied, lora_merged, Lora)
