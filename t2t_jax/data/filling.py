"""Token ids of many sentences in one array, the layout of a batch, and its filling.

Suffix: `p` pairs.
"""

import dataclasses
import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t2t_jax.io.errors import UserError

if TYPE_CHECKING:  # the shapes of all batches, with how they are chosen
    from t2t_jax.data.shapes import Shape

# The arrays of links between words (`extensions/data/links.py`): the number of a source
# token's word, and those that a target token's word is linked to.
SOURCE_WORD, LINK = "source_word", "link"
LINKS_OF_A_WORD = 4  # further ones are dropped


@dataclass(frozen=True, eq=False)
class Layout:
    """The places of the pairs of one batch; arrays are int32 [pairs in this batch].

    Pairs are ordered by row, then by segment.
    """

    shape: "Shape"
    pair_p: np.ndarray  # the number of each pair in the training text
    row_p: np.ndarray
    source_start_p: np.ndarray  # its first token in the source row
    target_start_p: np.ndarray
    segment_p: np.ndarray  # its segment id, counted from 1 in each row

    def only(self, kept_p: np.ndarray) -> "Layout":
        """The same batch with only some of its pairs; the others become padding."""
        return Layout(
            self.shape,
            self.pair_p[kept_p],
            self.row_p[kept_p],
            self.source_start_p[kept_p],
            self.target_start_p[kept_p],
            self.segment_p[kept_p],
        )


def checked_index(i: int, n: int, kind: str) -> int:
    """Maps a negative index to one from 0; raises IndexError if out of range."""
    i = operator.index(i)  # NumPy integers too, but no floats
    if not -n <= i < n:
        raise IndexError(f"{kind} {i} is out of range: there are {n}")
    return i % n


@dataclass(frozen=True, eq=False)
class Ragged:
    """Sentences of various lengths, concatenated.

    Sentence i is `tokens[offsets[i] : offsets[i + 1]]`.
    """

    tokens: np.ndarray  # integers [tokens of all sentences]; may be a memory map
    offsets: np.ndarray  # int64 [sentences + 1], starting with 0

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens in each sentence, int64 [sentences]."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        i = checked_index(i, len(self), "sentence")
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]


def ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """Concatenates rows of ids into one flat array with offsets."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    tokens = np.fromiter(itertools.chain.from_iterable(rows), np.int32, offsets[-1])
    return Ragged(tokens, offsets)


def take(sentences: Ragged, pair_p: np.ndarray) -> Ragged:
    """Copies some sentences, in the order of their numbers."""
    first_p = sentences.offsets[pair_p].astype(np.int64)
    length_p = sentences.offsets[pair_p + 1] - first_p
    tokens = sentences.tokens[runs(first_p, length_p)].astype(np.int32)
    return Ragged(tokens, np.append(0, np.cumsum(length_p)))


def runs(first_p: np.ndarray, length_p: np.ndarray) -> np.ndarray:
    """Returns the indices of the tokens of sentences, one sentence after the other."""
    end_p = np.cumsum(length_p)
    # Token n of all is `n - (end_p - length_p)` tokens after the first of sentence p.
    return np.arange(length_p.sum()) + np.repeat(first_p - end_p + length_p, length_p)


def concatenated(parts: Sequence[Ragged]) -> Ragged:
    """Concatenates sentences."""
    lengths = [part.lengths for part in parts]
    tokens = [part.tokens for part in parts]
    return Ragged(
        np.concatenate([np.zeros(0, np.int32), *tokens]),
        np.append(0, np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths]))),
    )


def per_token(sentences: Ragged, value_p: np.ndarray) -> np.ndarray:
    """Repeats a value of each sentence for each of its tokens."""
    return np.repeat(value_p, sentences.lengths)


def positions(sentences: Ragged) -> np.ndarray:
    """Returns the position of each token in its sentence."""
    begin = per_token(sentences, sentences.offsets[:-1])
    return np.arange(len(sentences.tokens)) - begin


class TokenArrays(NamedTuple):
    """Further arrays of a text, by side and name: integers [tokens of the side, ...].

    `key` is a hash of what they depend on, `report` a line about them for a person.
    """

    source: Mapping[str, np.ndarray] = MappingProxyType({})
    target: Mapping[str, np.ndarray] = MappingProxyType({})
    key: str = ""
    report: str = ""


NO_ARRAYS = TokenArrays()


def fill(
    layout: Layout, source: Ragged, target: Ragged, further: TokenArrays = NO_ARRAYS
) -> dict[str, np.ndarray]:
    """Builds the arrays of one batch; padding is zero.

    Args:
      layout: The batch, from a Plan.
      source, target: The sentences from whose lengths the plan was built.
      further: Arrays with an entry for each of their tokens.

    Returns:
      `source`, `source_segment`, `source_position` and the same for `target`, int32
      [rows, length]: token ids, segment ids (from 1 in each row), and positions (from 0
      in each segment). Then those of `further`, int32 [rows, length, ...].

    Raises:
      UserError: A sentence does not fit the place that the plan has for it.
    """
    shape = layout.shape
    return {
        **_fill("source", source, shape.source, layout.source_start_p, layout, further),
        **_fill("target", target, shape.target, layout.target_start_p, layout, further),
    }


def _fill(
    side: str, ragged: Ragged, length: int, start_p, layout: Layout, further
) -> dict:
    """The arrays of one side, filled without a loop over sentences."""
    if layout.pair_p.max(initial=-1) >= len(ragged):
        raise UserError(
            f"the plan has {side} sentence {layout.pair_p.max()}, but there are only "
            f"{len(ragged)}; plan from the lengths of the sentences that fill it"
        )
    first_p = ragged.offsets[layout.pair_p].astype(np.int64)
    length_p = ragged.offsets[layout.pair_p + 1] - first_p
    # Places are indices into the flattened [rows * length] array.
    place_p = layout.row_p.astype(np.int64) * length + start_p
    end_p = place_p + length_p
    # A sentence ends before its row does and before the next sentence begins; layouts
    # are ordered by row and start, so the next one is simply the next pair.
    limit_p = np.minimum(
        (layout.row_p + 1).astype(np.int64) * length,
        np.append(place_p[1:], layout.shape.rows * length),
    )
    if np.any(end_p > limit_p):
        pair = layout.pair_p[np.argmax(end_p > limit_p)]
        raise UserError(
            f"{side} sentence {pair} does not fit the place planned for it: it has "
            f"{len(ragged[pair])} tokens; plan from the lengths of the sentences that "
            "fill it"
        )
    # Of each token, the index in the batch and that in `ragged`.
    place, stored = runs(place_p, length_p), runs(first_p, length_p)
    filled = {
        side: ragged.tokens[stored],
        f"{side}_segment": np.repeat(layout.segment_p, length_p),
        f"{side}_position": place - np.repeat(place_p, length_p),
        **{name: values[stored] for name, values in getattr(further, side).items()},
    }
    arrays = {}
    for name, values in filled.items():
        inner_shape = values.shape[1:]
        flat = np.zeros((layout.shape.rows * length, *inner_shape), np.int32)
        flat[place] = values
        arrays[name] = flat.reshape(layout.shape.rows, length, *inner_shape)
    return arrays


def fill_taken(layout: Layout, source: Ragged, target: Ragged) -> dict[str, np.ndarray]:
    """Fills a batch like `fill`, from the sentences of this batch alone."""
    numbered = np.arange(len(layout.pair_p), dtype=np.int32)
    return fill(dataclasses.replace(layout, pair_p=numbered), source, target)
