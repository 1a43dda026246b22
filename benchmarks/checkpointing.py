"""Measures checkpoints against Orbax's own manager: seconds and disk space.

    python -m benchmarks.checkpointing
    python -m benchmarks.checkpointing --preset=tiny --rounds=5 --folder=DIR

A full state is saved and restored by ours and by Orbax's CheckpointManager. Ours seals
a checkpoint with the SHA-256 of every file, makes it survive a loss of power and checks
it when it is restored; Orbax does none of the three. Rounds alternate; medians are
printed. The limit is one plain file of as many bytes, written, fsynced and hashed.
Training waits during `blocked`; the rest happens in the background.
"""

import statistics
import tempfile
from functools import partial
from pathlib import Path

import jax
import orbax.checkpoint as ocp
from absl import flags
from etils import epath

from benchmarks import run
from benchmarks.measuring import begin, publish, turns
from benchmarks.measuring import define_flags as define_shared_flags
from t2t_jax import config as fields
from t2t_jax.commands.config_files import load_config
from t2t_jax.io import sealed
from t2t_jax.tools.verify import measuring


def ours(folder: Path, state, shapes) -> dict[str, float]:
    """Seconds to save and restore a state with our checkpoints, and their bytes."""
    times = measuring.saved_and_restored(folder, state, shapes)
    lap = measuring.Stopwatch()
    assert not sealed.damage(measuring.state_folder(folder, state))
    return {
        "blocked": times["blocked"],
        "whole after": times["complete"],
        "restored": times["restored"],
        "of that checked": lap(),
        "bytes": times["on_disk"],
    }


def orbax(folder: Path, state, shapes) -> dict[str, float]:
    """The same with Orbax's CheckpointManager."""
    manager = ocp.CheckpointManager(epath.Path(folder).absolute())
    lap = measuring.Stopwatch()
    manager.save(1, args=ocp.args.StandardSave(state._asdict()))
    times = {"blocked": lap()}
    manager.wait_until_finished()
    times["whole after"] = times["blocked"] + lap()
    manager.restore(1, args=ocp.args.StandardRestore(shapes._asdict()))
    times["restored"] = lap()
    manager.close()
    times["bytes"] = sealed.size(epath.Path(folder) / "1")
    return times


def define_flags():
    flags.DEFINE_string("preset", "base", "Name of a preset in configs/.")
    define_shared_flags(rounds=3)
    flags.DEFINE_string(
        "folder", None, "Folder to write in; by default a temporary one."
    )


def main(_):
    args = flags.FLAGS
    begin(args)
    preset = load_config(f"configs/{args.preset}.py")
    config = fields.from_config_dict(preset)
    trainer = measuring.Trainer(config, *config.data.vocab_sizes, devices=jax.devices())
    state, shapes = measuring.with_noise(trainer.state), trainer.steps.shapes
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    count = trainer.model.count()
    print(f"{args.preset}: {count:,} parameters, {size / 1e6:,.0f} MB")
    makers = {
        "plain file": lambda folder: measuring.plain_file(folder, size),
        "Orbax": lambda folder: orbax(folder, state, shapes),
        "ours": lambda folder: ours(folder, state, shapes),
    }

    def measured(make):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            return make(Path(folder))

    contenders = {name: partial(measured, make) for name, make in makers.items()}
    rows = turns(contenders, args.rounds)
    medians = {
        name: {what: statistics.median(row[what] for row in each) for what in each[0]}
        for name, each in rows.items()
    }
    columns = dict.fromkeys(what for values in medians.values() for what in values)
    rows = [
        {"checkpoint": name} | {what: values.get(what) for what in columns}
        for name, values in medians.items()
    ]
    publish(rows, args.output)


if __name__ == "__main__":
    run(main, define_flags)
