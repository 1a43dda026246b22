"""Masked language modelling as noise: pieces are hidden, and the model restores them.

The source of an example is a sentence of which some pieces are hidden, the target is
the sentence itself. Only hidden pieces are predicted: elsewhere `target_segment` is 0.

Suffixes: `p` pairs, `u` units, `v` vocabulary; others are [tokens of the sentences].
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t2t_jax.data.counter_random import uniform
from t2t_jax.data.filling import Ragged
from t2t_jax.data.noise import fill_taken, of_sentence, positions, take
from t2t_jax.data.plan import Layout
from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.io.errors import UserError

if TYPE_CHECKING:
    from t2t_jax.data.pairs import Pairs

MASK = "<mask>"
MASKINGS = ("whole_word", "span", "piece")
# The streams of random numbers of a token.
_CHOICE, _KIND, _PIECE = range(3)


class Masking:
    """Hides pieces at random (Devlin et al. 2019), as a `Noise`.

    Each unit, a piece or a word, is hidden with probability `mask_rate`; signs such as
    a full stop are words. A sentence of which nothing would be hidden loses the unit
    that was closest to it. EOS is never hidden.

    Args:
      masking: "whole_word", "piece", or "span": runs of words whose length is geometric
        (as in SpanBERT, Joshi et al. 2020), `mean_span` words on average.
      mask_rate: the expected share of hidden pieces.
      as_mask, as_random: the shares of hidden pieces that the model reads as <mask>,
        and as a random other piece; it reads the rest as they are.

    Raises:
      UserError: as `check_rates`.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        masking: str = "whole_word",
        mask_rate: float = 0.15,
        as_mask: float = 0.8,
        as_random: float = 0.1,
        mean_span: float = 3.0,
    ):
        check_rates(masking, mask_rate, as_mask, as_random, mean_span)
        mean_run = mean_span if masking == "span" else _independent(mask_rate)
        # A two-state Markov chain: after a hidden unit the next one is hidden with
        # probability `_stay`, after others with `_begin`; a share of `mask_rate` is.
        self._rate = mask_rate
        self._stay = 1 - 1 / mean_run
        self._begin = mask_rate / (mean_run * (1 - mask_rate))
        self._whole_words = masking != "piece"
        self._as_mask, self._as_random = as_mask, as_random
        self._mask, self._eos = vocabulary.id_of(MASK), vocabulary.eos
        self._table = PieceTable.of(vocabulary)
        self._ordinary = np.flatnonzero(self._table.ordinary_v)

    def lengths(self, pairs: "Pairs") -> tuple[np.ndarray, np.ndarray]:
        """Returns the lengths of the sentences, for both sides."""
        return pairs.target.lengths, pairs.target.lengths

    def fill(
        self, layout: Layout, pairs: "Pairs", seed: int, epoch: int
    ) -> dict[str, np.ndarray]:
        """Builds the arrays of one batch; `target_segment` is 0 where nothing is asked.

        So the loss, which is over real target tokens, is over hidden pieces alone.
        """
        whole = take(pairs.target, layout.pair_p)
        tokens, hidden = self.masked(whole, layout.pair_p, seed, epoch)
        batch = fill_taken(layout, Ragged(tokens, whole.offsets), whole)
        asked = Ragged(hidden, whole.offsets)
        batch["target_segment"] *= fill_taken(layout, asked, asked)["target"]
        return batch

    def masked(
        self, sentences: Ragged, number_p: np.ndarray, seed: int, epoch: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Masks sentences.

        Args:
          number_p: the number of each sentence in its text.

        Returns:
          For each token of `sentences.tokens`, the id that the model reads, int32, and
          whether it is hidden and to be predicted, bool.
        """
        number = of_sentence(sentences, number_p)
        position = positions(sentences)

        def drawn(stream, at=slice(None)):
            return uniform(seed, epoch, number[at], position[at], stream)

        tokens = sentences.tokens
        first = self._unit_begins(tokens, position)
        hidden_u = self._chosen(
            drawn(_CHOICE, first), position[first] == 0, tokens[first] == self._eos
        )
        hidden = hidden_u[np.cumsum(first) - 1]
        kind = np.where(hidden, drawn(_KIND), 1.0)
        at_random = (drawn(_PIECE) * len(self._ordinary)).astype(np.int64)
        shown = np.select(
            [kind < self._as_mask, kind < self._as_mask + self._as_random],
            [self._mask, self._ordinary[at_random]],
            tokens,
        )
        return shown.astype(np.int32), hidden

    def _unit_begins(self, tokens: np.ndarray, position: np.ndarray) -> np.ndarray:
        """True for the first token of each unit; EOS is a unit of its own."""
        if not self._whole_words:
            return np.ones(len(tokens), bool)
        begins = (position == 0) | (tokens == self._eos) | self._table.begins_v[tokens]
        # Some tokenizers put the space at the end of a word.
        begins[1:] |= self._table.ends_v[tokens[:-1]]
        return begins

    def _chosen(
        self, drawn_u: np.ndarray, first_u: np.ndarray, eos_u: np.ndarray
    ) -> np.ndarray:
        """Chooses the units that are hidden.

        Args:
          drawn_u: a random number of each unit.
          first_u: True for the first unit of each sentence.
          eos_u: True for EOS.
        """
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
        least = order_u[first_u]  # sentences stay in order, so each begins where it did
        hidden_u[least[count_p == 0]] = True
        return hidden_u & ~eos_u


def check_rates(
    masking: str, mask_rate: float, as_mask: float, as_random: float, mean_span: float
) -> None:
    """Raises UserError if a rate is out of its range; arguments as for `Masking`."""
    if not 0 < mask_rate < 1:
        raise UserError(
            f"config.task.options.mask_rate={mask_rate}; want a share of the pieces, "
            "0 < mask_rate < 1"
        )
    if min(as_mask, as_random) < 0 or as_mask + as_random > 1:
        raise UserError(
            f"as_mask={as_mask} and as_random={as_random}; want shares of the hidden "
            "pieces: each 0 or more, and at most 1 together"
        )
    least = _independent(mask_rate)
    if masking == "span" and mean_span < least:
        raise UserError(
            f"mean_span={mean_span}; at mask_rate={mask_rate} words "
            f"hidden one by one form runs of {least:.2f}; want {least:.2f} or more"
        )


def _independent(mask_rate: float) -> float:
    """The mean length of runs of words that are hidden independently."""
    return 1 / (1 - mask_rate)


class PieceTable(NamedTuple):
    """Properties of each piece of a vocabulary, bool [v].

    Attributes:
      spaced_v: it begins with a space.
      begins_v: it begins a word: with a space, or with a sign such as a full stop.
      ends_v: it ends with a space, as in some tokenizers.
      ordinary_v: it spells visible characters, and is not <mask>.
    """

    spaced_v: np.ndarray
    begins_v: np.ndarray
    ends_v: np.ndarray
    ordinary_v: np.ndarray

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "PieceTable":
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
