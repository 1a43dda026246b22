"""Reads targets token by token: what the model says of each of them.

Each computation runs for all targets together.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import alignment
from t2t_jax.decoding.batch_decoding import decode_batch
from t2t_jax.decoding.batches import longest_output
from t2t_jax.decoding.constraints import Constraints
from t2t_jax.decoding.inputs import Member, Source
from t2t_jax.decoding.results import Hypothesis
from t2t_jax.io.errors import UserError
from t2t_jax.search.algorithm import never_generated
from t2t_jax.text.words import TokenWords
from t2t_jax.tools.explain import MOST
from t2t_jax.tools.explain.attention_summary import rollout, summarize
from t2t_jax.tools.explain.attribution import (
    attribute,
    can_attribute,
    most_interesting,
    strongest_rivals,
)
from t2t_jax.tools.explain.distribution import Distribution, distributions, lenses
from t2t_jax.tools.explain.explanation import (
    Continuation,
    Contrast,
    Difference,
    Missing,
    Reading,
)
from t2t_jax.tools.explain.trace import Explained
from t2t_jax.tools.explain.words import cover, explained_words

Ids = Sequence[int]
# An attribution reads a pair once more for each token. Of a long pair, only the least
# probable tokens are attributed: about READ tokens are read, for at least LEAST tokens.
READ, LEAST = 8_192, 8
NO_ROLLOUT = Missing(
    "This model has no attention within the source and the target to follow."
)


def read_targets(
    model: Explained,
    source: Source,
    source_words: TokenWords,
    constraints: Constraints,
    targets: dict[str, Hypothesis],
    alternatives: int,
) -> tuple[Reading, ...]:
    """Reads the translation of a source, and perhaps a target that was given.

    For at most so many alternatives of each, a continuation is searched for.
    """
    vocabulary, members = model.vocabulary, model.members
    read = read_of(model, source)
    pairs = [(read, [*target.tokens]) for target in targets.values()]
    described = distributions(vocabulary, members, pairs)
    all_maps = _for_one_model(members, lambda m: _maps(vocabulary, m, pairs))
    all_lenses = _for_one_model(members, lambda m: lenses(vocabulary, m, pairs))

    def reading(row: int, name: str) -> Reading:
        target, pair, distribution = targets[name], pairs[row], described[row]
        difference = _difference(target, targets.values())
        words = explained_words(vocabulary, pair[1], target.text)
        maps = all_maps if isinstance(all_maps, Missing) else all_maps[row]
        # The constraints are those of the search, not of a target that was given.
        search_constraints = constraints if name == "translation" else Constraints()
        continued = continuations(
            model, source, pair[1], distribution, search_constraints, alternatives
        )
        return Reading(
            name=name,
            hypothesis=_with_score(model, target, distribution),
            pieces=tuple(map(vocabulary.piece, pair[1])),
            words=words,
            distribution=distribution,
            continuations=tuple(continued),
            difference=difference,
            maps=maps,
            heads={} if isinstance(maps, Missing) else summarize(maps),
            rollout=maps if isinstance(maps, Missing) else rollout(maps) or NO_ROLLOUT,
            coverage=_for_one_model(
                members, lambda m: _coverage(m, source_words, words, maps)
            ),
            lens=all_lenses if isinstance(all_lenses, Missing) else all_lenses[row],
            attribution=_for_one_model(
                members,
                lambda m: _attribution(vocabulary, m, pair, distribution, difference),
            ),
        )

    return tuple(itertools.starmap(reading, enumerate(targets)))


def _for_one_model(members: Sequence[Member], compute: Callable[[Member], Any]) -> Any:
    """Computes a part for a single model; `Missing` where there is none."""
    if len(members) > 1:
        return Missing(
            f"This is an ensemble of {len(members)} models; only a single model has "
            "weights and layers to show."
        )
    try:
        return compute(members[0])
    except UserError as e:  # the model has no such part, and the error says so
        return Missing(str(e))


def read_of(model: Explained, source: Source) -> Ids:
    """The tokens of a source that the model reads: EOS stands for no source."""
    return source.ids if model.members[0].model.has_source else source.ids[-1:]


def _maps(vocabulary: Vocabulary, member: Member, pairs) -> list:
    if member.model.has_source:
        alignment.checked_cross_layers(member)
    return list(alignment.attention(vocabulary, member, pairs))


def _coverage(member: Member, source: TokenWords, target: TokenWords, maps) -> Any:
    layers = alignment.checked_cross_layers(member)
    heads = alignment.alignment_heads(member.config, layers)
    return cover(source, target, maps, *heads)


def _attribution(
    vocabulary: Vocabulary,
    member: Member,
    pair: tuple[Ids, Ids],
    distribution: Distribution,
    difference: Difference | None,
) -> Any:
    """Attributes the tokens of a target, and their contrast with likely others."""
    if not can_attribute(member):
        return Missing("This model does not read its tokens through embeddings.")
    positions = most_interesting(distribution, max(LEAST, READ // sum(map(len, pair))))
    # The place where the two readings part is always of interest.
    if difference is not None and difference.position not in positions:
        positions = sorted([*positions, difference.position])
    rivals = strongest_rivals(vocabulary, pair[1], distribution, positions)
    if difference is not None:
        rivals[positions.index(difference.position)] = difference.rival
    tokens = [pair[1][t] for t in positions]
    chosen, rival = (
        attribute(vocabulary, member, pair, positions, predicted)
        for predicted in (tokens, rivals)
    )
    return Contrast(chosen, tuple(rivals), chosen.minus(rival))


def _difference(target: Hypothesis, targets: Iterable[Hypothesis]) -> Difference | None:
    """Finds the first token at which a target differs from the other one."""
    for other in targets:
        tokens = zip(target.tokens, other.tokens, strict=False)
        for position, (token, rival) in enumerate(tokens):
            if token != rival:
                return Difference(position, rival)
    return None


def _with_score(
    model: Explained, hypothesis: Hypothesis, distribution: Distribution
) -> Hypothesis:
    """Fills in what is not known of a given target."""
    if not np.isnan(hypothesis.log_prob):
        return hypothesis
    algorithm = model.search.algorithm
    log_prob = float(distribution.log_probs.sum(dtype=np.float64))
    score = log_prob / algorithm.divisor(len(hypothesis.tokens), algorithm.alpha)
    return dataclasses.replace(hypothesis, score=score, log_prob=log_prob)


# ----------------------------------------------------------------------- continuations
# Translations that go on from another likely token.

LIKELY = 0.02  # probability of an alternative
AMONG = 4  # the most probable tokens of a position that may be alternatives


def likely_alternatives(
    ids: Sequence[int],
    distribution: Distribution,
    vocabulary: Vocabulary,
    forced: int = 0,
    at_most: int = MOST,
) -> list[tuple[int, int]]:
    """Lists (position, likely token that was not chosen), the most probable first.

    Positions count from 0. The first `forced` tokens are those of a prefix.
    """
    never = never_generated(vocabulary)
    top_ids, top_log_probs = distribution.top_ids, distribution.top_log_probs
    likely_tk = top_log_probs[:, :AMONG] >= np.log(LIKELY)
    alternatives = [
        (t, int(top_ids[t, k]), top_log_probs[t, k])
        for t, k in np.argwhere(likely_tk).tolist()
        if t >= forced and top_ids[t, k] != ids[t] and top_ids[t, k] not in never
    ]
    alternatives.sort(key=lambda alternative: -alternative[2])
    return [(t, token) for t, token, _ in alternatives[:at_most]]


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
    likely = likely_alternatives(ids, distribution, vocabulary, forced, at_most)
    alternatives = [(t, i) for t, i in likely if t + (i != vocabulary.eos) < room]
    prefixed = [
        constraints._replace(prefix=(*ids[:t], token), begun="")
        for t, token in alternatives
    ]
    sources = [source] * len(prefixed)
    translations = decode_batch(
        model.search, sources, prefixed, vocabulary, model.phrases, model.decode
    )
    return [
        Continuation(*alternative, best)
        for alternative, (best, *_) in zip(alternatives, translations, strict=True)
        if not best.failure
    ]
