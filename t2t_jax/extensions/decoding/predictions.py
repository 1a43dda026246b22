"""Predictions of models without a decoder: labels of sentences, hidden tokens.

Shape suffixes: b batch rows, t tokens, c choices, v vocabulary.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.data.filling import ragged
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import programs
from t2t_jax.decoding.inputs import InputReader, Member, Source
from t2t_jax.decoding.programs import forced_logits, program
from t2t_jax.decoding.results import Hypothesis, Prediction
from t2t_jax.decoding.scoring import Pairs, for_each_pair
from t2t_jax.extensions.data.noise import MASK, Masking, PieceTable
from t2t_jax.io.errors import UserError


def classify(
    vocabulary: Vocabulary, members: Sequence[Member], sources: Sequence[Source]
) -> list[Prediction]:
    """Computes the probability of each label of each sentence.

    Args:
      members: an ensemble predicts with the mean of their probabilities.
      sources: one without tokens is read as an end of sentence alone.
    """
    check_predicts(members, "label", "labels", "classification")
    # Any label serves as the target: the outputs at its place do not depend on it.
    pairs = [(source.ids or [vocabulary.source.eos], [0]) for source in sources]
    probabilities = for_each_pair(
        "probabilities",
        programs.label_log_probs,
        vocabulary,
        members,
        pairs,
        lambda row, log_prob_v: np.exp(log_prob_v.astype(np.float64)).tolist(),
    )
    labels = [vocabulary.piece(token) for token in range(len(vocabulary))]
    return [
        Prediction(labels[int(np.argmax(p))], dict(zip(labels, p, strict=True)))
        for p in probabilities
    ]


def check_predicts(members: Sequence[Member], kind: str, name: str, task: str) -> None:
    """Raises UserError if a model predicts something else."""
    for member in members:
        if member.model.predicts != kind:
            raise UserError(
                f"config.model.kind={member.config.model.kind!r} does not predict "
                f"{name}; load the workdir of a run of config.task.kind={task!r}"
            )


# -------------------------------------------- hidden tokens, by a masked language model


# The tokens among which the most probable one is looked for: all; those that begin a
# word; those that continue one.
ANY, BEGINS, CONTINUES = range(3)


class PlacePrediction(NamedTuple):
    """A model's prediction at one position."""

    # The most probable tokens, of `ANY`, `BEGINS` and `CONTINUES`.
    tokens: tuple[int, int, int]
    log_probs: tuple[float, float, float]
    log_prob: float  # that of the token that was hidden


class RestoredToken(NamedTuple):
    """A hidden token of a line, and the most probable one in its place."""

    hidden: str
    predicted: str
    probability: float  # of `predicted`
    log_prob: float  # of `hidden`


class Filled(NamedTuple):
    """A line with its masks filled in; `str(filled)` is its text.

    Attributes:
      text: the line.
      pieces: the token in each mask, without the space before a word.
      probabilities: theirs, each as if the other masks were still there.
    """

    text: str
    pieces: tuple[str, ...]
    probabilities: tuple[float, ...]

    def __str__(self) -> str:
        return self.text

    def hypothesis(self) -> Hypothesis:
        """The line as a hypothesis; its score is the product of the probabilities."""
        probability = math.prod(self.probabilities)
        log_prob = math.log(probability) if probability else -math.inf
        return Hypothesis(self.text, probability, log_prob, ended=True)


def fill(
    vocabulary: Vocabulary,
    members: Sequence[Member],
    lines: Sequence[str],
    reader: InputReader,
) -> list[Filled]:
    """Fills the masks of lines with the most probable tokens.

    A mask after a space, or at the beginning of the line, becomes a token that begins a
    word; any other mask continues the word before it.

    Args:
      members: an ensemble predicts with the mean of their probabilities.
      reader: encodes the lines. What it cuts off at their end stays unfilled.
    """
    check_predicts(members, "source", "hidden tokens", "masked_language_model")
    unmasked = [row for row, line in enumerate(lines) if MASK not in line]
    problem = f"no {MASK}: there is nothing to fill in"
    reader.warn(unmasked, len(lines), f" has {problem}", f"lines have {problem}")
    mask, rows, places, choices = vocabulary.id_of(MASK), [], [], []
    for source in reader.sources(lines):
        ids, line_places, choice = [], [], []
        for token in source.ids:
            if token == mask:
                # In training, the space before a word was hidden with its first token.
                spaced = bool(ids) and vocabulary.spelling(ids[-1]) == " "
                ids = ids[:-1] if spaced else ids
                choice.append(BEGINS if spaced else CONTINUES)
                line_places.append(len(ids))
            ids.append(token)
        rows.append((ids, ids))
        places.append(line_places)
        choices.append(choice)
    predictions = _predict(vocabulary, members, rows, places)
    return [
        _filled(vocabulary, line, line_predictions, choice)
        for line, line_predictions, choice in zip(
            lines, predictions, choices, strict=True
        )
    ]


