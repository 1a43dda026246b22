"""Communication between the processes of one program.

Every process runs the same command. Process 0 alone reads and writes the workdir, and
prints; no process needs access to another's disk. Only checkpoints are written and read
by all, if all can (`training/checkpoint.py`). What only process 0 knows it sends to
the others: small values through the key-value store of JAX's coordination service,
arrays through the devices. All functions here are collective: every process calls them,
in the same order. In a program of one process they cost nothing, not even the import of
JAX.

Every wait has a name and a timeout, and its error says which process did not come.
Processes find each other, and end, in `rendezvous.py`.
"""

import base64
import collections
import contextlib
import json
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from t2t_jax.io.errors import UserError, first_line
from t2t_jax.parallel.jax_internals import coordination_client

TIMEOUT = 600.0  # seconds that a process waits for the others
LONG_TIMEOUT = 24 * 3600.0  # the same, if the others may be preparing a large text
PART = 1 << 20  # bytes of a value that are sent in one message

T = TypeVar("T")
Json = Any  # any value that JSON can represent

# Exchanges so far, by name. Each gets its own keys, since a key can be set only once.
_rounds: collections.Counter[str] = collections.Counter()


def distributed() -> bool:
    """True if there are other processes."""
    jax = sys.modules.get("jax")  # without it, nothing has connected the processes
    return bool(jax and jax.distributed.is_initialized() and jax.process_count() > 1)


def index() -> int:
    """The index of this process, from 0."""
    return sys.modules["jax"].process_index() if distributed() else 0


def is_first() -> bool:
    """True in process 0, which has the workdir and prints; also in a single process."""
    return index() == 0


def exchange(name: str, value: Json, timeout: float = TIMEOUT) -> list[Json]:
    """Returns the values of all processes, in order; also a barrier.

    Args:
      name: names the wait in errors.
      timeout: seconds to wait for all the others.

    Raises:
      UserError: a process did not send its value in time.
    """
    if not distributed():
        return [value]
    import jax

    _rounds[name] += 1
    prefix = f"t2t_jax/{name}/{_rounds[name]}"
    _send(f"{prefix}/{index()}", json.dumps(value))
    end = time.monotonic() + timeout
    values = [
        value
        if process == index()
        else json.loads(_receive(prefix, process, name, end))
        for process in range(jax.process_count())
    ]
    # Every process has reached this round, so all have read the values of the previous
    # one: delete ours, or the store would grow without bound.
    if _rounds[name] > 1:
        coordination_client().key_value_delete(
            f"t2t_jax/{name}/{_rounds[name] - 1}/{index()}/"
        )
    return values


def _send(key: str, text: str) -> None:
    content = text.encode()
    parts = [content[i : i + PART] for i in range(0, len(content), PART)] or [b""]
    for i, part in enumerate(parts):
        coordination_client().key_value_set_bytes(f"{key}/{i}", part)
    # Last: a receiver waits for this key, and then finds all parts.
    coordination_client().key_value_set(f"{key}/parts", str(len(parts)))


def _receive(prefix: str, process: int, name: str, end: float) -> str:
    milliseconds = max(1, int(1000 * (end - time.monotonic())))  # ms
    key = f"{prefix}/{process}"
    try:
        parts = int(
            coordination_client().blocking_key_value_get(f"{key}/parts", milliseconds)
        )
    except Exception as e:
        if "DEADLINE_EXCEEDED" not in str(e):
            raise
        raise UserError(
            f"process {index()} timed out waiting for process {process} at {name!r}; "
            f"the log of process {process} may say why"
        ) from None
    fetch = coordination_client().blocking_key_value_get_bytes
    return b"".join(fetch(f"{key}/{i}", 60_000) for i in range(parts)).decode()


@contextlib.contextmanager
def fail_together(
    name: str, timeout: float = TIMEOUT, catch: type[Exception] = UserError
) -> Iterator[None]:
    """Makes the code inside succeed in all processes, or fail in all.

    Without it, the processes that succeeded would wait for the one that failed. Other
    errors than those of the type `catch` remain with the process that raised them.

    Raises:
      UserError: the error of the first process, by index, that raised one inside. Its
        attribute `everywhere` is set: all processes know of it.
    """
    error = None
    try:
        yield
    except catch as e:
        error = e if isinstance(e, UserError) else UserError(first_line(e))
    failed = [] if error is None else [str(error)]
    if not distributed():
        if error:
            raise error
        return
    status = {"error": failed, "host": socket.gethostname()}
    for process, result in enumerate(exchange(name, status, timeout)):
        if result["error"]:
            text = result["error"][0]
            # Process 0 prints the error; name the process if it is another one's.
            if process and process != index():
                text = f"process {process} on {result['host']}: {text}"
            raise _everywhere(error or UserError(text))


def _everywhere(error: UserError) -> UserError:
    """Marks an error that all processes raise, so that process 0 alone prints it."""
    error.everywhere = True
    return error


