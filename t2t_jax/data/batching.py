"""Sentence lengths -> the plan of every global batch of an epoch.

The plan is a pure function of (lengths, weights, seed, epoch, token budget, options).
It does not know how many devices, hosts or restarts there are, so a data position is
(epoch, batch) and resuming is a look-up. Two ways to batch:

    packed    several pairs share a row; one static shape (packing.py)
    bucketed  one pair to a row; a few static shapes (buckets.py)

Suffixes: `p` pairs, `b` batches. Lengths are in tokens, including EOS.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from t2t_jax.data.buckets import bucket_lengths, plan_bucketed
from t2t_jax.data.packing import plan_packed, row_lengths
from t2t_jax.data.shapes import ROWS_MULTIPLE, Shape, rows_within
from t2t_jax.data.sorting import stable_order
from t2t_jax.terminal.errors import UserError


@dataclass(frozen=True, eq=False)
class Ragged:
    """Sentences end to end: sentence i is tokens[offsets[i]:offsets[i + 1]].

    tokens: integers [tokens of all sentences], may be a memory map.
    offsets: int64 [sentences + 1], from 0.
    """

    tokens: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens in each sentence, [sentences]."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        i = _index(i, len(self), "sentence")
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the pairs of one batch stand; arrays are int32 [pairs in this batch].

    Pair `pair_p` stands in row `row_p`, from token `source_start_p` of the source row
    and `target_start_p` of the target row, as segment `segment_p` (from 1 in each
    row). Ordered by row, then segment.
    """

    shape: Shape
    pair_p: np.ndarray
    row_p: np.ndarray
    source_start_p: np.ndarray
    target_start_p: np.ndarray
    segment_p: np.ndarray

    def only(self, kept_p: np.ndarray) -> "Layout":
        """The same batch with some of its pairs; where the others stood is padding."""
        arrays = (self.pair_p, self.row_p, self.source_start_p, self.target_start_p)
        kept = (array_p[kept_p] for array_p in (*arrays, self.segment_p))
        return Layout(self.shape, *kept)


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Every batch of one epoch: `plan[i]` is the Layout of batch i, in O(1).

    shapes: the static shapes; batch i has `shapes[shape_b[i]]`.
    arrays: those of Layout, of all pairs, as narrow integers as will do; batch i has
        the pairs from `offset_b[i]` to `offset_b[i + 1]`.
    real_source, real_target: tokens of the sentences. computed_source,
        computed_target: tokens of the batches, padding included.
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
        return self.shapes[self.shape_b[_index(i, len(self), "batch")]]

    def __getitem__(self, i: int) -> Layout:
        i = _index(i, len(self), "batch")
        part = slice(self.offset_b[i], self.offset_b[i + 1])
        arrays = (array_p[part].astype(np.int32) for array_p in self.arrays)
        return Layout(self.shape(i), *arrays)

    @property
    def computed_source(self) -> int:
        return sum(
            n * s.rows * s.source
            for n, s in zip(self._batches(), self.shapes, strict=True)
        )

    @property
    def computed_target(self) -> int:
        return sum(
            n * s.rows * s.target
            for n, s in zip(self._batches(), self.shapes, strict=True)
        )

    @property
    def efficiency(self) -> float:
        """Real tokens / computed tokens, both sides together."""
        computed = self.computed_source + self.computed_target
        return (self.real_source + self.real_target) / computed

    def _batches(self) -> list[int]:
        """How many batches there are of each shape."""
        return np.bincount(self.shape_b, minlength=len(self.shapes)).tolist()


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
) -> Plan:
    """Places every pair of one epoch exactly once in its batches.

    source_lengths, target_lengths: integers [pairs], tokens including EOS, >= 1.
    seed, epoch: integers >= 0; together they are all the randomness there is.
    shuffle: False gives one plan for every seed and epoch, say for a dev set.
    sizes, weights: the corpora that the pairs are of, as `draw` takes them; without,
        an epoch has every pair once.
    The rest is as in `static_shapes`. At most one batch an epoch has rows to spare.

    Raises UserError as `static_shapes` and `draw` do, and for a negative seed or epoch.
    """
    source_p, target_p = _checked(source_lengths, target_lengths)
    if seed < 0 or epoch < 0:
        raise UserError(f"seed and epoch must be >= 0, got {seed} and {epoch}")
    sizes = sizes or (len(source_p),)
    weights = weights or (1.0,) * len(sizes)
    if sum(sizes) != len(source_p):
        raise UserError(f"corpora of {sum(sizes)} pairs, but {len(source_p)} lengths")
    typical_p = _typical(source_p, target_p, sizes, weights)
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
    permutation = _Permutations(seed, epoch) if shuffle else np.arange
    pair_p = permutation(len(drawn_p)).astype(np.int32)
    place = plan_packed if batching == "packed" else plan_bucketed
    shape_b, offset_b, arrays = place(shapes, pair_p, source_p, target_p, permutation)
    arrays = drawn_p[arrays[0]], *arrays[1:]
    return Plan(
        shapes,
        shape_b.astype(np.int32),
        offset_b.astype(np.int64),
        tuple(map(_narrow, arrays)),
        int(source_p.sum(dtype=np.int64)),
        int(target_p.sum(dtype=np.int64)),
    )


