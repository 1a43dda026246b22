"""The text of prepared pairs, read again from their corpora.

Suffix: `p` pairs.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.data.cleaning import read_chunks
from t2t_jax.data.corpus import Corpus, Pair
from t2t_jax.data.pairs import Pairs

# The lines of a part. A part is varied as a whole, and a line may be joined with the
# next ones of its part (variation.py). So another number changes what a run reads.
LINES = 8_192
# The upper bits of a number are the corpus, the lower ones the line in it. So
# consecutive numbers are consecutive lines of one corpus.
LINE_BITS = 40


class Part(NamedTuple):
    """The pairs that cleaning kept of `LINES` consecutive lines of one corpus.

    Attributes:
      place: The number of the part in its corpus, from 0.
      first: The index of the first pair in the training text.
      number_p: The number of each pair's line, int64 [pairs].
      pairs: Their text.
    """

    place: int
    first: int
    number_p: np.ndarray
    pairs: list[Pair]


def read_parts(pairs: Pairs, corpora: Sequence[Corpus]) -> Iterator[Part]:
    """Yields the text of all pairs in order, as it was before it was encoded.

    Args:
      pairs: Prepared pairs; their `line` and `sizes` say what was kept.
      corpora: The corpora that they were prepared from.
    """
    end_c = np.cumsum(pairs.sizes)
    line_p = np.asarray(pairs.line)
    for chunk in read_chunks(corpora, LINES):
        end = int(end_c[chunk.corpus])
        begin = end - pairs.sizes[chunk.corpus]
        before, last = int(chunk.lines[0]) - 1, int(chunk.lines[-1])
        # Lines rise within a corpus.
        low = begin + int(np.searchsorted(line_p[begin:end], before, "right"))
        high = begin + int(np.searchsorted(line_p[begin:end], last, "right"))
        if low == high:
            continue
        kept_p = line_p[low:high].astype(np.int64)
        text = [chunk.pairs[i] for i in (kept_p - before - 1).tolist()]
        number_p = (np.int64(chunk.corpus) << LINE_BITS) + kept_p
        yield Part(before // LINES, low, number_p, text)
