"""All that this package asks of Orbax: trees of arrays and JSON, written and read.

Its handlers and temporary names are those of Orbax's first interface, of which it has
renamed parts before. Which folders count as checkpoints is decided in
`checkpoint_folders.py`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint.path import atomicity, step

from t2t_jax.parallel import processes

# Of the name of a folder that is not finished, on disk; a bucket has no such names.
UNFINISHED = r"\d+\.orbax-checkpoint-tmp.*"


def _options(
    barriers: str = "first", shared: bool = False
) -> ocp.options.MultiprocessingOptions:
    """Orbax's options with which this process alone, or every process, uses a folder.

    Without them Orbax waits in one process at barriers that the others never reach.
    A single process passes barriers, too. Their names begin with `barriers`. JAX
    refuses one whose name another thread is waiting at ("is already ongoing"), which
    Orbax reports as a timeout: writers that work at the same time need different names.
    """
    me = processes.index()
    return ocp.options.MultiprocessingOptions(
        primary_host=0 if shared else me,
        # All of them by their numbers: for None Orbax would wait through the devices,
        # where its collectives could meet those of a training step.
        active_processes={*range(jax.process_count())} if shared else {me},
        barrier_sync_key_prefix=barriers,
    )


def _items(options: ocp.options.MultiprocessingOptions) -> Any:
    composite = ocp.CompositeOptions(multiprocessing_options=options)
    return ocp.CompositeCheckpointHandler(composite_options=composite)


def steps_in(folder: epath.Path) -> list[int]:
    """The steps of all folders that Orbax has finished, ascending.

    Orbax's own lookup skips unfinished ones: on disk they have a temporary name, in a
    bucket they lack a file that is written last.
    """
    return sorted(entry.step for entry in step.standard_name_format().find_all(folder))


class Writer:
    """Writes folders in the background, one at a time.

    Args:
      kind: A name that no other writer of this process has.
      shared: All processes write their parts of the arrays; else this one alone.
      barrier: Called with a timeout in seconds where the processes wait for each other.
      run: A part of the names of unfinished folders; "" has Orbax's names.
    """

    def __init__(
        self, kind: str, shared: bool, barrier: Callable[[float], None], run: str
    ):
        options = _options(kind, shared)
        self._shared = shared
        self._writer = ocp.AsyncCheckpointer(
            _items(options),
            multiprocessing_options=options,
            async_options=ocp.options.AsyncOptions(
                barrier_sync_fn=lambda key, timeout_ms: barrier(timeout_ms / 1000)
            ),
            # `CheckpointManager` has deprecated this argument; this class has not, and
            # nothing else chooses a name.
            temporary_path_class=_names(run) if run else None,
        )

    def save(self, path: epath.Path, trees: dict[str, Any], **values: Any) -> None:
        """Copies trees of arrays, and JSON values; starts to write them to a folder."""
        arrays = {name: ocp.args.StandardSave(tree) for name, tree in trees.items()}
        json = {name: ocp.args.JsonSave(value) for name, value in values.items()}
        # `force`: other processes do not look if it exists; they may see old names.
        self._writer.save(
            path, args=ocp.args.Composite(**arrays, **json), force=self._shared
        )

    def wait(self) -> None:
        """Waits until the last folder is written; raises what went wrong."""
        self._writer.wait_until_finished()

    def close(self) -> None:
        """Ends the threads that write."""
        self._writer.close()


def _names(run: str) -> type:
    class Names(atomicity.AtomicRenameTemporaryPath):
        @classmethod
        def from_final(cls, final_path: epath.Path, **options: Any):
            name = f"{final_path.name}{atomicity.TMP_DIR_SUFFIX}.{run}"
            return cls(final_path.with_name(name), final_path, **options)

    return Names


def read_items(path: epath.Path, name: str, arrays: Any, value: str) -> tuple[Any, Any]:
    """Reads a tree and a JSON value by their names, as `Writer.save` wrote them.

    Args:
      arrays: The tree to restore into, of NumPy arrays or of shapes with shardings.
    """
    args = {name: ocp.args.StandardRestore(arrays), value: ocp.args.JsonRestore()}
    options = _options()
    with ocp.Checkpointer(_items(options), multiprocessing_options=options) as reader:
        restored = reader.restore(path, args=ocp.args.Composite(**args))
    return restored[name], restored[value]


def stored_tree(folder: epath.Path) -> Any:
    """What is known of the arrays of a tree without reading them; leaves are opaque."""
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=_options())
    return handler.metadata(folder).tree


def read_arrays(folder: epath.Path, shapes: Any = None) -> Any:
    """Reads a tree as NumPy arrays, whatever devices it was on.

    With `shapes`, the tree is one like it; the arrays have the shapes that are stored.
    """
    tree = stored_tree(folder) if shapes is None else shapes
    restore = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    arguments = ocp.args.PyTreeRestore(item=shapes, restore_args=restore)
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=_options())
    # In a thread: in the main one, asyncio sets a handler of Ctrl-C, and makes text of
    # all these arrays while it does (0.3 s for those of tiny).
    with (
        ocp.Checkpointer(handler, multiprocessing_options=_options()) as reader,
        ThreadPoolExecutor(1) as thread,
    ):
        return thread.submit(reader.restore, folder, arguments).result()
