"""Checks of numbers: the model against float64 twins, other paths, other formats.

Float32 products are computed in full precision here: the default of a GPU or TPU rounds
their factors to fewer bits, which would hide a mistake. `default_precision` says what
that costs.
"""

import jax
import numpy as np

from t2t_jax.verification.check import Measured, at_most
from t2t_jax.verification.context import Context
from t2t_jax.verification.references import twin
from t2t_jax.verification.small_model import BOS, SmallModel, small_models

# Logits are of order 1 to 10. Rounding changed them by 5e-6 at most, over 150 random
# models on a CPU; the bound leaves room for other machines, and none for a mistake.
ROUNDING = 2e-5


def forward(context: Context) -> Measured:
    """Compares the logits of small models with those of the float64 twin."""
    with jax.default_matmul_precision("highest"):
        errors = {name: _forward_error(small) for name, small in _models(context)}
    return at_most(max(errors.values()), ROUNDING, models=errors)


def _models(context: Context):
    return context.shared("small models", small_models).items()


def _forward_error(small: SmallModel) -> float:
    """The largest difference to the twin, of logits of real target tokens."""
    batch = twin.teacher_forcing(small.batch, BOS)
    want_btv = twin.logits(small.config, small.parameters, batch)
    real_bt = batch["target_segment"] > 0
    difference = small.logits()[real_bt] - want_btv[real_bt]
    return float(np.max(np.abs(difference)))
