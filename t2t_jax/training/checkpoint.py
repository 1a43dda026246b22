"""Checkpoints: written asynchronously by Orbax, complete or absent, checked when read.

    DIR/checkpoints/state/STEP        a TrainState and a RunProgress; the last 2
    DIR/checkpoints/parameters/STEP   parameters alone; as many as are averaged
    (of both also the step of a stop or the end, until a later save is complete)
    DIR/checkpoints/best/STEP         parameters alone, of the best dev BLEU
    DIR/checkpoints/set_aside/        what was damaged, or discarded by a rollback

Training resumes from the first kind; a translator reads the other two. A complete
checkpoint is sealed with a manifest (`io/sealed.py`). One without a manifest does
not count, and one that differs from its manifest is not used.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from etils import epath

from t2t_jax.data.feeding import Position
from t2t_jax.io import sealed
from t2t_jax.io.errors import UserError, first_line
from t2t_jax.io.messages import say
from t2t_jax.model.layers import Parameters
from t2t_jax.parallel import processes
from t2t_jax.parallel.machine import tree_bytes
from t2t_jax.training import checkpoint_folders as folders
from t2t_jax.training.checkpoint_folders import KINDS
from t2t_jax.training.orbax_files import Writer, read_items
from t2t_jax.training.step import TrainState
from t2t_jax.workdir import Workdir

T = TypeVar("T")
LONG = processes.LONG_TIMEOUT  # writing and hashing may take long


class RunProgress(NamedTuple):
    """The progress of a run, stored with its TrainState."""

    position: Position = Position()  # of the next batch
    seconds: float = 0.0  # of training so far, over all restarts
    # Metrics of steps that are not logged yet: a run that was stopped between two
    # logging intervals then logs the same numbers as one that was not.
    unread: Sequence[dict[str, float]] = ()
    kernel_choices: str = ""  # those of `nondeterminism.py`

    def to_json(self) -> dict:
        """Returns a JSON object."""
        return self._asdict() | {"position": self.position._asdict()}

    @classmethod
    def from_json(cls, data: dict) -> "RunProgress":
        """Inverts `to_json`."""
        return cls(**data | {"position": Position(**data["position"])})


def read_state(
    path: epath.Path, shapes: TrainState, placed: bool = False
) -> tuple[TrainState, RunProgress]:
    """Reads a stored state as NumPy arrays; changes nothing.

    Args:
      path: the folder of a complete state, as `folders.damage` checks it.
      placed: True reads to the devices of this process what `shapes` places there.
    """
    # With NumPy arrays as the target Orbax restores NumPy arrays; the caller
    # distributes them to the devices of all processes.
    arrays = shapes
    if not placed:
        arrays = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), shapes)
    try:
        state, reached = read_items(path, "state", arrays._asdict(), "reached")
    except ValueError:
        folders.check_names(path / "state", shapes.parameters, "parameters")
        raise
    return TrainState(**state), RunProgress.from_json(reached)


def by_first(method: Callable[..., T]) -> Callable[..., T]:
    """Runs a method of `Checkpoints` on process 0 alone; all get its JSON value."""

    @functools.wraps(method)
    def call(self: "Checkpoints", *arguments: Any, **notes: float) -> T:
        if not self._shared:
            return method(self, *arguments, **notes)
        name, result = f"checkpoints: {method.__name__.strip('_')}", None
        with self._together(name):
            if processes.is_first():
                result = method(self, *arguments, **notes)
        return processes.exchange(f"{name}, result", result, LONG)[0]

    return call


class Checkpoints:
    """The checkpoints of a run, for the process that writes them.

    Only one may exist for a workdir at a time (`Workdir.hold`), since it deletes what a
    killed run left half written. It belongs to process 0: arrays of all devices go
    through the memory of that process, in both directions (`parallel/processes.py`).
    With `shared` each process has one, writes and reads its part of the arrays, and
    calls all methods but `wait`, `close` and `saved_before` together with the others.
    Process 0 decides, seals, moves and deletes. An error in one is raised in all.

    Args:
      keep_parameters: the number of parameter checkpoints to keep, the newest.
      keep_best: the number of checkpoints to keep for their dev BLEU.
      save_every: steps between two saves on schedule. A save at another step, where the
        run was stopped or ended, takes the place of none of these, and is removed once
        a later one is complete.
      shared: all processes see the folder (`folders.seen_by_all`).
    """

    def __init__(
        self,
        workdir: Workdir,
        keep_parameters: int,
        keep_best: int,
        save_every: int = 1,
        shared: bool = False,
    ):
        self._folder, self._shared = workdir.checkpoints, shared
        self._save_every = save_every
        # Of states the newest continues a run; the second is a spare in case the first
        # is damaged.
        self._keep = {"parameters": keep_parameters, "state": 2, "best": keep_best}
        self._finishing: threading.Thread | None = None  # seals the last save
        self._failure: Exception | None = None  # of that thread
        run = folders.run_name(self._folder) if shared else ""
        # One writer for each kind, so that a save can write two at the same time.
        self._writers = {kind: self._writer(kind, run) for kind in KINDS}
        self._clear_away()

    def save(
        self, state: TrainState, progress: RunProgress, parameters: bool = True
    ) -> None:
        """Saves the state and, with `parameters`, the parameters alone.

        Returns once the arrays are copied; writing continues in the background. The
        next `check`, `save` or `close` raises what goes wrong there.
        """
        self.wait()
        step = int(state.step)
        # The order matters: items are sealed in turn, so a sealed state implies that
        # its parameters are sealed, too.
        items = {}
        if parameters:
            items["parameters"] = {"parameters": state.best_parameters()}
        items["state"] = {"state": state._asdict(), "reached": progress.to_json()}
        with self._explained(step):
            self._start_writing(step, items)
        self._finishing = threading.Thread(
            target=self._finish, args=(step, list(items)), name="checkpoint"
        )
        self._finishing.start()

    def save_best(self, parameters: Parameters, step: int, goodness: float) -> None:
        """Saves parameters if their dev score is among the best; waits until written.

        `goodness` is the score, negated if lower scores are better. Of equal scores the
        earlier step wins. Removes checkpoints that are no longer among the best.
        """
        self.wait()
        if self._is_among_best(step, goodness):
            with self._explained(step):
                self._start_writing(step, {"best": {"parameters": parameters}})
                self._written("best")
                self._seal("best", step, goodness=goodness)
        self._remove_old("best")

    @by_first
    def _is_among_best(self, step: int, goodness: float) -> bool:
        scores = folders.best_steps(self._folder / "best")
        order = folders.ranked(scores | {step: goodness})
        return step in [*order][: self._keep["best"]]

    def restore(self, shapes: TrainState) -> tuple[TrainState, RunProgress] | None:
        """Reads the newest intact state; sets newer, damaged ones aside.

        Returns:
          The state as NumPy arrays, with `shared` on the devices; None if the run has
          not saved one yet.

        Raises:
          UserError: all states are damaged or lost, or the newest is of another
            version of the model; nothing is moved.
        """
        self.wait()
        damaged: dict[epath.Path, str] = {}  # on process 0
        step, result = self._newest(damaged), None
        if step is not None:
            path = self._path("state", step)
            with self._together("reading the state"):
                result = read_state(path, shapes, placed=self._shared)
        # Only now that it is known how to continue may anything be moved.
        self._set_aside(damaged)
        # A run that was killed just after a save may not have removed old checkpoints.
        for kind in KINDS:
            self._remove_old(kind)
        if damaged:
            say(f"continuing from step {step:,}" if result else "starting anew")
        return result

    @by_first
    def _newest(self, damaged: dict[epath.Path, str]) -> int | None:
        """The step of the newest intact state; adds to `damaged` those after it."""
        for step in reversed(folders.steps_in(self._folder / "state")):
            path = self._path("state", step)
            if not (trouble := folders.damage(path)):
                return step
            damaged[path] = trouble
        # A state without a manifest was never complete: a run that was killed in its
        # first save has lost nothing that could be restored, and starts anew.
        if any(map(sealed.is_sealed, damaged)) or self._lost():
            listed = "".join(
                f"\n  {path}: {description}" for path, description in damaged.items()
            )
            raise UserError(
                "every checkpoint that the run could continue from is damaged or lost:"
                f"{listed or f' {self._folder}/state has none'}\n"
                "Restore them from a copy, or train from the start in another "
                "--workdir. No checkpoint was changed"
            )
        return None

    @by_first
    def _set_aside(self, damaged: dict[epath.Path, str]) -> None:
        """Sets aside damaged states, and looks for damaged best checkpoints."""
        for path, trouble in damaged.items():
            folders.set_aside(path, f"is damaged ({trouble})")
        for step in folders.steps_in(self._folder / "best"):
            path = self._path("best", step)
            if trouble := folders.damage(path):
                folders.set_aside(path, f"is damaged ({trouble})")

    def _lost(self) -> bool:
        """True if stored parameters prove that a state was complete once.

        Each save seals the parameters before the state. So the parameters of the first
        save may exist without a state; those of a later save may not.
        """
        steps = folders.sealed_steps(self._folder / "parameters")
        return any(step > self._save_every for step in steps)

    def save_missing_parameters(self, state: TrainState) -> None:
        """Saves the parameters of a restored state again if theirs are damaged."""
        step = int(state.step)
        if self._lacks_parameters(step):
            self.save_parameters(state.best_parameters(), step)

    @by_first
    def _lacks_parameters(self, step: int) -> bool:
        path = self._path("parameters", step)
        if (trouble := folders.damage(path)) and path.exists():
            folders.set_aside(path, f"is damaged ({trouble}), and is saved again")
        return bool(trouble)

    def save_parameters(self, parameters: Parameters, step: int) -> None:
        """Saves parameters alone; waits until they are written."""
        with self._explained(step):
            self._start_writing(step, {"parameters": {"parameters": parameters}})
        self._finish(step, ["parameters"])
        self.wait()

    def saved_before(self, step: int) -> bool:
        """True if a state of an earlier step is stored."""
        self.wait()
        return any(s < step for s in folders.sealed_steps(self._folder / "state"))

    def go_back(self, step: int, shapes: TrainState) -> tuple[TrainState, RunProgress]:
        """Restores the newest intact state before a step; sets later ones aside."""
        self.wait()
        self._discard_after("state", step - 1)
        state, progress = self.restore(shapes)
        # `restore` may have gone back further, past damaged states.
        for kind in KINDS:
            self._discard_after(kind, int(state.step))
        return state, progress

    @by_first
    def _discard_after(self, kind: str, newest: int) -> None:
        for step in folders.steps_in(self._folder / kind):
            if step > newest:
                folders.set_aside(self._path(kind, step), "is discarded")

    @by_first
    def warn_if_disk_is_short(self, state: TrainState) -> None:
        """Warns if the checkpoints of this run may not fit on the disk."""
        alone = tree_bytes(state.best_parameters())
        sizes = {"state": tree_bytes(state), "parameters": alone, "best": alone}
        # One more of each kind than is kept: an old checkpoint is removed only after
        # the new one is complete. And the one of a stop.
        needed = sum((self._keep[kind] + 1) * size for kind, size in sizes.items())
        needed += sizes["state"] + alone
        folders.warn_if_short(self._folder, needed)

    def check(self) -> None:
        """Raises the error of the last save, if writing it failed; does not wait."""
        failed = self._failure is not None
        if self._shared and self._finishing:
            # A process may know of it earlier than another one.
            failed = any(processes.exchange("the last save", failed))
        if failed:
            self.wait()

    def is_complete(self) -> bool:
        """True if the last save is complete; does not wait."""
        return not (self._failure or (self._finishing and self._finishing.is_alive()))

    def wait(self) -> None:
        """Waits until the last save is complete; raises as `check`."""
        if self._finishing:
            self._finishing.join()
            self._finishing = None
        failure, self._failure = self._failure, None
        if failure:
            raise failure

    def close(self) -> None:
        """Waits for the last save, and ends the threads that write."""
        try:
            self.wait()
        finally:
            for writer in self._writers.values():
                writer.close()

    def _path(self, kind: str, step: int) -> epath.Path:
        return self._folder / kind / str(step)

    def _writer(self, kind: str, run: str) -> Writer:
        def barrier(timeout: float) -> None:
            # Orbax's own would let the others wait in vain for one that failed.
            if self._shared:
                with processes.fail_together(f"writing {kind}", timeout):
                    pass

        return Writer(kind, self._shared, barrier, run)

    def _start_writing(self, step: int, items: dict[str, dict[str, Any]]) -> None:
        self._make_way(step, items)
        for kind, item in items.items():
            trees, json = {**item}, {}
            if "reached" in item:
                json["reached"] = trees.pop("reached")
            self._writers[kind].save(self._path(kind, step), trees, **json)

    @by_first
    def _make_way(self, step: int, items: dict[str, Any]) -> None:
        folders.check_room(self._folder, items)
        for path in (self._path(kind, step) for kind in items):
            path.parent.mkdir(parents=True, exist_ok=True)
            # A killed run may have left a checkpoint of this step. Training is
            # deterministic, so it is the same state, and the new one may replace it.
            if path.exists():
                sealed.remove(path)

    def _written(self, kind: str) -> None:
        """Waits until Orbax has written a checkpoint, or has failed in any process."""
        try:
            self._writers[kind].wait()
        except UserError:  # of another process, from `barrier`
            raise
        except Exception:
            # The others are waiting at the barrier.
            with self._together(f"writing {kind}"):
                raise

    @by_first
    def _seal(self, kind: str, step: int, **notes: float) -> None:
        folders.seal(self._path(kind, step), **notes)

    def _finish(self, step: int, kinds: list[str]) -> None:
        """Waits for Orbax, seals the checkpoints, and then removes old ones."""
        try:
            with self._explained(step):
                for kind in kinds:
                    self._written(kind)
                    self._seal(kind, step)
                # Parameters of a life that was killed before it had saved their state.
                # Here the run may end earlier than there, by time.
                self._discard_after("parameters", step)
                # After everything is sealed: a full disk must not cost old checkpoints.
                for kind in kinds:
                    self._remove_old(kind)
        except Exception as e:  # in a thread, where nobody catches it: see `check`
            self._failure = e

    def _together(self, name: str) -> contextlib.AbstractContextManager:
        """With `shared` an error of any process is raised in all."""
        if not self._shared:
            return contextlib.nullcontext()
        return processes.fail_together(name, LONG, Exception)

    @by_first
    def _remove_old(self, kind: str) -> None:
        """Removes the checkpoints of a kind that are no longer kept."""
        folder, count = self._folder / kind, self._keep[kind]
        steps = folders.sealed_steps(folder)
        scheduled = [step for step in steps if step % self._save_every == 0]
        steps_kept = {*scheduled[-count:], *steps[-1:]}
        if kind == "best":
            steps_kept = {*[*folders.best_steps(folder)][:count]}  # best first
        for step in {*steps} - steps_kept:
            sealed.remove(self._path(kind, step))

    @contextlib.contextmanager
    def _explained(self, step: int) -> Iterator[None]:
        """Turns any error of writing a checkpoint into a UserError."""
        try:
            yield
        except Exception as e:  # of Orbax, TensorStore or the file system
            self._make_room()
            if self._shared and isinstance(e, jax.errors.JaxRuntimeError):
                raise  # of a barrier: another process is gone, which is no mistake
            reason = first_line(e)
            # Orbax calls every error of a barrier a timeout.
            if e.__cause__ and not self._shared:
                reason += f" ({first_line(e.__cause__)})"
            saved = folders.sealed_steps(self._folder / "state")
            safe = "No earlier checkpoint exists"
            if saved:
                safe = f"Earlier checkpoints are intact, the last of step {saved[-1]:,}"
            error = UserError(
                f"the checkpoint of step {step:,} could not be written to "
                f"{self._folder}: {reason}\n"
                f"{safe}. Fix the cause, and run the same command again to continue"
            )
            error.everywhere = getattr(e, "everywhere", False)
            raise error from e

    def _make_room(self) -> None:
        """Deletes what is half written, after all writers have stopped."""
        for kind in KINDS:
            with contextlib.suppress(Exception):  # the first error is being reported
                self._written(kind)
        for kind in KINDS if processes.is_first() else ():
            with contextlib.suppress(OSError):
                folders.clear_away(self._folder / kind)

    @by_first
    def _clear_away(self) -> None:
        for kind in KINDS:
            folders.clear_away(self._folder / kind)
