"""Plans a run on chips that are not here: whether it fits, and how long it takes.

The training step is compiled for the chips without having them. `docs/planning.md` says
which parts of the answer are measured and which are assumed.
"""

import dataclasses
import re
import time
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.costs import chips as chips_table
from t2t_jax.costs import memory_check, step_costs
from t2t_jax.costs.chips import Chip, Slice
from t2t_jax.costs.timing import median_seconds
from t2t_jax.decoding.batches import SHORTEST, block_rows
from t2t_jax.decoding.programs import Search
from t2t_jax.decoding.search_options import unchecked_beam_search
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import waiting
from t2t_jax.model.model import Model, build, check_batching
from t2t_jax.parallel import mesh as meshes
from t2t_jax.tasks.table import task_of
from t2t_jax.tools.plan import collectives, compilers
from t2t_jax.tools.plan import kernels as kernels_table
from t2t_jax.tools.plan.describe import VOCABULARIES
from t2t_jax.tools.plan.hlo import Program
from t2t_jax.tools.plan.kernels import EXCHANGE
from t2t_jax.training.step import Steps, compile_steps


def plan(
    config: Config | ConfigDict, slice: str, measure: bool = False, remedy: bool = True
) -> dict:
    """Forecasts whether a run fits a slice, and how long it takes there.

    Call it before anything else starts JAX, as it needs virtual devices.

    Args:
      config: of `load_config`, or a `Config`.
      slice: `v5e:2x4`, `h100:8`, `cpu:1`.
      measure: for `cpu:1`, also runs and times some real steps.
      remedy: searches for a change that fits if the config does not.

    Returns:
      Strings, numbers, lists and dicts, as `--json` prints them. `remedy` holds the
      `change` that fits and its `forecast`; None if the config fits or no change does.

    Raises:
      UserError: no such slice, a mesh that does not divide, no TPU compiler.
    """
    if not isinstance(config, Config):
        config = fields.from_config_dict(config)
    if slice.lower().startswith("cpu:"):
        # Any chip does for checking the name. Measuring comes after `use_cpu`, as it
        # starts JAX.
        if chips_table.find_slice(slice, chips_table.CHIPS["h100"]).count > 1:
            raise UserError(f"--slice={slice}: want cpu:1; this machine is one chip")
        compilers.use_cpu(1)
        rented = chips_table.find_slice(slice, chips_table.measured_cpu())
    else:
        rented = chips_table.find_slice(slice)
    devices = compilers.devices_of(rented)

    def compiled(config: Config) -> dict:
        with waiting(f"compiling for {rented.topology}"):
            return forecast(config, rented, devices)

    result = compiled(config) | {"remedy": None}
    if not result["fits"] and remedy:
        result["remedy"] = memory_check.find_suggestion(config, result, compiled)
    if measure and rented.chip.kind == "cpu":
        config = fields.changed(config, "model", dtype="float32")
        result["measured_step"] = measure_step(config, devices[:1])
    return result


def for_chip(config: Config, chip: Chip) -> Config:
    """Returns the config with dtype `auto` replaced by the chip's type."""
    if config.model.dtype != "auto":
        return config
    dtype = "bfloat16" if chip.native and chip.kind != "cpu" else "float32"
    return fields.changed(config, "model", dtype=dtype)


def _compiled(steps: Steps, batch: dict, chip: Chip, length: int) -> dict:
    """The compiler's account of a step, per device: a part of what `forecast` returns.

    If the compiler runs out of the chip's memory, only the memory needed is known.
    """
    started = time.monotonic()
    parts = step_costs.state_bytes(steps)
    parts["batch"] = step_costs.bytes_on_device(batch)
    counted, arguments, flops = sum(parts.values()), 0, 0.0
    rows = kernels = None
    platform = steps.mesh.devices.flat[0].platform
    lowered = steps.train.lower(steps.shapes, batch, *steps.frozen)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as e:
        out_of_memory = _out_of_memory(str(e))
        if out_of_memory is None:
            raise
        needed, temporaries_only = out_of_memory
        if temporaries_only:
            needed += step_costs.bytes_on_device((steps.shapes, steps.frozen, batch))
        parts["temporary"] = needed - counted
    else:
        program = Program(compiled.as_text())
        if platform != "cpu":
            kernels = kernels_table.summary(program, chip)
        memory = compiled.memory_analysis()
        arguments = memory.argument_size_in_bytes
        flops = float((compiled.cost_analysis() or {}).get("flops", 0.0))
        sent = collectives.parse_collectives(program, dict(steps.mesh.shape))
        weights = {x.shape for x in jax.tree.leaves(steps.shapes.parameters)}
        rows = collectives.table(sent, length, weights)
        parts["temporary"] = step_costs.temporary_bytes(memory)
        # Other chips keep machine code elsewhere.
        code = memory.generated_code_size_in_bytes
        parts["program"] = code if platform == "tpu" else 0
    return {
        "memory": {
            "chip": chip.memory,
            "parts": parts,
            "needed": sum(parts.values()),
            "arguments": arguments,
            "gradients": parts["parameters"],  # float32; within `temporary`
            "by": f"the {platform.upper()}'s compiler",
        },
        "flops": {"compiler_a_chip": flops},  # with the body of a loop counted once
        "collectives": rows,
        "kernels": kernels,
        "compile_seconds": time.monotonic() - started,
    }


