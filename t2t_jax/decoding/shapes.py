"""Lines of similar length -> blocks of a fixed shape.

A block's shape depends on its length alone, never on how many lines there are: the
places that no line takes are computed too. So a line goes through the same arithmetic
whatever is translated with it. (A matrix product of another number of rows may add up
in another order, and the last bits differ.)

Blocks of one shape are computed together, one by each device (`decoding/devices.py`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from t2t_jax.config import DecodeConfig

SHORTEST = 32  # positions


def bucket_of(length: int) -> int:
    """32, 64, 128, ...: the positions of the block that a line of `length` goes to."""
    return max(SHORTEST, 1 << (length - 1).bit_length())


def rows_of(bucket: int, decode: DecodeConfig) -> int:
    """How many lines a block takes: fixed for its length, a multiple of 8."""
    tokens = decode.batch_tokens
    if not tokens:  # measured: docs/performance.md
        tokens = 512 if jax.default_backend() == "cpu" else 16_384
    return max(8, tokens // bucket // 8 * 8)


def longest_output(source_length: int, decode: DecodeConfig) -> int:
    """The longest output in tokens, with the end: input + 50 in section 6.1."""
    return source_length + decode.extra_length


class Group(NamedTuple):
    """Blocks of one bucket: one array, in which they follow each other.

    Attributes:
      lines: their numbers, in the order of the rows. Rows without a line come last: a
        group that is not full has whole blocks of them.
      bucket: positions.
      rows: of each block.
      blocks: as many as devices.
    """

    lines: list[int]
    bucket: int
    rows: int
    blocks: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.blocks * self.rows, self.bucket

    def parts(self, of: Sequence) -> Iterator[Sequence]:
        """What each block has of a sequence with an item for each line."""
        for block in range(self.blocks):
            yield of[block * self.rows : (block + 1) * self.rows]


def groups(lengths: Sequence[int], decode: DecodeConfig, blocks: int) -> list[Group]:
    """All lines but those of length 0, sorted by length.

    Which lines are in a block together does not depend on `blocks`.
    """
    order = sorted((length, line) for line, length in enumerate(lengths) if length)
    by_bucket: dict[int, list[int]] = {}
    for length, line in order:
        by_bucket.setdefault(bucket_of(length), []).append(line)
    return [
        Group(lines[start : start + blocks * rows], bucket, rows, blocks)
        for bucket, lines in by_bucket.items()
        for rows in [rows_of(bucket, decode)]
        for start in range(0, len(lines), blocks * rows)
    ]


def filled(ids: Sequence[Sequence[int]], rows: int, width: int):
    """int32 [rows, width]: tokens and their segments; both 0 where there is nothing.

    Of a row without a line the first place is a token too, so that there is something
    to attend to.
    """
    tokens = np.zeros((rows, width), np.int32)
    segments = np.zeros((rows, width), np.int32)
    segments[:, 0] = 1
    for row, line in enumerate(ids):
        tokens[row, : len(line)] = line
        segments[row, : len(line)] = 1
    return tokens, segments
