"""Measures checkpoints against Orbax's own manager: seconds and disk space.

    python -m benchmarks.checkpointing
    python -m benchmarks.checkpointing --preset=tiny --rounds=5 --folder=DIR
    python -m benchmarks.checkpointing --preset=big --processes=4 --parts=own

A full state is saved and restored by ours and by Orbax's CheckpointManager. Ours seals
a checkpoint with the SHA-256 of every file, makes it survive a loss of power and checks
it when it is restored; Orbax does none of the three. Rounds alternate; medians are
printed. The limit is one plain file of as many bytes, written, fsynced and hashed.
Training waits during `blocked`; the rest happens in the background.

With --processes a state of random numbers, divided by `mesh.fsdp`, is saved by so many
processes of this machine and restored by new ones, which compare hashes of their parts:
each process its own part (`own`), and process 0 for all, as without a shared disk
(`first`). Memory is the highest of any process, in MiB.
"""

import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import flags
from etils import epath

from benchmarks import run
from benchmarks.measuring import Stopwatch, begin, publish, turns
from benchmarks.measuring import define_flags as define_shared_flags
from benchmarks.trainer import Trainer
from t2t_jax import config as fields
from t2t_jax.commands.config_files import load_config
from t2t_jax.config import Config
from t2t_jax.io import sealed
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh, processes
from t2t_jax.tools.verify.child_runs import Processes, rendezvous_flags
from t2t_jax.tools.verify.own_process import megabytes
from t2t_jax.tools.verify.random_models import BOS
from t2t_jax.training.checkpoint import Checkpoints, RunProgress
from t2t_jax.training.checkpoint_folders import seen_by_all
from t2t_jax.training.step import TrainState, compile_steps
from t2t_jax.workdir import Workdir


def with_noise(state: TrainState) -> TrainState:
    """A state with random moments, as after some training: zeros are compressed."""
    random = np.random.default_rng(0)

    def noise(x):
        if not x.ndim:
            return x
        return jax.device_put(random.standard_normal(x.shape, np.float32), x.sharding)

    noisy = jax.tree.map(noise, state.optimizer)
    return state._replace(optimizer=noisy, step=state.step + 1)


def plain_file(folder: Path, size: int) -> dict[str, float]:
    """Seconds to write and fsync a file of random bytes, and to read and hash it."""
    file, content = folder / "plain", np.random.default_rng(0).bytes(size)
    lap = Stopwatch()
    with open(file, "wb") as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())
    written = lap()
    with open(file, "rb") as f:
        hashlib.file_digest(f, "sha256")
    hashed = lap()
    file.unlink()
    return {"written": written, "hashed": hashed}


def ours(folder: Path, state, shapes) -> dict[str, float]:
    """Seconds to save and restore a state with our checkpoints, and their bytes."""
    workdir, times = Workdir(folder), {}
    checkpoints = Checkpoints(workdir, keep_parameters=1, keep_best=1)
    try:
        lap = Stopwatch()
        checkpoints.save(state, RunProgress(), parameters=False)
        times["blocked"] = lap()
        checkpoints.wait()
        times["whole after"] = times["blocked"] + lap()
        checkpoints.restore(shapes)
        times["restored"] = lap()
    finally:
        checkpoints.close()
    saved = workdir.checkpoints / "state" / str(int(state.step))
    lap = Stopwatch()
    assert not sealed.damage(saved)
    return times | {"of that checked": lap(), "bytes": sealed.size(saved)}


def orbax(folder: Path, state, shapes) -> dict[str, float]:
    """The same with Orbax's CheckpointManager."""
    manager = ocp.CheckpointManager(epath.Path(folder).absolute())
    lap = Stopwatch()
    manager.save(1, args=ocp.args.StandardSave(state._asdict()))
    times = {"blocked": lap()}
    manager.wait_until_finished()
    times["whole after"] = times["blocked"] + lap()
    manager.restore(1, args=ocp.args.StandardRestore(shapes._asdict()))
    times["restored"] = lap()
    manager.close()
    times["bytes"] = sealed.size(epath.Path(folder) / "1")
    return times


def random_parts(shapes: TrainState) -> TrainState:
    """A sharded state of random numbers, of which a process makes its parts alone."""
    leaves, structure = jax.tree.flatten(shapes)

    def random_leaf(seed: int, leaf):
        def part(index):
            starts = [s.start or 0 for s in index]
            shape = leaf.sharding.shard_shape(leaf.shape)
            random = np.random.default_rng([seed, *starts])
            return random.standard_normal(shape, np.float32).astype(leaf.dtype)

        return jax.make_array_from_callback(leaf.shape, leaf.sharding, part)

    state = structure.unflatten(random_leaf(*pair) for pair in enumerate(leaves))
    return state._replace(step=jax.device_put(np.int32(1), shapes.step.sharding))


def digest(state: TrainState) -> str:
    """SHA-256 of the parts of a state on the devices of this process."""
    hashed = hashlib.sha256()
    for leaf in jax.tree.leaves(state):
        for shard in leaf.addressable_shards:
            hashed.update(np.ascontiguousarray(shard.data))
    return hashed.hexdigest()


