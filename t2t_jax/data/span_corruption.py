"""Span corruption as noise: the decoder restores what was cut out of a sentence.

As in T5 (Raffel et al. 2020): spans of a sentence are cut out, and a sentinel stands
for each. For `the cats chase the dogs`:

    source    the <span_0> chase <span_1> </s>
    target    <span_0> cats <span_1> the dogs </s>

The lengths depend on the length of the sentence alone. A sentence of n pieces without
EOS loses m = n * mask_rate of them, rounded, in m / mean_span spans, rounded; at least
one piece in one span, and no two spans adjoin. Which pieces is random: all choices of
places, and all divisions of m into lengths, are equally probable.

Suffixes: `p` pairs, `s` spans of all pairs; others are [tokens of the sentences].
"""

from typing import TYPE_CHECKING

import numpy as np

from t2t_jax.data.counter_random import uniform
from t2t_jax.data.filling import Ragged
from t2t_jax.data.noise import fill_taken, of_sentence, positions, take
from t2t_jax.data.plan import Layout
from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.io.errors import UserError

if TYPE_CHECKING:
    from t2t_jax.data.pairs import Pairs

# The symbols of the tokenizer; a sentence has no more spans than this.
SENTINELS = tuple(f"<span_{i}>" for i in range(32))
# The streams of random numbers of a sentence.
_DIVISION, _PLACE = range(2)


class SpanCorruption:
    """Cuts spans out of the targets of pairs, as a `Noise`.

    The source of a pair, such as a tag, is kept and precedes what is left of the text.

    Args:
      mask_rate: the share of the pieces that is cut out.
      mean_span: pieces of a span, on average.
      applies_p: bool [pairs], the pairs it applies to; the others are left as they are.
        None is all pairs.

    Raises:
      UserError: an option is out of its range.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        mask_rate: float = 0.15,
        mean_span: float = 3.0,
        applies_p: np.ndarray | None = None,
    ):
        if not vocabulary.joint:
            raise UserError(
                "span corruption moves pieces from the target to the source, so both "
                "need the same vocabulary; set config.data.source_vocab_size=0"
            )
        if not 0 < mask_rate < 1:
            raise UserError(f"mask_rate={mask_rate}; want 0 < mask_rate < 1")
        if mean_span < 1:
            raise UserError(f"mean_span={mean_span}; want at least 1 piece")
        self._rate, self._mean_span = mask_rate, mean_span
        self._applies_p = applies_p
        self._sentinels = np.array([vocabulary.id_of(s) for s in SENTINELS], np.int32)

    def lengths(self, pairs: "Pairs") -> tuple[np.ndarray, np.ndarray]:
        """Returns the source and target lengths of the examples, int [pairs]."""
        source_p, target_p = pairs.source.lengths, pairs.target.lengths
        cut_p, spans_p = self._counts(target_p - 1)
        # EOS of a sentence stays on both sides; that of the source before it goes.
        left_p = np.maximum(source_p - 1, 0) + target_p - cut_p + spans_p
        applies_p = self._applies(np.arange(len(pairs)))
        return (
            np.where(applies_p, left_p, source_p),
            np.where(applies_p, cut_p + spans_p + 1, target_p),
        )

    def fill(
        self, layout: Layout, pairs: "Pairs", seed: int, epoch: int
    ) -> dict[str, np.ndarray]:
        """Builds the arrays of one batch, with the names of `filling.fill`."""
        sides = [take(side, layout.pair_p) for side in (pairs.source, pairs.target)]
        return fill_taken(layout, *self.corrupted(*sides, layout.pair_p, seed, epoch))

    def corrupted(
        self,
        source: Ragged,
        target: Ragged,
        number_p: np.ndarray,
        seed: int,
        epoch: int,
    ) -> tuple[Ragged, Ragged]:
        """Returns the source and the target of the examples of some pairs.

        Args:
          number_p: the number of each pair in its text.
        """
        applies_p = self._applies(number_p)
        cut_p, spans_p = self._counts(target.lengths - 1) * applies_p
        begin_s, end_s = _spans(target, cut_p, spans_p, (seed, epoch, number_p))
        rank_s = np.arange(len(begin_s)) - np.repeat(
            spans_p.cumsum() - spans_p, spans_p
        )
        sentinel_s = self._sentinels[rank_s]
        # +1 where a span begins and -1 after its end add up to 1 within spans.
        steps = np.zeros(len(target.tokens) + 1, np.int64)
        steps[begin_s], steps[end_s] = 1, -1
        cut = steps.cumsum()[:-1] > 0
        return (
            _left(source, target, applies_p, cut, begin_s, sentinel_s),
            _restored(target, applies_p, cut, begin_s, sentinel_s),
        )

    def _applies(self, number_p: np.ndarray) -> np.ndarray:
        if self._applies_p is None:
            return np.ones(len(number_p), bool)
        return self._applies_p[number_p]

    def _counts(self, length_p: np.ndarray) -> np.ndarray:
        """Computes the pieces and the spans that are cut out, int64 [2, p].

        Args:
          length_p: the pieces of each sentence, without EOS.
        """
        cut_p = np.floor(length_p * self._rate + 0.5).astype(np.int64)
        cut_p = np.minimum(np.maximum(cut_p, 1), length_p)
        spans_p = np.floor(cut_p / self._mean_span + 0.5).astype(np.int64)
        # A span has a piece, and a piece is left between two spans.
        most_p = np.minimum(cut_p, length_p - cut_p + 1)
        most_p = np.minimum(most_p, len(SENTINELS))
        return np.stack([cut_p, np.minimum(np.maximum(spans_p, 1), most_p)])


def _spans(
    target: Ragged, cut_p: np.ndarray, spans_p: np.ndarray, keys: tuple
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the spans: where each begins and ends in `target.tokens`."""
    # Each span stands in another gap between the pieces that are left, the gaps before
    # the first and after the last one included.
    gaps_p = target.lengths - cut_p
    pair_s, left_s = _drawn(spans_p, gaps_p, (*keys, _PLACE))
    # The pieces that are cut out are divided where another span begins: the first does
    # at piece 0.
    _, before_s = _drawn(spans_p, cut_p, (*keys, _DIVISION), with_first=True)
    begin_s = target.offsets[pair_s] + left_s + before_s
    # A span ends where the next one of its pair begins, as far as pieces cut out count.
    last_s = np.append(pair_s[1:] != pair_s[:-1], [True] * bool(len(pair_s)))
    next_s = np.where(last_s, cut_p[pair_s], np.roll(before_s, -1))
    return begin_s, begin_s + next_s - before_s


