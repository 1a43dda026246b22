"""Are two runs equal? Compares their arrays, metrics and workdirs, byte by byte."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from etils import epath

from t2t_jax.training.averaging import read_parameters
from t2t_jax.training.checkpoint import read_state
from t2t_jax.training.metrics_log import METRICS, Metrics, read_log
from t2t_jax.training.orbax_files import read_arrays
from t2t_jax.training.step import TrainState

# Logged values that a clock decides: no two runs have them in common.
CLOCKS = {"seconds", "seconds_per_step", "tokens_per_second", "mfu"}


# ------------------------------------------------------------------------------ arrays


class ArrayDifference(NamedTuple):
    """An array whose bytes differ."""

    name: str  # its path in the tree, such as `parameters.decoder.norm.scale`
    shape: tuple[int, ...]
    count: int  # the number of elements that differ
    # The largest |a - b|; nan if the shapes differ or an element is not finite.
    largest: float
    scale: float  # the largest |a|, to judge `largest` by

    def __str__(self) -> str:
        return (
            f"{self.name} {[*self.shape]}: {self.count:,} of "
            f"{int(np.prod(self.shape)):,} numbers, by up to {self.largest:.3g} (the "
            f"largest number is {self.scale:.3g})"
        )


class TreeComparison(NamedTuple):
    """The result of `compare_trees`."""

    arrays: int  # the number of arrays in both trees
    # Those that differ, in the order of the trees.
    differing: tuple[ArrayDifference, ...]
    unmatched: tuple[str, ...]  # the names of arrays that only one of the trees has

    @property
    def same(self) -> bool:
        """True if both trees have the same names, types, shapes and bytes."""
        return not (self.differing or self.unmatched)


def named_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree by name, in its order.

    The order is that of JAX: a NamedTuple by its fields, a dict by its sorted keys. So
    the parameters of a `TrainState` come first, by name, then the optimizer's arrays.
    """
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in jax.tree.leaves_with_path(tree)
    }


def compare_trees(a: Any, b: Any) -> TreeComparison:
    """Compares two trees of arrays, byte by byte; the order is that of the first."""
    a, b = named_arrays(a), named_arrays(b)
    shared = [name for name in a if name in b]
    differing = [_difference(name, a[name], b[name]) for name in shared]
    return TreeComparison(
        len(shared),
        tuple(filter(None, differing)),
        tuple(name for name in (*a, *b) if (name in a) != (name in b)),
    )


def _difference(name: str, a: np.ndarray, b: np.ndarray) -> ArrayDifference | None:
    if same_bytes(a, b):
        return None
    if a.shape != b.shape or a.dtype != b.dtype:
        return ArrayDifference(name, a.shape, a.size, np.nan, np.nan)
    octets_a, octets_b = (
        np.frombuffer(x.tobytes(), np.uint8).reshape(x.size, x.itemsize) for x in (a, b)
    )
    count = int((octets_a != octets_b).any(axis=1).sum())
    with np.errstate(invalid="ignore"):  # inf - inf
        distance = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
    return ArrayDifference(
        name, a.shape, count, float(distance), float(np.abs(a.astype(np.float64)).max())
    )


def stored_arrays(path: epath.Path, shapes: TrainState) -> Any:
    """Reads a stored checkpoint, of any kind, under the names of a state."""
    if path.parent.name == "state":
        return read_state(path, shapes)[0]
    return {"parameters": read_parameters(path, shapes.parameters)}


