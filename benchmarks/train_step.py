"""Compares a training step with Hugging Face's MarianMT on PyTorch.

    python -m benchmarks.train_step
    python -m benchmarks.train_step --work=S --rounds=9 --output=PATH
    python -m benchmarks.train_step --config=configs/big.py --batch=16x64
    python -m benchmarks.train_step --work=S --profile

Rates are in target tokens a second. Work T is the paper's base model with 32,000 pieces
and 32 rows of 32 + 32 tokens; S is a small model (4 + 4 layers of 128) with 8,000
pieces, 170 rows of 24 + 24 tokens and dropout 0.3; A, for a GPU, has the sizes of the
WMT Transformer of AlgoPerf (Dahl et al. 2023): hidden layers of 1,024, 128 rows of 256
+ 256 tokens, float32, of which a GPU multiplies 10 bits of mantissa (TF32). With
--config the work is that config's model, with the shape of its batches unless --batch
is given. A step is forward, backward and Adam, from token ids in the host's memory,
without padding. With --devices=N, ours takes N times the rows on N devices. Peak memory
is measured in a separate process for each contender, above that of its imports; on a
GPU it is the device's.

--profile prints instead where our step spends its time on a CPU, by operation.
"""

import dataclasses
import sys
import time
from typing import NamedTuple

import jax
import numpy as np
from absl import flags

from benchmarks import measuring, peers, run
from benchmarks.profile import profile
from benchmarks.trainer import Trainer
from t2t_jax.commands import config_files
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import Config, changed, from_config_dict
from t2t_jax.costs import step_costs
from t2t_jax.data.shapes import Shape
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import compute_dtype
from t2t_jax.model.model import build
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.parallel.process_setup import set_up_process
from t2t_jax.tools.verify.own_process import in_own_process, megabytes
from t2t_jax.tools.verify.random_models import random_batch


class Work(NamedTuple):
    """A model, its vocabulary and the shape of its batches."""

    name: str
    config: Config
    vocab_size: int
    shape: Shape
    devices: int = 1  # that share the rows

    def flops(self) -> float:
        """FLOPs of the matrix products of a step."""
        model = build(self.config.model, self.vocab_size)
        return step_costs.model_flops(model, self.config, self.shape)

    def batch(self) -> dict[str, np.ndarray]:
        """A batch of random tokens without padding, with the arrays of training."""
        return random_batch(self.shape, self.vocab_size)


def _small() -> Config:
    sizes = {"layers": 4, "width": 128, "heads": 4, "hidden": 256, "dropout": 0.3}
    return changed(Config(), "model", **sizes)


def _algoperf() -> Config:
    sizes = {"width": 1024, "heads": 16, "hidden": 1024, "dtype": "float32"}
    return changed(Config(), "model", **sizes)


WORKS = {
    "T": Work("step of base (T)", Config(), 32_000, Shape(32, 32, 32)),
    "S": Work(
        "training step of a small model (S)", _small(), 8_000, Shape(170, 24, 24)
    ),
    "A": Work("step of AlgoPerf (A)", _algoperf(), 32_000, Shape(128, 256, 256)),
}


