"""Static batch shapes within a token budget, chosen for the lengths of the sentences.

Suffixes: `p` pairs, `l` candidate lengths, `c` cells of the histogram of (source,
target) lengths, `d` the two sides, `i` and `j` begin and end of a bucket. Lengths are
in tokens, including EOS.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from t2t_jax.data.drawing import typical_draw
from t2t_jax.io.errors import UserError

ROWS_MULTIPLE = 8  # the rows of every training batch are a multiple of this
# A packed row may be stretched by up to this factor to balance the two sides.
STRETCH = 1.25
# Rounding bucket bounds up to a multiple of 8 may add this share of computed tokens.
ROUNDING = 0.02
# At most about this many candidate bounds: `_cut` takes their square in memory.
BOUNDS = 512
OUTLIERS = 1_000  # one in this many varied pairs need not fit the shapes


@dataclass(frozen=True)
class Shape:
    """One static batch shape: [rows, source] and [rows, target] tokens."""

    rows: int
    source: int
    target: int


def rows_within(batch_tokens: int, source: int, target: int, multiple: int) -> int:
    """The most rows of these lengths within a token budget, a multiple of `multiple`.

    Raises:
      UserError: Not even `multiple` rows fit.
    """
    length = max(source, target)
    rows = batch_tokens // length // multiple * multiple
    if not rows:
        raise UserError(
            f"config.data.batch_tokens={batch_tokens} is too small for {multiple} rows "
            f"(rows_multiple) of {length} tokens: raise it to {multiple * length} or "
            "more, or lower config.data.row_length (packed batches only), or remove "
            "the longest sentences, because a row must hold the longest one"
        )
    return rows


def round_up(n, multiple):
    """`n`, an integer or an array of them, rounded up to a multiple."""
    return -(-n // multiple) * multiple


def static_shapes(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    batch_tokens: int,
    batching: str,
    row_length: int = 128,
    buckets: int = 10,
    rows_multiple: int = ROWS_MULTIPLE,
) -> tuple[Shape, ...]:
    """The shapes of the batches of all epochs and seeds; no other shape is compiled.

    Args:
      source_lengths, target_lengths: Integers [pairs], tokens including EOS; without
        a source 0.
      batch_tokens: The most tokens of a batch on each side, padding included.
      batching: "packed" or "bucketed".
      row_length: Packed only: tokens in a row of the side that has more tokens. It is
        raised to hold the longest sentence, and to a multiple of 8. The other side's
        rows are shorter by the ratio of the two sides' tokens, but hold its longest
        sentence. Where that sentence is too long for the ratio, the rows of the first
        side may be stretched by a quarter, so that neither side idles.
      buckets: Bucketed only: the most shapes. Their bounds minimize the computed
        tokens. They are multiples of 8, or of 4, 2 or 1 where 8 would cost over 2%
        more. Shapes are nested: a pair that fits one shape fits all later ones.
      rows_multiple: The rows of every shape are a multiple of this.

    Returns:
      The shapes in rising order; one shape if packed.

    Raises:
      UserError: No pairs; lengths that are not integers >= 0, or not in pairs; an
        unknown `batching`; options below 1; a budget too small for `rows_multiple` rows
        of the length needed.
    """
    source_p, target_p = checked_lengths(source_lengths, target_lengths)
    for name, value in (
        ("batch_tokens", batch_tokens),
        ("row_length", row_length),
        ("buckets", buckets),
        ("rows_multiple", rows_multiple),
    ):
        if value < 1:
            raise UserError(f"{name} must be at least 1, got {value}")
    if batching == "packed":
        row = row_lengths(source_p, target_p, batch_tokens, row_length, rows_multiple)
        lengths = [row]
    elif batching == "bucketed":
        lengths = bucket_lengths(source_p, target_p, buckets)
    else:
        raise UserError(f'batching must be "packed" or "bucketed", got {batching!r}')
    return tuple(
        Shape(rows_within(batch_tokens, source, target, rows_multiple), source, target)
        for source, target in lengths
    )


def shapes_of_epochs(
    stored: tuple[np.ndarray, np.ndarray],
    typical: tuple[np.ndarray, np.ndarray],
    *,
    batch_tokens: int,
    batching: str,
    rows_multiple: int = ROWS_MULTIPLE,
    sizes: Sequence[int] = (),
    weights: Sequence[float] = (),
    **options,
) -> tuple[Shape, ...]:
    """The shapes of all epochs of pairs whose lengths differ from epoch to epoch.

    They are chosen for the lengths of a typical epoch. The largest also holds every
    stored pair: one that becomes too long for it in some epoch keeps its stored tokens.
    Packed rows are as long as those of the stored pairs: longer ones may leave much of
    the token budget unused. The longest bucket may be longer.

    Args:
      stored: Source and target lengths without variation, int [pairs].
      typical: The same in a typical epoch. Of the longest pairs, 1 in `OUTLIERS` does
        not count: few pairs in capitals, say, should not make a bucket long.
      sizes, weights: As in `draw`.
      batch_tokens, batching, rows_multiple, options: As in `static_shapes`.

    Raises:
      UserError: As `static_shapes` and `draw`.
    """
    stored, typical = checked_lengths(*stored), checked_lengths(*typical)
    sizes, weights = sizes_and_weights(stored[0], sizes, weights)
    options |= {
        "batch_tokens": batch_tokens,
        "batching": batching,
        "rows_multiple": rows_multiple,
    }
    drawn_p = typical_draw(*stored, sizes, weights)
    *_, shape = static_shapes(*(length_p[drawn_p] for length_p in stored), **options)
    largest = [shape.source, shape.target]
    if batching == "bucketed":
        # A multiple of 8, because lengths of rows are rounded up to one.
        budget = batch_tokens // rows_multiple // 8 * 8
        rank = len(drawn_p) - 1 - len(drawn_p) // OUTLIERS
        for side, typical_p in enumerate(typical):
            longest = np.partition(typical_p[drawn_p], rank)[rank]
            largest[side] = max(largest[side], min(longest, budget))
    drawable_p = np.flatnonzero(np.repeat(np.array(weights) > 0, sizes))
    lengths = [
        np.append(length_p[drawn_p], stored_p[drawable_p].max())
        for length_p, stored_p in zip(
            lengths_within(stored, typical, *largest), stored, strict=True
        )
    ]
    return static_shapes(*lengths, **options)


def lengths_within(
    stored, typical, source: int, target: int
) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of a typical epoch; a pair that is too long counts as it is stored."""
    fits_p = (typical[0] <= source) & (typical[1] <= target)
    return tuple(np.where(fits_p, *pair) for pair in zip(typical, stored, strict=True))


