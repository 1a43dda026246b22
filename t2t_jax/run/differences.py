"""Compares trees of arrays byte by byte: which differ, and by how much."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath


class ArrayDifference(NamedTuple):
    """An array whose bytes differ.

    Attributes:
      name: its path in the tree, such as `parameters.decoder.norm.scale`.
      shape: its shape.
      count: the number of elements that differ.
      largest: the largest |a - b|; nan if the shapes differ or an element is not
        finite.
      scale: the largest |a|, to judge `largest` by.
    """

    name: str
    shape: tuple[int, ...]
    count: int
    largest: float
    scale: float

    def __str__(self) -> str:
        return (
            f"{self.name} {[*self.shape]}: {self.count:,} of "
            f"{int(np.prod(self.shape)):,} numbers, by up to {self.largest:.3g} (the "
            f"largest number is {self.scale:.3g})"
        )


class TreeComparison(NamedTuple):
    """The result of `compare_trees`.

    Attributes:
      arrays: the number of arrays in both trees.
      differing: those that differ, in the order of the trees.
      unmatched: the names of arrays that only one of the trees has.
    """

    arrays: int
    differing: tuple[ArrayDifference, ...]
    unmatched: tuple[str, ...]

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
    both = [name for name in a if name in b]
    differing = [_difference(name, a[name], b[name]) for name in both]
    return TreeComparison(
        len(both),
        tuple(filter(None, differing)),
        tuple(name for name in (*a, *b) if (name in a) != (name in b)),
    )


def sha256_of(tree: Any) -> str:
    """A digest of the names, types, shapes and bytes of a tree's arrays."""
    digest = hashlib.sha256()
    for name, array in named_arrays(tree).items():
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _difference(name: str, a: np.ndarray, b: np.ndarray) -> ArrayDifference | None:
    if a.shape != b.shape or a.dtype != b.dtype:
        return ArrayDifference(name, a.shape, a.size, np.nan, np.nan)
    # Bytes and not values: 0.0 and -0.0 differ, and a nan equals itself.
    octets_a, octets_b = (
        np.frombuffer(x.tobytes(), np.uint8).reshape(x.size, x.itemsize) for x in (a, b)
    )
    count = int((octets_a != octets_b).any(axis=1).sum())
    if not count:
        return None
    with np.errstate(invalid="ignore"):  # inf - inf
        distance = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
    return ArrayDifference(
        name, a.shape, count, float(distance), float(np.abs(a.astype(np.float64)).max())
    )


# No two runs have these in common.
WALL_CLOCK = {"seconds", "seconds_per_step", "tokens_per_second", "mfu"}
# Too much of what lies deeper is named by chance.
DEPTH = len(("checkpoints", "state", "STEP", "ITEM"))


def differences(whole: Path, other: Path) -> dict[str, list[str]]:
    """What differs between two workdirs, for each thing compared; nothing if equal."""
    return {
        thing: _differing(read(whole), read(other)) for thing, read in COMPARED.items()
    }


def checkpoints(folder: Path) -> dict[str, object]:
    """Every array and JSON value of the checkpoints of one kind, by step and name."""
    found = {}
    for item in sorted(folder.glob("[0-9]*/*/")):
        if not item.parent.name.isdigit():
            continue  # still being written
        if (item / "_METADATA").exists():
            tree = _read_arrays(item)
        else:
            tree = _timeless(json.loads((item / "metadata").read_text()))
        for path, leaf in jax.tree.leaves_with_path(tree):
            where = item.relative_to(folder)
            found[f"{where}{jax.tree_util.keystr(path)}"] = leaf
    return found


def _read_arrays(item: Path) -> dict:
    """A tree that Orbax wrote, as NumPy arrays, whatever devices they lay on."""
    with contextlib.closing(ocp.PyTreeCheckpointHandler()) as reader:
        place = epath.Path(item)
        restore = jax.tree.map(
            lambda _: ocp.RestoreArgs(restore_type=np.ndarray),
            reader.metadata(place).tree,
        )
        args = ocp.args.PyTreeRestore(restore_args=restore)
        return reader.restore(place, args=args)


def metrics(workdir: Path) -> dict[str, object]:
    """metrics.jsonl, line by line: one that is there twice moves all after it."""
    return {
        f"line {number}: {name}": value
        for number, line in enumerate((workdir / "metrics.jsonl").open(), 1)
        for name, value in _timeless(json.loads(line)).items()
    }


def _timeless(tree):
    """JSON without what clocks say."""
    if isinstance(tree, list):
        return [_timeless(value) for value in tree]
    if not isinstance(tree, dict):
        return tree
    return {k: _timeless(v) for k, v in tree.items() if k not in WALL_CLOCK}


def names(workdir: Path) -> dict[str, None]:
    """The files there: what a kill leaves lying about, or what it took away.

    A checkpoint that was not sealed yet is set aside, as it should be.
    """
    paths = (path.relative_to(workdir) for path in workdir.rglob("*"))
    return {
        str(path): None
        for path in sorted(paths)
        if path.parts[0] != "tensorboard" and len(path.parts) <= DEPTH
        if path.parts[:2] != ("checkpoints", "set_aside")
    }


def _contents(pattern: str) -> Callable[[Path], dict[str, bytes]]:
    def read(workdir: Path) -> dict[str, bytes]:
        files = sorted(p for p in workdir.glob(pattern) if p.is_file())
        return {str(p.relative_to(workdir)): p.read_bytes() for p in files}

    return read


def _differing(whole: dict, other: dict) -> list[str]:
    """Names that only one has, and those of values that are not equal to the bit."""
    told = [f"{name} is missing" for name in whole if name not in other]
    told += [f"{name} is too much" for name in other if name not in whole]
    for name in whole:
        if name in other and not _same(a := whole[name], b := other[name]):
            told.append(f"{name} is {_short(b)}, not {_short(a)}")
    return told


def _same(a, b) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        return a.tobytes() == b.tobytes()  # nan is itself, and 0.0 is not -0.0
    return type(a) is type(b) and a == b


def _short(value) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:37]}..."


COMPARED: dict[str, Callable[[Path], dict]] = {
    "state": lambda workdir: checkpoints(workdir / "checkpoints/state"),
    "parameters": lambda workdir: checkpoints(workdir / "checkpoints/parameters"),
    "best": lambda workdir: checkpoints(workdir / "checkpoints/best"),
    "metrics": metrics,
    "scores": _contents("scores/*.json"),
    "translations": _contents("translations/*"),
    "config": _contents("*.json"),
    "tokenizer": _contents("tokenizer.model"),
    "names": names,
}
