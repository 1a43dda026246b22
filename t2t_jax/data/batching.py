"""Plans every global batch of an epoch from the lengths of the sentences.

The plan is a pure function of (lengths, weights, seed, epoch, token budget, options).
It does not depend on the number of devices, processes or restarts. So a position in the
data is (epoch, batch), and resuming is a look-up. There are two ways to batch:

    packed    several pairs share a row, and segment ids keep them apart; one shape
    bucketed  one pair a row, pairs of similar length in one of a few shapes

Suffixes: `p` pairs, `b` batches, `r` rows, `w` windows, `i` steps of packing (the i-th
largest pair of each window). Lengths are in tokens, including EOS.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from t2t_jax.data.drawing import (
    Permutations,
    column_orders,
    draw,
    stable_order,
    typical_draw,
)
from t2t_jax.data.filling import Layout, checked_index
from t2t_jax.data.shapes import (
    ROWS_MULTIPLE,
    Shape,
    checked_lengths,
    sizes_and_weights,
    static_shapes,
)
from t2t_jax.io.errors import UserError
from t2t_jax.io.threads import core_count

# Pairs that are packed together. Larger windows fill rows better but cost more time a
# pair, because every pair is compared with every open row of its window.
WINDOW = 4096
# As many windows are packed side by side as have about this many rows together.
OPEN_ROWS = 1 << 17


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Every batch of one epoch: `plan[i]` is the Layout of batch i, in O(1)."""

    shapes: tuple[Shape, ...]  # batch i has `shapes[shape_b[i]]`
    shape_b: np.ndarray
    offset_b: np.ndarray  # batch i has the pairs `offset_b[i]` to `offset_b[i + 1]`
    # Those of Layout for all pairs, in the narrowest integer type that holds them.
    arrays: tuple[np.ndarray, ...]
    real_source: int  # tokens of the sentences, without padding
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
        return sum(shape.rows * shape.source * n for shape, n in self._batches())

    @property
    def computed_target(self) -> int:
        """Target tokens of all batches, padding included."""
        return sum(shape.rows * shape.target * n for shape, n in self._batches())

    @property
    def efficiency(self) -> float:
        """Real tokens / computed tokens, summed over source and target."""
        computed = self.computed_source + self.computed_target
        return (self.real_source + self.real_target) / computed

    def _batches(self) -> Iterator[tuple[Shape, int]]:
        """The shapes, each with the number of its batches."""
        counts = np.bincount(self.shape_b, minlength=len(self.shapes)).tolist()
        return zip(self.shapes, counts, strict=True)


def plan_epoch(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    batch_tokens: int,
    batching: str,
    seed: int,
    epoch: int,
    row_length: int = 128,
    buckets: int = 10,
    rows_multiple: int = ROWS_MULTIPLE,
    shuffle: bool = True,
    sizes: Sequence[int] = (),
    weights: Sequence[float] = (),
    shapes: tuple[Shape, ...] = (),
) -> Plan:
    """Assigns each pair that an epoch draws to a row; at most one batch has free rows.

    Args:
      source_lengths, target_lengths: Integers [pairs], tokens including EOS; without
        a source 0.
      seed, epoch: Integers >= 0, the only sources of randomness.
      shuffle: False gives the same plan for every seed and epoch, as for a dev set.
      sizes, weights: The corpora of the pairs, as in `draw`; by default one, read once.
      batch_tokens, batching, row_length, buckets, rows_multiple: As in `static_shapes`.
      shapes: Those of all epochs, if lengths differ from epoch to epoch: of
        `shapes_of_epochs`. By default `static_shapes` of these lengths.

    Raises:
      UserError: As `static_shapes` and `draw`; also for a negative seed or epoch.
    """
    source_p, target_p = checked_lengths(source_lengths, target_lengths)
    if seed < 0 or epoch < 0:
        raise UserError(f"seed and epoch must be >= 0, got {seed} and {epoch}")
    sizes, weights = sizes_and_weights(source_p, sizes, weights)
    if not shapes:
        # They come from a typical epoch, not from this one: no epoch recompiles.
        typical_p = typical_draw(source_p, target_p, sizes, weights)
        shapes = static_shapes(
            source_p[typical_p],
            target_p[typical_p],
            batch_tokens=batch_tokens,
            batching=batching,
            row_length=row_length,
            buckets=buckets,
            rows_multiple=rows_multiple,
        )
    drawn_p = draw(sizes, weights, *((seed, epoch) if shuffle else (0, 0)))
    source_p, target_p = source_p[drawn_p], target_p[drawn_p]
    permutation = Permutations(seed, epoch) if shuffle else np.arange  # 0, 1, ...
    pair_p = permutation(len(drawn_p)).astype(np.int32)
    plan = plan_packed if batching == "packed" else plan_bucketed
    shape_b, offset_b, arrays = plan(shapes, pair_p, source_p, target_p, permutation)
    # From indices into `drawn_p` to numbers of the training text.
    arrays = drawn_p[arrays[0]], *arrays[1:]
    return Plan(
        shapes,
        shape_b.astype(np.int32),
        offset_b.astype(np.int64),
        tuple(map(_narrow, arrays)),
        int(source_p.sum(dtype=np.int64)),
        int(target_p.sum(dtype=np.int64)),
    )


