"""The rules that drop pairs from a training text.

A pair is dropped by the first rule that it breaks:

    low score     its score is below `config.min_score` (`LowScore`)
    empty         a side has no visible character
    duplicate     the same two lines came before, in this corpus or an earlier one
    too long      a side has more than `config.max_length` tokens
    length ratio  one side has over `config.max_ratio` times the tokens of the other

Tokens include EOS. The first three rules need no tokenizer, so they also apply to the
text that the tokenizer is trained on. Dev and test sets are never cleaned.
"""

import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.config import DataConfig
from t2t_jax.data.corpus import Corpus, LowScore, Pair
from t2t_jax.data.hashing import HashSet
from t2t_jax.data.tokenizers.vocabulary import parse_symbols
from t2t_jax.io.messages import Progress
from t2t_jax.text.words import blank_matcher

FIELDS = {  # from a rule to the field of config.data that controls it
    "low score": "min_score",
    "empty": "",
    "duplicate": "deduplicate",
    "too long": "max_length",
    "length ratio": "max_ratio",
}
CHUNK = 2_000  # pairs processed at a time; bounds memory
EXAMPLES = 20  # dropped pairs of each rule that are kept for a person to look at


class Chunk(NamedTuple):
    """Consecutive pairs of one corpus, without those already dropped."""

    corpus: int  # the index of the corpus
    lines: np.ndarray  # the line of each pair in that corpus, from 1
    pairs: list[Pair]

    def drop(self, dropped_p: np.ndarray) -> "Chunk":
        """Returns the chunk without the pairs of a mask, bool [pairs]."""
        if not dropped_p.any():
            return self
        pairs = list(itertools.compress(self.pairs, ~dropped_p))
        return Chunk(self.corpus, self.lines[~dropped_p], pairs)


def read_chunks(
    corpora: Sequence[Corpus],
    size: int = 0,
    spans: Sequence[tuple[int, int | None]] | None = None,
) -> Iterator[Chunk]:
    """Yields all pairs of all corpora, in order; a chunk is of one corpus.

    Args:
      corpora: The text.
      size: The most pairs of a chunk; 0 means `CHUNK`.
      spans: Which pairs of each corpus, as `Corpus.span` takes them; None: all.
    """
    for number, corpus in enumerate(corpora):
        read, end = spans[number] if spans else (0, None)
        pairs = corpus.span(read, end)
        while chunk_pairs := list(itertools.islice(pairs, size or CHUNK)):
            first, read = read + 1, read + len(chunk_pairs)
            yield Chunk(number, np.arange(first, read + 1), chunk_pairs)


def with_progress(
    job: str, chunks: Iterable[Chunk], total: int | None
) -> Iterator[Chunk]:
    """Yields the chunks, and reports the progress of a job as they are consumed."""
    with Progress(job, "pairs", total) as progress:
        for chunk in chunks:
            yield chunk
            progress.add(len(chunk.pairs))


class Cleaner:
    """Applies the rules to a text, chunk by chunk, and counts what they drop.

    Args:
      config: The options of the rules.
      sides: The sides of a pair that hold text; the others may be empty.
      is_new: A chunk -> a mask of the pairs that did not come before, bool [pairs]; by
        default before in what this cleaner has read.

    Attributes:
      read: The number of pairs seen.
      dropped: The number of pairs that each rule dropped.
      examples: The first few pairs that each rule dropped: (corpus, line, pair).
      by_corpus: Of each corpus, the pairs read ("read") and dropped by each rule.
    """

    def __init__(
        self,
        config: DataConfig,
        sides: Sequence[int] = (0, 1),
        is_new: Callable[[Chunk], np.ndarray] | None = None,
    ):
        self._config, self._sides = config, sides
        read_hashes = HashSet()
        self._is_new = is_new or (lambda chunk: read_hashes.add(hashes(chunk.pairs)))
        # A line of symbols alone, such as "<bt>", has nothing to translate.
        self._is_empty = blank_matcher(parse_symbols(config.symbols))
        self.read = 0
        self.dropped = dict.fromkeys(FIELDS, 0)
        self.examples: dict[str, list[tuple[int, int, Pair]]] = {r: [] for r in FIELDS}
        self.by_corpus: defaultdict[int, Counter[str]] = defaultdict(Counter)

    def by_text(self, chunk: Chunk) -> Chunk:
        """Applies the rules that need no tokenizer; returns the remaining pairs."""
        self.read += len(chunk.pairs)
        self.by_corpus[chunk.corpus]["read"] += len(chunk.pairs)
        low_p = np.array([isinstance(pair, LowScore) for pair in chunk.pairs], bool)
        chunk = self._drop("low score", chunk, low_p)
        empty_p = np.array(
            [any(self._is_empty(pair[s]) for s in self._sides) for pair in chunk.pairs],
            bool,
        )
        chunk = self._drop("empty", chunk, empty_p)
        if self._config.deduplicate and chunk.pairs:
            chunk = self._drop("duplicate", chunk, ~self._is_new(chunk))
        return chunk

    def by_length(self, chunk: Chunk, source_p, target_p) -> np.ndarray:
        """Applies the other rules by the tokens on each side, EOS included.

        Returns a mask of the pairs of the chunk, which `by_text` left, that are kept.
        """
        longer_p = np.maximum(source_p, target_p)
        long_p = longer_p > self._config.max_length
        self._drop("too long", chunk, long_p)
        if not self._config.max_ratio:
            return ~long_p
        uneven_p = longer_p > self._config.max_ratio * np.minimum(source_p, target_p)
        self._drop("length ratio", chunk, uneven_p & ~long_p)
        return ~(long_p | uneven_p)

    def _drop(self, rule: str, chunk: Chunk, dropped_p: np.ndarray) -> Chunk:
        """Counts the pairs that a rule drops, keeps examples, returns the others."""
        self.dropped[rule] += (count := int(dropped_p.sum()))
        self.by_corpus[chunk.corpus][rule] += count
        examples = self.examples[rule]
        for i in np.flatnonzero(dropped_p)[: EXAMPLES - len(examples)]:
            examples.append((chunk.corpus, int(chunk.lines[i]), chunk.pairs[i]))
        return chunk.drop(dropped_p)

    def add(self, read: int, dropped: dict, examples: dict, by_corpus: dict) -> None:
        """Adds the attributes of the cleaner of the text's next part."""
        self.read += read
        for corpus, counts in by_corpus.items():
            self.by_corpus[int(corpus)].update(counts)
        for rule in FIELDS:
            # A part of an earlier version has no scores.
            self.dropped[rule] += dropped.get(rule, 0)
            stored = self.examples[rule]
            stored += examples.get(rule, [])[: EXAMPLES - len(stored)]

    def show(self, specs: Sequence[str]) -> str:
        """The examples as text for a person; `specs` are the names of the corpora."""
        text = ""
        for rule, examples in self.examples.items():
            if examples:
                text += f"{rule}: {self.dropped[rule]:,} pairs, the first of them:\n\n"
            for corpus, line, (source, target) in examples:
                text += f"{specs[corpus]}, line {line}\n  {source}\n  {target}\n\n"
        return text


def hashes(pairs: Sequence[Pair]) -> np.ndarray:
    """A 64-bit hash of each pair, uint64 [pairs]; the same on every machine."""
    digests = [  # The length keeps ("ab", "c") and ("a", "bc") apart.
        hashlib.blake2b(f"{len(s)} {s}{t}".encode(), digest_size=8).digest()
        for s, t in pairs
    ]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)
