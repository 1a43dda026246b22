"""Parameters as a flat dict of NumPy arrays, and back."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from t2t_jax.io.errors import UserError, did_you_mean, listed
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model


def flatten(parameters: Parameters) -> dict[str, Any]:
    """Nested parameters as a flat dict: `encoder.0.attention.query` -> array."""
    return {_name(path): x for path, x in jax.tree.leaves_with_path(parameters)}


def nest(flat: Mapping[str, Any], like: Parameters) -> Parameters:
    """Undoes `flatten`; `like` has the structure, such as `model.shapes`."""
    return jax.tree.map_with_path(lambda path, _: flat[_name(path)], like)


def _name(path) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def to_numpy(parameters: Parameters) -> dict[str, np.ndarray]:
    """Copies parameters to a flat dict of NumPy arrays.

    Args:
      parameters: such as `translator.parameters`, or gradients by them.

    Returns:
      By names such as `encoder.0.attention.query`, those of an export to safetensors,
      which documents their axes. Weights are [inputs, outputs].
    """
    return {name: np.array(x) for name, x in flatten(parameters).items()}


def load_numpy(
    arrays: Mapping[str, Any], model: Model, name: str = "arrays"
) -> Parameters:
    """Undoes `to_numpy`: returns parameters of a model, float32.

    Args:
      model: whose parameters they are, such as `translator.model`.
      name: of the arrays, for errors.

    Raises:
      UserError: an array is missing, unknown, of another shape, or not finite.
    """
    shapes, flat = {n: x.shape for n, x in flatten(model.shapes).items()}, {}
    if missing := [n for n in shapes if n not in arrays]:
        raise UserError(f"{name}: {listed(missing)} missing; want all of the model's")
    if unknown := [n for n in arrays if n not in shapes]:
        hint = did_you_mean(unknown[0], shapes)
        raise UserError(f"{name}: the model has no {listed(unknown)}{hint}")
    for parameter, shape in shapes.items():
        array = np.array(arrays[parameter], np.float32)
        flat[parameter] = checked(array, shape, f"{name}: {parameter}", "the model's")
    return nest(flat, model.shapes)


def checked(
    array: np.ndarray, shape: tuple[int, ...], name: str, whose: str
) -> np.ndarray:
    """Returns the array; raises UserError for another shape, or values not finite.

    Args:
      whose: config has the shape, for the error.
    """
    if array.shape != shape:
        raise UserError(
            f"{name} has the shape {[*array.shape]}; {whose} config says {[*shape]}"
        )
    if not np.isfinite(array).all():
        raise UserError(f"{name} has values that are not finite")
    return array