def _narrow(array_p: np.ndarray) -> np.ndarray:
    """The same integers >= 0 in 16 bits if they all fit, else in 32."""
    narrow = np.uint16 if array_p.max(initial=0) < 1 << 16 else np.int32
    return array_p.astype(narrow, copy=False)


def plan_packed(shapes, pair_p, source_p, target_p, permutation):
    """Packs the pairs into rows, shuffles the rows, and cuts them into batches.

    Takes the one shape, the shuffled numbers of all pairs, the lengths of pair 0, 1,
    ... and a function of n that returns a permutation of n; returns shape_b, offset_b
    and arrays of a Plan.
    """
    (shape,) = shapes
    row_p, rows = _pack(source_p[pair_p], target_p[pair_p], shape)
    # Packing puts the largest pairs into the first rows of a window, so unshuffled
    # rows would come in an order of length.
    row_p = permutation(rows).astype(np.int32)[row_p]
    order_p = stable_order(row_p, bits=32)
    pair_p, row_p = pair_p[order_p], row_p[order_p]
    first_r = np.searchsorted(row_p, np.arange(rows, dtype=np.int32)).astype(np.int32)
    first_p = first_r[row_p]  # the index of the first pair in the same row

    def start(length_p):
        # Token offsets of all pairs may overflow 32 bits, but unsigned integers wrap
        # around, so their differences within a row are still right.
        before_p = np.cumsum(length_p, dtype=np.uint32) - length_p.view(np.uint32)
        return before_p - before_p[first_p]

    arrays = (
        pair_p,
        row_p % shape.rows,
        start(source_p[pair_p]),
        start(target_p[pair_p]),
        np.arange(1, len(pair_p) + 1, dtype=np.int32) - first_p,
    )
    offset_b = np.append(first_r[:: shape.rows], len(pair_p))
    return np.zeros(len(offset_b) - 1, int), offset_b, arrays


