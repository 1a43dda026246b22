"""The plan of an epoch: which pair stands where in which batch.

Suffixes: `p` pairs, `b` batches.
"""

import operator
from dataclasses import dataclass

import numpy as np

from t2t_jax.data.shapes import Shape


@dataclass(frozen=True, eq=False)
class Layout:
    """The places of the pairs of one batch; arrays are int32 [pairs in this batch].

    Pairs are ordered by row, then by segment.

    Attributes:
      shape: The static shape of the batch.
      pair_p: The number of each pair in the training text.
      row_p: Its row.
      source_start_p: Its first token in the source row.
      target_start_p: Its first token in the target row.
      segment_p: Its segment id, counted from 1 in each row.
    """

    shape: Shape
    pair_p: np.ndarray
    row_p: np.ndarray
    source_start_p: np.ndarray
    target_start_p: np.ndarray
    segment_p: np.ndarray

    def only(self, kept_p: np.ndarray) -> "Layout":
        """The same batch with only some of its pairs; the others become padding."""
        arrays = (self.pair_p, self.row_p, self.source_start_p, self.target_start_p)
        kept = (array_p[kept_p] for array_p in (*arrays, self.segment_p))
        return Layout(self.shape, *kept)


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Every batch of one epoch: `plan[i]` is the Layout of batch i, in O(1).

    Attributes:
      shapes: The static shapes; batch i has `shapes[shape_b[i]]`.
      shape_b: The index of each batch's shape.
      offset_b: Batch i has the pairs from `offset_b[i]` to `offset_b[i + 1]`.
      arrays: The arrays of Layout for all pairs of the epoch, in the narrowest integer
        type that holds them.
      real_source, real_target: Tokens of the sentences, without padding.
    """

    shapes: tuple[Shape, ...]
    shape_b: np.ndarray
    offset_b: np.ndarray
    arrays: tuple[np.ndarray, ...]
    real_source: int
    real_target: int

    def __len__(self) -> int:
        return len(self.shape_b)

    def shape(self, i: int) -> Shape:
        """The shape of batch i. Raises IndexError past the end of the epoch."""
        return self.shapes[self.shape_b[checked_index(i, len(self), "batch")]]

    def __getitem__(self, i: int) -> Layout:
        i = checked_index(i, len(self), "batch")
        part = slice(self.offset_b[i], self.offset_b[i + 1])
        # A plan stores narrow integers; Layout has int32.
        arrays = (array_p[part].astype(np.int32) for array_p in self.arrays)
        return Layout(self.shape(i), *arrays)

    @property
    def computed_source(self) -> int:
        """Source tokens of all batches, padding included."""
        return sum(
            n * s.rows * s.source
            for n, s in zip(self._batches(), self.shapes, strict=True)
        )

    @property
    def computed_target(self) -> int:
        """Target tokens of all batches, padding included."""
        return sum(
            n * s.rows * s.target
            for n, s in zip(self._batches(), self.shapes, strict=True)
        )

    @property
    def efficiency(self) -> float:
        """Real tokens / computed tokens, summed over source and target."""
        computed = self.computed_source + self.computed_target
        return (self.real_source + self.real_target) / computed

    def _batches(self) -> list[int]:
        """The number of batches of each shape."""
        return np.bincount(self.shape_b, minlength=len(self.shapes)).tolist()


def checked_index(i: int, n: int, what: str) -> int:
    """Maps a negative index to one from 0; raises IndexError if out of range."""
    i = operator.index(i)  # NumPy integers too, but no floats
    if not -n <= i < n:
        raise IndexError(f"{what} {i} is out of range: there are {n}")
    return i % n