def _drawn(
    count_p: np.ndarray, of_p: np.ndarray, keys: tuple, with_first: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Draws `count_p` different numbers below `of_p` for each pair, in rising order.

    Args:
      with_first: 0 is one of them.

    Returns:
      For each number drawn, its pair and the number.
    """
    seed, epoch, number_p, stream = keys
    pair = np.repeat(np.arange(len(of_p)), of_p)
    first_p = of_p.cumsum() - of_p
    number = np.arange(len(pair)) - first_p[pair]
    random = uniform(seed, epoch, number_p[pair], number, stream)
    if with_first:
        random[number == 0] = -1.0
    # Those of the least random numbers: pairs stay in order, so the rank of a number in
    # its pair is its place in the order, counted from the first of the pair.
    order = np.lexsort((random, pair))
    chosen = np.sort(order[number < count_p[pair]])
    return pair[chosen], number[chosen]


def _left(source, target, applies_p, cut, begin_s, sentinel_s) -> Ragged:
    """The sources: that of the pair, and its target with a sentinel for each span."""
    tokens = target.tokens.copy()
    tokens[begin_s] = sentinel_s  # replaces the first piece of a span
    kept = ~cut
    kept[begin_s] = True
    kept &= of_sentence(target, applies_p)
    # EOS of the source goes, where text follows.
    is_end = positions(source) == of_sentence(source, source.lengths - 1)
    before = ~(is_end & of_sentence(source, applies_p))
    return _sentences(
        np.append(source.tokens[before], tokens[kept]),
        np.append(_pair(source)[before], _pair(target)[kept]),
        len(target),
    )


def _restored(target, applies_p, cut, begin_s, sentinel_s) -> Ragged:
    """The targets: each span after its sentinel, then EOS."""
    kept = cut | ~of_sentence(target, applies_p)
    kept[target.offsets[1:] - 1] = True
    kept = np.insert(kept, begin_s, True)
    tokens = np.insert(target.tokens, begin_s, sentinel_s)
    pair = _pair(target)
    pair = np.insert(pair, begin_s, pair[begin_s])
    return _sentences(tokens[kept], pair[kept], len(target))


def _pair(sentences: Ragged) -> np.ndarray:
    """The sentence of each token, counted from 0."""
    return of_sentence(sentences, np.arange(len(sentences)))


def _sentences(tokens: np.ndarray, pair: np.ndarray, pairs: int) -> Ragged:
    """Puts the tokens of each pair together, in the order given."""
    order = np.argsort(pair, kind="stable")
    offsets = np.append(0, np.bincount(pair, minlength=pairs).cumsum())
    return Ragged(tokens[order], offsets)
