"""Noise: examples that change from epoch to epoch.

Noise is a pure function of (seed, epoch, number of the pair): a resumed run sees the
same examples, and any batch can be looked up again.

    Masking          tokens are hidden, and the model restores them in place (BERT)
    SpanCorruption   spans are cut out, and the decoder writes them (T5)

Suffixes: `p` pairs, `u` units, `s` spans of all pairs, `v` vocabulary; others are
[tokens of the sentences].
"""

import dataclasses
from typing import NamedTuple, Protocol

import numpy as np

from t2t_jax.data.filling import Layout, Ragged, fill_taken, per_token, positions, take
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.sections import field
from t2t_jax.text.counter_random import uniform

MASK = "<mask>"
MASKINGS = ("whole_word", "span", "piece")
# The symbols of span corruption; a sentence has no more spans than this.
SENTINELS = tuple(f"<span_{i}>" for i in range(32))
# The streams of random numbers of a token, and of a sentence.
_CHOICE, _KIND, _PIECE = range(3)
_DIVISION, _PLACE = range(2)


class Noise(Protocol):
    """Makes the examples of an epoch from stored pairs.

    The lengths must not depend on seed and epoch, because the shapes of batches and
    their plan follow from them.
    """

    def lengths(self, source: Ragged, target: Ragged) -> tuple[np.ndarray, np.ndarray]:
        """Returns the source and target lengths of the examples, int [pairs]."""

    def fill(
        self, layout: Layout, source: Ragged, target: Ragged, seed: int, epoch: int
    ) -> dict[str, np.ndarray]:
        """Builds the arrays of one batch, with the names of `filling.fill`."""


@dataclasses.dataclass(frozen=True)
class MaskingOptions:
    """Options of masked language models.

    Raises:
      UserError: a rate is out of its range.
    """

    # What is hidden: "whole_word", "piece", or "span": runs of words whose length is
    # geometric (as in SpanBERT, Joshi et al. 2020).
    masking: str = field("whole_word", choices=MASKINGS)
    # The expected share of hidden tokens, and the mean length of spans, in words.
    mask_rate: float = field(0.15)
    mean_span: float = field(3.0)
    # The shares of hidden tokens that the model reads as <mask>, and as a random other
    # token; it reads the rest as they are.
    as_mask: float = field(0.8)
    as_random: float = field(0.1)

    def __post_init__(self):
        if not 0 < self.mask_rate < 1:
            raise UserError(
                f"config.task.options.mask_rate={self.mask_rate}; want a share of the "
                "tokens, 0 < mask_rate < 1"
            )
        if min(self.as_mask, self.as_random) < 0 or self.as_mask + self.as_random > 1:
            raise UserError(
                f"as_mask={self.as_mask} and as_random={self.as_random}; want shares "
                "of the hidden pieces: each 0 or more, and at most 1 together"
            )
        # The mean length of runs of words that are hidden independently.
        shortest = 1 / (1 - self.mask_rate)
        if self.masking == "span" and self.mean_span < shortest:
            raise UserError(
                f"mean_span={self.mean_span}; at mask_rate={self.mask_rate} words "
                f"hidden one by one form runs of {shortest:.2f}; want {shortest:.2f} "
                "or more"
            )


