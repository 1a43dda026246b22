"""MEASURES: what rows of experiments may measure of what they have trained."""

from collections.abc import Callable
from typing import Any

from t2t_jax.tools.experiment.by_length import by_length
from t2t_jax.tools.experiment.heads import measure_heads
from t2t_jax.tools.experiment.layer_cost import layer_costs, path_lengths
from t2t_jax.tools.experiment.loss_prediction import predict_loss
from t2t_jax.tools.experiment.speed import speed

# (context, **arguments) -> what is stored as measures/NAME.json; the context is a
# `t2t_jax.tools.experiment.context.Context`.
MeasureFunction = Callable[..., dict[str, Any]]

# Add your measure here.
MEASURES: dict[str, MeasureFunction] = {
    "by_length": by_length,
    "heads": measure_heads,
    "layer_costs": layer_costs,
    "path_lengths": path_lengths,
    "predict_loss": predict_loss,
    "speed": speed,
}
