"""Checkpoints, written by Orbax: asynchronous, whole or absent, checked when read.

    DIR/checkpoints/state/STEP        a TrainState and how far the run is; the last 2
    DIR/checkpoints/parameters/STEP   parameters alone; as many as are averaged
    DIR/checkpoints/best/STEP         parameters alone, of the best dev BLEU
    DIR/checkpoints/set_aside/        what turned out to be damaged, or was given up

A run continues from the first kind; a translator reads the next two. Each is sealed
when it is complete (`files.seal`): what has no manifest does not count, and what
differs from its manifest is not used.
"""

import contextlib
import errno
import shutil
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from t2t_jax.data.feeding import Position
from t2t_jax.files import locations, sealed
from t2t_jax.model.layers import Parameters
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say
from t2t_jax.training import checkpoint_folders
from t2t_jax.training.retention import KINDS, Retention
from t2t_jax.training.step import TrainState
from t2t_jax.workdir.workdir import Workdir

MARGIN = 1 << 20  # bytes on disk that checkpoints take beside their arrays


def handler() -> ocp.CompositeCheckpointHandler:
    """Orbax's, of one process."""
    options = ocp.CompositeOptions(
        multiprocessing_options=checkpoint_folders.SINGLE_PROCESS
    )
    return ocp.CompositeCheckpointHandler(composite_options=options)


class RunProgress(NamedTuple):
    """How far a run is, beside its TrainState."""

    position: Position = Position()  # the next batch
    seconds: float = 0.0  # trained so far, over all restarts
    unread: Sequence[dict[str, float]] = ()  # metrics of steps that are not told yet

    def to_json(self) -> dict:
        """As JSON has it."""
        return self._asdict() | {"position": self.position._asdict()}

    @classmethod
    def from_json(cls, data: dict) -> "RunProgress":
        """The inverse of `to_json`."""
        return cls(**data | {"position": Position(**data["position"])})


