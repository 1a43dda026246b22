"""Groups lines of similar length into blocks of a fixed shape.

A block's shape depends on the length of its lines alone, never on their number: empty
rows are computed too. So a line goes through the same arithmetic, whatever is
translated with it. (A matrix product with another number of rows may sum in another
order, which changes the last bits.)

A group is several blocks of one shape, one for each device (`decoding/devices.py`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from t2t_jax.config import DecodeConfig

SHORTEST = 32  # positions of the smallest bucket


def bucket_for(length: int) -> int:
    """Returns the block width for a line of `length` tokens: 32, 64, 128, ..."""
    return max(SHORTEST, 1 << (length - 1).bit_length())


def block_rows(bucket: int, decode: DecodeConfig) -> int:
    """Returns the number of rows of a block: fixed for its width, a multiple of 8."""
    tokens = decode.batch_tokens
    if not tokens:  # measured: docs/performance.md
        tokens = 512 if jax.default_backend() == "cpu" else 16_384
    return max(8, tokens // bucket // 8 * 8)


def longest_output(source_length: int, decode: DecodeConfig) -> int:
    """Returns the output limit in tokens, EOS included: input + 50 in section 6.1."""
    return source_length + decode.extra_length


class Group(NamedTuple):
    """Lines of one bucket, in consecutive blocks of one array.

    Attributes:
      lines: the numbers of the lines, in row order. Empty rows come last, so the last
        blocks may be empty.
      bucket: the width of a block, in positions.
      rows: the number of rows of a block.
      blocks: the number of blocks, one for each device.
    """

    lines: list[int]
    bucket: int
    rows: int
    blocks: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.blocks * self.rows, self.bucket

    def split(self, items: Sequence) -> Iterator[Sequence]:
        """Yields each block's part of `of`, a sequence with an item for each line."""
        for block in range(self.blocks):
            yield items[block * self.rows : (block + 1) * self.rows]


def groups(lengths: Sequence[int], decode: DecodeConfig, blocks: int) -> list[Group]:
    """Groups the lines of positive length, sorted by length.

    The lines of a block do not depend on `blocks`, the number of blocks in a group.
    """
    order = sorted((length, line) for line, length in enumerate(lengths) if length)
    by_bucket: dict[int, list[int]] = {}
    for length, line in order:
        by_bucket.setdefault(bucket_for(length), []).append(line)
    return [
        Group(lines[start : start + blocks * rows], bucket, rows, blocks)
        for bucket, lines in by_bucket.items()
        for rows in [block_rows(bucket, decode)]
        for start in range(0, len(lines), blocks * rows)
    ]


def pad_rows(ids: Sequence[Sequence[int]], rows: int, width: int):
    """Pads lines; returns tokens and segments, int32 [rows, width], 0 for padding.

    The first position of an empty row is in segment 1 too, so that attention has a key.
    """
    tokens = np.zeros((rows, width), np.int32)
    segments = np.zeros((rows, width), np.int32)
    segments[:, 0] = 1
    for row, line in enumerate(ids):
        tokens[row, : len(line)] = line
        segments[row, : len(line)] = 1
    return tokens, segments
