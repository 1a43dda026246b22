"""Bucketed batches: one pair a row, pairs of similar length in one of a few shapes.

Suffixes: `p` pairs, `b` batches, `l` candidate lengths, `c` cells of the histogram of
(source, target) lengths, `d` the two sides, `i` and `j` begin and end of a bucket.
"""

import numpy as np

from t2t_jax.data.shapes import round_up

# Rounding bucket bounds up to a multiple of 8 may add this share of computed tokens.
ROUNDING = 0.02
# At most about this many candidate bounds: `_cut` takes their square in memory.
BOUNDS = 512


def plan_bucketed(shapes, pair_p, source_p, target_p, permutation):
    """Cuts the pairs of each bucket into batches, and shuffles the batches.

    Args:
      shapes: One for each bucket, nested, in rising order.
      pair_p: The numbers of all pairs, shuffled.
      source_p, target_p: The lengths of pair 0, 1, ...
      permutation: A function of n that returns a permutation of n.

    Returns:
      shape_b, offset_b and arrays of a Plan.
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


def bucket_lengths(source_p, target_p, buckets: int) -> list[tuple[int, int]]:
    """Chooses the (source, target) lengths of at most `buckets` shapes.

    Args:
      source_p, target_p: Lengths of the pairs; one side may be 0 throughout.
      buckets: The most shapes.

    Returns:
      The lengths, each side in rising order.
    """
    # A histogram is enough: the shapes depend on lengths, not on the order of pairs.
    side = int(target_p.max()) + 1
    cells, count_c = np.unique(  # (source, target) as one number
        source_p.astype(np.int64) * side + target_p, return_counts=True
    )
    source_c, target_c = np.divmod(cells, side)
    finest = 1
    while max(source_c[-1], side) > finest * BOUNDS:
        finest *= 2
    # From the finest multiple to the coarsest: the coarsest that is cheap enough wins.
    least_cost = None
    for multiple in sorted({finest, *(m for m in (8, 4, 2) if m > finest)}):
        lengths, cost = _best_lengths(source_c, target_c, count_c, buckets, multiple)
        if least_cost is None:
            least_cost = cost
        if cost <= least_cost * (1 + ROUNDING):
            coarsest = lengths
    return coarsest


def _best_lengths(source_c, target_c, count_c, buckets: int, multiple: int):
    """At most `buckets` (source, target) lengths, and the tokens they compute.

    `count_c` pairs have the lengths `source_c` and `target_c`. Candidates are multiples
    of `multiple` in the ratio of the two sides' tokens, so there is one list of
    candidates to cut instead of a grid.
    """
    sides = (source_c, target_c)
    totals = [int(length_c @ count_c) for length_c in sides]
    more = max(totals)
    # Lengths of the side with more tokens, up to where both sides' longest fit.
    end = max(
        round_up(round_up(int(c.max()), multiple) * more, t) // t
        for c, t in zip(sides, totals, strict=True)
        if t  # one side may have no tokens
    )
    long_l = np.arange(multiple, round_up(end, multiple) + 1, multiple)
    lengths_ld = np.stack(
        [
            # In integers: long_l * t / more, rounded up, but never past the longest.
            np.minimum(
                round_up(long_l * t, more * multiple) // more,
                round_up(int(c.max()), multiple),
            )
            for c, t in zip(sides, totals, strict=True)
        ],
        axis=1,
    )
    lengths_ld = np.unique(lengths_ld, axis=0)  # the cap makes duplicates
    # The first candidate that holds the pairs of a cell on either side.
    smallest_c = np.maximum(
        *(np.searchsorted(lengths_ld[:, d], c) for d, c in enumerate(sides))
    )
    count_l = np.zeros(len(lengths_ld), np.int64)
    np.add.at(count_l, smallest_c, count_c)
    ends, cost = _cut(count_l, lengths_ld.sum(1), buckets)
    return [tuple(map(int, lengths_ld[end - 1])) for end in ends], cost


def _cut(count_l, width_l, parts: int) -> tuple[list[int], int]:
    """Cuts a histogram into at most `parts` runs of least total cost.

    Exact, by dynamic programming over the ends of the runs.

    Args:
      count_l, width_l: Integers [lengths]. A run costs the sum of its counts times its
        last width.
      parts: The most runs.

    Returns:
      The end of each run (exclusive, in rising order), and the total cost.
    """
    below_l = np.append(0, np.cumsum(count_l))
    # The cost of one run from i up to, not including, j.
    cost_ij = (below_l - below_l[:, None]) * np.append(0, width_l)
    backwards_ij = np.tri(len(below_l), k=-1, dtype=bool)
    cost_ij[backwards_ij] = 1 << 60  # never chosen; and two of them fit into an int64
    # The least cost of the histogram up to j, in one run at first, then in one more
    # each time round. An empty run (i = j) costs 0, so fewer runs are allowed.
    cost_j, begins = cost_ij[0], []
    for _ in range(min(parts, len(count_l)) - 1):
        total_ij = cost_j[:, None] + cost_ij
        begins.append(total_ij.argmin(0))
        cost_j = total_ij.min(0)
    # Back from the last run to the first.
    ends = [len(count_l)]
    for begin_j in reversed(begins):
        ends.append(int(begin_j[ends[-1]]))
    return sorted(set(ends) - {0}), int(cost_j[-1])