class Masking:
    """Hides tokens at random (Devlin et al. 2019), as a `Noise`.

    Each unit, a token or a word, is hidden with probability `mask_rate`; signs such as
    a full stop are words. A sentence of which nothing would be hidden loses the unit
    that was closest to it. EOS is never hidden.
    """

    def __init__(self, vocabulary: Vocabulary, options: MaskingOptions):
        rate = self._rate = options.mask_rate
        mean_run = options.mean_span if options.masking == "span" else 1 / (1 - rate)
        # A two-state Markov chain: after a hidden unit the next one is hidden with
        # probability `_stay`, after others with `_begin`; a share of `mask_rate` is.
        self._stay = 1 - 1 / mean_run
        self._begin = rate / (mean_run * (1 - rate))
        self._whole_words = options.masking != "piece"
        self._as_mask, self._as_random = options.as_mask, options.as_random
        self._mask, self._eos = vocabulary.id_of(MASK), vocabulary.eos
        self._table = PieceTable.from_vocabulary(vocabulary)
        self._ordinary = np.flatnonzero(self._table.ordinary_v)

    def lengths(self, source: Ragged, target: Ragged) -> tuple[np.ndarray, np.ndarray]:
        """Returns the lengths of the sentences, for both sides."""
        return target.lengths, target.lengths

    def fill(
        self, layout: Layout, source: Ragged, target: Ragged, seed: int, epoch: int
    ) -> dict[str, np.ndarray]:
        """Builds the arrays of one batch; `target_segment` is 0 where nothing is asked.

        So the loss, which is over real target tokens, is over hidden tokens alone.
        """
        sentences = take(target, layout.pair_p)
        tokens, is_hidden = self.masked(sentences, layout.pair_p, seed, epoch)
        batch = fill_taken(layout, Ragged(tokens, sentences.offsets), sentences)
        predicted = Ragged(is_hidden, sentences.offsets)
        batch["target_segment"] *= fill_taken(layout, predicted, predicted)["target"]
        return batch

    def masked(
        self, sentences: Ragged, number_p: np.ndarray, seed: int, epoch: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Masks sentences; `number_p` are their numbers in the text.

        Returns for each token the id that the model reads, int32, and whether it is
        hidden and to be predicted, bool.
        """
        number = per_token(sentences, number_p)
        position = positions(sentences)

        def drawn(stream, index=slice(None)):
            return uniform(seed, epoch, number[index], position[index], stream)

        tokens = sentences.tokens
        begins = self._unit_begins(tokens, position)
        hidden_u = self._choose_units(
            drawn(_CHOICE, begins), position[begins] == 0, tokens[begins] == self._eos
        )
        is_hidden = hidden_u[np.cumsum(begins) - 1]
        kind = np.where(is_hidden, drawn(_KIND), 1.0)
        at_random = (drawn(_PIECE) * len(self._ordinary)).astype(np.int64)
        read = np.select(
            [kind < self._as_mask, kind < self._as_mask + self._as_random],
            [self._mask, self._ordinary[at_random]],
            tokens,
        )
        return read.astype(np.int32), is_hidden

    def _unit_begins(self, tokens: np.ndarray, position: np.ndarray) -> np.ndarray:
        """True for the first token of each unit; EOS is a unit of its own."""
        if not self._whole_words:
            return np.ones(len(tokens), bool)
        begins = (position == 0) | (tokens == self._eos) | self._table.begins_v[tokens]
        # Some tokenizers put the space at the end of a word.
        begins[1:] |= self._table.ends_v[tokens[:-1]]
        return begins

    def _choose_units(
        self, drawn_u: np.ndarray, first_u: np.ndarray, eos_u: np.ndarray
    ) -> np.ndarray:
        """Chooses the units that are hidden, by a random number of each."""
        # A number below both probabilities of the chain hides its unit, whatever the
        # unit before; one above both does not; one between them continues the state.
        rate_u = np.where(first_u, self._rate, self._begin)
        hidden_u = drawn_u < rate_u
        decided_u = first_u | hidden_u | (drawn_u >= self._stay)
        last_u = np.maximum.accumulate(np.where(decided_u, np.arange(len(first_u)), 0))
        hidden_u = hidden_u[last_u] & ~eos_u
        # At least one unit of each sentence: the one with the least number.
        sentence_u = np.cumsum(first_u) - 1
        count_p = np.bincount(sentence_u, hidden_u, minlength=first_u.sum())
        order_u = np.lexsort((np.where(eos_u, np.inf, drawn_u), sentence_u))
        smallest = order_u[
            first_u
        ]  # sentences stay in order, so each begins where it did
        hidden_u[smallest[count_p == 0]] = True
        return hidden_u & ~eos_u


class PieceTable(NamedTuple):
    """Properties of each token of a vocabulary, bool [v]."""

    spaced_v: np.ndarray  # it begins with a space
    begins_v: np.ndarray  # it begins a word: with a space, or a sign such as a comma
    ends_v: np.ndarray  # it ends with a space, as in some tokenizers
    ordinary_v: np.ndarray  # it spells visible characters, and is not <mask>

    @classmethod
    def from_vocabulary(cls, vocabulary: Vocabulary) -> "PieceTable":
        spellings = [vocabulary.spelling(i) for i in range(len(vocabulary))]
        texts = [s if isinstance(s, str) else "" for s in spellings]
        ordinary_v = np.array([bool(text.strip()) for text in texts])
        ordinary_v[[vocabulary.unknown, vocabulary.id_of(MASK), *vocabulary.never]] = 0
        return cls(
            np.array([text.startswith(" ") for text in texts]),
            np.array([bool(text) and not text[0].isalnum() for text in texts]),
            np.array([text.endswith(" ") for text in texts]),
            ordinary_v,
        )


class SpanCorruption:
    """Cuts spans out of the targets of pairs, as a `Noise`.

    The source of a pair, or its tag alone, is kept and precedes what is left of the
    text.

    Args:
      mask_rate: the share of the tokens that is cut out.
      mean_span: tokens of a span, on average.
      applies_p: bool [pairs], the pairs it applies to; the others are left as they are.
        None is all pairs.
      tag: the symbol that begins their sources, of which it alone is kept.

    Raises:
      UserError: an option is out of its range.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        mask_rate: float = 0.15,
        mean_span: float = 3.0,
        applies_p: np.ndarray | None = None,
        tag: str = "",
    ):
        if not vocabulary.joint:
            raise UserError(
                "span corruption moves tokens from the target to the source, so both "
                "need the same vocabulary; set config.data.source_vocab_size=0"
            )
        if not 0 < mask_rate < 1:
            raise UserError(f"mask_rate={mask_rate}; want 0 < mask_rate < 1")
        if mean_span < 1:
            raise UserError(f"mean_span={mean_span}; want at least 1 token")
        self._rate, self._mean_span = mask_rate, mean_span
        self._applies_p = applies_p
        # Tokens of a source that are kept, EOS apart.
        self._source_tokens = len(vocabulary.source.encode([tag])[0]) if tag else np.inf
        self._sentinels = np.array([vocabulary.id_of(s) for s in SENTINELS], np.int32)

    def lengths(self, source: Ragged, target: Ragged) -> tuple[np.ndarray, np.ndarray]:
        """Returns the source and target lengths of the examples, int [pairs]."""
        source_p, target_p = source.lengths, target.lengths
        cut_p, spans_p = self._counts(target_p - 1)
        # EOS of a sentence stays on both sides; that of the source before it goes.
        kept_p = np.clip(source_p - 1, 0, self._source_tokens).astype(np.int64)
        left_p = kept_p + target_p - cut_p + spans_p
        applies_p = self._applies(np.arange(len(target)))
        return (
            np.where(applies_p, left_p, source_p),
            np.where(applies_p, cut_p + spans_p + 1, target_p),
        )

    def fill(
        self, layout: Layout, source: Ragged, target: Ragged, seed: int, epoch: int
    ) -> dict[str, np.ndarray]:
        """Builds the arrays of one batch, with the names of `filling.fill`."""
        sides = [take(side, layout.pair_p) for side in (source, target)]
        return fill_taken(layout, *self.corrupted(*sides, layout.pair_p, seed, epoch))

    def corrupted(
        self,
        source: Ragged,
        target: Ragged,
        number_p: np.ndarray,
        seed: int,
        epoch: int,
    ) -> tuple[Ragged, Ragged]:
        """Returns both sides of the examples of pairs; `number_p` as in `Masking`."""
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
            _corrupted_sources(
                source, target, applies_p, cut, begin_s, sentinel_s, self._source_tokens
            ),
            _span_targets(target, applies_p, cut, begin_s, sentinel_s),
        )

    def _applies(self, number_p: np.ndarray) -> np.ndarray:
        if self._applies_p is None:
            return np.ones(len(number_p), bool)
        return self._applies_p[number_p]

    def _counts(self, length_p: np.ndarray) -> np.ndarray:
        """The tokens and the spans cut out of sentences, without EOS, int64 [2, p]."""
        cut_p = np.floor(length_p * self._rate + 0.5).astype(np.int64)
        cut_p = np.minimum(np.maximum(cut_p, 1), length_p)
        spans_p = np.floor(cut_p / self._mean_span + 0.5).astype(np.int64)
        # A span has a token, and a token is left between two spans.
        most_p = np.minimum(cut_p, length_p - cut_p + 1)
        most_p = np.minimum(most_p, len(SENTINELS))
        return np.stack([cut_p, np.minimum(np.maximum(spans_p, 1), most_p)])


