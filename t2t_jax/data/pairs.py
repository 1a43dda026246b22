"""Tokenized pairs: the token arrays of a text, in memory or mapped from disk."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from t2t_jax.config import DataConfig
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.filling import NO_ARRAYS, Layout, Ragged, TokenArrays, fill, ragged
from t2t_jax.data.shapes import Shape
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.cache import cache_key

if TYPE_CHECKING:  # most text has none
    from t2t_jax.extensions.data.noise import Noise

# (pairs, vocabulary, threads) -> the tokens of their sources and of their targets
Encode = Callable[[Sequence[Pair], Vocabulary, int], tuple[Ragged, Ragged]]


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Tokenized pairs: pair i is `source[i]` and `target[i]`, each ending in EOS.

    `prepare.training_pairs` opens those of a training text, with all that makes their
    examples differ from epoch to epoch; `tokenize_in_memory` makes those of a dev set.
    """

    source: Ragged
    target: Ragged
    dropped: dict[str, int]  # the number of pairs by rule of `data/cleaning.py`
    key: str = ""  # a hash of everything that the arrays depend on
    read: int = 0  # the number of pairs before cleaning
    sizes: tuple[int, ...] = ()  # pairs of each corpus; these follow one another
    weights: tuple[float, ...] = ()  # times an epoch reads each corpus; empty: once
    names: tuple[str, ...] = ()  # of the corpora, as the config has them
    folder: Path | None = None  # of the arrays and of examples of the dropped pairs
    # The line of each pair in its corpus, from 1, int32; empty if not known.
    line: Sequence[int] | np.ndarray = ()
    # Makes the examples of an epoch; None if they are the pairs themselves.
    noise: "Noise | None" = None
    block: int = 0  # the most tokens of a target, if longer ones were cut into blocks
    # The `variation.Variation` that makes the tokens of an epoch from the text of the
    # pairs; None if they are the same in every epoch.
    variation: Any = None
    # What the loss needs of each token, besides; only if examples are the pairs.
    further: TokenArrays = NO_ARRAYS

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    def epoch_pairs(
        self, seed: int, epoch: int, within: Shape | None = None
    ) -> "Pairs":
        """The pairs of one epoch: these, unless they vary (`Variation.epoch_pairs`)."""
        if self.variation is None:
            return self
        return self.variation.epoch_pairs(self, seed, epoch, within)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of each example on each side.

        They are the same in every epoch, unless the pairs vary: see `epoch_pairs`.
        """
        if self.noise is not None:
            return self.noise.lengths(self.source, self.target)
        return self.source.lengths, self.target.lengths

    def batch(self, layout: Layout, seed: int, epoch: int) -> dict[str, np.ndarray]:
        """The arrays of a batch of an epoch's plan, as `filling.fill` returns them."""
        if self.noise is not None:
            return self.noise.fill(layout, self.source, self.target, seed, epoch)
        return fill(layout, self.source, self.target, self.further)


class Examples:
    """Turns pairs of lines into examples; chosen by the task (`tasks/task.py`).

    Attributes:
      sides: The sides of a pair that hold text: 0 is the source, 1 the target. The
        others are "", and their tokens are made by `noise` if the model reads them.
      cuts: True if targets longer than `config.data.max_length` are cut into blocks,
        which are examples of their own, instead of being dropped.
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
    ) -> "Noise | None":
        """Returns what changes examples from epoch to epoch, if anything.

        `texts` are the corpora of the text, each with its number of pairs.
        """
        return None

    def further(
        self, pairs: Pairs, corpora: Sequence[Corpus], vocabulary: Vocabulary
    ) -> TokenArrays:
        """Returns the arrays that batches of prepared pairs have besides their own."""
        return NO_ARRAYS


def cut(pairs: Pairs, block: int) -> Pairs:
    """Cuts targets into consecutive blocks of at most `block` tokens, each a pair.

    Only the last block of a target ends in EOS. Tokens are not copied: the blocks are
    more offsets into the same array. Sources are empty.
    """
    lengths = pairs.target.lengths
    blocks = -(-lengths // block)  # of each pair, rounded up
    first_block = np.repeat(np.cumsum(blocks) - blocks, blocks)
    start = np.repeat(pairs.target.offsets[:-1], blocks)
    start += (np.arange(len(start)) - first_block) * block
    blocks_before = np.append(0, np.cumsum(blocks))
    ends = np.cumsum(pairs.sizes, dtype=np.int64)
    return dataclasses.replace(
        pairs,
        source=Ragged(pairs.source.tokens, np.zeros(len(start) + 1, np.int64)),
        target=Ragged(pairs.target.tokens, np.append(start, pairs.target.offsets[-1])),
        sizes=tuple(np.diff(blocks_before[ends], prepend=0).tolist()),
        line=np.repeat(pairs.line, blocks) if len(pairs.line) else pairs.line,
        block=block,
    )


def tokenize_in_memory(
    pairs: Iterable[Pair],
    vocabulary: Vocabulary,
    encode: Encode | None = None,
    block: int = 0,
    noise: "Noise | None" = None,
) -> Pairs:
    """Tokenizes a dev or test set in memory; never drops a pair.

    `encode` is `encode_pairs` by default, `block` the most tokens of the blocks that
    targets are cut into (0: they are not cut), and `noise` makes the examples of the
    pairs.
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
    for side, side_vocabulary in enumerate((vocabulary.source, vocabulary)):
        lines = [pair[side] for pair in pairs]
        if side in sides:
            encoded.append(side_vocabulary.encode_flat(lines, threads))
        else:
            encoded.append(ragged([()] * len(lines)))
    return encoded[0], encoded[1]


def prepared_key(
    fingerprints: Sequence[str], vocabulary: Vocabulary, config: DataConfig
) -> str:
    """A hash of everything that the arrays of a training text depend on."""
    # Every option that changes the arrays. Weights and the temperature do not; the plan
    # applies them. Nor does what varies from epoch to epoch (`Variation`).
    names = ("max_length", "max_ratio", "deduplicate", "symbols")
    names_of_sides = "tokenizer", "source_tokenizer"
    hashes = dict(zip(names_of_sides, vocabulary.sha256, strict=False))
    options = {name: getattr(config, name) for name in names}
    return cache_key(text=[*fingerprints], **hashes, **options)
