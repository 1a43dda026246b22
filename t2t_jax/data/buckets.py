"""Bucketed batches: one pair to a row, pairs of similar length in one of a few shapes.

Suffixes: `p` pairs, `b` batches, `l` lengths, `c` cells of the length histogram.
"""

import numpy as np

from t2t_jax.data.shapes import round_up

# What rounding bucket bounds up to a multiple of 8 may cost, as a share of the tokens.
ROUNDING = 0.02
# The finest bucket bounds are so coarse that there are no more than this many.
BOUNDS = 512


def plan_bucketed(shapes, pair_p, source_p, target_p, permutation):
    """(shape_b, offset_b, arrays) of a Plan; `pair_p` are all pairs, shuffled."""
    bucket_p = np.maximum(
        np.searchsorted([shape.source for shape in shapes], source_p),
        np.searchsorted([shape.target for shape in shapes], target_p),
    ).astype(np.uint16)  # The narrow type makes NumPy sort by radix.
    pair_p = pair_p[np.argsort(bucket_p[pair_p], kind="stable")]
    # Cut from the small end on: what is left of a bucket joins the next larger one.
    shape_b, first_b, begin = [], [], 0
    for k, end in enumerate(np.cumsum(np.bincount(bucket_p, minlength=len(shapes)))):
        rows = shapes[k].rows
        batches = (end - begin) // rows
        if k == len(shapes) - 1:
            batches = -(-(end - begin) // rows)
        shape_b.append(np.full(batches, k, np.int32))
        first_b.append(begin + np.arange(batches) * rows)
        begin += batches * rows
    shape_b, first_b = np.concatenate(shape_b), np.concatenate(first_b)
    pairs_b = np.diff(first_b, append=len(pair_p))
    order_b = permutation(len(shape_b))
    offset_b = np.append(0, np.cumsum(pairs_b[order_b]))
    row_p = np.arange(len(pair_p)) - np.repeat(offset_b[:-1], pairs_b[order_b])
    pair_p = pair_p[row_p + np.repeat(first_b[order_b], pairs_b[order_b])]
    # One number seen as an array of them: no memory.
    zero_p, one_p = (np.broadcast_to(np.uint16(n), pair_p.shape) for n in (0, 1))
    arrays = (pair_p, row_p, zero_p, zero_p, one_p)
    return shape_b[order_b], offset_b, arrays


def bucket_lengths(source_p, target_p, buckets: int) -> list[tuple[int, int]]:
    """(source, target) lengths of the buckets, each side in rising order."""
    side = int(target_p.max()) + 1
    cells, count_c = np.unique(
        source_p.astype(np.int64) * side + target_p, return_counts=True
    )
    source_c, target_c = np.divmod(cells, side)
    finest = 1
    while max(source_c[-1], side) > finest * BOUNDS:
        finest *= 2
    least = None
    for grain in sorted({finest, *(g for g in (8, 4, 2) if g > finest)}):
        lengths, cost = _best_lengths(source_c, target_c, count_c, buckets, grain)
        if least is None:
            least = cost
        if cost <= least * (1 + ROUNDING):
            coarsest = lengths
    return coarsest


def _best_lengths(source_c, target_c, count_c, buckets: int, grain: int):
    """At most `buckets` lengths for each side, and the tokens they compute.

    Candidates are multiples of `grain` in the ratio of the two sides' tokens. `count_c`
    pairs have the lengths `source_c` and `target_c`.
    """
    sides = (source_c, target_c)
    totals = [int(length_c @ count_c) for length_c in sides]
    more = max(totals)
    # Lengths of the side with more tokens, far enough to hold the longest of both.
    end = max(
        round_up(round_up(int(c.max()), grain) * more, t) // t
        for c, t in zip(sides, totals, strict=True)
    )
    long_l = np.arange(grain, round_up(end, grain) + 1, grain)
    lengths_ld = np.stack(
        [
            np.minimum(
                round_up(long_l * t, more * grain) // more,
                round_up(int(c.max()), grain),
            )
            for c, t in zip(sides, totals, strict=True)
        ],
        axis=1,
    )
    lengths_ld = np.unique(lengths_ld, axis=0)
    smallest_c = np.maximum(
        *(np.searchsorted(lengths_ld[:, d], c) for d, c in enumerate(sides))
    )
    count_l = np.zeros(len(lengths_ld), np.int64)
    np.add.at(count_l, smallest_c, count_c)
    ends, cost = _cut(count_l, lengths_ld.sum(1), buckets)
    return [tuple(map(int, lengths_ld[end - 1])) for end in ends], cost


def _cut(count_l, width_l, parts: int) -> tuple[list[int], int]:
    """Cuts a histogram in at most `parts` runs of least total cost: (ends, cost).

    count_l, width_l: integers [lengths]; a run costs its counts times its last width.
    Dynamic programming over where the runs end, exact.
    """
    below_l = np.append(0, np.cumsum(count_l))
    cost_ij = (below_l - below_l[:, None]) * np.append(0, width_l)
    backwards_ij = np.tri(len(below_l), k=-1, dtype=bool)
    cost_ij[backwards_ij] = 1 << 60
    cost_j, begins = cost_ij[0], []
    for _ in range(min(parts, len(count_l)) - 1):
        total_ij = cost_j[:, None] + cost_ij
        begins.append(total_ij.argmin(0))
        cost_j = total_ij.min(0)
    ends = [len(count_l)]
    for begin_j in reversed(begins):
        ends.append(int(begin_j[ends[-1]]))
    return sorted(set(ends) - {0}), int(cost_j[-1])
