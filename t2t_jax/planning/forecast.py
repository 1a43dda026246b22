"""Whether a run fits on chips that are not here, and how long it takes there.

The step that would be trained is compiled for them; its memory and its collectives are
what the compiler says, its time is arithmetic (`docs/planning.md`).
"""

import dataclasses
import re
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.data.shapes import Shape
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.planning import chips as chips_table
from t2t_jax.planning import collectives, costs
from t2t_jax.planning.chips import Chip, Slice
from t2t_jax.terminal.errors import UserError
from t2t_jax.training.step import Steps, compile_steps

BOS = 1  # any piece: it changes no cost


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What a compiler says of a step, a device.

    Attributes:
      temporary: bytes of activations, gradients and whatever else is made on the way;
        None where it gave up for lack of memory.
      needed: bytes of all, where it gave up.
      program: bytes of machine code; 0 where it does not lie in the chip's memory.
      outputs: bytes of results that do not lie where the arguments lay.
      rows: of `collectives.table`; None where it gave up.
      arguments: bytes of state and batch; 0 where it gave up.
      flops: what XLA counts, a device, loops once.
      seconds: that compiling took.
    """

    temporary: int | None
    needed: float | None
    program: int
    outputs: int
    rows: list[dict] | None
    arguments: int
    flops: float
    seconds: float


def for_chip(config: Config, chip: Chip) -> Config:
    """The config with the type of activations that `auto` means on a chip."""
    if config.model.dtype != "auto":
        return config
    dtype = "bfloat16" if chip.native and chip.kind != "cpu" else "float32"
    return fields.changed(config, "model", dtype=dtype)


def batch_shapes(mesh: Mesh, shape: Shape) -> dict[str, Any]:
    """A batch on a mesh, without numbers."""
    where = meshes.sharding(mesh, ("batch",))
    return {
        side + what: jax.ShapeDtypeStruct(
            (shape.rows, getattr(shape, side)), jnp.int32, sharding=where
        )
        for side in ("source", "target")
        for what in ("", "_segment", "_position")
    }


def compile_step(steps: Steps, batch: dict, chip: Chip, length: int) -> Compiled:
    """Compiles the jitted train step for the mesh's devices, which need not be here."""
    started = time.monotonic()
    lowered = steps.train.lower(steps.shapes, batch)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as e:
        wanted = _out_of_memory(str(e))
        if wanted is None:
            raise
        needed, temporaries = wanted
        if temporaries:
            needed += costs.bytes_on_device((steps.shapes, batch))
        spent = time.monotonic() - started
        return Compiled(None, needed, 0, 0, None, 0, 0.0, spent)
    memory = compiled.memory_analysis()
    found = collectives.read(compiled.as_text(), dict(steps.mesh.shape))
    weights = {x.shape for x in jax.tree.leaves(steps.shapes.parameters)}
    tpu = chip.kind == "tpu"
    return Compiled(
        temporary=memory.temp_size_in_bytes,
        needed=None,
        program=memory.generated_code_size_in_bytes if tpu else 0,
        outputs=max(0, memory.output_size_in_bytes - memory.alias_size_in_bytes),
        rows=collectives.table(found, length, weights),
        arguments=memory.argument_size_in_bytes,
        flops=float((compiled.cost_analysis() or {}).get("flops", 0.0)),
        seconds=time.monotonic() - started,
    )


def _out_of_memory(told: str) -> tuple[float, bool] | None:
    """Bytes that a TPU's compiler wanted, and whether for temporaries alone.

    `... required for HLO temporaries (20.13G) exceeds available HBM (15.75G)`, or in
    an older one `Used 20.13G of 15.75G hbm`.
    """
    if "RESOURCE_EXHAUSTED" not in told:
        return None
    used = re.search(r"\(([\d.]+)([KMGT]?)\) exceeds", told) or re.search(
        r"[Uu]sed ([\d.]+)([KMGT]?) of [\d.]+[KMGT]? hbm", told
    )
    if not used:
        raise UserError(f"the compiler gave up for lack of memory: {told[:2000]}")
    scale = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    return float(used[1]) * scale[used[2]], "HLO temporaries" in told


def forecast(config: Config, chips: Slice, devices: list, vocab_size: int) -> dict:
    """What is known of a run on a slice before it is rented.

    Args:
      devices: of `virtual.devices`.
      vocab_size: pieces.

    Returns:
      Strings, numbers, lists and dicts, as `--json` prints them. Bytes are of one chip.

    Raises:
      UserError: the mesh has not as many devices, or an axis does not divide.
    """
    config = for_chip(config, chips.chip)
    mesh = meshes.make_mesh(config.mesh, devices)
    model = build(config.model, vocab_size)
    steps = compile_steps(model, config, mesh, BOS)
    shape, assumed = costs.assumed_shape(config, mesh)
    batch = batch_shapes(mesh, shape)
    compiled = compile_step(steps, batch, chips.chip, shape.target)
    flops = costs.step_flops(model, config, shape)
    told = {
        "slice": chips.topology,
        "chips": chips.count,
        "chip": _numbers(chips.chip),
        "mesh": dict(mesh.shape),
        "dtype": config.model.dtype,
        "parameters": model.count(),
        "vocabulary": vocab_size,
        "accumulate": config.train.accumulate,
        "remat": config.model.remat,
        "steps": config.train.steps,
        "batch": {
            "rows": shape.rows,
            "real_rows": costs.real_rows(config),
            "source": shape.source,
            "target": shape.target,
            "assumed": assumed,
        },
        "memory": _memory(steps, batch, compiled, chips.chip),
        "flops": flops | {"compiler_a_chip": compiled.flops},
        "collectives": compiled.rows,
        "compile_seconds": compiled.seconds,
    }
    told["fits"] = told["memory"]["needed"] <= told["memory"]["chip"]
    told["time"] = _time(told, chips) if compiled.rows is not None else None
    return told


