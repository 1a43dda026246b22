"""Compares trees of arrays byte by byte: which differ, and by how much."""

import hashlib
from typing import Any, NamedTuple

import jax
import numpy as np


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
