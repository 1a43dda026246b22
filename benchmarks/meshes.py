"""Checks that every mesh trains the same: `python -m benchmarks.meshes`.

Trains a small model for 20 steps, in float32 and without dropout, on one device and on
several meshes of virtual CPU devices, the last ones in two processes. Prints for each
mesh the largest relative difference of a loss from that on one device.
"""

import argparse
import json
import subprocess
import sys

import jax

from t2t_jax.config import Config, MeshConfig, ModelConfig, TrainConfig
from t2t_jax.data.feeding import plan_for
from t2t_jax.data.filling import fill
from t2t_jax.data.pairs import tokenize_in_memory
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.grammar import corpus
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel import rendezvous
from t2t_jax.parallel.process_setup import set_up_process
from t2t_jax.tools.verify.child_runs import free_port
from t2t_jax.training.step import compile_steps

STEPS = 20
MESHES = {  # name: (devices, config.mesh, config.train.accumulate, config.model.remat)
    "8 data": (8, {}, 1, "none"),
    "2 data x 4 fsdp": (8, {"fsdp": 4}, 1, "none"),
    "2 data x 2 fsdp x 2 tensor": (8, {"fsdp": 2, "tensor": 2}, 1, "none"),
    "3 data (rows padded)": (3, {}, 1, "none"),
    "1, 4 microbatches": (1, {}, 4, "none"),
    "1, remat full": (1, {}, 1, "full"),
    "2 x 2 x 2, 4 microbatches, remat dots": (8, {"fsdp": 2, "tensor": 2}, 4, "dots"),
}


def losses(devices: int, mesh: dict, accumulate: int = 1, remat: str = "none"):
    """Trains some steps on a mesh; returns their losses."""
    config = Config(
        model=ModelConfig(
            layers=2, width=128, heads=4, hidden=256, dropout=0.0, remat=remat
        ),
        train=TrainConfig(accumulate=accumulate),
        mesh=MeshConfig(**mesh),
    )
    lines = corpus.pairs("train")[:6000]
    text = (line for pair in lines for line in pair)
    vocabulary = Vocabulary(train_tokenizer(text, 1000), "benchmark")
    pairs = tokenize_in_memory(lines, vocabulary)
    data = Config().data.__class__(batch_tokens=2048, row_length=64)
    plan = plan_for(pairs, data, seed=0, epoch=0)
    device_mesh = meshes.make_mesh(config.mesh, jax.devices()[:devices])
    steps = compile_steps(
        build(config.model, *vocabulary.sizes), config, device_mesh, 1
    )
    state, values = steps.init(), []
    for number in range(STEPS):
        layout = meshes.local_layout(device_mesh, plan[number], accumulate)
        arrays = fill(layout, pairs.source, pairs.target)
        state, metrics = steps.train(state, meshes.place_batch(device_mesh, arrays))
        values.append(float(metrics["loss"]))
    return values


def in_two_processes(mesh: dict) -> list[float]:
    """The same losses from two processes with four devices each."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "benchmarks.meshes", f"--mesh={json.dumps(mesh)}"]
    processes = [
        subprocess.Popen(
            [*command, f"--coordinator={address}", f"--process={i}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for i in range(2)
    ]
    outputs = [process.communicate(timeout=600)[0].decode() for process in processes]
    return json.loads(outputs[0].splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mesh", help=argparse.SUPPRESS)
    parser.add_argument("--coordinator", help=argparse.SUPPRESS)
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    set_up_process()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 4 if given.coordinator else 8)
    if given.coordinator:
        rendezvous.initialize(given.coordinator, 2, given.process)
        print(json.dumps(losses(8, json.loads(given.mesh))))
        return
    single = losses(1, {})
    print(f"1 device: loss {single[0]:.4f} at step 1, {single[-1]:.4f} at step {STEPS}")
    rows = {name: losses(*options) for name, options in MESHES.items()}
    rows["2 processes x 4, data"] = in_two_processes({})
    rows["2 processes x 4, 2 data x 4 fsdp"] = in_two_processes({"fsdp": 4})
    for name, values in rows.items():
        worst = max(abs(a - b) / b for a, b in zip(values, single, strict=True))
        print(f"{name:40} {worst:.1e}")


if __name__ == "__main__":
    main()