def _out_of_memory(message: str) -> tuple[float, bool] | None:
    """Parses the TPU compiler's message that a program does not fit.

    It says `... required for HLO temporaries (20.13G) exceeds available HBM (15.75G)`,
    in an older version `Used 20.13G of 15.75G hbm`.

    Returns:
      The bytes needed, and True if they are the temporaries alone; None for a message
      about anything else.
    """
    if "RESOURCE_EXHAUSTED" not in message:
        return None
    used = re.search(r"\(([\d.]+)([KMGT]?)\) exceeds", message) or re.search(
        r"[Uu]sed ([\d.]+)([KMGT]?) of [\d.]+[KMGT]? hbm", message
    )
    if not used:
        raise UserError(f"the compiler ran out of memory: {message[:2000]}")
    scale = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    return float(used[1]) * scale[used[2]], "HLO temporaries" in message


def forecast(config: Config, chips: Slice, devices: list) -> dict:
    """Forecasts memory, communication and time of a run on a slice.

    Args:
      devices: of `compilers.devices_of`.

    Returns:
      Strings, numbers, lists and dicts, as `--json` prints them. Bytes are per chip.
    """
    config = for_chip(config, chips.chip)
    model, steps = _compile_steps(config, devices)
    shape, assumed = step_costs.assumed_shape(config, steps.mesh)
    batch = step_costs.batch_shapes(shape, steps.mesh, config)
    compiled = _compiled(steps, batch, chips.chip, shape.target)
    chip = dataclasses.asdict(chips.chip)
    del chip["sizes"], chip["torus"]  # the slices on offer
    del chip["nvidia"]  # for a compiler
    result = {
        "slice": chips.topology,
        "chips": chips.count,
        "nodes": chips.nodes,
        "chip": chip,
        "mesh": dict(steps.mesh.shape),
        "dtype": config.model.dtype,
        "parameters": model.count(),
        **dict(zip(VOCABULARIES, task_of(config).vocab_sizes, strict=False)),
        "labels": model.predicts == "label",  # are what the first of these holds
        "accumulate": config.train.accumulate,
        "remat": config.model.remat,
        "steps": config.train.steps,
        "save_every": config.train.save_every,
        "batch": {
            "rows": shape.rows,
            "real_rows": step_costs.real_rows(config),
            "source": shape.source,
            "target": shape.target,
            "assumed": assumed,
        },
        **compiled,
        "flops": step_costs.step_flops(model, config, shape) | compiled["flops"],
    }
    result["fits"] = result["memory"]["needed"] <= result["memory"]["chip"]
    is_compiled = result["collectives"] is not None
    result["time"] = _time(result, chips) if is_compiled else None
    return result


def _compile_steps(config: Config, devices: Sequence) -> tuple[Model, Steps]:
    model = build(config.model, *task_of(config).vocab_sizes)
    check_batching(model, config)
    frozen = step_costs.frozen_models(model, config)
    mesh = meshes.make_mesh(config.mesh, devices)
    return model, compile_steps(model, config, mesh, step_costs.BOS, frozen)