def same_bytes(a: Any, b: Any) -> bool:
    """True for arrays of equal type, shape and bytes, and for other values if equal."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        # Bytes and not values: 0.0 and -0.0 differ, and a nan equals itself.
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    return type(a) is type(b) and a == b


# ----------------------------------------------------------------------------- metrics


class LoggedDifference(NamedTuple):
    """A logged metric that differs, and both of its values."""

    step: int
    name: str
    then: float | None
    now: float | None


def first_difference(
    then: dict[int, Metrics], now: dict[int, Metrics], steps: list[int]
) -> LoggedDifference | None:
    """The first metric that differs, of those that both logs have; `CLOCKS` aside."""
    for step in steps:
        for name, logged in then[step].items():
            if name in CLOCKS or name not in now[step]:
                continue
            repeated = now[step][name]
            if logged != repeated:
                return LoggedDifference(step, name, logged, repeated)
    return None


def without_clocks(tree: Any) -> Any:
    """JSON without the values of `CLOCKS`, at any depth."""
    if isinstance(tree, list):
        return [without_clocks(value) for value in tree]
    if not isinstance(tree, dict):
        return tree
    return {k: without_clocks(v) for k, v in tree.items() if k not in CLOCKS}


# ---------------------------------------------------------------------------- workdirs
# Everything is read as it is stored, by Orbax and as JSON, not through the product:
# what a workdir holds may grow, and is then compared without a word here.


def workdir_differences(reference: Path, workdir: Path) -> dict[str, list[str]]:
    """Compares two workdirs; returns the differences by the names of `COMPARED`.

    Each difference is a line of text; a list is empty if the two are equal.
    """
    return {
        name: _differing(read(reference), read(workdir))
        for name, read in COMPARED.items()
    }


def _checkpoints(folder: Path) -> dict[str, object]:
    """Every array and JSON value of the checkpoints of one kind, by step and name."""
    values = {}
    for item in sorted(folder.glob("[0-9]*/*/")):
        if not item.parent.name.isdigit():
            continue  # still being written
        if (item / "_METADATA").exists():
            tree = read_arrays(epath.Path(item))
        else:
            tree = without_clocks(json.loads((item / "metadata").read_text()))
        for path, leaf in jax.tree.leaves_with_path(tree):
            position = item.relative_to(folder)
            values[f"{position}{jax.tree_util.keystr(path)}"] = leaf
    return values


def _metrics(workdir: Path) -> dict[str, object]:
    """The log, entry by entry: one that is there twice moves all after it."""
    log = read_log(workdir / METRICS)
    values = {f"line {number}": "damaged" for number in log.damaged}
    for number, entry in enumerate(log.entries, 1):
        for name, value in without_clocks(entry).items():
            values[f"entry {number}: {name}"] = value
    return values


def _names(workdir: Path) -> dict[str, None]:
    """The files there: what a kill leaves behind, or what it took away.

    A checkpoint that was not sealed yet is set aside, as it should be.
    """
    paths = (path.relative_to(workdir) for path in workdir.rglob("*"))
    # Much of what is deeper is named by chance.
    depth = len(("checkpoints", "state", "STEP", "ITEM"))
    return {
        str(path): None
        for path in sorted(paths)
        if path.parts[0] != "tensorboard" and len(path.parts) <= depth
        if path.parts[:2] != ("checkpoints", "set_aside")
    }


def _contents(pattern: str) -> Callable[[Path], dict[str, bytes]]:
    def read(workdir: Path) -> dict[str, bytes]:
        files = sorted(p for p in workdir.glob(pattern) if p.is_file())
        return {str(p.relative_to(workdir)): p.read_bytes() for p in files}

    return read


def _differing(reference: dict, workdir: dict) -> list[str]:
    """Names that only one has, and those of values that differ in a bit."""
    lines = [f"{name} is missing" for name in reference if name not in workdir]
    lines += [f"{name} is too much" for name in workdir if name not in reference]
    for name, a in reference.items():
        if name in workdir and not same_bytes(a, b := workdir[name]):
            lines.append(f"{name} is {_short(b)}, not {_short(a)}")
    return lines


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:37]}..."


# What two workdirs are compared in -> what reads it, as a dict of values by name.
COMPARED: dict[str, Callable[[Path], dict]] = {
    "state": lambda workdir: _checkpoints(workdir / "checkpoints/state"),
    "parameters": lambda workdir: _checkpoints(workdir / "checkpoints/parameters"),
    "best": lambda workdir: _checkpoints(workdir / "checkpoints/best"),
    "metrics": _metrics,
    "scores": _contents("scores/*.json"),
    "translations": _contents("translations/*"),
    "config": _contents("*.json"),
    "tokenizer": _contents("tokenizer.model"),
    "names": _names,
}
