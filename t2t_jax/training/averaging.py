"""Parameters of a workdir: chooses checkpoints, reads, averages and hashes them."""

import hashlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from etils import epath

from t2t_jax.config import Config
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.sections import at_address
from t2t_jax.training.checkpoint_folders import (
    best_steps,
    check_names,
    damage,
    sealed_steps,
)
from t2t_jax.training.orbax_files import read_arrays, steps_in
from t2t_jax.workdir import Workdir


class CheckpointChoice(NamedTuple):
    """Checkpoints to read: the first `number` intact ones of a list."""

    folders: Sequence[epath.Path]  # candidates, in the order in which they are tried
    number: int  # the number of checkpoints to average
    exact: bool  # True if fewer than `number` intact checkpoints are an error

    @property
    def steps(self) -> list[int]:
        """The chosen steps if no checkpoint is damaged, ascending."""
        return sorted(int(folder.name) for folder in self.folders[: self.number])


def parameter_steps(
    workdir: Workdir | epath.PathLike, kind: str = "parameters"
) -> list[int]:
    """Lists the steps with stored parameters, ascending; `kind` may be `best`."""
    return sealed_steps(Workdir.open(workdir).checkpoints / kind)


def choose_checkpoints(
    workdir: Workdir | epath.PathLike,
    config: Config,
    checkpoint: str | int | None = None,
) -> CheckpointChoice:
    """Resolves a choice such as `average:5` to the checkpoints of a workdir.

    Args:
      checkpoint: as `Translator.load` takes it; None is `config.decode.checkpoint`.
    """
    checkpoint = str(config.decode.checkpoint if checkpoint is None else checkpoint)
    workdir = Workdir.open(workdir)
    for kind in ("parameters", "best"):
        folder = workdir.checkpoints / kind
        for step in sorted({*steps_in(folder)} - {*sealed_steps(folder)}):
            say(
                f"warning: {folder / str(step)} is incomplete (it has no manifest.json)"
                "; ignored"
            )
    steps = parameter_steps(workdir)
    if not steps:
        raise UserError(
            f"{workdir} has no checkpoint yet; train it first, or for longer"
        )
    best = best_steps(workdir.checkpoints / "best")
    # One or more steps, such as 3000 or "1000,2000".
    numbers = checkpoint.split(",")
    if all(number.strip().isdecimal() for number in numbers):
        requested = sorted({int(number) for number in numbers})
        return _choose_by_step(workdir, requested, {"parameters": steps, "best": best})

    # A run that was stopped, or ended, between two saves has one more checkpoint, off
    # the grid of save_every. Averages leave it out, so that a stop changes no score.
    series = [s for s in steps if s % config.train.save_every == 0] or steps
    name, _, number = checkpoint.partition(":")
    if name == "last" and not number:
        # Off the grid, too; if the last is damaged, the one before.
        return CheckpointChoice(
            _folders(workdir, "parameters", steps[::-1]), 1, exact=False
        )
    # "average", "best", "average:N" or "best:N", with N of at least 1.
    counted = not number or (number.isdecimal() and int(number) > 0)
    if name not in ("average", "best") or not counted:
        raise UserError(
            f"checkpoint={checkpoint!r}; want 'average', 'average:N', 'last', 'best', "
            f"'best:N', one of {steps}, or several of them separated by commas"
        )
    if name == "best" and not best:
        raise UserError(
            f"checkpoint={checkpoint!r}, but {workdir} has no complete checkpoint in "
            "checkpoints/best: either dev BLEU was never measured (config.data.dev, "
            "config.train.dev_lines, config.train.eval_every) or the folder was lost; "
            "give another"
        )
    # Newest first, or best first: if one is damaged, the next takes its place.
    kind, order = ("best", [*best]) if name == "best" else ("parameters", series[::-1])
    default = 1 if name == "best" else config.decode.average
    count = int(number or default)
    if number and count > len(order):
        raise UserError(
            f"checkpoint={checkpoint!r}, but {workdir} keeps only {len(order)}: "
            f"{sorted(order)}"
        )
    # A number that the user gave is exact; the config's default is an upper limit.
    return CheckpointChoice(_folders(workdir, kind, order), count, exact=bool(number))


def _folders(workdir: Workdir, kind: str, steps: Sequence[int]) -> list[epath.Path]:
    return [workdir.checkpoints / kind / str(step) for step in steps]


