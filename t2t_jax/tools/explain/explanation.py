"""`Explanation`: what a model says of some sentences, as arrays and as a page.

Shape suffixes: s source, t target.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from t2t_jax.decoding.results import AttentionMaps, Hypothesis
from t2t_jax.io.atomic import keep_earlier, write_atomically
from t2t_jax.io.errors import UserError
from t2t_jax.text.words import TokenWords
from t2t_jax.tools.explain.attention_summary import HeadSummary, Rollout
from t2t_jax.tools.explain.attribution import Attribution
from t2t_jax.tools.explain.beam_tree import BeamTree, Tokens
from t2t_jax.tools.explain.distribution import Distribution, Lens
from t2t_jax.tools.explain.words import Coverage
from t2t_jax.tools.pages.page import Payload, frame, page


class Missing(NamedTuple):
    """A part that a model does not have: the reason, a sentence."""

    why: str


class Difference(NamedTuple):
    """The first token at which a reading differs from the other one of its sentence.

    Attributes:
      position: its place in the target, from 0.
      rival: the other reading's token there.
    """

    position: int
    rival: int


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


class Contrast(NamedTuple):
    """Attributions of tokens, and of their margin over others.

    Attributes:
      said: attributions of the tokens of a reading.
      rivals: for each of them, a token that might have been said instead.
      contrast: attributions of log p(token) - log p(rival).
    """

    said: Attribution
    rivals: tuple[int, ...]
    contrast: Attribution


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """A target of a sentence, as the model reads it token by token.

    Attributes:
      name: `translation`, found by the search, or `target`, which was given.
      hypothesis: its text, tokens, log-probability and score.
      pieces: readable, `</s>` last if it ended.
      distribution: the probability of each token, and what else was probable.
      continuations: what the search says after other subwords.
      maps: all attention weights.
      heads: for `encoder`, `decoder` and `cross`: entropy and place of each head.
      lens: what each decoder layer would predict.
      attribution: the effect of each token read on each token said.
    """

    name: str
    hypothesis: Hypothesis
    pieces: tuple[str, ...]
    words: TokenWords
    distribution: Distribution
    continuations: tuple[Continuation, ...]
    difference: Difference | None
    maps: AttentionMaps | Missing
    heads: dict[str, HeadSummary]
    rollout: Rollout | Missing
    coverage: Coverage | Missing
    lens: Lens | Missing
    attribution: Contrast | Missing


@dataclasses.dataclass(frozen=True, eq=False)
class ExplainedSentence:
    """A line and what a model makes of it.

    Attributes:
      source: the line.
      pieces: its tokens, `</s>` last.
      cut: the number of tokens at its end that are not translated.
      tree: of the search.
      readings: the translation, then the given target, if there is one.
      reference_score: the target's score in the terms of the search; None without one.
    """

    source: str
    pieces: tuple[str, ...]
    words: TokenWords
    cut: int
    tree: BeamTree
    readings: tuple[Reading, ...]
    reference_score: float | None

    @property
    def translation(self) -> Reading:
        """The reading of the search's translation."""
        return self.readings[0]