class Checkpoints:
    """The checkpoints of a run, for the run that writes them.

    There may be only one at a time (`Workdir.hold`): what a killed run left half
    written is cleared away. Of several processes the first one has them; arrays come to
    it from all devices, and go to them, by way of its memory (`parallel/processes.py`).
    """

    def __init__(self, workdir: Workdir, keep_parameters: int, keep_best: int):
        self._folder = workdir.checkpoints
        self._retention = Retention(parameters=keep_parameters, best=keep_best)
        self._writers = {
            kind: ocp.AsyncCheckpointer(
                handler(), multiprocessing_options=checkpoint_folders.SINGLE_PROCESS
            )
            for kind in KINDS
        }
        self._finishing: threading.Thread | None = None
        self._failure: Exception | None = None
        for kind in KINDS:
            checkpoint_folders.clear_away(self._folder / kind)

    def save(self, state: TrainState, progress: RunProgress, average: bool) -> None:
        """Saves the state, and the parameters alone where they are to be averaged.

        Returns when the arrays are copied; the writing goes on behind. What goes wrong
        there is raised by the next `check`, `save` or `close`.
        """
        self.wait()
        step = int(state.step)
        # In this order: a state that is sealed says that the parameters are, too.
        items = {}
        if average:
            items["parameters"] = {"parameters": state.best_parameters()}
        items["state"] = {"state": state._asdict(), "reached": progress.to_json()}
        with self._explained(step):
            self._check_room(items)
            for kind, item in items.items():
                self._start_writing(kind, step, item)
        self._finishing = threading.Thread(
            target=self._finish, args=(step, list(items)), name="checkpoint"
        )
        self._finishing.start()

    def save_best(self, parameters: Parameters, step: int, bleu: float) -> None:
        """Saves parameters if they are among the best by dev BLEU, of equals the
        earlier, and then removes those that are no longer."""
        self.wait()
        order = checkpoint_folders.ranked(
            checkpoint_folders.best_steps(self._folder / "best") | {step: bleu}
        )
        if step in [*order][: self._retention.best]:
            with self._explained(step):
                self._start_writing("best", step, {"parameters": parameters})
                self._writers["best"].wait_until_finished()
                checkpoint_folders.seal(self._path("best", step), bleu=bleu)
        self._remove_old("best")

    def restore(
        self, shapes: TrainState, save_every: int
    ) -> tuple[TrainState, RunProgress] | None:
        """The newest state that is whole, as NumPy arrays; None before the first. Newer
        ones that are damaged are named and set aside.

        Raises:
          UserError: there are states, and all are damaged, or there were some and they
            are lost; what is there stays as it is.
        """
        self.wait()
        damaged, found = {}, None
        for step in reversed(checkpoint_folders.steps_in(self._folder / "state")):
            path = self._path("state", step)
            if trouble := checkpoint_folders.damage(path):
                damaged[path] = trouble
                continue
            found = step, self._read(path, shapes)
            break
        if not found and (
            any(map(sealed.is_sealed, damaged)) or self._lost(save_every)
        ):
            told = "".join(f"\n  {path}: {why}" for path, why in damaged.items())
            raise UserError(
                "every checkpoint that the run could go on from is damaged or lost:"
                f"{told or f' {self._folder}/state has none'}\n"
                "Put them back from a copy, or train from the start in another "
                "--workdir. Nothing was changed here"
            )
        for path, trouble in damaged.items():
            checkpoint_folders.set_aside(path, f"is not whole ({trouble})")
        for step in checkpoint_folders.steps_in(self._folder / "best"):
            path = self._path("best", step)
            if trouble := checkpoint_folders.damage(path):
                checkpoint_folders.set_aside(path, f"is not whole ({trouble})")
        for kind in KINDS:  # a run that was killed may not have come to that
            self._remove_old(kind)
        if damaged:
            say(f"going on from step {found[0]:,}" if found else "beginning anew")
        return found and found[1]

    def _lost(self, save_every: int) -> bool:
        """True if parameters are from after the first save: a state was whole then."""
        steps = checkpoint_folders.sealed_steps(self._folder / "parameters")
        return len(steps) > 1 or any(step > save_every for step in steps)

    def _read(
        self, path: epath.Path, shapes: TrainState
    ) -> tuple[TrainState, RunProgress]:
        arrays = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), shapes)
        args = ocp.args.Composite(
            state=ocp.args.StandardRestore(arrays._asdict()),
            reached=ocp.args.JsonRestore(),
        )
        with ocp.Checkpointer(
            handler(), multiprocessing_options=checkpoint_folders.SINGLE_PROCESS
        ) as reader:
            restored = reader.restore(path, args=args)
        return TrainState(**restored.state), RunProgress.from_json(restored.reached)

    def mend(self, state: TrainState) -> None:
        """Saves the parameters of a restored state again where theirs are damaged."""
        step = int(state.step)
        path = self._path("parameters", step)
        if not (trouble := checkpoint_folders.damage(path)):
            return
        if path.exists():
            checkpoint_folders.set_aside(
                path, f"is not whole ({trouble}), and is made again"
            )
        with self._explained(step):
            self._start_writing(
                "parameters", step, {"parameters": state.best_parameters()}
            )
        self._finish(step, ["parameters"])
        self.check()

    def saved_before(self, step: int) -> bool:
        """True if there is a state of an earlier step."""
        self.wait()
        return any(
            s < step for s in checkpoint_folders.sealed_steps(self._folder / "state")
        )

    def go_back(
        self, before: int, shapes: TrainState, save_every: int
    ) -> tuple[TrainState, RunProgress]:
        """The newest whole state of before a step; what is later than that state is
        set aside."""
        self.wait()
        self._give_up("state", before - 1)
        state, progress = self.restore(shapes, save_every)
        for kind in KINDS:
            self._give_up(kind, int(state.step))
        return state, progress

    def _give_up(self, kind: str, after: int) -> None:
        for step in checkpoint_folders.steps_in(self._folder / kind):
            if step > after:
                checkpoint_folders.set_aside(self._path(kind, step), "is given up")

    def none_to_translate_with(self) -> bool:
        """True before the first parameters are saved alone."""
        return not checkpoint_folders.sealed_steps(self._folder / "parameters")

    def tell_room(self, state: TrainState) -> None:
        """Says how much disk a run takes at most, and warns where it will not do."""
        if not locations.is_local(self._folder):
            return
        sizes = _size(state), _size(state.best_parameters())
        wanted = self._retention.most_bytes(*sizes)
        self._folder.mkdir(parents=True, exist_ok=True)
        there = sealed.size(self._folder)
        free = shutil.disk_usage(self._folder).free
        if free < wanted - there:
            gb = [f"{size / 1e9:,.2f} GB" for size in (wanted, there, free)]
            say(
                f"warning: the checkpoints of this run will take up to {gb[0]}; there "
                f"are {gb[1]} of them in {self._folder}, and {gb[2]} are free"
            )

    def check(self) -> None:
        """Raises what went wrong with the last checkpoint, if its writing failed."""
        failure, self._failure = self._failure, None
        if failure:
            raise failure

    def wait(self) -> None:
        """Waits until what was saved is on disk; raises as `check`."""
        if self._finishing:
            self._finishing.join()
            self._finishing = None
        self.check()

    def close(self) -> None:
        """Waits, and ends the threads that write."""
        try:
            self.wait()
        finally:
            for writer in self._writers.values():
                writer.close()

    def _path(self, kind: str, step: int) -> epath.Path:
        return self._folder / kind / str(step)

    def _start_writing(self, kind: str, step: int, item: dict[str, Any]) -> None:
        """A checkpoint of this step that a killed run left behind is the same state,
        made again, and gives way."""
        path = self._path(kind, step)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            sealed.remove(path)
        args = {
            name: ocp.args.JsonSave(value)
            if name == "reached"
            else ocp.args.StandardSave(value)
            for name, value in item.items()
        }
        self._writers[kind].save(path, args=ocp.args.Composite(**args))

    def _check_room(self, items: dict[str, Any]) -> None:
        """Tells of a full disk before anything is half written."""
        if not locations.is_local(self._folder):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        arrays = _size(items)
        wanted, free = 1.05 * arrays + MARGIN, shutil.disk_usage(self._folder).free
        if free < wanted:
            mb = [f"{size / 1e6:,.1f} MB" for size in (wanted, free)]
            raise OSError(errno.ENOSPC, f"it takes {mb[0]}, and {mb[1]} are free")

    def _finish(self, step: int, kinds: list[str]) -> None:
        """Waits for Orbax, seals, and then removes what is no longer kept."""
        try:
            with self._explained(step):
                for kind in kinds:
                    self._writers[kind].wait_until_finished()
                    checkpoint_folders.seal(self._path(kind, step))
                for kind in kinds:
                    self._remove_old(kind)
        except Exception as e:  # raised again where it is seen
            self._failure = e

    def _remove_old(self, kind: str) -> None:
        """Removes what is no longer kept."""
        for step in self._retention.steps_to_remove(kind, self._folder / kind):
            sealed.remove(self._path(kind, step))

    @contextlib.contextmanager
    def _explained(self, step: int) -> Iterator[None]:
        """What goes wrong in writing, as a person can read it."""
        try:
            yield
        except Exception as e:  # of Orbax, TensorStore, the file system
            self._make_room()
            there = checkpoint_folders.sealed_steps(self._folder / "state")
            safe = "Nothing was saved before"
            if there:
                safe = f"What was saved before is whole, step {there[-1]:,} the last"
            raise UserError(
                f"the checkpoint of step {step:,} could not be written to "
                f"{self._folder}: {_shortened(e)}\n"
                f"{safe}; once that is mended the same command goes on from there"
            ) from e

    def _make_room(self) -> None:
        """Deletes what is half written, once nobody writes any more."""
        for writer in self._writers.values():
            with contextlib.suppress(Exception):  # what went wrong is known
                writer.wait_until_finished()
        for kind in KINDS:
            with contextlib.suppress(OSError):
                checkpoint_folders.clear_away(self._folder / kind)


def _shortened(error: Exception) -> str:
    """The first line of what may be a library's long report."""
    text = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-97:]}"


def _size(tree: Any) -> int:
    """Bytes of the arrays in a tree."""
    return sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(tree))
