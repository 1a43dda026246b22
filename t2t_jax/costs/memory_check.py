"""Checks that the largest batch fits the device memory; else suggests changes.

Without the check a run could fail after an hour, when the first batch of that shape
arrives.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import jax

from t2t_jax.config import Config, with_fields
from t2t_jax.costs import step_costs
from t2t_jax.costs.chips import GIB
from t2t_jax.costs.step_costs import batch_shapes
from t2t_jax.data.shapes import Shape
from t2t_jax.io.errors import UserError, first_line
from t2t_jax.io.messages import say
from t2t_jax.parallel.batch_placement import padded_rows
from t2t_jax.parallel.machine import device_memory
from t2t_jax.training.step import Steps


def check_state(steps: Steps, config: Config) -> None:
    """Refuses a model whose state alone takes more memory than a device has.

    Computes nothing, so it may be called before any text is prepared.

    Raises:
      UserError: parameters, their average and the optimizer's state do not fit; the
        message says what to change.
    """
    parts = step_costs.state_bytes(steps)
    limit = device_memory(steps.mesh.local_devices[0])
    needed = sum(parts.values())  # gradients and activations come on top
    if needed > limit:
        change = _change(steps, config, {}, 0.0, limit)
        raise UserError(
            f"out of memory: the {parts['parameters'] / 4:,.0f} parameters on a device "
            f"take {needed / GIB:,.2f} GiB with the optimizer's state, before any "
            f"gradient, and the device has {limit / GIB:,.2f} GiB. {_advice(change)}"
        )


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
        replace(s, rows=padded_rows(steps.mesh, s.rows, config.train.accumulate))
        for s in shapes
    ]
    largest = max(
        on_devices, key=lambda s: (s.rows * (s.source + s.target), s.source + s.target)
    )
    batch = batch_shapes(largest, steps.mesh, config)
    lowered = steps.train.lower(steps.shapes, batch, *steps.frozen)
    memory = lowered.compile().memory_analysis()
    if memory is None:
        return
    temporary = step_costs.temporary_bytes(memory)
    device = steps.mesh.local_devices[0]
    limit = device_memory(device)
    needed = memory.argument_size_in_bytes + temporary
    if needed <= limit:
        return
    shape = f"batches of {largest.rows} rows of {largest.source} + {largest.target}"
    advice = _advice(_change(steps, config, batch, temporary, limit))
    if device.platform != "cpu":
        raise UserError(
            f"out of memory: {shape} tokens take {needed / GIB:.2f} GiB on a device, "
            f"which has {limit / GIB:.2f} GiB (on a GPU, the share that "
            f"XLA_PYTHON_CLIENT_MEM_FRACTION gives JAX). {advice}"
        )
    # A CPU can swap, and its compiler's figure is an upper limit.
    say(
        f"warning: {shape} tokens take {needed / GIB:.2f} GiB, but this machine has "
        f"{limit / GIB:.2f} GiB. {advice}"
    )


def explain_out_of_memory(error: BaseException, config: Config) -> UserError | None:
    """Turns JAX's out-of-memory error into advice; returns None for other errors."""
    out_of_memory = "RESOURCE_EXHAUSTED" in str(error)
    if not (out_of_memory and isinstance(error, jax.errors.JaxRuntimeError)):
        return None
    mildest = next(changes(config, 1), None)
    return UserError(f"out of memory: {first_line(error)}. {_advice(mildest)}")


def _change(steps, config, batch, temporary: float, limit: float) -> dict | None:
    """The mildest change that is expected to fit; None if none is."""
    parts = step_costs.state_bytes(steps)
    parts |= {"batch": step_costs.bytes_on_device(batch), "temporary": temporary}
    for change in changes(config, steps.mesh.size):
        # The estimate is rough; 5% stay free.
        if estimate(config, parts, steps.mesh.shape, change) <= 0.95 * limit:
            return change
    return None


def _advice(change: dict | None) -> str:
    """Words a change as advice, or says that none is expected to help."""
    if not change:
        return "Use a smaller model or devices with more memory"
    return f"Try {as_flags(change)}; python -m t2t_jax plan forecasts what fits"


