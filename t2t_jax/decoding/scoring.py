"""Scores of given targets by teacher forcing: log-probabilities and confidence.

Texts that are longer than a model's rows are scored through a window that slides along
them: each piece is predicted once, from the earlier pieces of the window that first
contains it.

Confidence in a translation needs no reference, and is higher if the model is more sure.
All measures score the translation by teacher forcing, as in Fomicheva et al. 2020
("Unsupervised Quality Estimation for Neural Machine Translation", section 3), with the
opposite sign where theirs grow with uncertainty. docs/decoding.md has what they are
worth against chrF. A number depends on the line, its translation, the model and the
options alone.

Shape suffixes: b batch rows, s source, t target.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import programs
from t2t_jax.decoding.batches import Group, compute_blocks, gather_results, pad_rows
from t2t_jax.decoding.inputs import Member
from t2t_jax.decoding.results import Score
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.model.transformer import teacher_forcing
from t2t_jax.search.algorithm import PENALTIES

# (source ids, target ids) of each pair, both with EOS.
Pairs = Sequence[tuple[list[int], list[int]]]


def score(
    vocabulary: Vocabulary,
    members: Sequence[Member],
    pairs: Pairs,
    alpha: float,
    penalty: str,
) -> list[Score]:
    """Computes the log-probability of each token of each target.

    Args:
      members: an ensemble predicts with the mean of their probabilities.
      alpha, penalty: of the length penalty in `Score.score`.
    """
    log_probs: dict[int, list[float]] = {}
    compute = partial(
        programs.target_log_probs,
        tuple(member.parameters for member in members),
        definitions=tuple(member.model.definition for member in members),
        mesh=members[0].mesh,
    )
    for rows, log_prob_bt in run_batches(compute, vocabulary, members, pairs):
        for row, log_prob_t in zip(rows, log_prob_bt, strict=False):
            log_probs[row] = log_prob_t[: len(pairs[row][1])].tolist()
    log_probs = gather_results("log-probabilities", log_probs)
    scores = []
    for row, (_, ids) in enumerate(pairs):
        of_pieces = tuple(log_probs[row])
        score = sum(of_pieces) / PENALTIES[penalty](len(ids), alpha)
        scores.append(Score(piece_names(vocabulary, ids), of_pieces, score))
    return scores


def run_batches(
    compute,
    vocabulary: Vocabulary,
    members: Sequence[Member],
    pairs: Pairs,
    divided: bool = True,
) -> Iterator[tuple[Sequence[int], Any]]:
    """Yields the numbers of the pairs of each block, and what `compute` returns for it.

    Pairs of similar length are batched; the shape depends on the length alone.
    """
    decode = members[0].config.decode
    limits = [m.model.longest for m in members if m.model.longest is not None]

    def make(group: Group) -> dict[str, np.ndarray]:
        rows, bucket = group.shape
        # A bucket may exceed a model's longest row, though its sentences do not.
        shape = rows, min([bucket, *limits])
        source, source_segment = pad_rows(
            [pairs[row][0] for row in group.lines], *shape
        )
        target, target_segment = pad_rows(
            [pairs[row][1] for row in group.lines], *shape
        )
        position = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
        batch = {
            "source": source,
            "source_segment": source_segment,
            "source_position": position,
            "target": target,
            "target_segment": target_segment,
            "target_position": position,
        }
        return teacher_forcing(batch, vocabulary.bos)

    lengths = [max(map(len, pair)) for pair in pairs]
    return compute_blocks(make, compute, lengths, decode, members[0].mesh)


def piece_names(vocabulary: Vocabulary, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(vocabulary.piece(i) for i in ids)


# -------------------------------------------------------------- texts longer than a row


class Window(NamedTuple):
    """The pieces from `begin` to `end`, of which those from `first` on are counted."""

    begin: int
    first: int
    end: int


def windows(pieces: int, window: int, stride: int) -> list[Window]:
    """Returns the windows of a text; they count each piece once, in order.

    Every piece after the first window has at least `window - stride` pieces before it
    in its window; with stride = window, windows do not overlap.

    Args:
      pieces: the length of the text, with EOS.
      window: the most pieces that the model reads at a time.
      stride: pieces from the begin of a window to that of the next.
    """
    found = [Window(0, 0, min(window, pieces))]
    while (counted := found[-1].end) < pieces:
        begin = found[-1].begin + stride
        found.append(Window(begin, counted, min(begin + window, pieces)))
    return found


def log_probs(
    vocabulary: Vocabulary,
    members: Sequence[Member],
    texts: Sequence[Sequence[int]],
    window: int,
    stride: int,
) -> list[list[float]]:
    """Computes the log-probability of each piece of each text.

    Args:
      members: language models; an ensemble predicts with the mean of their
        probabilities.
      texts: token ids with EOS.
      window, stride: as for `windows`.

    Raises:
      UserError: a window that a model cannot read, or a stride above the window.
    """
    longest = min((m.model.longest for m in members if m.model.longest), default=window)
    if window > longest:
        raise UserError(
            f"window={window}, but config.model.max_positions={longest}; want a window "
            f"of at most {longest} pieces"
        )
    if not 1 <= stride <= window:
        raise UserError(f"stride={stride} with window={window}; want 1 <= stride <= it")
    of_texts = [windows(len(ids), window, stride) for ids in texts]
    parts = [
        ([], [*ids[w.begin : w.end]])
        for ids, windows_ in zip(texts, of_texts, strict=True)
        for w in windows_
    ]
    scores = score(vocabulary, members, parts, alpha=0.0, penalty="none")
    of_parts = iter(score.log_probs for score in scores)
    return [
        [x for w in windows_ for x in next(of_parts)[w.first - w.begin :]]
        for windows_ in of_texts
    ]


# --------------------------------------------------------------------------- confidence


class ConfidenceOptions(NamedTuple):
    """Options of the measures that drop out.

    Attributes:
      passes: with dropout, over which means and variances are taken; at least 2.
      seed: of dropout.
    """

    passes: int = 10
    seed: int = 0


class Scorer(NamedTuple):
    """The models that score, and the options."""

    vocabulary: Vocabulary
    members: Sequence[Member]
    options: ConfidenceOptions = ConfidenceOptions()


def mean_log_prob(scorer: Scorer, pairs: Pairs) -> list[float]:
    """The mean log-probability of the pieces, in nats; at most 0 (their TP)."""
    return _means(scorer, pairs, programs.target_log_probs)


def negative_entropy(scorer: Scorer, pairs: Pairs) -> list[float]:
    """Minus the mean entropy of the distribution of each piece, in nats."""
    found = _means(scorer, pairs, programs.target_entropies)
    return [-mean for mean in found]


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
DROPPING = {"dropout_mean", "dropout_variance"}  # those with options


def parse_confidence(text: str) -> tuple[str, ConfidenceOptions]:
    """Parses `"dropout_mean:passes=20,seed=1"` into the measure and its options.

    Raises:
      UserError: no such measure or option, or a value out of its range.
    """
    given = f"--confidence={text!r}"
    name, _, rest = text.partition(":")
    if rest and name in {*CONFIDENCES} - DROPPING:
        raise UserError(f"{given}: {name} has no options; want {name!r}")
    options = {}
    for part in filter(None, rest.split(",")):
        if not (found := re.fullmatch(r"(passes|seed)=(\d+)", part)):
            raise UserError(
                f"{given}: {part!r} is not an option; write for example "
                f"{name}:passes=20,seed=1"
            )
        options[found[1]] = int(found[2])
    options = ConfidenceOptions(**options)
    check_confidence(name, options, given)
    return name, options


def check_confidence(measure: str, options: ConfidenceOptions, given: str) -> None:
    """Checks a measure and its options.

    Args:
      given: what they were written as, for messages.

    Raises:
      UserError: no such measure, or a value out of its range.
    """
    if measure not in CONFIDENCES:
        raise UserError(f"{given}{did_you_mean(measure, CONFIDENCES)}")
    if options.passes < 2 or not 0 <= options.seed < 1 << 32:
        raise UserError(
            f"{given}: got {options.passes} passes and seed {options.seed}; want at "
            "least 2 passes, for a variance, and a seed from 0 to 2^32 - 1"
        )


def check_dropout(measure: str, members: Sequence[Member]) -> None:
    """Raises UserError if a measure needs dropout and a model has none."""
    names = "dropout", "attention_dropout", "activation_dropout"
    for member in members if measure in DROPPING else ():
        if not any(getattr(member.config.model, name) for name in names):
            raise UserError(
                f"--confidence={measure}: the model was trained with "
                "config.model.dropout=0.0, so dropout changes nothing in it; choose "
                f"one of {', '.join(sorted({*CONFIDENCES} - DROPPING))}"
            )


def _means(scorer: Scorer, pairs: Pairs, program: Callable, *common) -> list[float]:
    """Means over the pieces of each target of what a program returns, [b, t]."""
    parameters = tuple(member.parameters for member in scorer.members)
    compute = partial(
        program,
        parameters,
        *common,
        definitions=tuple(member.model.definition for member in scorer.members),
        mesh=scorer.members[0].mesh,
    )
    found: dict[int, float] = {}
    batches = run_batches(compute, scorer.vocabulary, scorer.members, pairs)
    for rows, value_bt in batches:
        for row, value_t in zip(rows, value_bt, strict=False):
            count = len(pairs[row][1])
            found[row] = math.fsum(value_t[:count].tolist()) / count
    found = gather_results("confidences", found)
    return [found[row] for row in range(len(pairs))]


def _dropout_passes(scorer: Scorer, pairs: Pairs) -> np.ndarray:
    """`mean_log_prob` in each pass with dropout, float64 [passes, pairs]."""
    seed = np.uint32(scorer.options.seed)
    return np.array(
        [
            _means(scorer, pairs, programs.dropout_log_probs, seed, np.uint32(number))
            for number in range(scorer.options.passes)
        ]
    ).reshape(scorer.options.passes, len(pairs))