def one_of_several(config: Config, folder: Path, by_parts: bool, save: bool) -> dict:
    """Saves or restores as one of several processes; seconds, memory and a hash."""
    model, workdir = build(config.model, *config.data.vocab_sizes), Workdir(folder)
    shapes = compile_steps(model, config, mesh.make_mesh(config.mesh), BOS).shapes
    kind, arguments = Checkpoints, (workdir, 1, 1)
    assert not by_parts or seen_by_all(workdir.checkpoints)
    checkpoints = (
        kind(*arguments, shared=True)
        if by_parts
        else processes.OnFirstProcess(kind, *arguments)
    )
    state = random_parts(shapes) if save else None
    processes.exchange("start", None)
    began = time.perf_counter()
    if save:
        gathered = state if by_parts else processes.gather(state)
        checkpoints.save(gathered, RunProgress(), average=False)
        seconds = {"blocked": time.perf_counter() - began}
        checkpoints.wait()
        seconds["whole after"] = time.perf_counter() - began
    else:
        if by_parts:
            state, _ = checkpoints.restore(shapes, save_every=1)
        else:
            read = lambda: ((), checkpoints.restore(shapes, save_every=1)[0])  # noqa: E731
            _, state = processes.arrays_from_first("state", read, shapes)
        seconds = {"restored": time.perf_counter() - began}
    peak = megabytes("VmHWM")
    checkpoints.close()
    processes.exchange("end", None)
    name = "memory to save" if save else "memory to restore"
    return seconds | {name: peak, "sha256": digest(state)}


def by_several(args: flags.FlagValues, folder: Path, parts: str) -> dict[str, float]:
    """Starts processes that save, and then others that restore; the slowest of each."""
    row, hashes = {}, []
    for job in ("save", "restore"):
        with Processes(folder / job) as several:
            for place_flags in rendezvous_flags(args.processes):
                command = ["-m", "benchmarks.checkpointing", f"--preset={args.preset}"]
                command += [f"--folder={folder}", f"--parts={parts}", f"--job={job}"]
                several.start(
                    [sys.executable, *command, *place_flags],
                    Path.cwd(),
                    os.environ | {"JAX_NUM_CPU_DEVICES": "1"},
                )
            if any(several.end()):
                errors = "\n".join(map(several.err, range(args.processes)))
                raise UserError(f"a process failed:\n{errors}")
            results = [
                json.loads(several.out(i).splitlines()[-1])
                for i in range(args.processes)
            ]
        hashes.append([result.pop("sha256") for result in results])
        for name in results[0]:
            row[name] = max(result[name] for result in results)
    assert hashes[0] == hashes[1], "what was restored is not what was saved"
    workdir = Workdir(folder)
    return row | {"bytes": sealed.size(workdir.checkpoints / "state" / "1")}


def define_flags():
    flags.DEFINE_string("preset", "base", "Name of a preset in configs/.")
    define_shared_flags(rounds=3)
    flags.DEFINE_string(
        "folder", None, "Folder to write in; by default a temporary one."
    )
    flags.DEFINE_integer("processes", 1, "Processes that save and restore together.")
    flags.DEFINE_multi_enum(
        "parts",
        ["first", "own"],
        ["first", "own"],
        "With --processes: who writes and reads the part of a process.",
    )
    flags.DEFINE_enum("job", None, ["save", "restore"], "Of one of several processes.")


def main(_):
    args = flags.FLAGS
    preset = load_config(f"configs/{args.preset}.py")
    config = fields.from_config_dict(preset)
    if args.job:
        config = fields.changed(config, "mesh", fsdp=jax.device_count())
        by_parts = args.parts == ["own"]
        row = one_of_several(config, Path(args.folder), by_parts, args.job == "save")
        print(json.dumps(row), flush=True)
        return
    begin(args)
    makers = {
        f"{args.processes} processes, {parts}": partial(by_several, args, parts=parts)
        for parts in args.parts
    }
    if args.processes == 1:
        makers = makers_of_one(args, config)

    def measured(make):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            return make(folder=Path(folder))

    contenders = {name: partial(measured, make) for name, make in makers.items()}
    rows = turns(contenders, args.rounds)
    medians = {
        name: {part: statistics.median(row[part] for row in timed) for part in timed[0]}
        for name, timed in rows.items()
    }
    columns = dict.fromkeys(part for values in medians.values() for part in values)
    rows = [
        {"checkpoint": name} | {part: values.get(part) for part in columns}
        for name, values in medians.items()
    ]
    publish(rows, args.output)


def makers_of_one(args: flags.FlagValues, config: Config) -> dict:
    """The contenders of one process: functions of a new folder, by name."""
    trainer = Trainer(config, *config.data.vocab_sizes, devices=jax.devices())
    state, shapes = with_noise(trainer.state), trainer.steps.shapes
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    count = trainer.model.count()
    print(f"{args.preset}: {count:,} parameters, {size / 1e6:,.0f} MB")
    return {
        "plain file": lambda folder: plain_file(folder, size),
        "Orbax": lambda folder: orbax(folder, state, shapes),
        "ours": lambda folder: ours(folder, state, shapes),
    }


if __name__ == "__main__":
    run(main, define_flags, distributed=True)