def _time(result: dict, chips: Slice) -> dict:
    """Estimates the seconds of a step, and from them speed and cost of the run.

    `step`, the forecast, has no overlap of communication with computation; `best`
    assumes that matrix units, memory and links are busy at the same time. `compute` is
    the time of all kernels where they are known, else that of the matrix products.
    """
    chip, parts = chips.chip, result["memory"]["parts"]
    state = parts["parameters"] + parts["average"] + parts["optimizer"]
    # The state is read and written once in a step, temporaries once per microbatch.
    # Frozen models are only read.
    moved = 2 * (state + parts["temporary"] * result["accumulate"])
    moved += parts.get("frozen", 0)
    sent = sum(row["sent"] for row in result["collectives"])
    peak = chip.peak(result["dtype"]) * chips_table.SHARE_OF_PEAK
    compute = result["flops"]["computed"] / chips.count / peak
    if kernels := result["kernels"]:
        by_part = kernels["parts"].items()
        compute = sum(row["seconds"] for part, row in by_part if part != EXCHANGE)
    memory = moved / chip.bandwidth
    rate = chips.interconnect() * chips_table.SHARE_OF_LINKS
    links = sent / rate if sent else 0.0
    step = max(compute, memory) + links
    batch = result["batch"]
    tokens = batch["real_rows"] * (batch["source"] + batch["target"])
    days = step * result["steps"] / 86_400
    return {
        "compute": compute,
        "memory": memory,
        "links": links,
        "step": step,
        "best": max(compute, memory, links),
        "tokens_per_second": tokens / step,
        "days": days,
        "chip_hours": days * 24 * chips.count,
        "moved_bytes": moved,
        "sent_bytes": sent,
        "share_of_peak": None if kernels else chips_table.SHARE_OF_PEAK,
        "share_of_links": chips_table.SHARE_OF_LINKS,
    }


def search_kernels(config: Config | ConfigDict, slice: str) -> dict:
    """Lists the kernels of one position of beam search, on one chip of a slice.

    The block of lines is a GPU's or TPU's of the shortest sources, with room in the
    caches for twice as many positions.

    Returns:
      Strings, numbers, lists and dicts: `kernels`, of `kernels.summary`; `memory`, the
      program's in bytes; `shape`, the lines, hypotheses, and tokens.

    Raises:
      UserError: no such slice, or no compiler for its chips.
    """
    if not isinstance(config, Config):
        config = fields.from_config_dict(config)
    rented = chips_table.find_slice(slice)
    compilers.check_kernels(rented)
    devices = compilers.devices_of(rented)
    config = for_chip(config, rented.chip)
    decode = config.decode
    model = build(config.model, *task_of(config).vocab_sizes)
    if not model.generates:
        raise UserError(
            f"config.model.kind={config.model.kind!r} generates no text to search for; "
            "want --program=step"
        )
    weights = partial(model.for_search, config=config.model, platform=rented.chip.kind)
    search = Search(
        parameters=(jax.eval_shape(weights, model.shapes),),
        definitions=(model.definition,),
        mesh=meshes.make_mesh(devices=devices[:1]),
        # Any special tokens would do.
        algorithm=unchecked_beam_search(decode, 1, pad=0, bos=step_costs.BOS, eos=2),
    )
    rows, room = block_rows(SHORTEST, decode, rented.chip.kind), 2 * SHORTEST
    with waiting(f"compiling the search for {rented.topology}"):
        compiled = search.lowered(rows, SHORTEST, room, room).compile()
    program = Program(compiled.as_text())
    memory = compiled.memory_analysis()
    return {
        "slice": rented.topology,
        "dtype": config.model.dtype,
        "shape": {
            "lines": rows,
            "beam": decode.beam,
            "source": SHORTEST,
            "room": room,
        },
        "memory": memory.argument_size_in_bytes + step_costs.temporary_bytes(memory),
        "kernels": kernels_table.summary(
            program, rented.chip, kernels_table.search_loop(program)
        ),
    }


def measure_step(config: Config, devices: Sequence, count: int = 5) -> float:
    """Measures a real step on devices of this machine: the median, in seconds."""
    _, steps = _compile_steps(config, devices)
    shape, _ = step_costs.assumed_shape(config, steps.mesh)
    batch = {
        name: jnp.ones(x.shape, x.dtype)
        for name, x in step_costs.batch_shapes(shape, steps.mesh, config).items()
    }
    frozen = jax.tree.map(  # values do not matter
        lambda x: jnp.zeros(x.shape, x.dtype, device=x.sharding), steps.frozen
    )
    state = steps.init()

    def step():
        nonlocal state
        state, metrics = steps.train(state, batch, *frozen)
        return state, metrics

    return median_seconds(step, count)
