"""Groups of parameters that train differently: frozen parts, layers with lower rates.

Both go by the names of the parameters: a model is a dict of parts, such as `embedding`
and `encoder`, and a stack of layers is a part whose keys are the layers' numbers.
"""

import jax
import optax

from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.model.layers import Parameters


def in_part(key: str, part: str) -> bool:
    """True if a top-level parameter belongs to a part: `encoder_norm` to `encoder`."""
    return key == part or key.startswith(f"{part}_")


def split_frozen(parameters: Parameters, names: str) -> tuple[Parameters, Parameters]:
    """Splits parameters into those that train and the frozen ones.

    Args:
      names: `config.train.freeze`, such as `embedding,encoder`.

    Raises:
      UserError: the model has no such part, or no other.
    """
    parts = [part for part in map(str.strip, names.split(",")) if part]
    for part in parts:
        if not any(in_part(key, part) for key in parameters):
            raise UserError(
                f"config.train.freeze has {part!r}, which is not a part of the model"
                + did_you_mean(part, parameters)
            )
    trained, frozen = {}, {}
    for key, value in parameters.items():
        keeps = any(in_part(key, part) for part in parts)
        (frozen if keeps else trained)[key] = value
    if not trained:
        raise UserError(
            f"config.train.freeze={names!r} freezes all parts of the model, so nothing "
            "would be trained; leave one out"
        )
    return trained, frozen


def depths(parameters: Parameters) -> Parameters:
    """Numbers each array by its distance from the output, in layers.

    1 is the last layer of a stack, N the first of N, and N + 1 for embeddings and
    position tables, below the deepest stack. Everything else, such as the output layer
    and the normalization after a stack, is 0. The stacks of an encoder-decoder are
    counted each from its own end.
    """
    sizes = {
        part: 1 + max(numbers)
        for part, inner in parameters.items()
        if isinstance(inner, dict)
        and (numbers := [key for key in inner if isinstance(key, int)])
        and not part.endswith("_positions")
    }
    bottom = 1 + max(sizes.values(), default=0)

    def depth(path, _):
        part, *inner = (step.key for step in path)
        if part in sizes:
            return sizes[part] - inner[0]
        return bottom if part == "embedding" or part.endswith("_positions") else 0

    return jax.tree.map_with_path(depth, parameters)


def scale_by_depth(decay: float) -> optax.GradientTransformation:
    """Multiplies each update by decay^depth (Howard and Ruder 2018; see `depths`)."""

    def scaled(updates, _):
        return jax.tree.map(lambda x, depth: x * decay**depth, updates, depths(updates))

    return optax.stateless(scaled)
