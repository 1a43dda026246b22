"""What every process of `test_training.py` runs; it prints what it found, as JSON."""

import json
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from t2t_jax.io.errors import UserError
from t2t_jax.parallel import processes, rendezvous
from t2t_jax.training.checkpoint import Checkpoints, RunProgress
from t2t_jax.training.checkpoint_folders import seen_by_all
from t2t_jax.training.step import TrainState
from t2t_jax.workdir import Workdir


def bits(x) -> list:
    """What an array is, to the last bit."""
    x = np.asarray(x)
    return [str(x.dtype), [*x.shape], x.tobytes().hex()]


def arrays() -> dict[str, np.ndarray]:
    """Of each kind that could lose something on its way; some divide into devices."""
    odd = np.array([-0.0, 0.0, np.nan, -np.nan, np.inf, 1e-42, 1.5, -2.0], np.float32)
    odd.view(np.uint32)[2] |= 0x1234  # a nan that has something to say
    odd_arrays = {
        "float32": odd,
        "bfloat16": odd.astype(jnp.bfloat16),
        "bool": odd > 0,
        "int8": np.arange(-4, 4, dtype=np.int8),
        "int32": np.array([-(2**31), 2**31 - 1] * 4, np.int32),
        "uint32": np.array([0, 2**32 - 1] * 4, np.uint32),
    }
    for name, x in [*odd_arrays.items()]:
        odd_arrays |= {f"{name}, three": x[:3], f"{name}, empty": x[:0]}
        odd_arrays |= {f"{name}, scalar": x[2], f"{name}, turned": x.reshape(2, 4).T}
    return {name: np.asarray(x) for name, x in odd_arrays.items()}


def error(function: Callable) -> str:
    """What it raised, and if all processes know of it."""
    try:
        function()
    except UserError as e:
        return f"{e} [{e.everywhere}]"
    return ""


def exchanged(me: int) -> dict:
    """What this process learns from the others -> what it should learn."""
    numbers, host = processes.exchange("numbers", me), socket.gethostname()
    large = "ä\u2028" * processes.PART
    received = processes.exchange("large", large + str(me))
    items, bad = [(1, "a"), (0, ""), [], (me, "b")], UserError("after an item")

    def bad_items():
        yield 0
        raise bad

    def only_one(number: int):
        with processes.fail_together("only one"):
            if me == number:
                raise UserError(f"of {number} alone")

    def stream(name, items):
        return [*processes.stream_from_first(name, items)]

    processes.check_same("the same", {"a": [1, 0.1]}, "")
    return {
        "numbers": (numbers, [0, 1]),
        "large": (received == [large + "0", large + "1"], True),
        "small": (processes.exchange("small", None if me else ""), ["", None]),
        "first": (processes.from_first("first", lambda: {"made": me}), {"made": 0}),
        "bytes": (
            processes.bytes_from_first("bytes", lambda: bytes([me, 255])),
            b"\0\xff",
        ),
        "no bytes": (processes.bytes_from_first("no bytes", lambda: None), None),
        "items": (stream("items", lambda: items), [[1, "a"], [0, ""], [], [0, "b"]]),
        "error of the first": (error(lambda: only_one(0)), "of 0 alone [True]"),
        "error of another": (
            error(lambda: only_one(1)),
            (f"process 1 on {host}: " if not me else "") + "of 1 alone [True]",
        ),
        "error of an item": (
            error(lambda: stream("bad items", bad_items)),
            "after an item [True]",
        ),
        "not the same": (
            error(lambda: processes.check_same("it", me, "mend it")),
            f"it of process 1 on {host} is not that of process 0 on {host}; mend it "
            "[True]",
        ),
        "after them": (processes.exchange("numbers", me), [0, 1]),
    }


def report(results: dict) -> dict:
    """What is not as it should be, or did not arrive; how many arrays were sent."""
    results |= exchanged(processes.index())
    for name, x in arrays().items():
        for placement in ("divided", "whole", "NumPy's"):
            if placement != "divided" or x.shape in ((8,), (0,)):
                results[f"{name}, {placement}"] = bits(placed(x, placement)), bits(x)
    # As JSON: what comes from another process has lists for tuples.
    as_json = {
        n: [json.dumps(x, default=str) for x in pair] for n, pair in results.items()
    }
    return {
        "wrong": {name: pair for name, pair in as_json.items() if pair[0] != pair[1]},
        "arrays": len(results),
    }


