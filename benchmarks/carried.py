"""Runs training steps that were compiled elsewhere, on a GPU that is lent for minutes.

    python -m benchmarks.carried --slice=h200:1 --write=FOLDER   # anywhere, minutes
    python -m benchmarks.carried --read=FOLDER/1_base_dense      # on such a GPU

The first command compiles with the compiler of `plan --kernels` and writes a file for
each program. Its products are cuBLAS's, since the autotuner, which chooses the tiles of
others, needs a GPU. Both commands want the same JAX. The second one also writes the
description of the GPU that compilers take, for programs that are those of this GPU.

A file of `--write` is executed when it is read: read only your own.
"""

import base64
import itertools
import pickle
import statistics
import time
from pathlib import Path

import jax
from absl import flags
from jax.experimental import serialize_executable, topologies

from benchmarks import measuring, run
from t2t_jax.commands import config_files
from t2t_jax.config import Config, changed, from_config_dict
from t2t_jax.costs import chips, step_costs
from t2t_jax.costs.timing import timed
from t2t_jax.data.shapes import Shape
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.model.model import build
from t2t_jax.parallel.batch_placement import place_batch
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.tasks.table import task_of
from t2t_jax.tools.plan import compilers, forecast
from t2t_jax.tools.verify.random_models import random_batch
from t2t_jax.training.step import Steps, compile_steps

CUBLAS = {"xla_gpu_enable_triton_gemm": False}


def steps_of(config: Config, devices: list) -> tuple[Steps, Shape]:
    """The functions of training, and the shape of the batches that `plan` assumes."""
    model = build(config.model, *task_of(config).vocab_sizes)
    steps = compile_steps(model, config, make_mesh(devices=devices[:1]), step_costs.BOS)
    return steps, step_costs.assumed_shape(config, steps.mesh)[0]


def write(folder: Path, topology: str, presets: list[str]) -> list[dict]:
    """Compiles and writes the presets' steps, with and without a fused kernel."""
    cpu = topology == "cpu:1"  # a rehearsal
    rented = chips.find_slice(topology, chips.measured_cpu() if cpu else None)
    devices = jax.devices("cpu") if cpu else compilers.devices_of(rented)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for preset in presets:
        for attention in ("dense", "fused"):
            config = from_config_dict(config_files.load_config(preset))
            config = forecast.for_chip(config, rented.chip)
            config = changed(config, "model", attention=attention)
            steps, shape = steps_of(config, devices)
            began = time.perf_counter()
            lowered = steps.train.lower(
                steps.shapes, step_costs.batch_shapes(shape, steps.mesh)
            )
            compiled = lowered.compile(compiler_options=None if cpu else CUBLAS)
            program = serialize_executable.serialize(compiled)
            pickled = pickle.dumps((jax.__version__, config, program))
            file = folder / f"{len(rows) + 1}_{preset}_{attention}"
            file.write_bytes(pickled)
            seconds = time.perf_counter() - began
            rows.append({"program": file.name, "MB": len(pickled) / 1e6, "s": seconds})
            say(f"{file}: {len(pickled) / 1e6:.1f} MB, after {seconds:.0f} s")
    return rows


def read(file: Path, count: int) -> tuple[dict, dict]:
    """Loads a program of `write` and times steps; also describes the device."""
    try:
        version, config, program = pickle.loads(file.read_bytes())
    except OSError as e:
        raise UserError(f"--read={file}: {e.strerror}; want a file of --write") from e
    if version != jax.__version__:
        raise UserError(f"{file} was made by JAX {version}; this is {jax.__version__}")
    device = jax.devices()[0]
    described = {"device": device.device_kind, "memory": device.memory_stats()}
    try:
        topology = topologies.get_attached_topology().serialize()
        described["topology"] = base64.b64encode(topology).decode()
    except Exception as e:  # what the device says is a question of this program
        described["topology"] = f"{type(e).__name__}: {e}"
    say(f"{described}")  # also if the program is refused
    began = time.perf_counter()
    train = serialize_executable.deserialize_and_load(
        *program, execution_devices=[device]
    )
    loaded = time.perf_counter() - began
    say(f"{file.name}: loaded in {loaded:.1f} s")
    steps, shape = steps_of(config, [device])
    batch = place_batch(
        steps.mesh, random_batch(shape, min(task_of(config).vocab_sizes))
    )
    state, metrics = steps.init(), {}

    def step():
        nonlocal state, metrics
        state, metrics = train(state, batch)
        return state, metrics

    first_seconds, *spent = itertools.islice(timed(step), count + 1)
    row = {
        "program": file.name,
        "load_s": loaded,
        "first_s": first_seconds,
        "ms": 1e3 * statistics.median(spent),
        "loss": float(metrics["loss"]),
    }
    return row, described


def define_flags():
    flags.DEFINE_string("output", None, "New file for the rows and their conditions.")
    flags.DEFINE_string("write", None, "New folder for the programs.")
    flags.DEFINE_string("slice", "h200:1", "The GPU to compile for; cpu:1 rehearses.")
    flags.DEFINE_list("presets", ["base", "big"], "Presets to compile.")
    flags.DEFINE_string("read", None, "A file of --write, to run.")
    flags.DEFINE_integer("steps", 12, "Steps that are timed.", lower_bound=1)


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    if bool(args.write) == bool(args.read):
        raise UserError("want one of --write=FOLDER and --read=FILE")
    # A program that was read from the cache is not whole when it is written again.
    jax.config.update("jax_enable_compilation_cache", False)
    if args.write:
        rows, described = write(Path(args.write), args.slice, args.presets), {}
    else:
        row, described = read(Path(args.read), args.steps)
        rows = [row]
    measuring.publish(rows, args.output, **described)


if __name__ == "__main__":
    run(main, define_flags)
