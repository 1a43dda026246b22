"""Span corruption of some of the texts of a mixture.

Their stored sources are a tag and the text, so that they are cleaned and tokenized as
those of other subtasks are. In a batch, the text is replaced by what spans leave of it:

    stored    <spans> the cats chase the dogs    the cats chase the dogs
    example   <spans> the <span_0> chase <span_1>    <span_0> cats <span_1> the dogs
"""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from t2t_jax.data.filling import Ragged
from t2t_jax.data.noise import of_sentence, positions
from t2t_jax.data.span_corruption import SpanCorruption
from t2t_jax.data.tokenizer import Vocabulary

if TYPE_CHECKING:
    from t2t_jax.data.pairs import Pairs


class TaggedSpans(SpanCorruption):
    """Cuts spans out of the pairs that `applies_p` chooses, bool [pairs].

    Args:
      tag: the symbol that begins their sources.
    """

    def __init__(self, vocabulary: Vocabulary, tag: str, applies_p: np.ndarray):
        super().__init__(vocabulary, applies_p=applies_p)
        self._kept = len(vocabulary.source.encode([tag])[0])

    def lengths(self, pairs: "Pairs") -> tuple[np.ndarray, np.ndarray]:
        """Returns the source and target lengths of the examples, int [pairs]."""
        of_tag = self._kept + 1  # and EOS
        lengths_p = pairs.source.lengths
        lengths_p = np.where(self._applies_p, of_tag, lengths_p)
        offsets = np.append(0, lengths_p.cumsum())
        tags = Ragged(pairs.source.tokens, offsets)  # only its lengths are read
        return super().lengths(dataclasses.replace(pairs, source=tags))

    def corrupted(
        self,
        source: Ragged,
        target: Ragged,
        number_p: np.ndarray,
        seed: int,
        epoch: int,
    ) -> tuple[Ragged, Ragged]:
        """Returns the source and the target of the examples of some pairs."""
        # Of a source that is replaced, the tag and EOS are kept.
        is_end = positions(source) == of_sentence(source, source.lengths - 1)
        replaced = of_sentence(source, self._applies_p[number_p])
        kept = ~replaced | is_end | (positions(source) < self._kept)
        before = np.append(0, kept.cumsum())[source.offsets]
        tags = Ragged(source.tokens[kept], before)
        return super().corrupted(tags, target, number_p, seed, epoch)
