"""The tree of a beam search: every hypothesis at every step, and its cause of death.

`build_tree` builds it from the arrays of a traced search.

Shape suffixes: n beam rows, t target, v vocabulary.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.search.algorithm import Hypotheses, inverse_penalties
from t2t_jax.search.beam import BeamSearch
from t2t_jax.tools.explain.trace import TracedStep

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
      fate: a key of `FATES` in `pages/page/views/beam_fates.js`, which describes them.
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

    `log_prob` is that of all its tokens; `best_score` is that of the result.
    """
    reference, algorithm = tree.reference, tree.algorithm
    length = len(reference.tokens)
    inverse_t = inverse_penalties(length, algorithm)
    score = float(np.float32(log_prob) * np.asarray(inverse_t)[length])
    if tree.finished[:1] == [reference.tokens]:
        reference.why = "It is the translation that the search found."
        return score
    better = score > best_score + ROUNDING
    reference.verdict = "search error" if better else "model error"
    ending = tree.nodes.get(reference.tokens)
    compared = (
        f"its score is {signed(score)}, and that of the result {signed(best_score)}"
    )
    if reference.step is None and length > tree.limit:
        end = f"It has {length} tokens and the limit is {tree.limit}"
    elif ending and ending.fate in ("ended", "lost"):
        end = ending.why.removesuffix(".")
    elif reference.step is None:
        end = "It stayed in the beam until the search ended"
    else:
        piece = vocabulary.piece(reference.tokens[reference.step - 1])
        end = f"It left the beam at token {reference.step}, “{piece}”"
        refused = reference.rank is None
        end += ", which " + ("is refused" if refused else f"ranked {reference.rank}")
    reference.why = f"{end}. {compared.capitalize()}: the model prefers " + (
        "it, and the search missed it." if better else "the result."
    )
    return score


def signed(number: float) -> str:
    """Formats a number for a sentence, with the sign that the page has everywhere."""
    return f"{number:.3f}".replace("-", "−")


# ----------------------------------------------------------------------------- building
# From the search's own arrays (`trace.py`). Which hypotheses are alive, ended and
# kept, and their log-probabilities, are the search's; only extensions that it did not
# keep have numbers computed separately, from the same state.


class _Extension(NamedTuple):
    """One extension of a step, with the tokens of the new hypothesis."""

    tokens: Tokens
    log_prob: float


def build_tree(
    steps: Iterable[TracedStep],
    algorithm: BeamSearch,
    vocabulary: Vocabulary,
    limit: int,
    required_phrases: bool = False,
    reference: Sequence[int] | None = None,
) -> BeamTree:
    """Builds the tree of a traced search.

    Args:
      limit: the longest output of the sentence in tokens, EOS included.
      required_phrases: places do not follow the log-probability alone.
      reference: tokens of a translation whose way is followed. Its verdict is `found`
        or empty; `judge_reference` completes it.
    """
    builder = _Builder(algorithm, vocabulary, limit, required_phrases, reference)
    for step in steps:
        builder.add(step)
    return builder.tree()