def placed(x: np.ndarray, placement: str) -> np.ndarray:
    """An array of the first process, put on all devices and fetched from there."""
    mesh = jax.make_mesh((jax.device_count(),), ("all",))
    spec = PartitionSpec("all") if placement == "divided" else PartitionSpec()
    sharding = None if placement == "NumPy's" else NamedSharding(mesh, spec)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
    distributed = processes.distribute(x if processes.is_first() else None, shape)
    if sharding:
        assert distributed.sharding.is_equivalent_to(sharding, distributed.ndim)
    return processes.gather(distributed)


def state(step: int) -> TrainState:
    """A state of NumPy arrays, as all processes and the test itself make it."""
    rng = np.random.default_rng(step)
    divided = {"divided": rng.standard_normal((8, 1 << 15), np.float32)}
    replicated = {
        "whole": rng.standard_normal(8, np.float32),
        "odd": arrays()["float32"],
    }
    counters = [np.asarray(n, np.int32) for n in (step, 0, 0)]
    return TrainState(divided | replicated, {}, {"moments": divided}, *counters)


def shared_checkpoints(folder: Path) -> dict:
    """What two processes do that see one folder, in which another wrote step 1."""
    mesh = jax.make_mesh((jax.device_count(),), ("all",))

    def struct(x):
        spec = PartitionSpec("all") if x.ndim == 2 else PartitionSpec()
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    shapes, workdir = jax.tree.map(struct, state(0)), Workdir(folder)
    own_folder = Workdir(folder / str(processes.index())).checkpoints
    results = {"seen by all": (seen_by_all(workdir.checkpoints), True)}
    results["only seen by one"] = seen_by_all(own_folder), False
    results["probes left"] = [*map(str, workdir.checkpoints.glob(".probe*"))], []
    checkpoints = Checkpoints(workdir, 2, 1, shared=True)

    def restored() -> list:
        read, progress = checkpoints.restore(shapes)
        placed_alike = jax.tree.map(
            lambda x, want: x.sharding.is_equivalent_to(want.sharding, x.ndim),
            read,
            shapes,
        )
        assert all(jax.tree.leaves(placed_alike)), placed_alike
        return [*map(bits, jax.tree.leaves(processes.gather(read))), progress.seconds]

    def expected(step: int) -> list:
        return [*map(bits, jax.tree.leaves(state(step))), float(step)]

    def save(step: int) -> None:
        placed = processes.distribute(state(step), shapes)
        checkpoints.save(placed, RunProgress(seconds=float(step)), parameters=step == 3)
        checkpoints.wait()

    results["written by one process"] = restored(), expected(1)
    save(2)
    save(3)
    checkpoints.save_best(processes.distribute(state(3), shapes).parameters, 3, 0.5)
    damaged = workdir.checkpoints / "state" / "3"
    if processes.is_first():
        [*_, part] = sorted((damaged / "state/ocdbt.process_1/d").iterdir())
        part.write_bytes(part.read_bytes()[::-1])
    results["one shard is damaged"] = restored(), expected(2)
    results["set aside"] = damaged.exists(), False
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not processes.is_first():  # as a full disk: it can write no more than that
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    message = error(lambda: save(4))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    source = f"{workdir.checkpoints}: process 1 on {socket.gethostname()}: "
    texts = ["the checkpoint of step 4 could not be", "the last of step 2", "[True]"]
    texts += [source] * processes.is_first()
    results["one disk is full"] = [t for t in texts if t not in message], []
    results["after it"] = restored(), expected(2)
    save(4)
    checkpoints.close()
    return results


if __name__ == "__main__":
    coordinator, count, process, folder = (a.partition("=")[2] for a in sys.argv[1:])
    rendezvous.initialize(coordinator, int(count), int(process))
    print(json.dumps(report(shared_checkpoints(Path(folder)))))
