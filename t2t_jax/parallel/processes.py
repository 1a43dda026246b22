"""Several processes that run one program: how they agree and wait.

Every process runs the same command. Only the first one, process 0, reads and writes the
workdir, and talks; no host has to see another's disk. What only the first knows it
tells the others, small things through the service by which JAX's processes find each
other, arrays through the devices. All calls here are made by every process, in the same
order. In a program of one process they cost nothing.

A wait has a name and an end: what a process waited for, and in vain for which other,
is told. How processes come together, and end, is in `meeting.py`.
"""

import base64
import collections
import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from t2t_jax.terminal.errors import UserError

TIMEOUT = 600.0  # seconds that a process waits for the others
LONG_TIMEOUT = 24 * 3600.0  # the same, where the others may be preparing a large text
PART = 1 << 20  # bytes of a value that are sent at once

T = TypeVar("T")
Json = Any  # what JSON can say

_rounds: collections.Counter[str] = collections.Counter()  # name -> exchanges so far


def distributed() -> bool:
    """True if there are other processes."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def index() -> int:
    """Of this process, from 0."""
    return jax.process_index() if distributed() else 0


def is_first() -> bool:
    """True in the process that has the workdir and talks; in a process alone, too."""
    return index() == 0


def exchange(name: str, value: Json, timeout: float = TIMEOUT) -> list[Json]:
    """The values of all processes, by their number; a barrier, too.

    Args:
      timeout: seconds that each of the others has.

    Raises:
      UserError: one of them did not come.
    """
    if not distributed():
        return [value]
    _rounds[name] += 1
    mine = f"t2t_jax/{name}/{_rounds[name]}"
    _send(f"{mine}/{index()}", json.dumps(value))
    end = time.monotonic() + timeout
    values = [
        value if other == index() else json.loads(_receive(mine, other, name, end))
        for other in range(jax.process_count())
    ]
    if _rounds[name] > 1:  # all are here, and so have read what was before
        _client().key_value_delete(f"t2t_jax/{name}/{_rounds[name] - 1}/{index()}/")
    return values


def _send(key: str, text: str) -> None:
    content = text.encode()
    parts = [content[i : i + PART] for i in range(0, len(content), PART)] or [b""]
    for i, part in enumerate(parts):
        _client().key_value_set_bytes(f"{key}/{i}", part)
    _client().key_value_set(f"{key}/parts", str(len(parts)))


def _receive(round_: str, other: int, name: str, end: float) -> str:
    left = max(1, int(1000 * (end - time.monotonic())))
    key = f"{round_}/{other}"
    try:
        parts = int(_client().blocking_key_value_get(f"{key}/parts", left))
    except Exception as e:
        if "DEADLINE_EXCEEDED" not in str(e):
            raise
        raise UserError(
            f"process {index()} waited in vain for process {other} at {name!r}; the "
            "log of that one may tell why"
        ) from None
    fetch = _client().blocking_key_value_get_bytes
    return b"".join(fetch(f"{key}/{i}", 60_000) for i in range(parts)).decode()


def _client():
    # JAX has no public name for it; Orbax, which needs it too, has.
    import orbax.checkpoint as ocp

    return ocp.multihost.get_jax_distributed_client()


@contextlib.contextmanager
def fail_together(what: str, timeout: float = TIMEOUT) -> Iterator[None]:
    """What is done in here succeeds in all processes, or fails in all.

    Raises:
      UserError: the first that was raised in here, in whichever process; with
        `everywhere` set, since all processes know of it.
    """
    error = None
    try:
        yield
    except UserError as e:
        error = e
    failed = [] if error is None else [str(error)]
    if not distributed():
        if error:
            raise error
        return
    told = {"error": failed, "host": socket.gethostname()}
    for other, its in enumerate(exchange(what, told, timeout)):
        if its["error"]:
            text = its["error"][0]
            if other and other != index():
                text = f"process {other} on {its['host']}: {text}"
            raise _everywhere(error or UserError(text))


def _everywhere(error: UserError) -> UserError:
    error.everywhere = True
    return error


def from_first(what: str, make: Callable[[], Json], timeout: float = TIMEOUT) -> Json:
    """What `make` returns in the first process, where alone it is called, in all.

    Raises:
      UserError: it was raised there.
    """
    made = None
    with fail_together(what, timeout):
        if is_first():
            made = make()
    if not distributed():
        return made
    return exchange(f"{what}, told", made if is_first() else None, timeout)[0]


def bytes_from_first(what: str, make: Callable[[], bytes | None]) -> bytes | None:
    """`from_first` for bytes."""

    def text() -> str | None:
        made = make()
        return None if made is None else base64.b64encode(made).decode()

    told = from_first(what, text)
    return None if told is None else base64.b64decode(told)


def arrays_from_first(
    what: str,
    make: Callable[[], tuple[Json, Any] | None],
    shapes: Any,
) -> tuple[Json, Any] | None:
    """What the first process makes, something to tell and arrays, in all; or None.

    Args:
      shapes: of the arrays, as `spread` takes them.
    """
    made = []

    def told() -> list | None:
        made.append(make())
        return None if made[0] is None else [made[0][0]]

    found = from_first(what, told, LONG_TIMEOUT)
    if found is None:
        return None
    return found[0], distribute(made[0][1] if made else None, shapes)


def stream_from_first(what: str, items: Callable[[], Iterable[T]]) -> Iterator[T]:
    """The items that the first process goes through, one by one, in all processes.

    They are what JSON can say; tuples become lists.
    """
    source = iter(items()) if is_first() else None

    def ask() -> list:
        return [item for item in [next(source, None)] if item is not None]

    while found := from_first(what, ask, LONG_TIMEOUT):
        yield found[0]


def check_same(what: str, value: Json, hint: str) -> None:
    """Raises a UserError in all processes where one has another value than the first.

    Args:
      hint: how to mend it.
    """
    values = exchange(what, [socket.gethostname(), value])
    others = [
        f"{i} on {host}"
        for i, (host, found) in enumerate(values)
        if found != values[0][1]
    ]
    if others:
        raise _everywhere(
            UserError(
                f"{what} of process {', '.join(others)} is not that of process 0 on "
                f"{values[0][0]}; {hint}"
            )
        )


def gather(tree: Any) -> Any:
    """Arrays that lie on the devices of several processes, whole in each, as NumPy's.

    One array after the other, so that no device has to hold more than one whole. Of a
    process alone they stay where they are.
    """
    if not distributed():
        return tree

    def fetch(x):
        if not isinstance(x, jax.Array) or x.is_fully_addressable:
            return np.asarray(x)
        return multihost_utils.process_allgather(x, tiled=True)

    return jax.tree.map(fetch, tree)


def distribute(tree: Any, shapes: Any) -> Any:
    """Arrays of the first process, on the devices of all.

    Args:
      tree: NumPy arrays; what it is elsewhere does not matter.
      shapes: a pytree of `jax.ShapeDtypeStruct`s; where one has a sharding its array
        lies so, otherwise every process gets it as NumPy's.
    """
    wanted, structure = jax.tree.flatten(shapes)
    given = structure.flatten_up_to(tree) if is_first() else [None] * len(wanted)

    def place(x, shape):
        if distributed():
            bits = _bits(shape.dtype)
            x = np.asarray(x, shape.dtype) if is_first() else np.empty(*_of(shape))
            x = multihost_utils.broadcast_one_to_all(np.ascontiguousarray(x).view(bits))
            x = np.asarray(x).view(shape.dtype).reshape(shape.shape)
        if shape.sharding is None:
            return np.asarray(x)
        if not distributed():
            return jax.device_put(x, shape.sharding)
        return jax.make_array_from_callback(x.shape, shape.sharding, x.__getitem__)

    return structure.unflatten(map(place, given, wanted))


def _of(shape: jax.ShapeDtypeStruct) -> tuple:
    return shape.shape, shape.dtype


def _bits(dtype: np.dtype) -> np.dtype:
    """Integers as wide: they are sent by adding up, which would lose -0.0 and nan."""
    return np.dtype(f"u{np.dtype(dtype).itemsize}")


class OnFirstProcess:
    """An object of process 0; on the others its methods exist but do nothing.

    Args:
      kind: the class of the object; a name that it lacks is an AttributeError on every
        process.
      arguments: for its constructor.
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