def contender(name: str, work: Work):
    """Creates a trainer.

    Returns:
      A function that trains some steps and returns target tokens per second, and the
      trainer.
    """
    batch = work.batch()
    if name == "ours":
        devices = jax.devices()[: work.devices]
        trainer = Trainer(work.config, work.vocab_size, devices=devices)
        arguments = (batch,)
    else:
        bfloat16 = compute_dtype(work.config.model) == "bfloat16"
        longest = max(512, work.shape.source, work.shape.target)
        trainer = peers.MarianTraining(work.config, work.vocab_size, bfloat16, longest)
        arguments = (batch["source"], batch["target"], False)

    def rate(steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            trainer.step(*arguments)
        trainer.finish()
        seconds = time.perf_counter() - began
        return steps * work.shape.rows * work.shape.target / seconds

    return rate, trainer


def memory(name: str, work: Work, steps: int = 3) -> float | None:
    """Peak memory of some steps in MiB; call it in a new process."""
    if name == "ours":
        set_up_process()
    else:
        peers.need("torch", "transformers")
    memory_before = megabytes("VmRSS")
    rate, trainer = contender(name, work)
    rate(steps)
    if jax.default_backend() != "cpu":
        if name != "ours":
            return trainer.peak_megabytes()
        return jax.devices()[0].memory_stats()["peak_bytes_in_use"] / 2**20
    peak = megabytes("VmHWM")
    return None if memory_before is None or peak is None else peak - memory_before


def measured(work: Work, names: list[str], args):
    """Measures one work; returns its rows and the matrix peaks."""
    memories = {}
    if args.memory:
        for name in ("ours", *names):
            memories[measuring.NAMES.get(name, name)] = in_own_process(
                memory, name, work
            )
    torch = peers.need("torch")[0] if names else None
    rates = {name: contender(name, work)[0] for name in ("ours", *names)}
    for rate in rates.values():
        rate(2)  # compiles, and touches the memory for the first time
    dtype = compute_dtype(work.config.model).name
    medians, peaks = measuring.alternate_with_peak(
        {name: lambda rate=rate: rate(args.steps) for name, rate in rates.items()},
        args.rounds,
        dtype,
        torch,
        args.peak_sizes,
    )
    tokens = work.shape.rows * work.shape.target
    step = work.flops()
    flops = step / tokens / work.devices
    share = measuring.share_of_limit(medians["ours"], flops, peaks)
    print(
        f"{work.name}: {step / 1e9:,.0f} GFLOP a step of {tokens:,} target tokens, "
        f"{dtype}; limit {medians['ours'] / share:,.0f} tokens/s; "
        f"ours {tokens / medians['ours']:.3f} s"
    )
    rows = measuring.rows_of(
        work.name,
        "target tokens/s",
        medians,
        share_of_limit=share,
        ours_megabytes=memories.get("ours"),
    )
    return [
        dataclasses.replace(row, peer_megabytes=memories.get(row.peer_name))
        for row in rows
    ], peaks


def works(args, argv: list[str]) -> list[Work]:
    """The works that the flags select."""
    by_config = any(word.lstrip("-").startswith("config") for word in argv)
    names = args.work or (["config"] if by_config else ["T", "S"])
    selected = []
    for name in measuring.chosen(names, [*WORKS, "config"], "work"):
        if name == "config":
            config = from_config_dict(args.config)
            mesh = make_mesh(devices=jax.devices()[:1])
            shape = step_costs.assumed_shape(config, mesh)[0]
            name = config_files.config_name(args["config"].config_filename)
            work = Work(name, config, config.data.vocab_size, shape)
        else:
            work = WORKS[name]
        if args.batch:
            work = work._replace(shape=parsed_batch(args.batch))
            work = work._replace(name=f"{work.name} {args.batch}")
        if args.dtype:
            config = changed(work.config, "model", dtype=args.dtype)
            work = work._replace(config=config, name=f"{work.name} {args.dtype}")
        if args.devices > 1:
            rows = work.shape.rows * args.devices
            shape = dataclasses.replace(work.shape, rows=rows)
            name = f"{work.name}, {args.devices} devices"
            work = work._replace(name=name, shape=shape, devices=args.devices)
        selected.append(work)
    return selected


def parsed_batch(text: str) -> Shape:
    """Parses --batch: `32x64` means 32 rows of 64 source and 64 target tokens."""
    try:
        rows, length = map(int, text.split("x"))
    except ValueError:
        rows = length = 0
    if rows < 1 or length < 1:
        raise UserError(f"--batch={text!r}; want ROWSxLENGTH, such as 32x64")
    return Shape(rows, length, length)


def define_flags():
    define_config_flag()
    measuring.define_flags()
    flags.DEFINE_list("work", None, "T, S, A or config; several separated by commas.")
    flags.DEFINE_string("batch", None, "ROWSxLENGTH; the length of source and target.")
    flags.DEFINE_enum(
        "dtype", None, ["float32", "bfloat16"], "Type of the activations."
    )
    flags.DEFINE_integer(
        "devices", 1, "Devices of ours; needs --peers=.", lower_bound=1
    )
    flags.DEFINE_list("peers", list(peers.TRAINING), "Peers; empty: ours alone.")
    flags.DEFINE_integer(
        "steps", 2, "Steps of each contender in a round.", lower_bound=1
    )
    flags.DEFINE_boolean("memory", True, "Also measure peak memory.")
    flags.DEFINE_boolean("profile", False, "Time by operation of our step alone.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    if args.profile:
        for work in works(args, sys.argv[1:]):
            rate, _ = contender("ours", work)
            rate(2)
            print(f"{work.name}\n")
            measuring.publish(profile(lambda r=rate: r(1)), args.output)
        return
    names = measuring.chosen(args.peers, peers.TRAINING, "peers")
    if args.devices > 1 and (names or args.devices > jax.device_count()):
        raise UserError(
            f"--devices={args.devices}: want at most the {jax.device_count()} that are "
            "here, and --peers=, as a peer runs on one"
        )
    if names:
        peers.need("torch", "transformers")
    rows = []
    for work in works(args, sys.argv[1:]):
        work_rows, peaks = measured(work, names, args)
        rows += work_rows
    measuring.publish(rows, args.output, matrix_peak=peaks)


if __name__ == "__main__":
    run(main, define_flags, config="base")
