"""Plans every global batch of an epoch from the lengths of the sentences.

The plan is a pure function of (lengths, weights, seed, epoch, token budget, options).
It does not depend on the number of devices, processes or restarts. So a position in the
data is (epoch, batch), and resuming is a look-up. There are two ways to batch:

    packed    several pairs share a row; one static shape (packing.py)
    bucketed  one pair a row; a few static shapes (buckets.py)

Suffixes: `p` pairs, `b` batches. Lengths are in tokens, including EOS.
"""

from collections.abc import Sequence

import numpy as np

from t2t_jax.data.buckets import bucket_lengths, plan_bucketed
from t2t_jax.data.drawing import Permutations, draw, typical_draw
from t2t_jax.data.filling import Ragged, fill
from t2t_jax.data.packing import plan_packed, row_lengths
from t2t_jax.data.plan import Layout, Plan
from t2t_jax.data.shapes import ROWS_MULTIPLE, Shape, rows_within
from t2t_jax.io.errors import UserError

OUTLIERS = 1_000  # of so many varied pairs, one need not fit the shapes

__all__ = [  # the names that callers of the planner import from here
    "Layout",
    "Plan",
    "Ragged",
    "Shape",
    "draw",
    "fill",
    "plan_epoch",
    "shapes_of_epochs",
    "static_shapes",
]


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
    source_p, target_p = _checked(source_lengths, target_lengths)
    if seed < 0 or epoch < 0:
        raise UserError(f"seed and epoch must be >= 0, got {seed} and {epoch}")
    sizes, weights = _corpora(source_p, sizes, weights)
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
    source_p, target_p = _checked(source_lengths, target_lengths)
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
    stored, typical = _checked(*stored), _checked(*typical)
    sizes, weights = _corpora(stored[0], sizes, weights)
    options |= {
        "batch_tokens": batch_tokens,
        "batching": batching,
        "rows_multiple": rows_multiple,
    }
    drawn_p = typical_draw(*stored, sizes, weights)
    of_stored = static_shapes(*(length_p[drawn_p] for length_p in stored), **options)
    most = [of_stored[-1].source, of_stored[-1].target]
    if batching == "bucketed":
        # A multiple of 8, because lengths of rows are rounded up to one.
        budget = batch_tokens // rows_multiple // 8 * 8
        rank = len(drawn_p) - 1 - len(drawn_p) // OUTLIERS
        for side, typical_p in enumerate(typical):
            longest = np.partition(typical_p[drawn_p], rank)[rank]
            most[side] = max(most[side], min(longest, budget))
    # Else it counts as it is stored.
    fits_p = (typical[0] <= most[0]) & (typical[1] <= most[1])
    drawable_p = np.flatnonzero(np.repeat(np.array(weights) > 0, sizes))
    lengths = [
        np.append(
            np.where(fits_p, of_epoch_p, stored_p)[drawn_p], stored_p[drawable_p].max()
        )
        for stored_p, of_epoch_p in zip(stored, typical, strict=True)
    ]
    return static_shapes(*lengths, **options)


def _corpora(length_p, sizes, weights) -> tuple[Sequence[int], Sequence[float]]:
    """The sizes and weights of the corpora; by default one corpus, read once."""
    sizes = sizes or (len(length_p),)
    weights = weights or (1.0,) * len(sizes)
    if sum(sizes) != len(length_p):
        raise UserError(f"corpora of {sum(sizes)} pairs, but {len(length_p)} lengths")
    return sizes, weights


def _checked(source_lengths, target_lengths) -> tuple[np.ndarray, np.ndarray]:
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
        if length_p.min() < (least := int(name == "target")):
            pair = int(length_p.argmin())
            raise UserError(
                f"{name} lengths must be at least {least} (EOS counts), got "
                f"{length_p[pair]} for pair {pair}"
            )
    return sides[0].astype(np.int32, copy=False), sides[1].astype(np.int32, copy=False)


def _narrow(array_p: np.ndarray) -> np.ndarray:
    """The same integers >= 0 in 16 bits if they all fit, else in 32."""
    narrow = np.uint16 if array_p.max(initial=0) < 1 << 16 else np.int32
    return array_p.astype(narrow, copy=False)
