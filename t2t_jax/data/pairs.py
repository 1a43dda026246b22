"""Tokenized pairs: the token arrays of a text, in memory or mapped from disk."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from t2t_jax.config import DataConfig
from t2t_jax.data.batching import Layout
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.filling import Ragged, fill, ragged
from t2t_jax.data.noise import Noise
from t2t_jax.data.shapes import Shape
from t2t_jax.data.tokenizers.training import SEPARATE
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.cache import cache_key

# (pairs, vocabulary, threads) -> the tokens of their sources and of their targets
Encode = Callable[[Sequence[Pair], Vocabulary, int], tuple[Ragged, Ragged]]


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Tokenized pairs: pair i is `source[i]` and `target[i]`, each ending in EOS.

    `prepare.training_pairs` opens those of a training text, with all that makes their
    examples differ from epoch to epoch; `tokenize_in_memory` makes those of a dev set.

    Attributes:
      source, target: The tokens of the pairs.
      dropped: The number of pairs that each rule of `data/cleaning.py` dropped.
      key: A hash of everything that the arrays depend on.
      read: The number of pairs before cleaning.
      sizes: The number of pairs of each corpus; the corpora follow one another.
      weights: How many times an epoch reads each corpus; empty means once.
      folder: The folder of the arrays and of examples of the dropped pairs.
      line: The line of each pair in its corpus, from 1, int32 [pairs]; empty if not
        known.
      noise: What makes the examples of an epoch of the pairs; None if they are the
        pairs themselves.
      block: The most tokens of a target, if longer ones were cut into blocks; else 0.
      variation: The `variation.Variation` that makes the tokens of an epoch from the
        text of the pairs; None if they are the same in every epoch.
    """

    source: Ragged
    target: Ragged
    dropped: dict[str, int]
    key: str = ""
    read: int = 0
    sizes: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    folder: Path | None = None
    line: Sequence[int] | np.ndarray = ()
    noise: Noise | None = None
    block: int = 0
    variation: Any | None = None

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    def of_epoch(self, seed: int, epoch: int, within: Shape | None = None) -> "Pairs":
        """The pairs of one epoch: these, unless they vary (`Variation.of_epoch`)."""
        if self.variation is None:
            return self
        return self.variation.of_epoch(self, seed, epoch, within)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of each example on each side.

        They are the same in every epoch, unless the pairs vary: see `of_epoch`.
        """
        if self.noise is not None:
            return self.noise.lengths(self.source, self.target)
        return self.source.lengths, self.target.lengths

    def batch(self, layout: Layout, seed: int, epoch: int) -> dict[str, np.ndarray]:
        """The arrays of a batch, as `filling.fill` returns them.

        Args:
          layout: The batch, from the plan of the epoch.
          seed, epoch: What noise depends on.
        """
        if self.noise is not None:
            return self.noise.fill(layout, self.source, self.target, seed, epoch)
        return fill(layout, self.source, self.target)


class Examples:
    """How pairs of lines become examples; a task says it (`tasks/task.py`).

    Attributes:
      sides: The sides of a pair that hold text: 0 is the source, 1 the target. The
        others are "", and their tokens are made by `noise` if the model reads them.
      cuts: Whether targets longer than `config.data.max_length` are cut into blocks,
        which are examples of their own, rather than dropped.
    """

    sides: ClassVar[tuple[int, ...]] = (0, 1)
    cuts: ClassVar[bool] = False

    def encode(
        self, pairs: Sequence[Pair], vocabulary: Vocabulary, threads: int = -1
    ) -> tuple[Ragged, Ragged]:
        """Encodes the source and the target of some pairs; text ends in EOS.

        Another function needs corpora with fingerprints of their own.
        """
        return encode_pairs(pairs, vocabulary, threads, self.sides)

    def noise(
        self, vocabulary: Vocabulary, texts: Sequence[tuple[Corpus, int]]
    ) -> Noise | None:
        """Returns what changes examples from epoch to epoch, if anything.

        Args:
          texts: Each corpus of the text, with its number of pairs.
        """
        return None


def cut(pairs: Pairs, block: int) -> Pairs:
    """Cuts targets into consecutive blocks, which become pairs of their own.

    Only the last block of a target ends in EOS. Tokens are not copied: the blocks are
    more offsets into the same array. Sources are empty.

    Args:
      block: The most tokens of a block.
    """
    lengths = pairs.target.lengths
    blocks = -(-lengths // block)  # of each pair, rounded up
    first = np.repeat(np.cumsum(blocks) - blocks, blocks)
    start = np.repeat(pairs.target.offsets[:-1], blocks)
    start += (np.arange(len(start)) - first) * block
    before = np.append(0, np.cumsum(blocks))
    ends = np.cumsum(pairs.sizes, dtype=np.int64)
    return dataclasses.replace(
        pairs,
        source=Ragged(pairs.source.tokens, np.zeros(len(start) + 1, np.int64)),
        target=Ragged(pairs.target.tokens, np.append(start, pairs.target.offsets[-1])),
        sizes=tuple(np.diff(before[ends], prepend=0).tolist()),
        line=np.repeat(pairs.line, blocks) if len(pairs.line) else pairs.line,
        block=block,
    )


def tokenize_in_memory(
    pairs: Iterable[Pair],
    vocabulary: Vocabulary,
    encode: Encode | None = None,
    block: int = 0,
    noise: Noise | None = None,
) -> Pairs:
    """Tokenizes a dev or test set in memory; never drops a pair.

    Args:
      encode: Encodes pairs; by default `encode_pairs`.
      block: Cut targets into blocks of at most this many tokens; 0 does not.
      noise: Makes the examples of the pairs; None if they are the pairs themselves.
    """
    pairs = list(pairs)
    source, target = (encode or encode_pairs)(pairs, vocabulary, -1)
    tokenized = Pairs(source, target, {}, sizes=(len(pairs),), noise=noise)
    return cut(tokenized, block) if block else tokenized


def encode_pairs(
    pairs: Sequence[Pair],
    vocabulary: Vocabulary,
    threads: int = -1,
    sides: Sequence[int] = (0, 1),
) -> tuple[Ragged, Ragged]:
    """Encodes the source and the target lines of some pairs; each ends in EOS.

    A side that is not one of `sides` has no tokens, not even EOS.
    """
    encoded = []
    for side, of_side in enumerate((vocabulary.source, vocabulary)):
        lines = [pair[side] for pair in pairs]
        if side in sides:
            encoded.append(ragged(of_side.encode(lines, end=True, threads=threads)))
        else:
            encoded.append(ragged([()] * len(lines)))
    return encoded[0], encoded[1]


def prepared_key(
    fingerprints: Sequence[str], vocabulary: Vocabulary, config: DataConfig
) -> str:
    """A hash of everything that the arrays of a training text depend on.

    Args:
      fingerprints: Those of its corpora.
      vocabulary: Its tokenizer.
      config: The options of cleaning.
    """
    # Every option that changes the arrays. Weights and the temperature do not; the plan
    # applies them. Nor does what varies from epoch to epoch (variation.py).
    names = ("max_length", "max_ratio", "deduplicate", "symbols")
    hashes = {
        part.tokenizer: hashlib.sha256(side.model).hexdigest()
        for part, side in zip(SEPARATE, vocabulary.sides, strict=False)
    }
    options = {name: getattr(config, name) for name in names}
    return cache_key(text=[*fingerprints], **hashes, **options)
