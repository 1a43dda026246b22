"""MEASURES: what rows of experiments may measure of what they have trained."""

from collections.abc import Callable
from typing import Any

from t2t_jax.analysis.by_length import by_length
from t2t_jax.analysis.heads import measure_heads
from t2t_jax.analysis.layer_cost import layer_costs, path_lengths
from t2t_jax.analysis.speed import speed
from t2t_jax.experiment.loss_prediction import predict_loss

# (context, **arguments) -> what is stored as measures/NAME.json; the context is a
# `t2t_jax.analysis.context.Context`.
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