def sizes_and_weights(
    length_p, sizes, weights
) -> tuple[Sequence[int], Sequence[float]]:
    """The sizes and weights of the corpora; by default one corpus, read once."""
    sizes = sizes or (len(length_p),)
    weights = weights or (1.0,) * len(sizes)
    if sum(sizes) != len(length_p):
        raise UserError(f"corpora of {sum(sizes)} pairs, but {len(length_p)} lengths")
    return sizes, weights


def checked_lengths(source_lengths, target_lengths) -> tuple[np.ndarray, np.ndarray]:
    """The lengths of source and target as int32 [pairs]; raises UserError if wrong."""
    sides = [np.asarray(source_lengths), np.asarray(target_lengths)]
    if sides[0].ndim != 1 or sides[0].shape != sides[1].shape:
        raise UserError(
            "source and target lengths must be two arrays of shape (pairs,), got "
            f"shapes {sides[0].shape} and {sides[1].shape}"
        )
    if not len(sides[0]):
        raise UserError("no pairs to batch; want at least one")
    for name, length_p in zip(("source", "target"), sides, strict=True):
        if length_p.dtype.kind not in "iu":
            raise UserError(f"{name} lengths must be integers, got {length_p.dtype}")
        # The examples of a language model have no source.
        if length_p.min() < (minimum := int(name == "target")):
            pair = int(length_p.argmin())
            raise UserError(
                f"{name} lengths must be at least {minimum} (EOS counts), got "
                f"{length_p[pair]} for pair {pair}"
            )
    return sides[0].astype(np.int32, copy=False), sides[1].astype(np.int32, copy=False)


def row_lengths(source_p, target_p, batch_tokens, row_length, multiple):
    """The (source, target) lengths of a packed row; see `static_shapes`."""
    totals = int(source_p.sum(dtype=np.int64)), int(target_p.sum(dtype=np.int64))
    longest = round_up(int(source_p.max()), 8), round_up(int(target_p.max()), 8)
    larger = int(totals[1] > totals[0])  # the index of the side that has more tokens
    total, other_total = totals[larger], totals[1 - larger]
    min_length = max(round_up(row_length, 8), *longest)
    best_score = -1.0
    for length in range(min_length, int(min_length * STRETCH) + 1, 8):
        # In integers: length * other_total / total, rounded up to a multiple of 8.
        balanced = round_up(length * other_total, total * 8) // total
        other_length = max(balanced, longest[1 - larger])
        rows = batch_tokens // length // multiple * multiple
        # Score: the best possible share of real tokens (up to a constant factor) times
        # the part of the token budget that whole rows use. A side without tokens, such
        # as the source of a language model, wastes none.
        filled = min(
            n / t for n, t in ((length, total), (other_length, other_total)) if t
        )
        score = filled / (length + other_length) * rows * length
        if score > best_score:
            best_score, best = score, (length, other_length)
        if balanced >= longest[1 - larger]:
            break  # the sides are balanced; longer rows gain nothing
    return best[::-1] if larger else best


def bucket_lengths(source_p, target_p, buckets: int) -> list[tuple[int, int]]:
    """Chooses the (source, target) lengths of at most `buckets` shapes, rising.

    One side of the pairs may be 0 throughout.
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
    larger_total = max(totals)
    # Lengths of the side with more tokens, up to where both sides' longest fit.
    end = max(
        round_up(round_up(int(c.max()), multiple) * larger_total, t) // t
        for c, t in zip(sides, totals, strict=True)
        if t  # one side may have no tokens
    )
    long_l = np.arange(multiple, round_up(end, multiple) + 1, multiple)
    lengths_ld = np.stack(
        [
            # In integers: long_l * t / larger_total, rounded up, at most the longest.
            np.minimum(
                round_up(long_l * t, larger_total * multiple) // larger_total,
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

    Exact, by dynamic programming over the ends of the runs. A run costs the sum of its
    counts times its last width. Returns the end of each run (exclusive, in rising
    order), and the total cost.
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
