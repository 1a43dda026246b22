"""Trained parameters out of a workdir: which are kept, one of them, their average."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from t2t_jax.config import Config
from t2t_jax.model.layers import Parameters
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say
from t2t_jax.training.checkpoint_folders import (
    SINGLE_PROCESS,
    best_steps,
    damage,
    incomplete_steps,
    sealed_steps,
)
from t2t_jax.workdir.workdir import Workdir


class CheckpointChoice(NamedTuple):
    """Checkpoints to read: the first `wanted` of some that are intact.

    Attributes:
      folders: in the order in which they are tried.
      wanted: how many are averaged.
      exact: fewer than wanted will not do.
    """

    folders: Sequence[epath.Path]
    wanted: int
    exact: bool

    @property
    def steps(self) -> list[int]:
        """The steps it comes to if nothing is damaged, ascending."""
        return sorted(int(folder.name) for folder in self.folders[: self.wanted])


def parameter_steps(
    workdir: Workdir | epath.PathLike, kind: str = "parameters"
) -> list[int]:
    """The steps whose parameters are kept, ascending; `kind` may be `best`."""
    return sealed_steps(Workdir.open(workdir).checkpoints / kind)


def choose_checkpoints(
    workdir: Workdir | epath.PathLike,
    config: Config,
    checkpoint: str | int | None = None,
) -> CheckpointChoice:
    """What a choice of checkpoint means in a workdir.

    Args:
      config: of the workdir.
      checkpoint: as `Translator.load` takes it; `config.decode.checkpoint` if None.

    Raises:
      UserError: there is no checkpoint yet, or not what is asked for.
    """
    checkpoint = config.decode.checkpoint if checkpoint is None else checkpoint
    workdir = Workdir.open(workdir)
    for kind in ("parameters", "best"):
        for step in incomplete_steps(workdir.checkpoints / kind):
            path = workdir.checkpoints / kind / str(step)
            say(f"warning: {path} is not complete (it has no manifest.json); not used")
    steps = parameter_steps(workdir)
    if not steps:
        raise UserError(
            f"{workdir} has no checkpoint yet; train it first, or for longer"
        )
    # The last of a run that ended between two saves is not one of the series.
    series = [s for s in steps if s % config.train.save_every == 0] or steps
    best = best_steps(workdir.checkpoints / "best")

    def folders(kind, steps):
        return [workdir.checkpoints / kind / str(step) for step in steps]

    numbers = str(checkpoint).split(",")
    if all(number.strip().isdecimal() for number in numbers):
        asked = sorted({int(number) for number in numbers})
        kept = sorted({*steps, *best})
        for step in asked:
            if step not in kept:
                raise UserError(f"{workdir} has no step {step}; it keeps {kept}")
        kinds = {"parameters": steps, "best": best}
        there = [
            [f for kind in kinds if step in kinds[kind] for f in folders(kind, [step])]
            for step in asked
        ]
        if len(asked) == 1:  # what is kept twice is tried twice
            return CheckpointChoice(there[0], 1, exact=True)
        return CheckpointChoice([places[0] for places in there], len(asked), exact=True)
    name, _, number = checkpoint.partition(":")
    if name == "last" and not number:
        return CheckpointChoice(folders("parameters", steps[::-1]), 1, exact=False)
    counted = not number or (number.isdecimal() and int(number) > 0)
    if name not in ("average", "best") or not counted:
        raise UserError(
            f"checkpoint={checkpoint!r}; want 'average', 'average:N', 'last', 'best', "
            f"'best:N', one of {steps}, or some of them with commas"
        )
    if name == "best" and not best:
        raise UserError(
            f"checkpoint={checkpoint!r}, but {workdir} has none that is complete: no "
            "dev BLEU was measured yet (config.data.dev, config.train.dev_lines, "
            "config.train.eval_every), or it was lost"
        )
    kind, order = ("best", [*best]) if name == "best" else ("parameters", series[::-1])
    default = 1 if name == "best" else config.decode.average
    wanted = int(number or default)
    if number and wanted > len(order):
        raise UserError(
            f"checkpoint={checkpoint!r}, but {workdir} keeps {len(order)}: "
            f"{sorted(order)}"
        )
    return CheckpointChoice(folders(kind, order), wanted, exact=bool(number))


def average_checkpoints(
    choice: CheckpointChoice, shapes: Parameters
) -> tuple[list[int], Parameters]:
    """The steps that were chosen and are intact, and the mean of their parameters.

    Read one at a time and summed in float64, so that their order does not matter
    (section 6.1). Says which are damaged and left out.

    Raises:
      UserError: none is intact, or too few for a choice that is exact.
    """
    total = jax.tree.map(lambda x: np.zeros(x.shape, np.float64), shapes)
    steps: list[int] = []
    for folder in choice.folders:
        if len(steps) == choice.wanted:
            break
        try:
            total = jax.tree.map(np.add, total, read_parameters(folder, shapes))
            steps.append(int(folder.name))
        except DamagedError as e:
            say(f"warning: {e}; not used")
    if not steps or (choice.exact and len(steps) < choice.wanted):
        raise UserError(
            f"of the {choice.wanted} checkpoints asked for {len(steps)} are intact: "
            "choose others with --checkpoint, put them back from a copy, or let the "
            "run that made them go on"
        )
    mean = jax.tree.map(lambda x: (x / len(steps)).astype(np.float32), total)
    return sorted(steps), mean


class DamagedError(UserError):
    """A checkpoint is not what was written."""


def read_parameters(folder: epath.Path, shapes: Parameters) -> Parameters:
    """Parameters that were saved alone, as NumPy arrays of the model's `shapes`.

    Raises:
      DamagedError: they are not what was written.
      UserError: they are of a model of other shapes.
    """
    if trouble := damage(folder):
        raise DamagedError(f"{folder} is damaged ({trouble})")
    restore = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), shapes)
    try:
        handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=SINGLE_PROCESS)
        with ocp.Checkpointer(
            handler, multiprocessing_options=SINGLE_PROCESS
        ) as reader:
            tree = reader.restore(
                folder / "parameters",
                ocp.args.PyTreeRestore(item=shapes, restore_args=restore),
            )
    except Exception:  # a run that goes on may just have removed it
        if trouble := damage(folder):
            raise DamagedError(f"{folder} is gone ({trouble})") from None
        raise
    leaves, _ = jax.tree.flatten_with_path(tree)
    for (path, got), wanted in zip(leaves, jax.tree.leaves(shapes), strict=True):
        if got.shape != wanted.shape:
            raise UserError(
                f"{folder}: {jax.tree_util.keystr(path)} has shape {got.shape}; the "
                f"workdir's config makes it {wanted.shape}"
            )
    return tree
