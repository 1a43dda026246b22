"""Which pairs of a training text are left out, and why.

A pair is left out for the first rule that it breaks:

    empty         a side without a visible character
    duplicate     the same two lines were read before, in this corpus or one before it
    too long      a side of more than `config.max_length` pieces
    length ratio  one side has over `config.max_ratio` times the pieces of the other

Pieces are counted with the end of the sentence. The first two rules need no tokenizer,
so they hold for the text that the tokenizer is trained on, too. Dev and test sets are
never cleaned.
"""

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.config import DataConfig
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.tokenizer import parse_symbols

FIELDS = {  # rule -> the field of config.data that it depends on
    "empty": "",
    "duplicate": "deduplicate",
    "too long": "max_length",
    "length ratio": "max_ratio",
}
CHUNK = 2_000  # pairs handled at a time: bounds memory
EXAMPLES = 20  # of each rule are kept for a person to look at
# White space, controls, and what Unicode calls default ignorable code points.
_INVISIBLE = (
    r"[\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    r"\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def _nothing(symbols: Sequence[str] = ()) -> Callable[[str], re.Match | None]:
    """Matches lines without a visible character other than those of `symbols`."""
    parts = "|".join([_INVISIBLE, *map(re.escape, symbols)])
    return re.compile(f"(?:{parts})*").fullmatch


_invisible = _nothing()


def visible(line: str) -> bool:
    """True if a line has a character that a reader sees."""
    return not _invisible(line)


class Chunk(NamedTuple):
    """Some pairs of one corpus, in order."""

    corpus: int  # which of the corpora
    lines: np.ndarray  # where the pairs stand in it, from 1
    pairs: list[Pair]

    def without(self, left_out_p: np.ndarray) -> "Chunk":
        """The pairs for which a mask is not set."""
        if not left_out_p.any():
            return self
        pairs = list(itertools.compress(self.pairs, ~left_out_p))
        return Chunk(self.corpus, self.lines[~left_out_p], pairs)


def read_chunks(corpora: Sequence[Corpus]) -> Iterator[Chunk]:
    """All pairs of all corpora, in order; no chunk has pairs of two."""
    for number, corpus in enumerate(corpora):
        pairs, read = iter(corpus.pairs()), 0
        while some := list(itertools.islice(pairs, CHUNK)):
            yield Chunk(number, np.arange(read + 1, read + len(some) + 1), some)
            read += len(some)


class Cleaner:
    """Applies the rules to a text, chunk after chunk, and keeps the books.

    Attributes:
      read: pairs seen.
      dropped: rule -> pairs left out.
      examples: rule -> the first few of them: (corpus, line, pair).
    """

    def __init__(self, config: DataConfig):
        self._config = config
        self._seen = HashSet()
        self._empty = _nothing(parse_symbols(config.symbols))
        self.read = 0
        self.dropped = dict.fromkeys(FIELDS, 0)
        self.examples: dict[str, list[tuple[int, int, Pair]]] = {r: [] for r in FIELDS}

    def by_text(self, chunk: Chunk) -> Chunk:
        """What is left of a chunk by the rules that need no tokenizer."""
        self.read += len(chunk.pairs)
        empty = self._empty
        empty_p = np.array([bool(empty(s) or empty(t)) for s, t in chunk.pairs])
        chunk = self._leave_out("empty", chunk, empty_p)
        if self._config.deduplicate and chunk.pairs:
            new_p = self._seen.add(hashes(chunk.pairs))
            chunk = self._leave_out("duplicate", chunk, ~new_p)
        return chunk

    def by_length(self, chunk: Chunk, source_p, target_p) -> np.ndarray:
        """Which pairs are left by the other rules, a mask; takes both sides' pieces."""
        longer_p = np.maximum(source_p, target_p)
        long_p = longer_p > self._config.max_length
        self._leave_out("too long", chunk, long_p)
        if not self._config.max_ratio:
            return ~long_p
        uneven_p = longer_p > self._config.max_ratio * np.minimum(source_p, target_p)
        self._leave_out("length ratio", chunk, uneven_p & ~long_p)
        return ~(long_p | uneven_p)

    def _leave_out(self, rule: str, chunk: Chunk, left_out_p: np.ndarray) -> Chunk:
        self.dropped[rule] += int(left_out_p.sum())
        shown = self.examples[rule]
        for i in np.flatnonzero(left_out_p)[: EXAMPLES - len(shown)]:
            shown.append((chunk.corpus, int(chunk.lines[i]), chunk.pairs[i]))
        return chunk.without(left_out_p)

    def show(self, places: Sequence[str]) -> str:
        """The examples, for a person to read; the corpora are called `places`."""
        text = ""
        for rule, examples in self.examples.items():
            if examples:
                text += f"{rule}: {self.dropped[rule]:,} pairs, the first of them:\n\n"
            for corpus, line, (source, target) in examples:
                text += f"{places[corpus]}, line {line}\n  {source}\n  {target}\n\n"
        return text


def hashes(pairs: Sequence[Pair]) -> np.ndarray:
    """A 64-bit hash of each pair, uint64 [pairs]; the same on every machine."""
    digests = [  # The length tells where the source ends.
        hashlib.blake2b(f"{len(s)} {s}{t}".encode(), digest_size=8).digest()
        for s, t in pairs
    ]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


class HashSet:
    """A set of 64-bit hashes in an array: open addressing, at most two thirds full.

    36 million pairs take 0.5 GB, and 0.8 GB for the moment in which the array grows; a
    Python set of strings would take ten times that. That any two different pairs among
    so many have one hash, and the second is taken for a duplicate, has a chance of 1 in
    28,000.
    """

    def __init__(self, slots: int = 1 << 16):
        self._table = np.zeros(slots, np.uint64)  # 0: free; slots are a power of 2
        self._count = 0

    def add(self, keys: np.ndarray) -> np.ndarray:
        """Adds hashes; a mask of the new ones, of equal ones among them the first."""
        new = np.zeros(len(keys), bool)
        keys, first = np.unique(np.maximum(keys, np.uint64(1)), return_index=True)
        while 3 * (self._count + len(keys)) > 2 * len(self._table):
            self._grow()
        added = self._insert(keys)
        self._count += int(added.sum())
        new[first[added]] = True
        return new

    def _grow(self) -> None:
        old, self._table = self._table, np.zeros(2 * len(self._table), np.uint64)
        for begin in range(0, len(old), 1 << 16):  # in parts: bounds memory
            part = old[begin : begin + (1 << 16)]
            self._insert(part[part != 0])

    def _insert(self, keys: np.ndarray) -> np.ndarray:
        """Puts each of some different keys in the first free slot from its own on."""
        last = np.uint64(len(self._table) - 1)
        added = np.zeros(len(keys), bool)
        left, slots = np.arange(len(keys)), keys & last
        while len(left):
            free = self._table[slots] == 0
            added[left[free]] = True  # had it been there, it would stand here
            # Of several keys for one slot the last gets it, and the others go on.
            self._table[slots[free]] = keys[left[free]]
            settled = self._table[slots] == keys[left]
            left, slots = left[~settled], (slots[~settled] + np.uint64(1)) & last
        return added
