"""The tree of a beam search: every hypothesis at every step, and its cause of death.

`tree_builder.py` builds it from the arrays of a traced search.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.search.algorithm import Hypotheses, inverse_penalties
from t2t_jax.search.beam import BeamSearch

FATES = {
    "alive": "a continuation of it is in the next beam",
    "outranked": "others took all places of the beam",
    "ended": "complete, and kept",
    "lost": "complete, and not kept: others have better scores",
    "limit": "reached the longest length",
    "forbidden": "a constraint refuses its continuation",
    "phrase": "its place went to a less probable one, for the required phrases",
    "stopped": "the search stopped before it was complete",
}
# Two programs may sum in another order. Log-probabilities this close count as equal.
ROUNDING = 1e-4

Tokens = tuple[int, ...]


@dataclasses.dataclass
class Node:
    """A hypothesis at one step.

    Attributes:
      tokens: its tokens so far; none at the root.
      row: its place in the beam, from 0, best first; None if it was never in the beam.
      log_prob: natural logarithm, summed over its tokens.
      score: log_prob / length penalty at its length.
      rank: among all extensions of the step, from 1; None at the root.
      fate: a key of `FATES`.
      by: the tokens of the hypothesis that took its place, or None.
      margin: the difference to `by`, in log-probability; of ended ones, in score.
      why: the fate with its numbers, a sentence.
    """

    tokens: Tokens
    row: int | None
    log_prob: float
    score: float
    rank: int | None
    fate: str = "alive"
    by: Tokens | None = None
    margin: float | None = None
    why: str = ""


class Stop(NamedTuple):
    """The end of a search: its length in tokens, and the reason."""

    step: int
    why: str


@dataclasses.dataclass
class Reference:
    """A given translation's way through the search.

    Attributes:
      tokens: with EOS.
      step: the length at which it left the beam; None if it never did.
      rank, margin: of its extension at that step, and how far below the last place.
      verdict: `found`; `search error`, if the model prefers it to the result; or
        `model error`, if it does not.
      why: the verdict with its numbers, a sentence.
    """

    tokens: Tokens
    step: int | None = None
    rank: int | None = None
    margin: float | None = None
    verdict: str = "found"
    why: str = ""


@dataclasses.dataclass
class BeamTree:
    """A beam search.

    Attributes:
      nodes: by tokens; parents first.
      result: the search's, leaves [nbest, ...].
      finished: the tokens of its hypotheses, best first.
      limit: the longest output in tokens, EOS included.
      reference: the way of a given translation, or None.
    """

    algorithm: BeamSearch
    limit: int
    nodes: dict[Tokens, Node]
    result: Hypotheses
    finished: list[Tokens]
    stop: Stop
    reference: Reference | None = None


def judge_reference(
    tree: BeamTree, log_prob: float, best_score: float, vocabulary: Vocabulary
) -> float:
    """Decides between search error and model error; returns the reference's score.

    Args:
      log_prob: of the reference, all tokens.
      best_score: of the result's first hypothesis.
    """
    reference, algorithm = tree.reference, tree.algorithm
    length = len(reference.tokens)
    inverse_t = inverse_penalties(length, algorithm.alpha, algorithm.penalty)
    score = float(np.float32(log_prob) * np.asarray(inverse_t)[length])
    if tree.finished[:1] == [reference.tokens]:
        reference.verdict = "found"
        reference.why = "It is the translation that the search found."
        return score
    better = score > best_score + ROUNDING
    reference.verdict = "search error" if better else "model error"
    ending = tree.nodes.get(reference.tokens)
    compared = (
        f"its score is {shown(score)}, and that of the result {shown(best_score)}"
    )
    if reference.step is None and length > tree.limit:
        end = f"It has {length} pieces and the limit is {tree.limit}"
    elif ending and ending.fate in ("ended", "lost"):
        end = ending.why.removesuffix(".")
    elif reference.step is None:
        end = "It stayed in the beam until the search ended"
    else:
        piece = vocabulary.piece(reference.tokens[reference.step - 1])
        end = f"It left the beam at piece {reference.step}, “{piece}”"
        refused = reference.rank is None
        end += ", which " + ("is refused" if refused else f"ranked {reference.rank}")
    reference.why = f"{end}. {compared.capitalize()}: the model prefers " + (
        "it, and the search missed it." if better else "the result."
    )
    return score


def shown(number: float) -> str:
    """Formats a number for a sentence, with the sign that the page has everywhere."""
    return f"{number:.3f}".replace("-", "−")
