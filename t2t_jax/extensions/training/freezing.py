"""The parts and layers that `config.train.freeze` names."""

from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.model.layers import Parameters
from t2t_jax.training.optimizers import in_part


def split(parameters: Parameters, names: str) -> tuple[Parameters, Parameters]:
    """Splits parameters as `split_frozen` does.

    Raises:
      UserError: there is no such part or layer, or nothing would be trained.
    """
    parts, layers = set(), {}
    for name in filter(None, map(str.strip, names.split(","))):
        part, colon, count = name.partition(":")
        if not any(in_part(key, part) for key in parameters):
            raise UserError(
                f"config.train.freeze has {part!r}, which is not a part of the model"
                + did_you_mean(part, parameters)
            )
        stack = parameters.get(part)
        depth = len(stack) if isinstance(stack, dict) and 0 in stack else 0
        if colon and not (count.isdecimal() and 1 <= int(count) <= depth):
            raise UserError(
                f"config.train.freeze has {name!r}, but {part} has {depth} layers; "
                f"want {part}" + f", or {part}:1 to {part}:{depth}" * (depth > 0)
            )
        if colon:
            layers[part] = int(count)
        else:
            parts.add(part)
    trained, frozen = {}, {}
    for key, value in parameters.items():
        if any(in_part(key, part) for part in parts):
            frozen[key] = value
        elif count := layers.get(key):
            frozen[key] = {n: layer for n, layer in value.items() if n < count}
            if upper := {n: layer for n, layer in value.items() if n >= count}:
                trained[key] = upper
        else:
            trained[key] = value
    if not trained:
        raise UserError(
            f"config.train.freeze={names!r} freezes all parts of the model, so nothing "
            "would be trained; leave one out"
        )
    return trained, frozen
