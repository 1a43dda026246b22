"""Packed batches: several pairs share a row; segment ids keep them apart.

All batches have one static shape. Suffixes: `p` pairs, `b` batches, `r` rows, `w`
windows, `i` steps of packing (the i-th largest pair of each window).
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from t2t_jax.data.shapes import Shape, round_up
from t2t_jax.data.sorting import column_orders, stable_order

# Pairs that are packed together. Larger windows fill rows better but cost more time a
# pair, because every pair is compared with every open row of its window.
WINDOW = 4096
# As many windows are packed side by side as have about this many rows together.
OPEN_ROWS = 1 << 17
# A packed row may be stretched by up to this factor to balance the two sides.
STRETCH = 1.25


def row_lengths(source_p, target_p, batch_tokens, row_length, multiple):
    """The (source, target) lengths of a packed row; see `static_shapes`."""
    totals = int(source_p.sum(dtype=np.int64)), int(target_p.sum(dtype=np.int64))
    longest = round_up(int(source_p.max()), 8), round_up(int(target_p.max()), 8)
    more = int(totals[1] > totals[0])  # the index of the side that has more tokens
    total, other_total = totals[more], totals[1 - more]
    least = max(round_up(row_length, 8), *longest)
    best_score = -1.0
    for length in range(least, int(least * STRETCH) + 1, 8):
        # In integers: length * other_total / total, rounded up to a multiple of 8.
        balanced = round_up(length * other_total, total * 8) // total
        other = max(balanced, longest[1 - more])
        rows = batch_tokens // length // multiple * multiple
        # Score: the best possible share of real tokens (up to a constant factor) times
        # the part of the token budget that whole rows use. A side without tokens, such
        # as the source of a language model, wastes none.
        filled = min(n / t for n, t in ((length, total), (other, other_total)) if t)
        score = filled / (length + other) * rows * length
        if score > best_score:
            best_score, best = score, (length, other)
        if balanced >= longest[1 - more]:
            break  # the sides are balanced; longer rows gain nothing
    return best[::-1] if more else best


def plan_packed(shapes, pair_p, source_p, target_p, permutation):
    """Packs the pairs into rows, shuffles the rows, and cuts them into batches.

    Args:
      shapes: The one shape of all batches.
      pair_p: The numbers of all pairs, shuffled.
      source_p, target_p: The lengths of pair 0, 1, ...
      permutation: A function of n that returns a permutation of n.

    Returns:
      shape_b, offset_b and arrays of a Plan.
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

    def pack(first):
        part = slice(first, first + group)
        row_iw[:, part] = _pack_windows(
            source_iw[:, part], target_iw[:, part], shape, rows_each
        )

    # NumPy releases the interpreter's lock in most of the work.
    with ThreadPoolExecutor(os.cpu_count(), "packing") as threads:
        for _ in threads.map(pack, range(0, windows, group)):
            pass  # fetching a result re-raises its thread's exception
    # Each window counts its rows from 0; renumber them across windows.
    rows_w = row_iw.max(0) + 1
    row_iw += (np.cumsum(rows_w) - rows_w).astype(np.int32)
    return row_iw.ravel()[:pairs], int(rows_w.sum())


def _pack_windows(source_iw, target_iw, shape: Shape, rows: int) -> np.ndarray:
    """Packs each window by itself: best fit, largest pair first.

    Args:
      source_iw, target_iw: Lengths of the pairs, [steps, windows].
      shape: The lengths of a row.
      rows: A guess of the rows that a window needs; more are added if it is too low.

    Returns:
      Each pair's row in its window, int32 [steps, windows].
    """
    # In 16 bits where lengths allow: a vector instruction handles twice as many.
    small = max(shape.source, shape.target) < 1 << 15
    signed, unsigned = (np.int16, np.uint16) if small else (np.int32, np.uint32)
    # source / shape.source + target / shape.target in integers. Two full rows minus
    # it is >= 0, and rises as pairs get smaller.
    wide = max(1, shape.source), max(1, shape.target)  # a side may have no tokens
    size_iw = source_iw * np.int64(wide[1]) + target_iw * np.int64(wide[0])
    order_iw = column_orders(2 * wide[0] * wide[1] - size_iw)
    source_iw = np.take_along_axis(source_iw, order_iw, 0).astype(signed)
    target_iw = np.take_along_axis(target_iw, order_iw, 0).astype(signed)
    windows = source_iw.shape[1]
    window_w = np.arange(windows)
    source_free_wr = np.full((windows, rows), shape.source, signed)
    target_free_wr = np.full((windows, rows), shape.target, signed)
    chosen_iw = np.empty(order_iw.shape, np.int32)
    opened = 1  # rows that are compared: all in use, and one empty row
    for source_w, target_w, chosen_w in zip(
        source_iw, target_iw, chosen_iw, strict=True
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
        chosen_w[:] = row_w
        opened = max(opened, int(row_w.max()) + 2)  # one empty row in every window
        if opened > source_free_wr.shape[1]:
            more = ((0, 0), (0, 1 + rows // 16))
            source_free_wr = np.pad(source_free_wr, more, constant_values=shape.source)
            target_free_wr = np.pad(target_free_wr, more, constant_values=shape.target)
    row_iw = np.empty_like(chosen_iw)  # back from order of size to the given order
    np.put_along_axis(row_iw, order_iw, chosen_iw, 0)
    return row_iw