def _numbers(chip: Chip) -> dict:
    told = dataclasses.asdict(chip)
    del told["sizes"], told["torus"]
    return told


def _memory(steps: Steps, batch: dict, compiled: Compiled, chip: Chip) -> dict:
    """Bytes on a chip, by what they are for."""
    parts = costs.state_bytes(steps.shapes)
    parts["batch"] = costs.bytes_on_device(batch)
    known = sum(parts.values())
    if compiled.temporary is None:
        parts["temporary"] = compiled.needed - known
    else:
        parts["temporary"] = compiled.temporary + compiled.outputs
        parts["program"] = compiled.program
    return {
        "chip": chip.memory,
        "parts": parts,
        "needed": sum(parts.values()),
        "arguments": compiled.arguments,
        "gradients": parts["parameters"],  # float32; within `temporary`
        "by": "the TPU's compiler" if chip.kind == "tpu" else "the CPU's compiler",
    }


def _time(told: dict, chips: Slice) -> dict:
    """Seconds of a step, and what they come to.

    Products, the memory and the links are busy at the same time at best, `best`; the
    forecast, `step`, is that nothing is sent while something is computed.
    """
    chip, parts = chips.chip, told["memory"]["parts"]
    peak = chip.bfloat16 if told["dtype"] == "bfloat16" else chip.float32
    state = parts["parameters"] + parts["average"] + parts["optimizer"]
    # The state is read and written, and so is, once, what is made on the way.
    moved = 2 * state + 2 * parts["temporary"] * told["accumulate"]
    sent = sum(row["sent"] for row in told["collectives"])
    compute = told["flops"]["computed"] / chips.count / peak
    compute /= chips_table.SHARE_OF_PEAK
    memory = moved / chip.bandwidth
    links = 0.0
    if sent:
        links = sent / (chips.interconnect() * chips_table.SHARE_OF_LINKS)
    step = max(compute, memory) + links
    batch = told["batch"]
    tokens = batch["real_rows"] * (batch["source"] + batch["target"])
    days = step * told["steps"] / 86_400
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
        "share_of_peak": chips_table.SHARE_OF_PEAK,
        "share_of_links": chips_table.SHARE_OF_LINKS,
    }


def measured_cpu() -> Chip:
    """This machine's processor: what a product and a copy reach here, now."""
    size = 1536
    x = jnp.ones((size, size), jnp.float32)
    product = _fastest(jax.jit(lambda x: x @ x), x, times=20)
    y = jnp.ones((64 << 20) // 4, jnp.float32)
    copy = _fastest(jax.jit(lambda y: y + 1), y)
    peak = 2 * size**3 / product
    return Chip(
        kind="cpu",
        memory=memory_here(),
        bfloat16=peak,
        float32=peak,
        bandwidth=2 * y.nbytes / copy,
        link=2 * y.nbytes / copy,
        source="measured now: a float32 product of 1536 x 1536, a sum over 64 MiB",
        native=False,
    )


def _fastest(function, x, times: int = 5) -> float:
    jax.block_until_ready(function(x))
    spent = []
    for _ in range(times):
        started = time.perf_counter()
        jax.block_until_ready(function(x))
        spent.append(time.perf_counter() - started)
    return min(spent)


def memory_here() -> float:
    try:
        with open("/proc/meminfo") as file:
            return float(file.readline().split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return 8.0 * 2**30


def measure_step(config: Config, vocab_size: int, count: int = 5) -> float:
    """Seconds of a real step on this machine's processor: the median of some."""
    config = fields.changed(config, "model", dtype="float32")
    mesh = meshes.make_mesh(config.mesh, jax.devices("cpu")[:1])
    steps = compile_steps(build(config.model, vocab_size), config, mesh, BOS)
    shape, _ = costs.assumed_shape(config, mesh)
    batch = {
        name: jnp.ones(x.shape, x.dtype)
        for name, x in batch_shapes(mesh, shape).items()
    }
    state, spent = steps.init(), []
    for _ in range(count + 1):
        started = time.perf_counter()
        state, metrics = steps.train(state, batch)
        jax.block_until_ready((state, metrics))
        spent.append(time.perf_counter() - started)
    return float(np.median(spent[1:]))