def _choose_by_step(
    workdir: Workdir, requested: list[int], steps: dict[str, Collection[int]]
) -> CheckpointChoice:
    """Chooses the checkpoints of requested steps; `steps` are those that exist."""
    stored_steps = sorted({step for kind in steps for step in steps[kind]})
    for step in requested:
        if step not in stored_steps:
            raise UserError(
                f"{workdir} has no checkpoint of step {step}; it has steps "
                f"{stored_steps}"
            )
    # The folders of each step: one, or two if it is also one of the best.
    copies = [
        [
            workdir.checkpoints / kind / str(step)
            for kind in steps
            if step in steps[kind]
        ]
        for step in requested
    ]
    if len(requested) == 1:  # if one copy is damaged, the other takes its place
        return CheckpointChoice(copies[0], 1, exact=True)
    firsts = [folders[0] for folders in copies]
    return CheckpointChoice(firsts, len(requested), exact=True)


def read_translating(
    workdir: Workdir, config: Config, model: Model, checkpoint: str | int | None = None
) -> tuple[Sequence[int], Parameters]:
    """Reads the parameters that translate; an adapter's are merged with its base's.

    Returns:
      The steps that were averaged, and float32 NumPy arrays.
    """
    choice = choose_checkpoints(workdir, config, checkpoint)
    if config.train.adapter != "none":
        read_merged = at_address("extensions.training.adapters.read_merged")
        return read_merged(workdir, config, model, choice)
    return average_checkpoints(choice, model.shapes)


def average_checkpoints(
    choice: CheckpointChoice, shapes: Parameters
) -> tuple[list[int], Parameters]:
    """Averages the chosen checkpoints that are intact (section 6.1).

    Warns of damaged ones and leaves them out.

    Returns:
      The steps that were averaged, ascending, and the mean of their parameters, float32
      NumPy arrays.
    """
    # One checkpoint is in memory at a time, and the sum. The sum is float64, so that
    # the order of the checkpoints does not matter.
    total = jax.tree.map(lambda x: np.zeros(x.shape, np.float64), shapes)
    steps: list[int] = []
    for folder in choice.folders:
        if len(steps) == choice.number:
            break
        try:
            tree = read_parameters(folder, shapes)
            _check_finite(tree, folder)
            total = jax.tree.map(np.add, total, tree)
            steps.append(int(folder.name))
        except DamagedError as e:
            say(f"warning: {e}; ignored")
    if not steps or (choice.exact and len(steps) < choice.number):
        raise UserError(
            f"only {len(steps)} of the {choice.number} requested checkpoints are "
            "intact: choose others with --checkpoint, restore them from a copy, or "
            "continue the run that wrote them"
        )
    # Without `exact`, the mean is over as many as are intact.
    mean = jax.tree.map(lambda x: (x / len(steps)).astype(np.float32), total)
    return sorted(steps), mean


def _check_finite(parameters: Parameters, folder: epath.Path) -> None:
    for path, x in jax.tree.leaves_with_path(parameters):
        if not np.isfinite(x).all():
            raise UserError(
                f"the parameters of {folder} are not finite: "
                f"{jax.tree_util.keystr(path)} has NaN or infinity; choose other steps "
                "with --checkpoint, from before the run diverged"
            )


class DamagedError(UserError):
    """A checkpoint differs from what was written."""


def read_parameters(folder: epath.Path, shapes: Parameters) -> Parameters:
    """Reads a checkpoint of parameters alone, as NumPy arrays.

    Raises:
      DamagedError: the checkpoint differs from what was written.
      UserError: the checkpoint is of a model with other names or shapes.
    """
    if trouble := damage(folder):
        raise DamagedError(f"{folder} is damaged ({trouble})")
    try:
        tree = read_arrays(folder / "parameters", shapes)
    except Exception:
        # A run that is still training may have removed the checkpoint meanwhile.
        if trouble := damage(folder):
            raise DamagedError(f"{folder} was removed ({trouble})") from None
        check_names(folder / "parameters", shapes)
        raise
    # Orbax restores arrays with the shapes that were saved, without a comparison.
    leaves, _ = jax.tree.flatten_with_path(tree)
    for (path, array), expected in zip(leaves, jax.tree.leaves(shapes), strict=True):
        if array.shape != expected.shape:
            raise UserError(
                f"{folder}: {jax.tree_util.keystr(path)} has shape {array.shape}, but "
                f"the workdir's config wants {expected.shape}"
            )
    return tree


def parameters_sha256(parameters: Any) -> str:
    """SHA-256 of the names, types, shapes and bytes of a tree of arrays, in hex."""
    digest = hashlib.sha256()
    for path, array in jax.tree.leaves_with_path(parameters):
        array = np.ascontiguousarray(array)
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
