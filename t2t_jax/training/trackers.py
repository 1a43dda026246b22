"""Trackers: programs that get the metrics of a run, besides `metrics.jsonl`."""

import importlib.util
from collections.abc import Sequence

from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.sections import Table

# Add yours here, for --track: TRACKER(workdir, first_step) has the methods
# `add(step, kind, values)` and `close()`. An error that it raises ends the run.
TRACKERS = Table(
    {
        "tensorboard": "training.tensorboard.TensorBoard",
        "wandb": "extensions.run.trackers.WANDB",
        "mlflow": "extensions.run.trackers.MLFLOW",
    }
)
DEFAULT, PACKAGES = ("tensorboard",), {"wandb", "mlflow"}  # to install


def check_trackers(names: Sequence[str]) -> None:
    """Raises a UserError if a tracker is unknown or its package is not installed."""
    for name in names:
        if name not in TRACKERS:
            raise UserError(f"--track={name}: no such{did_you_mean(name, TRACKERS)}")
        if name in PACKAGES:
            module = importlib.util.find_spec(name)
            # W&B keeps runs in ./wandb, a module without a file.
            if module is None or module.origin is None:
                raise UserError(f"--track={name}: not installed; pip install {name}")
