"""Packed batches: several pairs share a row, told apart by segment ids.

One static shape. Suffixes: `p` pairs, `b` batches, `r` rows, `w` windows, `i` steps.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from t2t_jax.data.shapes import Shape, round_up
from t2t_jax.data.sorting import column_orders, stable_order

# Pairs that are packed together. More fill the rows better and cost more time a pair.
WINDOW = 4096
# Packing keeps the free room of about this many rows (of several windows) at hand.
OPEN_ROWS = 1 << 17
# How far past the longest sentence a packed row may be stretched to balance the sides.
STRETCH = 1.25


def row_lengths(source_p, target_p, batch_tokens, row_length, multiple):
    """(source, target) lengths of a packed row; see `static_shapes`."""
    totals = int(source_p.sum(dtype=np.int64)), int(target_p.sum(dtype=np.int64))
    longest = round_up(int(source_p.max()), 8), round_up(int(target_p.max()), 8)
    more = int(totals[1] > totals[0])  # The side that has more tokens.
    total, other_total = totals[more], totals[1 - more]
    least = max(round_up(row_length, 8), *longest)
    best_score = -1.0
    for length in range(least, int(least * STRETCH) + 1, 8):
        balanced = round_up(length * other_total, total * 8) // total
        other = max(balanced, longest[1 - more])
        rows = batch_tokens // length // multiple * multiple
        # Real tokens over computed, at best, times the tokens of the budget in use.
        filled = min(length / total, other / other_total) / (length + other)
        score = filled * rows * length
        if score > best_score:
            best_score, best = score, (length, other)
        if balanced >= longest[1 - more]:
            break
    return best[::-1] if more else best


def plan_packed(shapes, pair_p, source_p, target_p, permutation):
    """(shape_b, offset_b, arrays) of a Plan; `pair_p` are all pairs, shuffled."""
    (shape,) = shapes
    row_p, rows = _pack(source_p[pair_p], target_p[pair_p], shape)
    row_p = permutation(rows).astype(np.int32)[row_p]
    order_p = stable_order(row_p, bits=32)
    pair_p, row_p = pair_p[order_p], row_p[order_p]
    first_r = np.searchsorted(row_p, np.arange(rows, dtype=np.int32)).astype(np.int32)
    first_p = first_r[row_p]  # Each pair's first neighbour in its row.

    def start(length_p):
        # Sums of all pairs may overflow, but their differences in a row do not.
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
    """The row of every pair, and how many rows there are.

    Deals the pairs into windows and packs many windows side by side, which is what
    makes it fast: NumPy is called once for a step of all of them.
    """
    pairs = len(source_p)
    windows = -(-pairs // WINDOW)
    steps = -(-pairs // windows)
    source_iw = np.zeros((steps, windows), np.int32)
    target_iw = np.zeros((steps, windows), np.int32)
    source_iw.ravel()[:pairs] = source_p  # Lengths of 0 pad the last step;
    target_iw.ravel()[:pairs] = target_p  # they fit anywhere and are dropped.
    row_iw = np.empty((steps, windows), np.int32)
    filled = np.maximum(source_p / shape.source, target_p / shape.target).sum()
    rows_each = int(1.05 * filled / windows) + 2
    group = max(1, OPEN_ROWS // rows_each)

    def pack(first):
        part = slice(first, first + group)
        row_iw[:, part] = _pack_windows(
            source_iw[:, part], target_iw[:, part], shape, rows_each
        )

    with ThreadPoolExecutor(os.cpu_count(), "packing") as threads:
        for _ in threads.map(pack, range(0, windows, group)):
            pass  # asking for what was returned raises what was raised
    rows_w = row_iw.max(0) + 1
    row_iw += (np.cumsum(rows_w) - rows_w).astype(np.int32)
    return row_iw.ravel()[:pairs], int(rows_w.sum())


def _pack_windows(source_iw, target_iw, shape: Shape, rows: int) -> np.ndarray:
    """Best fit, largest pair first, in every window by itself: each pair's row.

    `rows` is a guess of how many rows a window needs; there are more where it is low.
    """
    small = max(shape.source, shape.target) < 1 << 15
    signed, unsigned = (np.int16, np.uint16) if small else (np.int32, np.uint32)
    size_iw = source_iw * np.int64(shape.target) + target_iw * np.int64(shape.source)
    order_iw = column_orders(2 * shape.source * shape.target - size_iw)
    source_iw = np.take_along_axis(source_iw, order_iw, 0).astype(signed)
    target_iw = np.take_along_axis(target_iw, order_iw, 0).astype(signed)
    windows = source_iw.shape[1]
    window_w = np.arange(windows)
    source_free_wr = np.full((windows, rows), shape.source, signed)
    target_free_wr = np.full((windows, rows), shape.target, signed)
    chosen_iw = np.empty(order_iw.shape, np.int32)
    opened = 1  # Rows that are looked at: all that are in use, and an empty one.
    for source_w, target_w, chosen_w in zip(
        source_iw, target_iw, chosen_iw, strict=True
    ):
        source_left_wr = source_free_wr[:, :opened] - source_w[:, None]
        target_left_wr = target_free_wr[:, :opened] - target_w[:, None]
        # What is left when it does not fit is below 0: huge, once read as unsigned.
        left_wr = np.maximum(
            source_left_wr.view(unsigned), target_left_wr.view(unsigned)
        )
        row_w = left_wr.argmin(1)
        source_free_wr[window_w, row_w] -= source_w
        target_free_wr[window_w, row_w] -= target_w
        chosen_w[:] = row_w
        opened = max(opened, int(row_w.max()) + 2)
        if opened > source_free_wr.shape[1]:
            more = ((0, 0), (0, 1 + rows // 16))
            source_free_wr = np.pad(source_free_wr, more, constant_values=shape.source)
            target_free_wr = np.pad(target_free_wr, more, constant_values=shape.target)
    row_iw = np.empty_like(chosen_iw)
    np.put_along_axis(row_iw, order_iw, chosen_iw, 0)
    return row_iw
