"""Measures checkpoints against Orbax's own manager: seconds and disk space.

    python -m benchmarks.checkpointing
    python -m benchmarks.checkpointing --preset=tiny --rounds=5 --folder=DIR

A full state is saved and restored by ours and by Orbax's CheckpointManager. Ours seals
a checkpoint with the SHA-256 of every file, makes it survive a loss of power and checks
it when it is restored; Orbax does none of the three. Rounds alternate; medians are
printed. The floor is one plain file of as many bytes, written, fsynced and hashed.
Training waits during `blocked`; the rest happens in the background.
"""

import hashlib
import os
import statistics
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import flags
from etils import epath

from t2t_jax import config as fields
from t2t_jax.commands.config_files import load_config
from t2t_jax.io import sealed
from t2t_jax.model.model import build
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.training.checkpoint import Checkpoints, RunProgress
from t2t_jax.training.step import compile_steps
from t2t_jax.workdir import Workdir


class Timer:
    """A stopwatch: a call returns the seconds since the last call or its creation."""

    def __init__(self):
        self._last = time.perf_counter()

    def __call__(self) -> float:
        last, self._last = self._last, time.perf_counter()
        return self._last - last


def floor(folder: Path, size: int) -> dict[str, float]:
    """Seconds to write and to hash one plain file."""
    content = np.random.default_rng(0).bytes(size)
    timer = Timer()
    with open(folder / "plain", "wb") as file:
        file.write(content)
        os.fsync(file.fileno())
    written = timer()
    with open(folder / "plain", "rb") as file:
        hashlib.file_digest(file, "sha256")
    return {"written": written, "hashed": timer()}


def ours(folder: Path, state, shapes) -> dict[str, float]:
    """Seconds to save and restore a state with our checkpoints, and their bytes."""
    checkpoints = Checkpoints(Workdir(folder), 1, 1)
    timer = Timer()
    checkpoints.save(state, RunProgress(), average=False)
    times = {"blocked": timer()}
    checkpoints.wait()
    times["whole after"] = times["blocked"] + timer()
    checkpoints.restore(shapes, save_every=1)
    times["restored"] = timer()
    checkpoints.close()
    place = Workdir(folder).checkpoints / "state" / str(int(state.step))
    timer()  # closing is not measured
    assert not sealed.damage(place)
    times["of that checked"] = timer()
    times["bytes"] = sealed.size(place)
    return times


def orbax(folder: Path, state, shapes) -> dict[str, float]:
    """The same with Orbax's CheckpointManager."""
    manager = ocp.CheckpointManager(epath.Path(folder).absolute())
    timer = Timer()
    manager.save(1, args=ocp.args.StandardSave(state._asdict()))
    times = {"blocked": timer()}
    manager.wait_until_finished()
    times["whole after"] = times["blocked"] + timer()
    manager.restore(1, args=ocp.args.StandardRestore(shapes._asdict()))
    times["restored"] = timer()
    manager.close()
    times["bytes"] = sealed.size(epath.Path(folder) / "1")
    return times


def _worn(state):
    """A state with random moments, as after some training.

    Orbax compresses arrays, so the zeros of a new state would take no space.
    """
    random = np.random.default_rng(0)

    def noise(x):
        if not x.ndim:
            return x
        values = random.standard_normal(x.shape, np.float32)
        return jax.device_put(values, x.sharding)

    optimizer = jax.tree.map(noise, state.optimizer)
    return state._replace(optimizer=optimizer, step=state.step + 1)


def define_flags():
    flags.DEFINE_string("preset", "base", "Name of a preset in configs/.")
    flags.DEFINE_integer("rounds", 3, "Number of rounds; medians are printed.")
    flags.DEFINE_string(
        "folder", None, "Folder to write in; by default a temporary one."
    )


def main(_):
    preset = load_config(f"configs/{flags.FLAGS.preset}.py")
    config = fields.from_config_dict(preset)
    model = build(config.model, *config.data.vocab_sizes)
    steps = compile_steps(model, config, make_mesh(), bos=1)
    state = _worn(steps.init())
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    print(f"{flags.FLAGS.preset}: {model.count():,} parameters, {size / 1e6:,.0f} MB")
    makers = {
        "floor": lambda folder: floor(folder, size),
        "Orbax": lambda folder: orbax(folder, state, steps.shapes),
        "ours": lambda folder: ours(folder, state, steps.shapes),
    }
    rows: dict[str, list] = {name: [] for name in makers}
    for _ in range(flags.FLAGS.rounds):
        for name, make in makers.items():
            with tempfile.TemporaryDirectory(dir=flags.FLAGS.folder) as folder:
                rows[name].append(make(Path(folder)))
    medians = {
        name: {what: statistics.median(row[what] for row in each) for what in each[0]}
        for name, each in rows.items()
    }
    for name, values in medians.items():
        seconds = (f"{w} {v:.2f} s" for w, v in values.items() if w != "bytes")
        disk = f", {values['bytes'] / 1e6:,.0f} MB on disk" if "bytes" in values else ""
        print(f"{name:6}  {', '.join(seconds)}{disk}")
    for what in ("blocked", "whole after", "restored"):
        ratio = medians["ours"][what] / medians["Orbax"][what]
        print(f"ours / Orbax, {what}: {ratio:.2f}")


if __name__ == "__main__":
    from benchmarks import run

    run(main, define_flags)
