"""Compiles the largest batch before training, so that running out of memory fails
early.

Otherwise it would fail after an hour, when the first batch of that shape arrives.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax

from t2t_jax.config import Config
from t2t_jax.data.shapes import Shape
from t2t_jax.parallel import mesh as meshes
from t2t_jax.planning import costs, suggestions
from t2t_jax.planning.forecast import batch_shapes, memory_here
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say
from t2t_jax.training.step import Steps

GIB = 2**30


def compile_largest_batch(
    steps: Steps, config: Config, shapes: Sequence[Shape]
) -> None:
    """Compiles the train step for the largest of a plan's batches, and keeps it.

    Where the step first meets such a batch, it is there already. Of several shapes with
    as many tokens the one of the longest rows counts: attention takes the square.

    Raises:
      UserError: a device has not the memory; says what to change.
    """
    if not shapes:
        return
    on_devices = [
        replace(s, rows=meshes.padded_rows(steps.mesh, s.rows, config.train.accumulate))
        for s in shapes
    ]
    largest = max(
        on_devices, key=lambda s: (s.rows * (s.source + s.target), s.source + s.target)
    )
    batch = batch_shapes(steps.mesh, largest)
    memory = steps.train.lower(steps.shapes, batch).compile().memory_analysis()
    if memory is None:
        return
    more = memory.output_size_in_bytes - memory.alias_size_in_bytes
    temporary = memory.temp_size_in_bytes + max(0, more)
    device = steps.mesh.local_devices[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    needed = memory.argument_size_in_bytes + temporary
    told = f"batches of {largest.rows} rows of {largest.source} + {largest.target}"
    if limit and needed > limit:
        change = _change(steps, config, batch, temporary, limit)
        raise UserError(
            f"{told} tokens take {needed / GIB:.2f} GiB a device, which has "
            f"{limit / GIB:.2f} GiB (of a GPU, what XLA_PYTHON_CLIENT_MEM_FRACTION "
            f"lets JAX take). {_advice(config, change)}"
        )
    if device.platform == "cpu" and temporary > memory_here():
        say(
            f"warning: {told} tokens take {temporary / GIB:.2f} GiB beside the state, "
            f"and this machine has {memory_here() / GIB:.2f} GiB. "
            + _advice(config, None)
        )


def explain_out_of_memory(error: BaseException, config: Config) -> UserError | None:
    """What to change, if it is for lack of memory that a step failed."""
    lacking = "RESOURCE_EXHAUSTED" in str(error)
    if not (lacking and isinstance(error, jax.errors.JaxRuntimeError)):
        return None
    first = str(error).splitlines()[0]
    return UserError(f"there is not memory enough: {first}. {_advice(config, None)}")


def _change(steps, config, batch, temporary: float, limit: float) -> dict | None:
    """The mildest change that is expected to fit; None if there is none."""
    parts = costs.state_bytes(steps.shapes)
    parts |= {"batch": costs.bytes_on_device(batch), "temporary": temporary}
    told = {
        "memory": {"parts": parts, "gradients": parts["parameters"]},
        "mesh": dict(steps.mesh.shape),
        "accumulate": config.train.accumulate,
        "remat": config.model.remat,
        "batch_tokens": config.data.batch_tokens,
    }
    for change in suggestions.changes(config, steps.mesh.size):
        if suggestions.estimate(told, change) <= 0.95 * limit:
            return change
    return None


def _advice(config: Config, change: dict | None) -> str:
    """In words; without a change that is known to help, the mildest one."""
    change = change or next(suggestions.changes(config, 1), None)
    if not change:
        return "Take a smaller model, or more memory"
    return (
        f"Try {suggestions.as_flags(change)}; python -m t2t_jax.plan forecasts what "
        "fits"
    )