# -------------------------------------------------------------------------- suggestions
# Candidates are ordered from mild to severe. Their memory is estimated, and those
# expected to fit are compiled until one does.

TRIES = 3  # compilations at most, as each takes minutes
# Rough share of a layer's activations that is kept, by `config.model.remat`.
KEPT = {"none": 1.0, "dots": 0.6, "full": 0.25}


def changes(config: Config, count: int) -> Iterator[dict[str, object]]:
    """Yields changes to try, the mildest first: fields of the config and their values.

    More microbatches come first, then remat, both together, sharding over fsdp (of
    `count` devices), and last a smaller batch, the only change that affects what is
    learned.
    """
    # Microbatches of fewer than 1,024 tokens are not proposed.
    tokens, accumulate = config.data.batch_tokens, config.train.accumulate
    counts = [accumulate * k for k in (2, 4, 8) if tokens // (accumulate * k) >= 1024]
    microbatches = [{"train.accumulate": n} for n in counts]
    kept_less = [*KEPT][[*KEPT].index(config.model.remat) + 1 :]
    remats = [{"model.remat": name} for name in kept_less]
    yield from microbatches
    yield from remats
    yield from (microbatch | remat for remat in remats for microbatch in microbatches)
    for fsdp in (2, 4, 8, 16, 32):
        if count % fsdp:
            continue
        mesh = {"mesh.data": -1, "mesh.fsdp": fsdp, "mesh.tensor": 1}
        yield mesh
        yield from (mesh | microbatch for microbatch in microbatches)
        if remats and microbatches:
            yield mesh | microbatches[-1] | remats[-1]
    for share in (2, 4, 8):
        if tokens // share:
            yield {"data.batch_tokens": tokens // share}


def estimate(
    config: Config, parts: dict, mesh: Mapping[str, int], change: dict[str, object]
) -> float:
    """Estimates the bytes on a chip after a change, from the parts before it.

    Activations are the temporaries without the gradients. They shrink with more
    microbatches, with remat and with fewer tokens; the state is sharded over fsdp.
    """
    changed = with_fields(config, change)
    state = parts["parameters"] + parts["average"] + parts["optimizer"]
    state += parts.get("frozen", 0)
    gradients = parts["parameters"]  # float32
    activations = max(0.0, parts["temporary"] - gradients)
    fsdp = change.get("mesh.fsdp", mesh["fsdp"]) * change.get("mesh.tensor", 1)
    divided = fsdp / (mesh["fsdp"] * mesh["tensor"])
    ratio = changed.train.accumulate / config.train.accumulate
    share = KEPT[changed.model.remat] / KEPT[config.model.remat]
    activations *= share / ratio * changed.data.batch_tokens / config.data.batch_tokens
    if ratio > 1:  # the running sum, and the gradients of one microbatch
        gradients *= 2
    # With fsdp, the gathered weights of a few layers are in memory too: a rough 10%.
    gathered = 0.1 * state * (divided > 1)
    fixed = parts["batch"] + parts.get("program", 0)
    return (state + gradients) / divided + activations + gathered + fixed


def find_suggestion(
    config: Config, current: dict, forecast: Callable[[Config], dict]
) -> dict[str, dict] | None:
    """Finds the first change whose compiled forecast fits.

    Args:
      config: of the run that does not fit.
      current: its forecast.
      forecast: compiles a config and returns its forecast.

    Returns:
      `change` and its `forecast`; None if no attempt fits.
    """
    memory, tried, margin = current["memory"], 0, 0.95
    for change in changes(config, current["chips"]):
        expected = estimate(config, memory["parts"], current["mesh"], change)
        if expected > margin * memory["chip"]:
            continue
        say(f"trying {as_flags(change)}: about {expected / GIB:.2f} GiB expected")
        result = forecast(with_fields(config, change))
        if result["fits"]:
            return {"change": change, "forecast": result}
        tried += 1
        if tried == TRIES:
            return None
        # The estimate was too low by this factor; expect the same of the next ones.
        margin *= min(0.95, expected / result["memory"]["needed"])
    return None


def as_flags(change: dict[str, object]) -> str:
    """Formats a change as command-line flags."""
    return " ".join(f"--config.{name}={value}" for name, value in change.items())