class _Builder:
    """Adds steps to a tree. Attributes as for `BeamTree`."""

    def __init__(self, algorithm, vocabulary, limit, required_phrases, reference):
        self.algorithm, self.vocabulary, self.limit = algorithm, vocabulary, limit
        self.required_phrases = required_phrases
        table_t = inverse_penalties(limit, algorithm)
        self.inverse_t = np.asarray(table_t)
        self.nodes = {(): Node((), 0, 0.0, 0.0, None)}
        self.reference = None if reference is None else Reference((*reference,))
        self.last: TracedStep | None = None

    def add(self, step: TracedStep) -> None:
        """Adds the hypotheses after a step; settles the fate of those before it."""
        self.last = step
        alive = {
            tuple(step.before.tokens_nt[row, : step.position].tolist()): row
            for row in np.flatnonzero(step.before.log_prob_n > -np.inf)
        }
        survivors = self._survivors(step, alive)
        worst = survivors[-1] if survivors else None
        parents = {extended.tokens[:-1] for extended in survivors}
        allowed_nv = np.where(step.allowed_nv, step.log_prob_nv, -np.inf)
        prefixes = {row: tokens for tokens, row in alive.items()}

        def extension(row: int, token: int) -> _Extension:
            tokens = (*prefixes[row], int(token))
            return _Extension(tokens, float(step.log_prob_nv[row, token]))

        def rank(tokens: Tokens) -> int:
            return _rank(step.log_prob_nv, allowed_nv, alive[tokens[:-1]], tokens[-1])

        for row, extended in enumerate(survivors):
            self._insert(extended, row, rank(extended.tokens))
        refused_nv = np.where(step.allowed_nv, -np.inf, step.log_prob_nv)
        for tokens, row in alive.items():
            best = extension(row, allowed_nv[row].argmax())
            refused = extension(row, refused_nv[row].argmax())
            free_place = len(survivors) < self.algorithm.beam
            would_stay = free_place or refused.log_prob > worst.log_prob
            if np.isfinite(refused.log_prob) and would_stay:
                self._insert(refused, None, None)
                self._forbid(refused.tokens, refused)
            if tokens in parents:
                continue
            if not np.isfinite(allowed_nv[row].max()):
                self._forbid(tokens, refused)
            elif np.isfinite(refused.log_prob) and would_stay:
                self._forbid(tokens, refused)
                self._lose(best, worst, rank(best.tokens))
            else:
                self._lose(best, worst, rank(best.tokens))
                self._copy_fate(best.tokens, tokens)
        for row, token in self._next_best(allowed_nv):
            extended = extension(row, token)
            if extended.tokens not in self.nodes:
                self._lose(extended, worst, rank(extended.tokens))
        self._follow_reference(step, alive, survivors, worst, allowed_nv)

    def _survivors(self, step: TracedStep, alive: dict) -> list[_Extension]:
        """The hypotheses that this step chose, ended ones included, best first."""
        survivors: dict[Tokens, _Extension] = {}
        finished = dict(_finished(step.after.finished))
        for row, tokens_t in enumerate(step.after.tokens_nt):
            tokens = tuple(tokens_t[: step.position + 1].tolist())
            parent = alive.get(tokens[:-1])
            # A row without a hypothesis holds the rest of another, or of nothing.
            if parent is None or not step.allowed_nv[parent, tokens[-1]]:
                continue
            log_prob = float(step.after.log_prob_n[row])
            if tokens[-1] == self.algorithm.eos:
                extended = float(step.log_prob_nv[parent, tokens[-1]])
                log_prob = finished.get(tokens, extended)
            if np.isfinite(log_prob):
                survivors.setdefault(tokens, _Extension(tokens, log_prob))
        return [*survivors.values()]

    def _insert(self, new: _Extension, row: int | None, rank: int | None) -> Node:
        score = float(np.float32(new.log_prob) * self.inverse_t[len(new.tokens)])
        node = Node(new.tokens, row, new.log_prob, score, rank)
        return self.nodes.setdefault(new.tokens, node)

    def _next_best(self, allowed_nv: np.ndarray) -> list[tuple[int, int]]:
        """The best extensions of the step, about as many lost ones as kept ones."""
        count = min(2 * self.algorithm.beam, allowed_nv.size)
        flat = np.argpartition(-allowed_nv, count - 1, axis=None)[:count]
        places = zip(*np.unravel_index(flat, allowed_nv.shape), strict=True)
        return [place for place in places if allowed_nv[place] > -np.inf]

    def _lose(self, loser: _Extension, worst: _Extension, rank: int) -> None:
        """Inserts an extension that got no place, with the reason."""
        node = self._insert(loser, None, rank)
        node.by, node.margin = worst.tokens, worst.log_prob - loser.log_prob
        piece, winner = self._piece(loser.tokens), self._piece(worst.tokens)
        places = f"{self.algorithm.beam} place{'s' * (self.algorithm.beam > 1)}"
        if self.required_phrases and node.margin < -ROUNDING:
            node.fate = "phrase"
            node.why = (
                f"With {piece} it ranked {rank} for {places}, {-node.margin:.3f} above "
                f"the hypothesis with {winner}. Required phrases divide the places "
                "among hypotheses that lack more of them and less."
            )
            return
        node.fate, node.margin = "outranked", max(0.0, node.margin)
        node.why = (
            f"With {piece} it ranked {rank} for {places}: {node.margin:.3f} below "
            f"the last one kept, which ends in {winner} ({signed(worst.log_prob)})."
        )

    def _forbid(self, tokens: Tokens, refused: _Extension) -> None:
        """Settles that a constraint refused the extension `refused`."""
        node, piece = self.nodes[tokens], self._piece(refused.tokens)
        node.fate = "forbidden"
        node.why = f"A constraint refuses {piece} here ({signed(refused.log_prob)})."
        if refused.tokens[-1] in self.algorithm.banned:
            node.why = (
                f"The search never generates {piece} ({signed(refused.log_prob)})."
            )

    def _copy_fate(self, child: Tokens, parent: Tokens) -> None:
        """A hypothesis without a place dies as its best extension does."""
        node, best = self.nodes[parent], self.nodes[child]
        node.fate, node.by, node.margin = best.fate, best.by, best.margin
        node.why = f"Its best continuation got no place. {best.why}"

    def _follow_reference(self, step, alive, survivors, worst, allowed_nv) -> None:
        """Notes the step at which the reference leaves the beam."""
        reference = self.reference
        if reference is None or reference.step is not None:
            return
        tokens = reference.tokens[: step.position + 1]
        parent = alive.get(tokens[:-1])
        if len(tokens) <= step.position or parent is None:
            return  # it has ended
        if tokens in {extended.tokens for extended in survivors}:
            return
        log_prob = float(step.log_prob_nv[parent, tokens[-1]])
        rank = _rank(step.log_prob_nv, allowed_nv, parent, tokens[-1])
        extended = _Extension(tokens, log_prob)
        if step.allowed_nv[parent, tokens[-1]]:
            self._lose(extended, worst, rank)
        else:
            self._insert(extended, None, None)
            self._forbid(tokens, extended)
        reference.step, reference.rank = len(tokens), self.nodes[tokens].rank
        reference.margin = self.nodes[tokens].margin

    def tree(self) -> BeamTree:
        """Settles what is still open after the last step, and returns the tree."""
        step = self.last
        length = step.position + 1
        stop = Stop(length, self._reason_to_stop(step))
        results = [tokens for tokens, _ in _finished(step.result)]
        finished = [self.nodes[tokens] for tokens in results if tokens in self.nodes]
        for node in self.nodes.values():
            if node.row is not None and node.tokens[-1:] == (self.algorithm.eos,):
                self._settle_ended(node, results, finished)
            if len(node.tokens) == length and node.fate == "alive":
                node.fate = "limit" if length >= self.limit else "stopped"
                node.why = stop.why
        return BeamTree(
            self.algorithm,
            self.limit,
            self.nodes,
            step.result,
            results,
            stop,
            self.reference,
        )

    def _settle_ended(self, node: Node, results: list[Tokens], finished: list[Node]):
        if node.tokens in results:
            node.fate = "ended"
            number = results.index(node.tokens) + 1
            node.why = f"Complete, and number {number} of {len(results)} in the result."
            return
        worst = finished[-1]
        count = len(finished)
        kept = f"the worst of the {count} kept" if count > 1 else "the one kept"
        node.fate, node.by = "lost", worst.tokens
        node.margin = max(0.0, worst.score - node.score)
        node.why = (
            f"Complete with a score of {signed(node.score)}, {node.margin:.3f} below "
            f"{kept} ({signed(worst.score)})."
        )

    def _reason_to_stop(self, step: TracedStep) -> str:
        length, finished = step.position + 1, step.after.finished
        alive_n = step.after.log_prob_n
        count = int(np.sum(finished.ended_bn))
        if not (alive_n > -np.inf).any():
            return "No hypothesis is alive any more: all have ended or were refused."
        if length >= self.limit:
            return f"The longest length, {self.limit} tokens, is reached."
        if self.algorithm.stop == "first" and count == self.algorithm.nbest:
            return f"The first {count} complete hypotheses end the search (stop=first)."
        bound = float(alive_n.max() * self.inverse_t[self.limit])
        alive, worst = signed(alive_n.max()), signed(finished.score_bn[-1])
        return (
            f"Nothing better is possible: the best unfinished hypothesis "
            f"(log-probability {alive}) would score {signed(bound)} if it reached "
            f"{self.limit} tokens at no further cost, and the "
            f"{'worst' if count > 1 else 'one'} kept has {worst}."
        )

    def _piece(self, tokens: Tokens) -> str:
        return f"“{self.vocabulary.piece(tokens[-1])}”"


def _rank(log_prob_nv: np.ndarray, allowed_nv: np.ndarray, row: int, token: int) -> int:
    """The rank of an extension among those that are allowed, from 1.

    All numbers are of one program: another one's may differ in the last bits. Ties rank
    by row, then by token, as in the search.
    """
    log_prob = log_prob_nv[row, token]
    preceding = allowed_nv.ravel()[: row * allowed_nv.shape[1] + token]
    return 1 + int((allowed_nv > log_prob).sum() + (preceding == log_prob).sum())


def _finished(hypotheses: Hypotheses) -> list[tuple[Tokens, float]]:
    """The tokens and log-probability of each hypothesis of a list, best first."""
    columns = hypotheses.tokens_bnt, hypotheses.length_bn, hypotheses.log_prob_bn
    return [
        (tuple(tokens_t[:length].tolist()), float(log_prob))
        for tokens_t, length, log_prob in zip(*columns, strict=True)
        if length and np.isfinite(log_prob)
    ]
