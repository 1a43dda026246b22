"""Models that a loss reads and training does not change, such as a teacher.

A loss names their workdirs (`Loss.frozen` in `losses.py`). Their parameters are
arguments of the jitted step, sharded like those of the model that trains. They are not
in the TrainState: no gradient, no moments, no checkpoint.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from flax import nnx
from jax.sharding import Mesh

from t2t_jax.config import Config, changed
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model, build, check_batching
from t2t_jax.parallel import mesh as meshes
from t2t_jax.workdir import Workdir


class FrozenModels(NamedTuple):
    """Models beside the one that trains, and a function that reads their parameters.

    Attributes:
      models: without parameters, in the order in which the loss names them.
      read: () -> the parameters of each as NumPy arrays; called once, by process 0.
    """

    models: tuple[Model, ...] = ()
    read: Callable[[], Sequence[Parameters]] = tuple


def frozen_workdirs(config: Config) -> tuple[str, ...]:
    """The workdirs of the models that the config's loss reads; empty if it reads none.

    Raises:
      UserError: the loss needs one and the config names none.
    """
    named = config.train.variant("loss").frozen
    return tuple(named(config)) if named else ()


def build_frozen(
    config: Config, model: Model, theirs: Config, name: str, sizes: Sequence[int]
) -> Model:
    """Builds a frozen model, which computes in the dtype of the model that trains.

    Args:
      config: of the run.
      model: the model that trains.
      theirs: the config of the frozen model's workdir.
      name: that workdir, for messages.
      sizes: of the vocabulary, as `build` takes them.

    Raises:
      UserError: it cannot read the run's batches, or predicts something else.
    """
    frozen = build(
        changed(theirs, "model", dtype=config.model.dtype).model,
        *sizes,
    )
    kinds = theirs.task.kind, config.task.kind
    if kinds[0] != kinds[1] or frozen.predicts != model.predicts:
        raise UserError(
            f"the frozen model {name} has config.task.kind={kinds[0]!r}, "
            f"config.model.kind={theirs.model.kind!r} and predicts the "
            f"{frozen.predicts}; this run has {kinds[1]!r}, {config.model.kind!r} and "
            f"predicts the {model.predicts}. config.train.loss={config.train.loss!r} "
            "compares their predictions token by token; name a model of the same task"
        )
    try:
        check_batching(frozen, changed(config, "model", kind=theirs.model.kind))
    except UserError as e:
        raise UserError(f"the frozen model {name}: {e}") from None
    return frozen


def frozen_here(
    config: Config, model: Model, sizes: Sequence[int]
) -> tuple[Model, ...]:
    """Builds the frozen models of a config from workdirs on this machine's disk.

    For forecasts, which need no parameters.

    Raises:
      UserError: a workdir is missing, or its model does not fit; see `build_frozen`.
    """
    return tuple(
        build_frozen(config, model, Workdir(name).config(), name, sizes)
        for name in frozen_workdirs(config)
    )


def frozen_shapes(models: Sequence[Model], mesh: Mesh) -> tuple[Parameters, ...]:
    """The parameters of each model as `jax.ShapeDtypeStruct`s with shardings."""

    def of(model: Model) -> Parameters:
        return jax.tree.map(
            lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
            model.shapes,
            meshes.shardings(mesh, model.axes, model.shapes),
        )

    return tuple(map(of, models))


def merged(models: Sequence[Model], parameters: Sequence[Parameters]) -> list[Any]:
    """The modules of models with their parameters, inside a jitted function."""
    return [
        nnx.merge(model.definition, of_model)
        for model, of_model in zip(models, parameters, strict=True)
    ]