def _spans(
    target: Ragged, cut_p: np.ndarray, spans_p: np.ndarray, keys: tuple
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the spans: where each begins and ends in `target.tokens`."""
    # Each span is in another gap between the tokens that are left, the gaps before
    # the first and after the last one included.
    gaps_p = target.lengths - cut_p
    pair_s, left_s = _drawn(spans_p, gaps_p, (*keys, _PLACE))
    # The tokens that are cut out are divided where another span begins: the first does
    # at token 0.
    _, before_s = _drawn(spans_p, cut_p, (*keys, _DIVISION), with_first=True)
    begin_s = target.offsets[pair_s] + left_s + before_s
    # A span ends where the next one of its pair begins, as far as tokens cut out count.
    last_s = np.append(pair_s[1:] != pair_s[:-1], [True] * bool(len(pair_s)))
    next_s = np.where(last_s, cut_p[pair_s], np.roll(before_s, -1))
    return begin_s, begin_s + next_s - before_s


def _drawn(
    count_p: np.ndarray, limit_p: np.ndarray, keys: tuple, with_first: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Draws `count_p` different numbers below `limit_p` for each pair, in rising order.

    Returns the pair of each number drawn, and the number; `with_first`, 0 is one of
    each pair.
    """
    seed, epoch, number_p, stream = keys
    pair = np.repeat(np.arange(len(limit_p)), limit_p)
    first_p = limit_p.cumsum() - limit_p
    number = np.arange(len(pair)) - first_p[pair]
    random = uniform(seed, epoch, number_p[pair], number, stream)
    if with_first:
        random[number == 0] = -1.0
    # Those of the least random numbers: pairs stay in order, so the rank of a number in
    # its pair is its place in the order, counted from the first of the pair.
    order = np.lexsort((random, pair))
    selected = np.sort(order[number < count_p[pair]])
    return pair[selected], number[selected]


def _corrupted_sources(
    source, target, applies_p, cut, begin_s, sentinel_s, kept_tokens
) -> Ragged:
    """The sources: that of the pair, and its target with a sentinel for each span."""
    tokens = target.tokens.copy()
    tokens[begin_s] = sentinel_s  # replaces the first token of a span
    is_kept = ~cut
    is_kept[begin_s] = True
    is_kept &= per_token(target, applies_p)
    # EOS of the source goes, where text follows.
    end = per_token(source, np.minimum(source.lengths - 1, kept_tokens))
    source_kept = (positions(source) < end) | ~per_token(source, applies_p)
    return _sentences(
        np.append(source.tokens[source_kept], tokens[is_kept]),
        np.append(_pair(source)[source_kept], _pair(target)[is_kept]),
        len(target),
    )


def _span_targets(target, applies_p, cut, begin_s, sentinel_s) -> Ragged:
    """The targets: each span after its sentinel, then EOS."""
    is_kept = cut | ~per_token(target, applies_p)
    is_kept[target.offsets[1:] - 1] = True
    is_kept = np.insert(is_kept, begin_s, True)
    tokens = np.insert(target.tokens, begin_s, sentinel_s)
    pair = _pair(target)
    pair = np.insert(pair, begin_s, pair[begin_s])
    return _sentences(tokens[is_kept], pair[is_kept], len(target))


def _pair(sentences: Ragged) -> np.ndarray:
    """The sentence of each token, counted from 0."""
    return per_token(sentences, np.arange(len(sentences)))


def _sentences(tokens: np.ndarray, pair: np.ndarray, pairs: int) -> Ragged:
    """Puts the tokens of each pair together, in the order given."""
    order = np.argsort(pair, kind="stable")
    offsets = np.append(0, np.bincount(pair, minlength=pairs).cumsum())
    return Ragged(tokens[order], offsets)
