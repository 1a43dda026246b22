"""Checkpoints, written by Orbax: asynchronous, whole or absent.

    DIR/checkpoints/state/STEP        a TrainState and how far the run is; the last 2
    DIR/checkpoints/parameters/STEP   parameters alone; as many as are averaged
    DIR/checkpoints/best/STEP         parameters alone, of the best dev BLEU

A run continues from the first kind; a translator reads the others.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from t2t_jax import workdir as workdirs
from t2t_jax.data.feeding import Position
from t2t_jax.errors import UserError
from t2t_jax.model.transformer import Parameters
from t2t_jax.training.step import TrainState

KEEP_STATES = 2


class Reached(NamedTuple):
    """How far a run is, beside its TrainState."""

    position: Position = Position()  # the next batch
    seconds: float = 0.0  # trained so far, over all restarts


class Checkpoints:
    """The checkpoints of a run, for the run that writes them."""

    def __init__(self, workdir: epath.PathLike, keep_parameters: int):
        folder = _folder(workdir)
        kept = ("state", KEEP_STATES), ("parameters", keep_parameters), ("best", 1)
        self._states, self._parameters, self._best = (
            ocp.CheckpointManager(
                folder / kind,
                options=ocp.CheckpointManagerOptions(max_to_keep=keep, create=True),
            )
            for kind, keep in kept
        )

    def save(self, state: TrainState, progress: Reached, average: bool) -> None:
        """Saves the state, and the parameters alone where they are to be averaged.

        Returns when the arrays are copied; the writing goes on behind.
        """
        step = int(state.step)
        if average:
            self._replace(self._parameters, step, parameters=state.best_parameters())
            # A state on disk says that the parameters of its step are there too.
            self._parameters.wait_until_finished()
        told = {"position": progress.position._asdict(), "seconds": progress.seconds}
        self._replace(self._states, step, state=state._asdict(), progress=told)

    def save_best(self, parameters: Parameters, step: int) -> None:
        """Saves parameters in place of those that were the best before."""
        self._replace(self._best, step, parameters=parameters)
        self._best.wait_until_finished()

    def _replace(self, manager: ocp.CheckpointManager, step: int, **items: Any) -> None:
        """Saves; a checkpoint of this step that a killed run left behind is the same
        state, made again, and gives way."""
        if step in manager.all_steps():
            manager.delete(step)
        save = {
            name: ocp.args.JsonSave(item)
            if name == "progress"
            else ocp.args.StandardSave(item)
            for name, item in items.items()
        }
        manager.save(step, args=ocp.args.Composite(**save), force=True)

    def restore(self, shapes: TrainState) -> tuple[TrainState, Reached] | None:
        """The newest state, laid out as `shapes` says, or None before the first."""
        step = self._states.latest_step()
        if step is None:
            return None
        args = ocp.args.Composite(
            state=ocp.args.StandardRestore(shapes._asdict()),
            progress=ocp.args.JsonRestore(),
        )
        restored = self._states.restore(step, args=args)
        told = restored.progress
        progress = Reached(Position(**told["position"]), told["seconds"])
        return TrainState(**restored.state), progress

    def none_to_translate_with(self) -> bool:
        """True before the first parameters are saved alone."""
        return self._parameters.latest_step() is None

    def close(self) -> None:
        """Waits, and ends the threads that write."""
        for manager in (self._states, self._parameters, self._best):
            manager.close()


def _folder(workdir: epath.PathLike) -> epath.Path:
    """Where checkpoints are; on disk absolute, as Orbax wants it."""
    folder = workdirs.path(workdir) / "checkpoints"
    return folder.absolute() if workdirs.on_disk(folder) else folder


def parameter_steps(workdir: epath.PathLike, kind: str = "parameters") -> list[int]:
    """The steps whose parameters are kept, ascending; `kind` may be `best`.

    A checkpoint that is still being written is not among them. Orbax knows which: on
    disk it has another name, in a bucket it lacks a last file.
    """
    names = ocp.path.step.standard_name_format()
    return sorted(found.step for found in names.find_all(_folder(workdir) / kind))


def read_parameters(
    workdir: epath.PathLike, step: int, shapes: Parameters
) -> Parameters:
    """The parameters of one step, as NumPy arrays of the model's `shapes`.

    Raises:
      UserError: there is no such checkpoint, or it is of a model of other shapes.
    """
    kinds = {kind: parameter_steps(workdir, kind) for kind in ("parameters", "best")}
    folder = _folder(workdir)
    for kind, steps in kinds.items():
        if step in steps:
            folder /= kind
            break
    else:
        steps = sorted({step for steps in kinds.values() for step in steps})
        raise UserError(f"{folder} has no step {step}; it has {steps or 'none yet'}")
    restore = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), shapes)
    with ocp.PyTreeCheckpointer() as reader:
        tree = reader.restore(
            folder / str(step) / "parameters",
            ocp.args.PyTreeRestore(item=shapes, restore_args=restore),
        )
    for path, (got, wanted) in _paired(tree, shapes):
        if got.shape != wanted.shape:
            raise UserError(
                f"{folder / str(step)}: {path} has shape {got.shape}; the workdir's "
                f"config makes it {wanted.shape}"
            )
    return tree


def _paired(tree, shapes):
    leaves, _ = jax.tree.flatten_with_path(tree)
    for (path, got), wanted in zip(leaves, jax.tree.leaves(shapes), strict=True):
        yield jax.tree_util.keystr(path), (got, wanted)


def average(
    workdir: epath.PathLike, steps: Sequence[int], shapes: Parameters
) -> Parameters:
    """The mean of the parameters of some steps (section 6.1), read one at a time.

    Summed in float64, so that the order of the steps does not matter.
    """
    total = jax.tree.map(lambda x: np.zeros(x.shape, np.float64), shapes)
    for step in steps:
        total = jax.tree.map(np.add, total, read_parameters(workdir, step, shapes))
    return jax.tree.map(lambda x: (x / len(steps)).astype(np.float32), total)
