"""The words of a line, their alignment, and which are covered too little or twice.

Shape suffixes: s source tokens, t target tokens, i source words, j target words.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.alignment import links, word_weights
from t2t_jax.decoding.results import AttentionMaps
from t2t_jax.text.characters import UNSPACED, class_name
from t2t_jax.text.words import TokenWords


def explained_words(
    vocabulary: Vocabulary, ids: Sequence[int], line: str | None
) -> TokenWords:
    """Returns the words of a line's tokens, between spaces, as in `Translator.align`.

    Where a script has no spaces, each token is one. A final EOS belongs to none.

    Args:
      line: the text that was encoded; None: the words are those of what tokens spell.
    """
    words = vocabulary.words(ids, line=line)
    letters = [character for character in words.text if character.isalpha()]
    unspaced = sum(class_name(character) in UNSPACED for character in letters)
    return vocabulary.words(ids, "tokens") if 2 * unspaced > len(letters) else words


# ----------------------------------------------------------------------------- coverage

# A source word without a link is dropped if all target words together look at it less
# than this; a word that is translated alone has a coverage of about 1.
DROPPED = 0.2


class Coverage(NamedTuple):
    """The word alignment of one pair, by attention to the source.

    Attributes:
      layer: the decoder layer whose attention aligns, from 0.
      weights: the attention of each target word to each source word, averaged over
        heads and over the target word's tokens, summed over the source word's;
        float64 [j, i]. What rows lack to 1 is on EOS.
      links: (source word, target word): each target word's source word of most weight.
      coverage: the sum of the weights on each source word, [i].
      dropped: source words without a link and of a coverage below `DROPPED`.
      repeated: source words linked to target words that are not side by side, or to the
        same word twice.
    """

    layer: int
    weights: np.ndarray
    links: list[tuple[int, int]]
    coverage: np.ndarray
    dropped: list[int]
    repeated: list[int]


def cover(
    source: TokenWords,
    target: TokenWords,
    maps: AttentionMaps,
    layer: int,
    heads: int | None,
) -> Coverage:
    """Aligns the words of a pair as `alignment.align` does, and looks for lost ones.

    The layer and its heads are those of `alignment_heads`.
    """
    weights_ts = maps.cross[layer][:heads].mean(axis=0)
    weights_ji = word_weights(weights_ts, source.of_token, target.of_token)
    word_links = links(weights_ji, target.of_token)
    coverage_i = weights_ji.sum(axis=0)
    by_source: list[list[int]] = [[] for _ in coverage_i]
    for i, j in word_links:
        by_source[i].append(j)
    return Coverage(
        layer,
        weights_ji,
        word_links,
        coverage_i,
        [i for i, js in enumerate(by_source) if not js and coverage_i[i] < DROPPED],
        [i for i, js in enumerate(by_source) if _repeats(js, target.texts)],
    )


def _repeats(places: list[int], texts: list[str]) -> bool:
    """True if words at these places are apart from each other, or the same."""
    apart = any(b - a > 1 for a, b in itertools.pairwise(places))
    words = [_plain(texts[j]) for j in places]
    return apart or len({*words}) < len(words)


def _plain(word: str) -> str:
    """The word without case and without the marks around it."""
    letters = [i for i, character in enumerate(word) if character.isalnum()]
    return word[letters[0] : letters[-1] + 1].casefold() if letters else word
