"""Models of a sample of the text, which the rules judge the whole text by.

Nothing is set for a language or a domain: what is usual in a text is learnt from it, by
estimates that some per cent of damaged pairs do not change.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.hashing import HashSet
from t2t_jax.data.tokenizers.training import sample
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.messages import Progress
from t2t_jax.text.view import View
from t2t_jax.tools.doctor.languages import Languages
from t2t_jax.tools.doctor.overlap import Overlap, ReferenceSet
from t2t_jax.tools.doctor.relatedness import LengthModel, Lexicon, Relatedness

SAMPLE = 60_000  # pairs
LETTERS = 30_000  # pairs of the sample whose letters are counted; bounds memory
BLOCK = 4  # consecutive pairs that are sampled together: neighbours, for Relatedness


class Spread(NamedTuple):
    """Median and robust standard deviation of a quantity of this text."""

    middle: float
    deviation: float

    @classmethod
    def fitted(cls, values: np.ndarray, smallest: float = 1e-3) -> "Spread":
        """Estimates both from values [n], the deviation as `smallest` or more."""
        if not len(values):
            return cls(0.0, 1.0)
        middle = float(np.median(values))
        deviation = 1.4826 * float(np.median(np.abs(values - middle)))
        return cls(middle, max(deviation, smallest))

    def z(self, values: np.ndarray) -> np.ndarray:
        """Robust z-scores: deviations above the median."""
        return (values - self.middle) / self.deviation


class Knowledge:
    """Models of a text, and what rules remember of the pairs that they have read.

    Learnt from a sample of the text, runs of consecutive pairs.

    Attributes:
      log_length: for each side, the logarithm of the characters of a line.
      pieces: counts tokens; None without a tokenizer.
      seen_pairs, seen_keys, seen_sources: hashes of what was read.
    """

    def __init__(
        self,
        blocks: Sequence[Sequence[Pair]],
        references: Sequence[ReferenceSet] = (),
        vocabulary: Vocabulary | None = None,
    ):
        view = View([pair for block in blocks for pair in block])
        self.sampled = len(view)
        self.lengths = LengthModel(view)
        self.log_length = [
            Spread.fitted(np.log(side.lengths_p[side.lengths_p > 0]), 0.1)
            for side in view.sides
        ]
        every = -(-len(view) // LETTERS)
        self.languages = Languages(View(view.pairs[:: max(1, every)]).sides)
        # Three blocks teach the lexicon, the fourth what its evidence is worth.
        judged = [n % 4 == 3 or len(blocks) < 4 for n in range(len(blocks))]
        by_pair = np.repeat(judged, [len(block) for block in blocks])
        words = zip(view.source.words, view.target.words, strict=True)
        self.lexicon = Lexicon([*itertools.compress(words, np.logical_not(by_pair))])
        held_out, neighbours = [], []
        for block in itertools.compress(blocks, judged):
            for n, (_, target) in enumerate(block):
                neighbour = (n + 1) % len(block)
                # Equal ones, as in a list of "Copyright" lines, are not a wrong pair.
                neighbour = neighbour if block[neighbour][1] != target else n
                neighbours.append(len(held_out) + neighbour)
            held_out += block
        self.relatedness = Relatedness(
            View(held_out), neighbours, self.lexicon, self.lengths
        )
        self.overlap = Overlap(references)
        self.pieces = None if vocabulary is None else Pieces(vocabulary, view)
        self.seen_pairs, self.seen_keys = HashSet(), HashSet()
        self.seen_sources = HashSet()


def sample_blocks(
    corpora: Sequence[Corpus], count: int = SAMPLE
) -> tuple[list[list[Pair]], list[int]]:
    """Samples about `count` pairs of a text evenly, in runs of consecutive ones.

    Reads it once. Returns the runs in order, and the number of pairs of each corpus.
    """
    sizes = [0] * len(corpora)

    def blocks() -> Iterator[list[Pair]]:
        with Progress("reading", "pairs") as progress:
            for number, corpus in enumerate(corpora):
                pairs = iter(corpus.pairs())
                while block := list(itertools.islice(pairs, BLOCK)):
                    sizes[number] += len(block)
                    progress.add(len(block))
                    yield block

    return sample(blocks(), max(1, count // BLOCK)), sizes


# ------------------------------------------------------------------------------- tokens


class Pieces:
    """Counts the tokens of lines.

    A token is odd if it is the unknown token, or a byte that spells a character which
    the vocabulary lacks.

    Attributes:
      totals: for each side, [tokens, odd tokens, words] of all lines counted.
      seen: for each side, which ids occurred.
      usual: for each side, the tokens a word of a sample.
    """

    def __init__(self, vocabulary: Vocabulary, sample: View):
        self._sides = vocabulary.source, vocabulary
        self._odd = [_odd(side) for side in self._sides]
        self.totals = np.zeros((2, 3), np.int64)
        self.seen = [np.zeros(len(side), bool) for side in self._sides]
        self.usual = []
        for n, side in enumerate(sample.sides):
            rate_p = self._counts(sample, n)[0] / np.maximum(side.word_counts_p, 1)
            self.usual.append(Spread.fitted(rate_p, 0.1))

    def counts(self, view: View, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Counts tokens and odd ones of each line of a side; adds to the totals."""
        pieces_p, odd_p, ids = self._counts(view, number)
        words = view.sides[number].word_counts_p.sum()
        self.totals[number] += [pieces_p.sum(), odd_p.sum(), words]
        self.seen[number][ids] = True
        return pieces_p, odd_p

    def unseen_share(self, view: View) -> float:
        """The share of a text's tokens that no line counted so far has had."""
        unseen = [~self.seen[n][self._counts(view, n)[2]] for n in (0, 1)]
        return sum(int(flags.sum()) for flags in unseen) / max(1, sum(map(len, unseen)))

    def _counts(self, view: View, number: int):
        """The tokens of each line, the odd ones among them, and the ids of all."""
        rows = self._sides[number].encode(view.sides[number].lines)
        pieces_p = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = np.fromiter((i for row in rows for i in row), np.int64, pieces_p.sum())
        line = np.repeat(np.arange(len(rows)), pieces_p)
        odd = self._odd[number][flat]
        odd_p = np.bincount(line, odd, len(rows)).astype(np.int64)
        return pieces_p, odd_p, flat


def _odd(vocabulary: Vocabulary) -> np.ndarray:
    spellings = map(vocabulary.spelling, range(len(vocabulary)))
    odd = np.array([isinstance(spelling, bytes) for spelling in spellings])
    if vocabulary.unknown >= 0:
        odd[vocabulary.unknown] = True
    return odd