@dataclasses.dataclass(frozen=True, eq=False)
class ExplainedModel:
    """A translator's explanations.

    Attributes:
      direction: source and target language.
      passport: (name, value) rows: everything that the explanations depend on.
      piece_of: the readable token of each token id of the target.
    """

    name: str
    kind: str
    direction: tuple[str, str]
    passport: tuple[tuple[str, str], ...]
    piece_of: tuple[str, ...] = dataclasses.field(repr=False)
    sentences: tuple[ExplainedSentence, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Explanation:
    """Explained translations; shown as a page in a notebook.

    Attributes:
      models: one, or two side by side, with the same sentences.
    """

    models: tuple[ExplainedModel, ...]

    @property
    def sentences(self) -> tuple[ExplainedSentence, ...]:
        """The sentences of the first model."""
        return self.models[0].sentences

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The readings of the first sentence."""
        return self.sentences[0].readings

    def __repr__(self) -> str:
        names = " beside ".join(model.name for model in self.models)
        count = len(self.sentences)
        return f"Explanation({names}, {count} sentence{'s' * (count > 1)})"

    def beside(self, other: "Explanation") -> "Explanation":
        """Returns both models' explanations of the same sentences, side by side.

        Raises:
          UserError: the sentences differ, or there would be more than two models.
        """
        lines = [[s.source for s in each.sentences] for each in (self, other)]
        if lines[0] != lines[1]:
            raise UserError(
                "the explanations are of different sentences; explain the same lines "
                "with both translators"
            )
        models = self.models + other.models
        if len(models) > 2:
            raise UserError(f"got {len(models)} models; want two side by side")
        return Explanation(models)

    def with_passport(self, rows: Sequence[tuple[str, str]]) -> "Explanation":
        """Returns the same with further (name, value) rows in each passport."""
        models = (
            dataclasses.replace(model, passport=(*model.passport, *rows))
            for model in self.models
        )
        return Explanation(tuple(models))

    def verdicts(self) -> str:
        """Formats for a terminal where each translation and its target part."""
        by_model = ([_verdict(m, s) for s in m.sentences] for m in self.models)
        return "\n".join(itertools.chain(*zip(*by_model, strict=True)))

    def html(self, title: str | None = None) -> str:
        """Returns a self-contained page: HTML that loads nothing."""
        return page(to_payload(self, title))

    def save(self, path: epath.PathLike, title: str | None = None) -> None:
        """Writes the page to a file; one that is there already is kept as NAME.1."""
        content = self.html(title).encode()
        keep_earlier(path)
        write_atomically(path, content)

    def _repr_html_(self) -> str:
        return frame(self.html(), repr(self))


SHOWN = 4  # rivals of a token, and source tokens that it attends to


def _verdict(model: ExplainedModel, sentence: ExplainedSentence) -> str:
    """The first token that differs from the target; without one, the least probable."""
    reading, target = sentence.translation, sentence.readings[-1]
    distribution, difference = reading.distribution, reading.difference
    lines = [sentence.source, f"  {model.name}: {reading.hypothesis.text}"]
    if (reference := sentence.tree.reference) is not None:
        verdict = f"{reference.verdict}: {reference.why}"
        lines += [f"  target: {target.hypothesis.text}", f"  {verdict}"]
    t, name = int(distribution.log_probs.argmin()), "least probable"
    if difference is not None:
        t, name = difference.position, "first difference"
    place = f"{name}: token {t + 1}"
    for side in (reading, target)[: 1 + (difference is not None)]:
        p, rank = np.exp(side.distribution.log_probs[t]), side.distribution.rank[t]
        place += f"; {side.name} “{side.pieces[t]}” {p:.2f}, rank {rank}"

    def best(names: Sequence[str], weights: np.ndarray) -> str:
        order = np.argsort(-weights, kind="stable")[:SHOWN]
        return ", ".join(f"“{names[n]}” {weights[n]:.2f}" for n in order)

    rivals = [model.piece_of[n] for n in distribution.top_ids[t]]
    probable = best(rivals, np.exp(distribution.top_log_probs[t]))
    lines += [f"  {place}", f"  most probable there: {probable}"]
    if not isinstance(reading.coverage, Missing):
        layer = reading.coverage.layer
        tokens = best(sentence.pieces, reading.maps.cross[layer, :, t].mean(axis=0))
        lines += [f"  most attention there (layer {layer + 1}): {tokens}"]
    return "\n".join(lines)


# --------------------------------------------------------------------------------- page
# The document and the arrays of a page. The document's keys are the contract with the
# modules of `pages/page/`; each function below makes one part of it. Arrays become
# references to compressed blobs (`Payload`).

VERSION = 1
WEIGHT = 1 / 255  # one step of a weight, from 0 to 1
LONGEST_TITLE = 60  # characters of a sentence that names the page


def to_payload(explanation: Explanation, title: str | None = None) -> Payload:
    """Returns the payload of the page; the title is by default the first sentence."""
    payload = Payload()
    models = explanation.models
    line = explanation.sentences[0].source.strip()
    short = line if len(line) <= LONGEST_TITLE else f"{line[:LONGEST_TITLE]}…"
    if others := len(explanation.sentences) - 1:
        short += f" and {others} more sentence{'s' * (others > 1)}"
    payload.content |= {
        "version": VERSION,
        "title": short if title is None else title,
        "models": [
            _fields(model, "name", "kind", "direction", "passport") for model in models
        ],
        "sentences": [
            {
                "source": by_model[0].source,
                "of": [
                    _entry(payload, model, sentence)
                    for model, sentence in zip(models, by_model, strict=True)
                ],
            }
            for by_model in zip(*(m.sentences for m in models), strict=True)
        ],
    }
    return payload


def _fields(part: Any, *names: str) -> dict[str, Any]:
    """Some attributes of a part, as they are."""
    return {name: getattr(part, name) for name in names}


def _entry(
    payload: Payload, model: ExplainedModel, sentence: ExplainedSentence
) -> dict[str, Any]:
    """A sentence of one model."""
    return {
        "source": sentence.pieces,
        "source_words": sentence.words.of_token,
        "source_word_texts": sentence.words.texts,
        "cut": sentence.cut,
        "search": _search(sentence, model.piece_of),
        "readings": [
            _reading(payload, reading, model.piece_of) for reading in sentence.readings
        ],
    }


def _search(sentence: ExplainedSentence, piece_of: Sequence[str]) -> dict[str, Any]:
    """The beam tree, its nodes numbered in their order."""
    tree = sentence.tree
    number = {tokens: n for n, tokens in enumerate(tree.nodes)}
    best = _path_nodes(tree.finished[0] if tree.finished else (), number)
    reference, path = None, []
    if tree.reference is not None:
        path = _path_nodes(tree.reference.tokens, number)
        nodes = [*tree.nodes.values()]
        reference = _reference(sentence, [n for n in path if nodes[n].row is not None])
    on_best, on_path = {*best}, {*path}
    return {
        **_fields(tree.algorithm, "beam", "nbest", "alpha", "penalty", "stop"),
        "limit": tree.limit,
        "steps": tree.stop.step,
        "nodes": [
            {
                "parent": number[node.tokens[:-1]] if node.tokens else -1,
                "step": len(node.tokens),
                "row": node.row,
                "piece": piece_of[node.tokens[-1]] if node.tokens else "",
                **_fields(node, "log_prob", "score", "fate"),
                "by": None if node.by is None else number[node.by],
                **_fields(node, "margin", "rank", "why"),
                "flags": "b" * (n in on_best) + "r" * (n in on_path),
            }
            for n, node in enumerate(tree.nodes.values())
        ],
        "finished": [number[tokens] for tokens in tree.finished],
        "stopped": tree.stop._asdict(),
        "best": best,
        "reference": reference,
    }


def _path_nodes(tokens: Tokens, number: dict[Tokens, int]) -> list[int]:
    """The nodes from the root towards a hypothesis, as far as there are any."""
    beginnings = (tokens[:length] for length in range(len(tokens) + 1))
    return [number[prefix] for prefix in beginnings if prefix in number]


def _reference(sentence: ExplainedSentence, nodes: list[int]) -> dict[str, Any]:
    reference, target = sentence.tree.reference, sentence.readings[-1].hypothesis
    return {
        "text": target.text,
        "nodes": nodes,
        **_fields(reference, "step", "rank", "margin"),
        "log_prob": target.log_prob,
        "score": sentence.reference_score,
        "best_score": sentence.translation.hypothesis.score,
        **_fields(reference, "verdict", "why"),
    }


def _reading(
    payload: Payload, reading: Reading, piece_of: Sequence[str]
) -> dict[str, Any]:
    hypothesis, distribution = reading.hypothesis, reading.distribution
    return {
        "name": reading.name,
        "text": hypothesis.text,
        "pieces": reading.pieces,
        "words": reading.words.of_token,
        "word_texts": reading.words.texts,
        **_fields(hypothesis, "ended", "log_prob", "score"),
        **_fields(distribution, "log_probs", "entropy", "rank"),
        "alternatives": _alternatives(reading, piece_of),
        "continuations": [
            {
                "position": continuation.position,
                "piece": piece_of[continuation.token],
                "text": continuation.found.text,
                "pieces": [piece_of[i] for i in continuation.found.tokens],
                **_fields(continuation.found, "log_prob", "score", "ended"),
            }
            for continuation in reading.continuations
        ],
        "difference": None
        if reading.difference is None
        else {
            "position": reading.difference.position,
            "piece": reading.pieces[reading.difference.position],
            "rival": piece_of[reading.difference.rival],
        },
        "attention": _attention(payload, reading),
        "rollout": _part(_rollout, payload, reading.rollout, piece_of),
        "alignment": _part(_alignment, payload, reading.coverage, piece_of),
        "lens": _part(_lens, payload, reading.lens, piece_of),
        "attribution": _part(_attribution, payload, reading.attribution, piece_of),
    }


def _part(
    describe: Callable[..., dict], payload: Payload, part: Any, piece_of: Sequence[str]
) -> dict[str, Any]:
    """Describes a part, or gives the reason why the model has none."""
    if isinstance(part, Missing):
        return {"missing": part.why}
    return describe(payload, part, piece_of)


def _alternatives(reading: Reading, piece_of: Sequence[str]) -> list[list[list]]:
    """Lists for each token its rivals: token, log-probability, continuation."""
    places = {
        (continuation.position, continuation.token): n
        for n, continuation in enumerate(reading.continuations)
    }
    distribution = reading.distribution
    rows = zip(distribution.top_ids, distribution.top_log_probs, strict=True)
    return [
        [
            [piece_of[token], log_prob, places.get((t, int(token)))]
            for token, log_prob in zip(ids, log_probs, strict=True)
            if np.isfinite(log_prob)
        ]
        for t, (ids, log_probs) in enumerate(rows)
    ]


def _attention(payload: Payload, reading: Reading) -> dict[str, Any]:
    if isinstance(reading.maps, Missing):
        return {name: {"missing": reading.maps.why} for name in _SIDES}
    content = {}
    for name, described in _SIDES.items():
        weights = getattr(reading.maps, name)
        content[name] = {"missing": f"This model has no {described}."}
        if len(weights):
            content[name] = reading.heads[name]._asdict()
            content[name]["weights"] = payload.add(weights, scale=WEIGHT)
    return content


_SIDES = {
    "encoder": "attention within the source",
    "decoder": "attention within the target",
    "cross": "attention from the target to the source",
}


def _rollout(payload: Payload, rollout, piece_of) -> dict[str, Any]:
    sides = rollout._asdict().items()
    return {name: payload.add(weights, scale=WEIGHT) for name, weights in sides}


def _alignment(payload: Payload, coverage, piece_of) -> dict[str, Any]:
    weights = payload.add(coverage.weights, scale=WEIGHT)
    return coverage._asdict() | {"weights": weights}


def _lens(payload: Payload, lens, piece_of) -> dict[str, Any]:
    return {
        "names": [f"layer {n}" for n in range(1, len(lens.probs) + 1)],
        "top": [
            [
                [[piece_of[token], p] for token, p in zip(*best, strict=True)]
                for best in zip(*layer, strict=True)
            ]
            for layer in zip(lens.top_ids, lens.top_probs, strict=True)
        ],
        "probability": lens.probs,
        "rank": lens.rank,
    }


def _attribution(payload: Payload, attribution, piece_of) -> dict[str, Any]:
    def add(values: np.ndarray) -> dict[str, Any]:
        return payload.add(values, signed=True, by_row=True)

    chosen, contrast = attribution.said, attribution.contrast
    return {
        "positions": chosen.positions,
        "source": add(chosen.source),
        "target": add(chosen.target),
        "totals": chosen.source.sum(1) + chosen.target.sum(1),
        "rivals": [piece_of[token] for token in attribution.rivals],
        "source_contrast": add(contrast.source),
        "target_contrast": add(contrast.target),
    }