def draw(
    sizes: Sequence[int], weights: Sequence[float], seed: int, epoch: int
) -> np.ndarray:
    """The pairs of one epoch before they are shuffled, int32 [drawn].

    sizes: pairs of each corpus; they are numbered from one corpus to the next.
    weights: how many times an epoch has each corpus, >= 0. Of weight 2.3 every pair is
        there twice, and 3 in 10 once more. Those follow each other from epoch to epoch
        round a permutation of the corpus, so of any number of epochs in a row each has
        seen every pair as often as any other, or once more. (A new permutation for
        each round would have to draw some pairs twice in the epoch where it begins.)

    Raises UserError for a weight that is not a number >= 0, and if nothing is drawn.
    """
    drawn, first = [], 0
    for corpus, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        if not 0 <= weight < float("inf"):
            raise UserError(f"a corpus has weight {weight}; want a number >= 0")
        drawn += [np.arange(first, first + size)] * int(weight)
        if share := (weight - int(weight)) * size:
            # The third number keeps this stream apart from those of `plan_epoch`.
            order = _Permutations(seed, corpus, 1)(size)
            begin, end = (int(e * share + 0.5) for e in (epoch, epoch + 1))
            drawn.append(first + order[np.arange(begin, end) % size])
        first += size
    if not sum(map(len, drawn)):
        raise UserError(
            f"corpora of {', '.join(map(str, sizes))} pairs with the weights "
            f"{', '.join(f'{w:g}' for w in weights)} have no pair in epoch {epoch}; "
            "want larger weights"
        )
    return np.concatenate(drawn).astype(np.int32)