def _filled(
    vocabulary, line: str, predictions: Sequence[PlacePrediction], choices
) -> Filled:
    best = [
        (p.tokens[choice], float(np.exp(p.log_probs[choice])))
        for p, choice in zip(predictions, choices, strict=True)
    ]
    pieces = tuple(str(vocabulary.spelling(token)).strip() for token, _ in best)
    parts = line.split(MASK)
    # Masks beyond the longest source are not filled.
    fillings = [*pieces, *[MASK] * (len(parts) - 1 - len(pieces)), ""]
    text = "".join(part + piece for part, piece in zip(parts, fillings, strict=True))
    return Filled(text, pieces, tuple(p for _, p in best))


def restore(
    vocabulary: Vocabulary,
    members: Sequence[Member],
    lines: Sequence[str],
    masking: Masking,
    warn: bool = True,
) -> list[list[RestoredToken]]:
    """Hides tokens of lines and predicts them; returns those of each line."""
    check_predicts(members, "source", "hidden tokens", "masked_language_model")
    sources = InputReader(vocabulary, members, warn=warn).sources(lines)
    sentences = ragged([source.ids for source in sources])
    every_p = np.arange(len(sources))
    masked_ids, hidden = masking.masked(sentences, every_p, seed=0, epoch=0)
    cuts = sentences.offsets[1:-1]
    rows = [
        (read.tolist(), source.ids)
        for read, source in zip(np.split(masked_ids, cuts), sources, strict=True)
    ]
    places = [np.flatnonzero(row).tolist() for row in np.split(hidden, cuts)]
    predicted = _predict(vocabulary, members, rows, places)
    piece = vocabulary.piece
    return [
        [
            RestoredToken(
                piece(ids[place]),
                piece(p.tokens[ANY]),
                float(np.exp(p.log_probs[ANY])),
                p.log_prob,
            )
            for place, p in zip(row_places, predictions, strict=True)
        ]
        for (_, ids), row_places, predictions in zip(
            rows, places, predicted, strict=True
        )
    ]


def _predict(
    vocabulary: Vocabulary,
    members: Sequence[Member],
    rows: Pairs,
    places: Sequence[Sequence[int]],
) -> list[list[PlacePrediction]]:
    """Predicts tokens of each row at some places.

    Args:
      rows: what the model reads, and the tokens that it reports the probability of.
    """
    table = PieceTable.from_vocabulary(vocabulary)
    spaced_v, ordinary_v = table.spaced_v, table.ordinary_v
    choices_cv = np.stack(
        [np.ones_like(ordinary_v), spaced_v & ordinary_v, ~spaced_v & ordinary_v]
    )
    results = for_each_pair(
        "predictions",
        _best_pieces,
        vocabulary,
        members,
        rows,
        lambda row, outputs: [array[list(places[row])].tolist() for array in outputs],
        choices_cv,
    )
    return [
        # An empty line has no outputs.
        [PlacePrediction(tuple(a), tuple(b), c) for a, b, c in zip(*x, strict=True)]
        for x in (outputs or () for outputs in results)
    ]


@program("definitions", common=2)
def _best_pieces(
    parameters, choices_cv: Array, batch: dict[str, Array], *, definitions
) -> tuple[Array, Array, Array]:
    """Finds the most probable tokens at each place, of each choice.

    Returns:
      Their ids and log-probabilities [b, t, c], and the log-probabilities [b, t] of
      `batch["target"]`.
    """
    log_probs_btv = jax.nn.log_softmax(forced_logits(definitions, parameters, batch))
    best_btc = jnp.stack(
        [
            jnp.where(choice_v, log_probs_btv, -jnp.inf).argmax(2)
            for choice_v in choices_cv
        ],
        axis=2,
    )
    target_bt1 = batch["target"][..., None]
    best_log_probs_btc, target_log_probs_bt1 = (
        jnp.take_along_axis(log_probs_btv, ids, axis=2)
        for ids in (best_btc, target_bt1)
    )
    return best_btc, best_log_probs_btc, target_log_probs_bt1[..., 0]
