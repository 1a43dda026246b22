"""Checks before training that the largest batch fits the device memory.

Otherwise a run could fail after an hour, when the first batch of that shape arrives.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax

from t2t_jax.config import Config
from t2t_jax.costs import step_costs, suggestions
from t2t_jax.costs.step_costs import batch_shapes
from t2t_jax.costs.this_machine import memory_here
from t2t_jax.data.shapes import Shape
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training.step import Steps

GIB = 2**30


def compile_largest_batch(
    steps: Steps, config: Config, shapes: Sequence[Shape]
) -> None:
    """Compiles the train step for the largest of a plan's batches.

    The result is kept: the first batch of that shape does not compile it again. Of
    shapes with equally many tokens the one with the longest rows is the largest, as
    attention takes memory by the square of the length.

    Raises:
      UserError: a device would run out of memory; the message says what to change.
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
    batch = batch_shapes(largest, steps.mesh)
    lowered = steps.train.lower(steps.shapes, batch, *steps.frozen)
    memory = lowered.compile().memory_analysis()
    if memory is None:
        return
    # The state is donated, so most outputs are stored over the arguments.
    more = memory.output_size_in_bytes - memory.alias_size_in_bytes
    temporary = memory.temp_size_in_bytes + max(0, more)
    device = steps.mesh.local_devices[0]
    # The CPU backend has no memory statistics, hence no limit.
    limit = (device.memory_stats() or {}).get("bytes_limit")
    needed = memory.argument_size_in_bytes + temporary
    shape = f"batches of {largest.rows} rows of {largest.source} + {largest.target}"
    if limit and needed > limit:
        change = _change(steps, config, batch, temporary, limit)
        raise UserError(
            f"out of memory: {shape} tokens take {needed / GIB:.2f} GiB on a device, "
            f"which has {limit / GIB:.2f} GiB (on a GPU, the share that "
            f"XLA_PYTHON_CLIENT_MEM_FRACTION gives JAX). {_advice(config, change)}"
        )
    if device.platform == "cpu" and temporary > memory_here():
        say(
            f"warning: {shape} tokens take {temporary / GIB:.2f} GiB in addition to "
            f"the state, but this machine has {memory_here() / GIB:.2f} GiB. "
            + _advice(config, None)
        )


def explain_out_of_memory(error: BaseException, config: Config) -> UserError | None:
    """Turns JAX's out-of-memory error into advice; returns None for other errors."""
    out_of_memory = "RESOURCE_EXHAUSTED" in str(error)
    if not (out_of_memory and isinstance(error, jax.errors.JaxRuntimeError)):
        return None
    first_line = str(error).splitlines()[0]
    return UserError(f"out of memory: {first_line}. {_advice(config, None)}")


def _change(steps, config, batch, temporary: float, limit: float) -> dict | None:
    """The mildest change that is expected to fit; None if none is."""
    parts = step_costs.state_bytes(steps)
    parts |= {"batch": step_costs.bytes_on_device(batch), "temporary": temporary}
    forecast = {  # the part of a forecast that `estimate` reads
        "memory": {"parts": parts, "gradients": parts["parameters"]},
        "mesh": dict(steps.mesh.shape),
        "accumulate": config.train.accumulate,
        "remat": config.model.remat,
        "batch_tokens": config.data.batch_tokens,
    }
    for change in suggestions.changes(config, steps.mesh.size):
        # The estimate is rough; 5% stay free.
        if suggestions.estimate(forecast, change) <= 0.95 * limit:
            return change
    return None


def _advice(config: Config, change: dict | None) -> str:
    """Words a change as advice; without one, the mildest change there is."""
    change = change or next(suggestions.changes(config, 1), None)
    if not change:
        return "Use a smaller model or devices with more memory"
    return (
        f"Try {suggestions.as_flags(change)}; python -m t2t_jax plan forecasts what "
        "fits"
    )