def from_first(name: str, make: Callable[[], Json], timeout: float = TIMEOUT) -> Json:
    """Calls `make` in process 0 only, and returns its result in all processes."""
    result = None
    with fail_together(name, timeout):
        if is_first():
            result = make()
    if not distributed():
        return result
    return exchange(f"{name}, result", result if is_first() else None, timeout)[0]


def bytes_from_first(name: str, make: Callable[[], bytes | None]) -> bytes | None:
    """`from_first` for bytes."""

    def text() -> str | None:
        content = make()
        return None if content is None else base64.b64encode(content).decode()

    received = from_first(name, text)
    return None if received is None else base64.b64decode(received)


def arrays_from_first(
    name: str, make: Callable[[], tuple[Json, Any] | None], shapes: Any
) -> tuple[Json, Any] | None:
    """`from_first` for a pair of a JSON value and a pytree of arrays, or None.

    Args:
      shapes: of the arrays, as `distribute` takes them.
    """
    pairs = []  # the result of `make`, on process 0

    def json_part() -> list | None:
        pairs.append(make())
        # In a list, to distinguish a pair whose JSON value is None from no pair.
        return None if pairs[0] is None else [pairs[0][0]]

    received = from_first(name, json_part, LONG_TIMEOUT)
    if received is None:
        return None
    return received[0], distribute(pairs[0][1] if pairs else None, shapes)


def stream_from_first(name: str, items: Callable[[], Iterable[T]]) -> Iterator[T]:
    """Iterates over `items()` in process 0, and yields each item in all processes.

    Items are JSON values other than None; tuples become lists.
    """
    source = iter(items()) if is_first() else None

    def next_item() -> list:
        # A list of one item, or an empty list at the end.
        return [item for item in [next(source, None)] if item is not None]

    while received := from_first(name, next_item, LONG_TIMEOUT):
        yield received[0]


def check_same(name: str, value: Json, hint: str) -> None:
    """Raises a UserError everywhere if any value differs from that of process 0."""
    values = exchange(name, [socket.gethostname(), value])
    differing = [
        f"{i} on {host}"
        for i, (host, other_value) in enumerate(values)
        if other_value != values[0][1]
    ]
    if differing:
        raise _everywhere(
            UserError(
                f"{name} of process {', '.join(differing)} is not that of process 0 on "
                f"{values[0][0]}; {hint}"
            )
        )


def gather(tree: Any) -> Any:
    """Returns arrays that are sharded over processes as complete NumPy arrays in each.

    In a program of one process arrays stay on their devices.
    """
    if not distributed():
        return tree
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    def fetch(x):
        if not isinstance(x, jax.Array) or x.is_fully_addressable:
            return np.asarray(x)
        return multihost_utils.process_allgather(x, tiled=True)

    # One array after the other: no device has to hold more than one in full.
    return jax.tree.map(fetch, tree)


def distribute(tree: Any, shapes: Any) -> Any:
    """Sends arrays of process 0 to the devices of all processes.

    Args:
      tree: NumPy arrays; ignored on other processes.
      shapes: a pytree of `jax.ShapeDtypeStruct`s. An array whose struct has a sharding
        is placed so; otherwise every process gets it as a NumPy array.
    """
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    structs, structure = jax.tree.flatten(shapes)
    arrays = structure.flatten_up_to(tree) if is_first() else [None] * len(structs)

    def place(x, shape):
        if distributed():
            # Unsigned integers of the same width: JAX broadcasts by adding up the
            # arrays of all processes, zeros but for one. In floating point that would
            # lose -0.0 and the bits of nan.
            bits = np.dtype(f"u{np.dtype(shape.dtype).itemsize}")
            # Other processes need an array of the same shape; its values do not matter.
            x = (
                np.asarray(x, shape.dtype)
                if is_first()
                else np.empty(shape.shape, shape.dtype)
            )
            x = multihost_utils.broadcast_one_to_all(np.ascontiguousarray(x).view(bits))
            # `ascontiguousarray` turns a scalar into an array [1]; restore the shape.
            x = np.asarray(x).view(shape.dtype).reshape(shape.shape)
        if shape.sharding is None:
            return np.asarray(x)
        if not distributed():
            return jax.device_put(x, shape.sharding)
        # Every process has the complete array and places its own shards.
        return jax.make_array_from_callback(x.shape, shape.sharding, x.__getitem__)

    return structure.unflatten(map(place, arrays, structs))


class OnFirstProcess:
    """Wrapper of an object of process 0; elsewhere its methods do nothing.

    Methods return None on other processes.

    Args:
      kind: the class of the object; a name that it lacks is an AttributeError on every
        process.
    """

    def __init__(self, kind: type, *arguments: Any):
        self._kind = kind
        self._object = kind(*arguments) if is_first() else None

    def __getattr__(self, name: str) -> Any:
        if self._object is not None:
            return getattr(self._object, name)
        if not callable(getattr(self._kind, name)):
            raise AttributeError(f"{self._kind.__name__}.{name} is only on process 0")
        return lambda *_, **__: None
