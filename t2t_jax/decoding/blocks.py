"""Lines of similar length -> blocks of a fixed shape.

A block's shape depends on its length alone, never on how many lines there are: the
places that no line takes are computed too. So a line goes through the same arithmetic
whatever is translated with it. (A matrix product of another number of rows may add up
in another order, and the last bits differ.)
"""

from collections.abc import Iterator, Sequence

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


def blocks(
    lengths: Sequence[int], decode: DecodeConfig
) -> Iterator[tuple[list[int], int]]:
    """The rows of each block with its bucket, sorted by length; 0 is left out."""
    order = sorted((length, row) for row, length in enumerate(lengths) if length)
    by_bucket: dict[int, list[int]] = {}
    for length, row in order:
        by_bucket.setdefault(bucket_of(length), []).append(row)
    for bucket, rows in by_bucket.items():
        size = rows_of(bucket, decode)
        for start in range(0, len(rows), size):
            yield rows[start : start + size], bucket


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
