"""The measure `predict_loss`: fits a scaling law to a grid, for a run yet to come."""

import datetime
from collections.abc import Iterable
from typing import Any

import numpy as np

from t2t_jax.io.errors import UserError
from t2t_jax.tools.experiment import scaling_laws
from t2t_jax.tools.experiment.context import Context
from t2t_jax.tools.experiment.experiment import Run
from t2t_jax.tools.experiment.results import RunResult

COLUMNS = ("parameters", "tokens", "dev.loss", "flops")


def predict_loss(context: Context, parameters: int, steps: int) -> dict[str, Any]:
    """Predicts the loss of a larger run from the grid, the rows that the row needs.

    Args:
      parameters: of the larger run.
      steps: it will be trained for; its tokens a step are taken to be the grid's.

    Returns:
      `loss` with its interval; the `time` at which it was predicted; the constants of
      the law, the `frontier`'s exponents and `flops_per_product`, k of C = k N D.

    Raises:
      UserError: a run of the grid is not finished, or the grid is too small.
    """
    folders = [folder for row in context.needs.values() for folder in row]
    results = [RunResult(Run("", 0, None, path.name), path) for path in folders]
    runs = read_runs(results)
    tokens_a_step = np.mean([r.outcome["tokens"] / r.outcome["steps"] for r in results])
    tokens = float(tokens_a_step * steps)
    fit = scaling_laws.fit(runs)
    predicted = fit.predict(parameters, tokens)
    k = runs.flops_per_product
    return {
        **predicted._asdict(),
        "loss": predicted.value,
        "parameters": parameters,
        "tokens": tokens,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "runs": len(runs.loss),
        "law": {name: c._asdict() for name, c in fit.constants().items()},
        "frontier": {name: e._asdict() for name, e in fit.exponents().items()},
        "flops_per_product": {
            "value": float(np.median(k)),
            "low": float(k.min()),
            "high": float(k.max()),
        },
    }


def read_runs(results: Iterable[RunResult]) -> scaling_laws.Runs:
    """Reads parameters, tokens, dev loss and FLOPs of finished runs.

    The dev loss is the cross-entropy of the targets, without label smoothing.

    Raises:
      UserError: a run has not all of them.
    """
    columns = []
    for result in results:
        found = [result.value(column) for column in COLUMNS]
        if missing := [c for c, v in zip(COLUMNS, found, strict=True) if v is None]:
            raise UserError(
                f"{result.path} has no {missing[0]}; a scaling law needs finished runs "
                "that were evaluated on dev text: run the rows of the grid first"
            )
        columns.append(found)
    return scaling_laws.Runs(*np.array(columns, float).reshape(-1, len(COLUMNS)).T)