def _pack(source_p, target_p, shape: Shape) -> tuple[np.ndarray, int]:
    """Assigns every pair to a row; returns the rows and their number.

    Deals the pairs into windows and packs many windows side by side. That makes it
    fast: one call of NumPy does one step of all of them.
    """
    pairs = len(source_p)
    windows = -(-pairs // WINDOW)  # rounded up
    steps = -(-pairs // windows)
    source_iw = np.zeros((steps, windows), np.int32)
    target_iw = np.zeros((steps, windows), np.int32)
    # The last step may be short of pairs. Lengths of 0 pad it; they fit any row and
    # are dropped at the end.
    source_iw.ravel()[:pairs] = source_p
    target_iw.ravel()[:pairs] = target_p
    row_iw = np.empty((steps, windows), np.int32)
    # A pair takes at least its larger share of a row; 5% more is a guess of the waste.
    # Rows without columns are of pairs without tokens, which take nothing of them.
    width = max(1, shape.source), max(1, shape.target)
    filled = np.maximum(source_p / width[0], target_p / width[1]).sum()
    rows_each = int(1.05 * filled / windows) + 2
    group = max(1, OPEN_ROWS // rows_each)

    def pack(begin):
        part = slice(begin, begin + group)
        row_iw[:, part] = _pack_windows(
            source_iw[:, part], target_iw[:, part], shape, rows_each
        )

    # NumPy releases the interpreter's lock in most of the work.
    with ThreadPoolExecutor(core_count(), "packing") as threads:
        for _ in threads.map(pack, range(0, windows, group)):
            pass  # fetching a result re-raises its thread's exception
    # Each window counts its rows from 0; renumber them across windows.
    rows_w = row_iw.max(0) + 1
    row_iw += (np.cumsum(rows_w) - rows_w).astype(np.int32)
    return row_iw.ravel()[:pairs], int(rows_w.sum())


def _pack_windows(source_iw, target_iw, shape: Shape, rows: int) -> np.ndarray:
    """Packs each window by itself: best fit, largest pair first.

    Takes lengths [steps, windows] and a guess of the rows that a window needs; more are
    added if it is too low. Returns each pair's row in its window, int32 [steps,
    windows].
    """
    # In 16 bits where lengths allow: a vector instruction handles twice as many.
    small = max(shape.source, shape.target) < 1 << 15
    signed, unsigned = (np.int16, np.uint16) if small else (np.int32, np.uint32)
    # source / shape.source + target / shape.target in integers. Two full rows minus
    # it is >= 0, and rises as pairs get smaller.
    width = max(1, shape.source), max(1, shape.target)  # a side may have no tokens
    size_iw = source_iw * np.int64(width[1]) + target_iw * np.int64(width[0])
    order_iw = column_orders(2 * width[0] * width[1] - size_iw)
    source_iw = np.take_along_axis(source_iw, order_iw, 0).astype(signed)
    target_iw = np.take_along_axis(target_iw, order_iw, 0).astype(signed)
    windows = source_iw.shape[1]
    window_w = np.arange(windows)
    source_free_wr = np.full((windows, rows), shape.source, signed)
    target_free_wr = np.full((windows, rows), shape.target, signed)
    sorted_row_iw = np.empty(order_iw.shape, np.int32)
    opened = 1  # rows that are compared: all in use, and one empty row
    for source_w, target_w, sorted_row_w in zip(
        source_iw, target_iw, sorted_row_iw, strict=True
    ):
        source_left_wr = source_free_wr[:, :opened] - source_w[:, None]
        target_left_wr = target_free_wr[:, :opened] - target_w[:, None]
        # If a pair does not fit, less than 0 is left, which is huge when read as
        # unsigned: so argmin takes the fullest row that holds the pair on both sides.
        left_wr = np.maximum(
            source_left_wr.view(unsigned), target_left_wr.view(unsigned)
        )
        row_w = left_wr.argmin(1)
        source_free_wr[window_w, row_w] -= source_w
        target_free_wr[window_w, row_w] -= target_w
        sorted_row_w[:] = row_w
        opened = max(opened, int(row_w.max()) + 2)  # one empty row in every window
        if opened > source_free_wr.shape[1]:
            padding = ((0, 0), (0, 1 + rows // 16))
            source_free_wr = np.pad(
                source_free_wr, padding, constant_values=shape.source
            )
            target_free_wr = np.pad(
                target_free_wr, padding, constant_values=shape.target
            )
    row_iw = np.empty_like(sorted_row_iw)  # back from order of size to the given order
    np.put_along_axis(row_iw, order_iw, sorted_row_iw, 0)
    return row_iw


def plan_bucketed(shapes, pair_p, source_p, target_p, permutation):
    """Cuts the pairs of each bucket into batches, and shuffles the batches.

    Like `plan_packed`, with a shape for each bucket, nested, in rising order.
    """
    # Each pair goes to the first shape that holds it on either side.
    bucket_p = np.maximum(
        np.searchsorted([shape.source for shape in shapes], source_p),
        np.searchsorted([shape.target for shape in shapes], target_p),
    ).astype(np.uint16)  # NumPy sorts 16-bit integers by radix, in linear time
    # A stable sort keeps the shuffled order within each bucket.
    pair_p = pair_p[np.argsort(bucket_p[pair_p], kind="stable")]
    # From the smallest bucket up, pairs that do not fill a batch join the next bucket:
    # only the last batch of the largest shape has unused rows.
    shape_b, first_b, begin = [], [], 0
    for k, end in enumerate(np.cumsum(np.bincount(bucket_p, minlength=len(shapes)))):
        rows = shapes[k].rows
        batches = (end - begin) // rows
        if k == len(shapes) - 1:
            batches = -(-(end - begin) // rows)  # rounded up
        shape_b.append(np.full(batches, k, np.int32))
        first_b.append(begin + np.arange(batches) * rows)
        begin += batches * rows
    shape_b, first_b = np.concatenate(shape_b), np.concatenate(first_b)
    pairs_b = np.diff(first_b, append=len(pair_p))
    order_b = permutation(len(shape_b))
    offset_b = np.append(0, np.cumsum(pairs_b[order_b]))
    # With one pair a row, the row is the pair's index within its batch.
    row_p = np.arange(len(pair_p)) - np.repeat(offset_b[:-1], pairs_b[order_b])
    pair_p = pair_p[row_p + np.repeat(first_b[order_b], pairs_b[order_b])]
    # Every pair starts at token 0 as segment 1. Broadcasting one number to an array
    # takes no memory.
    zero_p, one_p = (np.broadcast_to(np.uint16(n), pair_p.shape) for n in (0, 1))
    arrays = (pair_p, row_p, zero_p, zero_p, one_p)
    return shape_b[order_b], offset_b, arrays
