"""The pairs that an epoch draws from corpora with weights, and random permutations.

Suffix: `p` pairs.
"""

import math
from collections.abc import Sequence

import numpy as np

from t2t_jax.io.errors import UserError


def draw(
    sizes: Sequence[int], weights: Sequence[float], seed: int, epoch: int
) -> np.ndarray:
    """Draws the pairs of one epoch, not yet shuffled.

    A corpus of weight 2.3 contributes every pair twice, and 3 in 10 pairs once more.
    Those extra pairs walk around one fixed permutation of the corpus; each epoch
    continues where the last one stopped. So over any consecutive epochs, the counts of
    two pairs of a corpus differ by at most one. (A new permutation for each round would
    have to draw some pairs twice in the epoch where the round begins.)

    Args:
      sizes: The number of pairs of each corpus. Pairs are numbered consecutively
        across the corpora.
      weights: How many times an epoch reads each corpus, >= 0.
      seed, epoch: Integers >= 0.

    Returns:
      The numbers of the pairs, int32 [drawn].

    Raises:
      UserError: A weight is not a number >= 0, or no pair is drawn.
    """
    drawn, offset = [], 0
    for corpus, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        if not 0 <= weight < float("inf"):
            raise UserError(f"a corpus has weight {weight}; want a number >= 0")
        drawn += [np.arange(offset, offset + size)] * int(weight)  # every pair
        if share := (weight - int(weight)) * size:  # once more, some pairs
            # The third number makes this stream differ from those of `plan_epoch`,
            # which have two.
            order = Permutations(seed, corpus, 1)(size)
            # Rounding the running total, not each share, keeps the mean exact.
            begin, end = (int(e * share + 0.5) for e in (epoch, epoch + 1))
            drawn.append(offset + order[np.arange(begin, end) % size])
        offset += size
    if not sum(map(len, drawn)):
        raise UserError(
            f"corpora of {', '.join(map(str, sizes))} pairs with the weights "
            f"{', '.join(f'{w:g}' for w in weights)} have no pair in epoch {epoch}; "
            "want larger weights"
        )
    return np.concatenate(drawn).astype(np.int32)


def typical_draw(source_p, target_p, sizes, weights) -> np.ndarray:
    """Draws pairs that represent every epoch: the first epoch, and the longest pairs.

    The shapes are computed from it, so every epoch and seed has the same shapes.
    """
    typical_p = draw(sizes, weights, seed=0, epoch=0)
    if all(float(weight).is_integer() for weight in weights):
        return typical_p  # every epoch draws the same pairs
    # Any pair of a corpus with a weight may be drawn later, so the longest must fit.
    drawable_p = np.flatnonzero(np.repeat(np.array(weights) > 0, sizes))
    longest = [
        drawable_p[length_p[drawable_p].argmax()] for length_p in (source_p, target_p)
    ]
    return np.append(typical_p, longest)


class Permutations:
    """A stream of random permutations, the same in every version of NumPy.

    NumPy guarantees that the raw bits of Philox never change; it gives no such
    guarantee for `Generator.permutation`.
    """

    def __init__(self, *entropy: int):
        self._bits = np.random.Philox(np.random.SeedSequence(entropy))

    def __call__(self, n: int) -> np.ndarray:
        # The order that sorts random numbers is a random permutation.
        return stable_order(self._bits.random_raw(n))


def tempered(
    sizes: Sequence[int], weights: Sequence[float], temperature: float
) -> tuple[float, ...]:
    """Computes how many times an epoch reads each corpus, at a temperature T > 0.

    An epoch draws sum(size * weight) pairs, whatever the temperature. At T = 1 the
    weights of the specs are the answer; another temperature keeps them as factors.
    """
    drawn = sum(size * weight for size, weight in zip(sizes, weights, strict=True))
    if temperature == 1 or not drawn:  # exactly the weights, without rounding errors
        return tuple(weights)
    # In logarithms: size^(1/T) overflows at low temperatures.
    logs = [
        math.log(weight) + math.log(size) / temperature if size * weight else -math.inf
        for size, weight in zip(sizes, weights, strict=True)
    ]
    shares = [math.exp(log - max(logs)) for log in logs]
    return tuple(
        drawn * share / sum(shares) / size if size else weight
        for size, weight, share in zip(sizes, weights, shares, strict=True)
    )


def stable_order(key_p: np.ndarray, bits: int = 64) -> np.ndarray:
    """The same as `np.argsort(key_p, kind="stable")` for keys below 2 ** bits, >= 0."""
    index_bits = np.uint64(max(len(key_p) - 1, 0).bit_length())
    packed_p = key_p.astype(np.uint64)
    # The key in the high bits, its index in the low ones. If they need more than 64
    # bits together, the key loses its last bits here.
    packed_p <<= np.uint64(64 - bits)
    packed_p >>= index_bits
    packed_p <<= index_bits
    packed_p |= np.arange(len(key_p), dtype=np.uint64)
    packed_p.sort()
    order_p = (packed_p & np.uint64((1 << int(index_bits)) - 1)).view(np.int64)
    if bits + index_bits > 64:
        # Keys that differ only in the lost bits stand side by side, in the order of
        # their indices. There are few; sort them once more by their full keys.
        packed_p >>= index_bits
        repeats = packed_p[1:] == packed_p[:-1]
        tied_p = np.flatnonzero(np.append(repeats, False) | np.append(False, repeats))
        tied = order_p[tied_p]
        order_p[tied_p] = tied[np.argsort(key_p[tied], kind="stable")]
    return order_p


def column_orders(key_iw: np.ndarray) -> np.ndarray:
    """The same as `np.argsort(key_iw, axis=0, kind="stable")`, for small keys.

    A key >= 0 and an index of its step have to fit into an int64 together.
    """
    index_bits = max(len(key_iw) - 1, 0).bit_length()
    packed_iw = key_iw.astype(np.int64) << index_bits
    packed_iw |= np.arange(len(key_iw))[:, None]
    packed_iw.sort(axis=0)
    packed_iw &= (1 << index_bits) - 1  # keep the index alone
    return packed_iw
