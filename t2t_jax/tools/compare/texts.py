"""The lines of a test set, in words, and what is known of the training text.

A word is a token of BLEU (sacreBLEU's tokenizer of the language), so punctuation is a
word, and Japanese is compared by characters.

Shape suffixes: n lines, b buckets, k counts, m samples.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from t2t_jax.data.corpus import Corpus, LowScore
from t2t_jax.extensions.text.word_alignment import TranslationTable
from t2t_jax.metrics.text_measures import tokenizer

Words = list[str]
MOST_PAIRS = 1_000_000  # of training text that are counted
# IBM Model 1 takes some 80 bytes a cell: a source word and a target word of one pair.
MOST_CELLS = 6_000_000
LONGEST_LINE = 80  # words of a pair that the lexicon learns from


class NotAvailableError(Exception):
    """The message says what a part of a comparison needs and does not have."""


class Training(NamedTuple):
    """Counts of a training text.

    Attributes:
      pairs, counted: the number of pairs, and of those that were counted.
      source_count, target_count: how often each word occurs in the counted pairs.
      forward: t(target word | source word).
      backward: t(source word | target word).
    """

    pairs: int
    counted: int
    source_count: Counter[str]
    target_count: Counter[str]
    forward: TranslationTable
    backward: TranslationTable


@dataclasses.dataclass(frozen=True)
class Texts:
    """A test set, and what is known of the training text.

    Attributes:
      name: of the test set.
      source, target: languages.
      sources, references: its lines.
      training: counts of the training text; None if there is none.
      no_training: the reason, if there is none.
      domain: "new", the one that a run was fine-tuned to; "old"; "" if nothing says.
      further: references besides `references`, a list each, for BLEU, chrF and TER.
    """

    name: str
    source: str
    target: str
    sources: Sequence[str]
    references: Sequence[str]
    training: Training | None = None
    no_training: str = "no training text is given; want --train=PREFIX"
    domain: str = ""
    further: Sequence[Sequence[str]] = ()

    @cached_property
    def source_words(self) -> list[Words]:
        """The words of each source."""
        return bleu_words(self.sources, self.source)

    @cached_property
    def reference_words(self) -> list[Words]:
        """The words of each reference."""
        return bleu_words(self.references, self.target)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(source, reference) of each line."""
        return list(zip(self.sources, self.references, strict=True))

    def trained(self) -> Training:
        """Returns the counts of the training text, or raises NotAvailableError."""
        if self.training is None:
            raise NotAvailableError(self.no_training)
        return self.training


def bleu_words(lines: Sequence[str], language: str) -> list[Words]:
    """Splits lines into the words that BLEU counts."""
    tokenize = tokenizer(language)
    return [tokenize(line.rstrip()).split() for line in lines]


def is_word(word: str) -> bool:
    """True if a token has a letter or a digit, so that it is not punctuation."""
    return any(map(str.isalnum, word))


def count_training(corpora: Sequence[Corpus], source: str, target: str) -> Training:
    """Counts the words of a training text, and learns which translate which.

    Of a text of more than `MOST_PAIRS` pairs every second is counted, or third, ...
    """

    def read():
        pairs = itertools.chain.from_iterable(corpus.pairs() for corpus in corpora)
        return (pair for pair in pairs if not isinstance(pair, LowScore))

    total = sum(1 for _ in read())
    every = -(-total // MOST_PAIRS) or 1
    counts, learned, counted = (Counter(), Counter()), [], 0
    learn_every = -(-total // every // 50_000) or 1
    for s, t in itertools.islice(read(), 0, None, every):
        words = bleu_words([s], source)[0], bleu_words([t], target)[0]
        for count, side in zip(counts, words, strict=True):
            count.update(side)
        fits = all(0 < len(side) <= LONGEST_LINE for side in words)
        if counted % learn_every == 0 and fits:
            learned.append(words)
        counted += 1
    cells = sum((len(s) + 1) * (len(t) + 1) for s, t in learned)
    learned = learned[:: -(-cells // MOST_CELLS) or 1]
    return Training(
        total,
        counted,
        *counts,
        forward=TranslationTable(learned),
        backward=TranslationTable([(t, s) for s, t in learned]),
    )
