"""Scores of given targets by teacher forcing: log-probabilities and confidence.

Texts that are longer than a model's rows are scored through a window that slides along
them: each token is predicted once, from the earlier tokens of the window that first
contains it.

Confidence in a translation needs no reference, and is higher if the model is more sure.
All measures score the translation by teacher forcing, as in Fomicheva et al. 2020
("Unsupervised Quality Estimation for Neural Machine Translation", section 3), with the
opposite sign where theirs grow with uncertainty. docs/results/decoding.md compares
them with chrF. A number depends on the line, its translation, the model and the options
alone.

Shape suffixes: b batch rows, s source, t target.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import programs
from t2t_jax.decoding.batches import Group, compute_blocks, gather_results, pad_rows
from t2t_jax.decoding.inputs import Member
from t2t_jax.decoding.results import Score
from t2t_jax.io.errors import UserError
from t2t_jax.model.transformer import teacher_forcing
from t2t_jax.search.algorithm import PENALTIES
from t2t_jax.sections import checked_options, field, parse_variant

# (source ids, target ids) of each pair, both with EOS.
Pairs = Sequence[tuple[list[int], list[int]]]


def token_log_probs(
    vocabulary: Vocabulary, members: Sequence[Member], pairs: Pairs
) -> list[list[float]]:
    """Computes the log-probability of each token of each target.

    Args:
      members: an ensemble predicts with the mean of their probabilities.
    """
    return for_each_pair(
        "log-probabilities",
        programs.target_log_probs,
        vocabulary,
        members,
        pairs,
        lambda row, log_prob_t: log_prob_t[: len(pairs[row][1])].tolist(),
    )


def scores(
    vocabulary: Vocabulary,
    pairs: Pairs,
    log_probs: Sequence[Sequence[float]],
    alpha: float,
    penalty: str,
) -> list[Score]:
    """Returns the scores of targets, from the log-probabilities of their tokens."""
    target_scores = []
    for (_, ids), token_log_probs_t in zip(pairs, log_probs, strict=True):
        score = sum(token_log_probs_t) / PENALTIES[penalty](len(ids), alpha)
        names = piece_names(vocabulary, ids)
        target_scores.append(Score(names, tuple(token_log_probs_t), score))
    return target_scores


def for_each_pair(
    what: str,
    program: Callable,
    vocabulary: Vocabulary,
    members: Sequence[Member],
    pairs: Pairs,
    read: Callable[[int, Any], Any],
    *common: Any,
) -> list:
    """Runs a program of an ensemble on all pairs; returns the results in order.

    Args:
      what: names the results, for the exchange between processes.
      read: (number of a pair, its row of the outputs) -> its result, for JSON.
      common: arguments of the program between the parameters and the batch.

    Returns:
      The result of each pair; None for a pair without tokens.
    """
    computed = run_batches(program, vocabulary, members, pairs, True, *common)
    results = gather_results(what, {row: read(row, x) for row, x in computed})
    return [results.get(row) for row in range(len(pairs))]


def run_batches(
    program: Callable,
    vocabulary: Vocabulary,
    members: Sequence[Member],
    pairs: Pairs,
    divided: bool,
    *common: Any,
) -> Iterator[tuple[int, Any]]:
    """Yields the number of each pair, and its row of what a program returns.

    Pairs of similar length are batched; the shape depends on the length alone.
    `divided` is as for `batches.compute_blocks`, `common` as for `for_each_pair`.
    """
    decode, mesh = members[0].config.decode, members[0].mesh
    compute = partial(
        program,
        tuple(member.parameters for member in members),
        *common,
        definitions=tuple(member.model.definition for member in members),
        mesh=mesh,
    )
    limits = [m.model.longest for m in members if m.model.longest is not None]

    def make(group: Group) -> dict[str, np.ndarray]:
        rows, bucket = group.shape
        # A bucket may exceed a model's longest row, though its sentences do not.
        shape = rows, min([bucket, *limits])
        position = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
        batch = {}
        for i, side in enumerate(("source", "target")):
            ids = [pairs[row][i] for row in group.lines]
            batch[side], batch[f"{side}_segment"] = pad_rows(ids, *shape)
            batch[f"{side}_position"] = position
        return teacher_forcing(batch, vocabulary.bos)

    lengths = [max(map(len, pair)) for pair in pairs]
    for rows, outputs in compute_blocks(make, compute, lengths, decode, mesh, divided):
        for place, row in enumerate(rows):
            yield row, jax.tree.map(lambda leaf: leaf[place], outputs)  # noqa: B023


def piece_names(vocabulary: Vocabulary, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(vocabulary.piece(i) for i in ids)


# -------------------------------------------------------------- texts longer than a row


class Window(NamedTuple):
    """The tokens from `begin` to `end`, of which those from `first` on are counted."""

    begin: int
    first: int
    end: int


def windows(pieces: int, window: int, stride: int) -> list[Window]:
    """Returns the windows of a text; they count each token once, in order.

    Every token after the first window has at least `window - stride` tokens before it
    in its window; with stride = window, windows do not overlap.

    Args:
      pieces: the length of the text, with EOS.
      window: the most tokens that the model reads at a time.
      stride: tokens from the begin of a window to that of the next.
    """
    all_windows = [Window(0, 0, min(window, pieces))]
    while (counted := all_windows[-1].end) < pieces:
        begin = all_windows[-1].begin + stride
        all_windows.append(Window(begin, counted, min(begin + window, pieces)))
    return all_windows


def log_probs(
    vocabulary: Vocabulary,
    members: Sequence[Member],
    texts: Sequence[Sequence[int]],
    window: int,
    stride: int,
) -> list[list[float]]:
    """Computes the log-probability of each token of each text.

    Args:
      members: language models; an ensemble predicts with the mean of their
        probabilities.
    """
    longest = min((m.model.longest for m in members if m.model.longest), default=window)
    if window > longest:
        raise UserError(
            f"window={window}, but config.model.max_positions={longest}; want a window "
            f"of at most {longest} tokens"
        )
    if not 1 <= stride <= window:
        raise UserError(f"stride={stride} with window={window}; want 1 <= stride <= it")
    text_windows = [windows(len(ids), window, stride) for ids in texts]
    parts = [
        ([], [*ids[w.begin : w.end]])
        for ids, windows_ in zip(texts, text_windows, strict=True)
        for w in windows_
    ]
    part_log_probs = iter(token_log_probs(vocabulary, members, parts))
    return [
        [x for w in windows_ for x in next(part_log_probs)[w.first - w.begin :]]
        for windows_ in text_windows
    ]


# --------------------------------------------------------------------------- confidence


@dataclasses.dataclass(frozen=True)
class ConfidenceOptions:
    """Options of the measures that drop out."""

    # Passes with dropout, over which means and variances are taken.
    passes: int = field(10, low=2)
    # Seed of dropout.
    seed: int = field(0, low=0, below=1 << 32)


class Scorer(NamedTuple):
    """The models that score, and the options."""

    vocabulary: Vocabulary
    members: Sequence[Member]
    options: ConfidenceOptions = ConfidenceOptions()


def mean_log_prob(scorer: Scorer, pairs: Pairs) -> list[float]:
    """The mean log-probability of the tokens, in nats; at most 0 (their TP)."""
    return _means(scorer, pairs, programs.target_log_probs)


def negative_entropy(scorer: Scorer, pairs: Pairs) -> list[float]:
    """Minus the mean entropy of the distribution of each token, in nats."""
    means = _means(scorer, pairs, programs.target_entropies)
    return [-mean for mean in means]


def dropout_mean(scorer: Scorer, pairs: Pairs) -> list[float]:
    """The mean of `mean_log_prob` over passes with dropout (their D-TP)."""
    return np.mean(_dropout_passes(scorer, pairs), axis=0).tolist()


def dropout_variance(scorer: Scorer, pairs: Pairs) -> list[float]:
    """Minus the variance of `mean_log_prob` over passes with dropout (their D-Var)."""
    return (-np.var(_dropout_passes(scorer, pairs), axis=0)).tolist()


# Name in --confidence -> (scorer, pairs of ids) -> a number for each pair.
CONFIDENCES: dict[str, Callable[[Scorer, Pairs], list[float]]] = {
    "log_prob": mean_log_prob,
    "entropy": negative_entropy,
    "dropout_mean": dropout_mean,
    "dropout_variance": dropout_variance,
}
# Those that drop out, with their options.
DROPPING = dict.fromkeys(("dropout_mean", "dropout_variance"), ConfidenceOptions)


def parse_confidence(text: str) -> tuple[str, ConfidenceOptions]:
    """Parses `"dropout_mean:passes=20,seed=1"` into the measure and its options."""
    kinds = {name: DROPPING.get(name) for name in CONFIDENCES}
    name, options = parse_variant("--confidence", text, kinds)
    options = checked_options(ConfidenceOptions, options, f"--confidence={name}:")
    return name, ConfidenceOptions(**options)


def document_confidence(
    confidences: Sequence[float], measure: str = "log_prob"
) -> tuple[float, float]:
    """The confidence in a document, and half of its 95% interval; NaN if unknown.

    The mean over the lines that are not empty; of log-probabilities that of their
    exponentials, from 0 to 1 (docs/results/decoding.md compares it with others).
    """
    values = np.array([x for x in confidences if x], np.float64)
    if measure in ("log_prob", "dropout_mean"):
        values = np.exp(values)
    n = len(values)
    half = 1.96 * values.std(ddof=1) / n**0.5 if n > 1 else math.nan
    return float(values.mean()) if n else math.nan, float(half)


def check_dropout(measure: str, members: Sequence[Member]) -> None:
    """Raises UserError if a measure needs dropout and a model has none."""
    names = "dropout", "attention_dropout", "activation_dropout"
    for member in members if measure in DROPPING else ():
        if not any(getattr(member.config.model, name) for name in names):
            raise UserError(
                f"--confidence={measure}: the model was trained with "
                "config.model.dropout=0.0, so dropout changes nothing in it; choose "
                f"one of {', '.join(sorted({*CONFIDENCES} - {*DROPPING}))}"
            )


def _means(scorer: Scorer, pairs: Pairs, program: Callable, *common) -> list[float]:
    """Means over the tokens of each target of what a program returns, [b, t]."""

    def mean(row: int, value_t: np.ndarray) -> float:
        count = len(pairs[row][1])
        return math.fsum(value_t[:count].tolist()) / count

    return for_each_pair(
        "confidences", program, scorer.vocabulary, scorer.members, pairs, mean, *common
    )


def _dropout_passes(scorer: Scorer, pairs: Pairs) -> np.ndarray:
    """`mean_log_prob` in each pass with dropout, float64 [passes, pairs]."""
    seed = np.uint32(scorer.options.seed)
    return np.array(
        [
            _means(scorer, pairs, programs.dropout_log_probs, seed, np.uint32(number))
            for number in range(scorer.options.passes)
        ]
    ).reshape(scorer.options.passes, len(pairs))