def _typical(source_p, target_p, sizes, weights) -> np.ndarray:
    """Pairs as an epoch may have them, and the longest of all: not of one epoch.

    The shapes are made from them, so every epoch and seed has the same.
    """
    typical_p = draw(sizes, weights, seed=0, epoch=0)
    if all(float(weight).is_integer() for weight in weights):
        return typical_p
    ever_p = np.flatnonzero(np.repeat(np.array(weights) > 0, sizes))
    longest = [ever_p[length_p[ever_p].argmax()] for length_p in (source_p, target_p)]
    return np.append(typical_p, longest)


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
    """The shapes of every batch of every epoch and seed, so that nothing recompiles.

    source_lengths, target_lengths: integers [pairs], tokens including EOS, >= 1.
    batch_tokens: computed tokens of a batch, an upper bound for each side by itself.
    batching: "packed" or "bucketed".
    row_length: packed only, tokens in a row of the side that has more tokens. Raised
        to hold the longest sentence, and to a multiple of 8; the other side's rows are
        shorter by the ratio of the two sides' tokens, but hold its longest sentence.
        Where that sentence is too long for the ratio, the rows of the first side may
        be stretched by a quarter so that neither side idles.
    buckets: bucketed only, the largest number of shapes. Their bounds minimise the
        computed tokens, among multiples of 8, or of 4, 2 or 1 where 8 would cost over
        2% more. Shapes are nested: what fits one fits all after it.
    rows_multiple: the rows of every shape are a multiple of it.

    Raises UserError for no pairs, lengths that are not integers >= 1 or not in pairs,
    an unknown `batching`, options below 1, and a budget too small for `rows_multiple`
    rows of the length needed.
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


def fill(layout: Layout, source: Ragged, target: Ragged) -> dict[str, np.ndarray]:
    """The arrays of one batch, int32 [rows, length], zero where there is padding.

    source, target: the sentences whose lengths the plan was made from.
    Returns `source`, `source_segment`, `source_position` and the same of `target`:
    token ids, segment ids from 1 in each row, positions from 0 in each segment.

    Raises UserError when a sentence does not fit the place the plan has for it.
    """
    shape = layout.shape
    return {
        **_fill("source", source, shape.source, layout.source_start_p, layout),
        **_fill("target", target, shape.target, layout.target_start_p, layout),
    }


def _fill(side: str, ragged: Ragged, length: int, start_p, layout: Layout) -> dict:
    """The three arrays of one side. Layouts are in order of row and start."""
    if layout.pair_p.max(initial=-1) >= len(ragged):
        raise UserError(
            f"the plan has {side} sentence {layout.pair_p.max()}, but there are only "
            f"{len(ragged)}; make it from the lengths of the arrays that fill it"
        )
    first_p = ragged.offsets[layout.pair_p].astype(np.int64)
    length_p = ragged.offsets[layout.pair_p + 1] - first_p
    place_p = layout.row_p.astype(np.int64) * length + start_p
    end_p = place_p + length_p
    limit_p = np.minimum(
        (layout.row_p + 1).astype(np.int64) * length,
        np.append(place_p[1:], layout.shape.rows * length),
    )
    if np.any(end_p > limit_p):
        pair = layout.pair_p[np.argmax(end_p > limit_p)]
        raise UserError(
            f"{side} sentence {pair} does not fit the place planned for it: it has "
            f"{len(ragged[pair])} tokens; make the plan from the lengths of the arrays "
            "that fill it"
        )
    before_p = np.cumsum(length_p) - length_p
    token = np.arange(length_p.sum())
    place = token + np.repeat(place_p - before_p, length_p)
    filled = {
        side: ragged.tokens[token + np.repeat(first_p - before_p, length_p)],
        f"{side}_segment": np.repeat(layout.segment_p, length_p),
        f"{side}_position": token - np.repeat(before_p, length_p),
    }
    arrays = {}
    for name, values in filled.items():
        flat = np.zeros(layout.shape.rows * length, np.int32)
        flat[place] = values
        arrays[name] = flat.reshape(layout.shape.rows, length)
    return arrays


class _Permutations:
    """A stream of permutations from (seed, epoch), the same for every NumPy.

    NumPy promises the raw bits of Philox for good, `Generator.permutation` not.
    """

    def __init__(self, *entropy: int):
        self.bits = np.random.Philox(np.random.SeedSequence(entropy))

    def __call__(self, n: int) -> np.ndarray:
        return stable_order(self.bits.random_raw(n))


def _checked(source_lengths, target_lengths) -> tuple[np.ndarray, np.ndarray]:
    """Both sides' lengths as int32 [pairs]."""
    sides = [np.asarray(source_lengths), np.asarray(target_lengths)]
    if sides[0].ndim != 1 or sides[0].shape != sides[1].shape:
        raise UserError(
            "the two sides must have one length a pair, got arrays of shapes "
            f"{sides[0].shape} and {sides[1].shape}"
        )
    if not len(sides[0]):
        raise UserError("there are no pairs to batch; want at least one")
    for name, length_p in zip(("source", "target"), sides, strict=True):
        if length_p.dtype.kind not in "iu":
            raise UserError(f"{name} lengths must be integers, got {length_p.dtype}")
        if length_p.min() < 1:
            pair = int(length_p.argmin())
            raise UserError(
                f"{name} lengths must be at least 1 (EOS counts), got "
                f"{length_p[pair]} for pair {pair}"
            )
    return sides[0].astype(np.int32, copy=False), sides[1].astype(np.int32, copy=False)


def _narrow(array_p: np.ndarray) -> np.ndarray:
    """The same integers, >= 0, in 16 bits where they fit, or else in 32."""
    narrow = np.uint16 if array_p.max(initial=0) < 1 << 16 else np.int32
    return array_p.astype(narrow, copy=False)


def _index(i: int, n: int, what: str) -> int:
    """`i` as an index from 0; negative ones count from the end."""
    i = operator.index(i)
    if not -n <= i < n:
        raise IndexError(f"{what} {i} of {n}")
    return i % n
