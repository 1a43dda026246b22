"""Measurements of trained models, for the rows of experiments."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_jax.config import Config
from t2t_jax.experiment import layer_cost
from t2t_jax.experiment.by_length import by_length
from t2t_jax.experiment.heads import measure_heads
from t2t_jax.experiment.loss_prediction import predict_loss
from t2t_jax.experiment.speed import speed


class Context(NamedTuple):
    """What a measure is told of its row.

    Attributes:
      workdir: that of the run; if the row trains nothing, an empty folder.
      config: what was trained; None if the row trains nothing.
      needs: the workdirs of the rows that the row needs, by name, one for each seed.
    """

    workdir: Path
    config: Config | None
    needs: Mapping[str, Sequence[Path]]


# (context, **arguments) -> what is stored as measures/NAME.json
MeasureFunction = Callable[..., dict[str, Any]]

# Add your measure here.
MEASURES: dict[str, MeasureFunction] = {
    "by_length": by_length,
    "heads": measure_heads,
    "layer_costs": layer_cost.layer_costs,
    "path_lengths": layer_cost.path_lengths,
    "predict_loss": predict_loss,
    "speed": speed,
}
