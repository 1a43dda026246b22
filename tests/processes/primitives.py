"""What every process of `test_primitives.py` runs; it prints what it found, as JSON."""

import json
import socket
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from t2t_jax.io.errors import UserError
from t2t_jax.parallel import processes, rendezvous

KINDS = ("float32", "bfloat16", "float16", "bool", "int8", "int32", "uint32")


def bits(x) -> list:
    """What an array is, to the last bit."""
    x = np.asarray(x)
    return [str(x.dtype), [*x.shape], x.tobytes().hex()]


def arrays() -> dict[str, np.ndarray]:
    """Of each kind that could lose something on its way; some divide into devices."""
    odd = np.array([-0.0, 0.0, np.nan, -np.nan, np.inf, 1e-42, 1.5, -2.0], np.float32)
    odd.view(np.uint32)[2] |= 0x1234  # a nan that has something to say
    made = {
        "float32": odd,
        "bfloat16": odd.astype(jnp.bfloat16),
        "float16": odd.astype(np.float16),
        "bool": odd > 0,
        "int8": np.arange(-4, 4, dtype=np.int8),
        "int32": np.array([-(2**31), 2**31 - 1] * 4, np.int32),
        "uint32": np.array([0, 2**32 - 1] * 4, np.uint32),
    }
    parts = {
        "three": lambda x: x[:3],
        "empty": lambda x: x[:0],
        "zero-dimensional": lambda x: x[2],
        "not contiguous": lambda x: x.reshape(2, 4).T,
    }
    for part, of in parts.items():
        made |= {f"{name}, {part}": of(made[name]) for name in KINDS}
    return {name: np.asarray(x) for name, x in made.items()}


def error(function: Callable) -> str:
    """What it raised, and if all processes know of it."""
    try:
        function()
    except UserError as e:
        return f"{e} [{e.everywhere}]"
    return ""


def whole(text: str, numbers: list[int]) -> list[bool]:
    """If what each of the others sent of a large text has come, whole."""
    there = processes.exchange("large", text + str(processes.index()))
    return [it == text + str(i) for i, it in zip(numbers, there, strict=True)]


def found() -> dict:
    """What this process learns from the others, step by step as they do."""
    me, seen = processes.index(), {"host": socket.gethostname()}
    seen["numbers"] = processes.exchange("numbers", me)
    seen["again"] = [processes.exchange("again", [me, turn]) for turn in range(3)]
    seen["large"] = whole("ä\u2028" * processes.PART, seen["numbers"])
    seen["small"] = processes.exchange("small", None if me else "")

    seen["first"] = processes.from_first("first", lambda: {"made": me})
    seen["bytes"] = processes.bytes_from_first("bytes", lambda: bytes([me, 255])).hex()
    seen["no bytes"] = processes.bytes_from_first("no bytes", lambda: None)
    seen["none"] = processes.arrays_from_first("none", lambda: None, ())
    items = [(1, "a"), (0, ""), [], (me, "b")]
    seen["items"] = [*processes.stream_from_first("items", lambda: items)]
    seen["no items"] = [*processes.stream_from_first("no items", lambda: [])]

    def bad_items(good: int = 0):
        yield from range(good)
        raise UserError(f"after {good} items")

    def only_one(number: int):
        with processes.fail_together("only one"):
            if me == number:
                raise UserError(f"of {number} alone")

    processes.check_same("the same", {"a": [1, 0.1]}, "")
    seen["errors"] = {
        "first": error(lambda: only_one(0)),
        "another": error(lambda: only_one(1)),
        "made": error(lambda: processes.from_first("bad", lambda: next(bad_items()))),
        "item": error(
            lambda: [*processes.stream_from_first("bad items", lambda: bad_items(2))]
        ),
        "not the same": error(lambda: processes.check_same("it", me, "mend it")),
    }
    seen["after them"] = processes.exchange("numbers", me)
    seen["arrays"] = {
        f"{name}, {where}": [bits(x), bits(placed(x, where))]
        for name, x in arrays().items()
        for where in ("divided", "whole", "NumPy's")
        if where != "divided" or x.shape in ((8,), (0,))
    }
    return seen


def placed(x: np.ndarray, where: str) -> np.ndarray:
    """An array of the first process, put on all devices and fetched from there."""
    mesh = jax.make_mesh((jax.device_count(),), ("all",))
    spec = PartitionSpec("all") if where == "divided" else PartitionSpec()
    sharding = None if where == "NumPy's" else NamedSharding(mesh, spec)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
    there = processes.distribute(x if processes.is_first() else None, shape)
    if sharding:
        assert there.sharding.is_equivalent_to(sharding, there.ndim)
    return processes.gather(there)


if __name__ == "__main__":
    coordinator, count, process = (a.partition("=")[2] for a in sys.argv[1:])
    rendezvous.initialize(coordinator, int(count), int(process))
    print(json.dumps(found()))
