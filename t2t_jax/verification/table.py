"""The checks of `verify`, in the order in which they run."""

from t2t_jax.verification import numbers
from t2t_jax.verification.check import Check

# Name (of --only) -> check.
CHECKS = {
    "forward": Check("numbers", "logits as the float64 twin has them", numbers.forward),
}
