"""Forced continuations: translations that go on from another likely piece."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.batch_decoding import NOTHING, decode_batch
from t2t_jax.decoding.batches import longest_output
from t2t_jax.decoding.constraints import Constraints
from t2t_jax.decoding.inputs import Source
from t2t_jax.decoding.results import Hypothesis
from t2t_jax.search.algorithm import never_generated
from t2t_jax.tools.explain import MOST
from t2t_jax.tools.explain.distribution import Distribution
from t2t_jax.tools.explain.trace import Explained

LEAST = 0.02  # probability of an alternative
AMONG = 4  # the most probable tokens of a position that may be alternatives


class Alternative(NamedTuple):
    """A likely token in place of the given one at `position`, from 0."""

    position: int
    token: int
    log_prob: float


class Continuation(NamedTuple):
    """The best translation that begins with the given tokens and an alternative.

    Attributes:
      position, token: of the alternative.
      found: the translation; its tokens begin with those that were forced, and
        `log_prob` counts them.
    """

    position: int
    token: int
    found: Hypothesis


def likely_alternatives(
    ids: Sequence[int],
    distribution: Distribution,
    vocabulary: Vocabulary,
    forced: int = 0,
    at_most: int = MOST,
) -> list[Alternative]:
    """Lists likely tokens that were not chosen, the most probable first.

    The first `forced` tokens are those of a prefix.
    """
    never = never_generated(vocabulary)
    top_ids, top_log_probs = distribution.top_ids, distribution.top_log_probs
    alternatives = [
        Alternative(t, int(token), float(log_prob))
        for t in range(forced, len(ids))
        for token, log_prob in zip(
            top_ids[t, :AMONG], top_log_probs[t, :AMONG], strict=True
        )
        if log_prob >= np.log(LEAST) and token != ids[t] and token not in never
    ]
    return sorted(alternatives, key=lambda each: -each.log_prob)[:at_most]


def continuations(
    model: Explained,
    source: Source,
    ids: Sequence[int],
    distribution: Distribution,
    constraints: Constraints,
    at_most: int = MOST,
) -> list[Continuation]:
    """Translates a source again for each likely alternative, in one call.

    Args:
      ids: the tokens of its translation, and `distribution` theirs.
      constraints: of the translation; its prefix begins `ids` and stays as it is, and
        so does the token that has begun.

    Returns:
      Of the alternatives in order; one that no translation can follow is left out:
      those at the longest length, and those that other constraints rule out.
    """
    vocabulary = model.vocabulary
    # A given target may be longer than any translation of this source.
    room = longest_output(len(source.ids), model.decode)
    forced = len(constraints.prefix) + bool(constraints.begun)
    alternatives = [
        each
        for each in likely_alternatives(ids, distribution, vocabulary, forced, at_most)
        if each.position + (each.token != vocabulary.eos) < room
    ]
    prefixed = [
        constraints._replace(prefix=(*ids[: each.position], each.token), begun="")
        for each in alternatives
    ]
    sources = [source] * len(prefixed)
    translations = decode_batch(
        model.search, sources, prefixed, vocabulary, model.phrases, model.decode
    )
    return [
        Continuation(each.position, each.token, best)
        for each, (best, *_) in zip(alternatives, translations, strict=True)
        if best != NOTHING
    ]
