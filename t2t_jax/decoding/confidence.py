"""Confidence in a translation: numbers that need no reference, higher if more sure.

All score the translation by teacher forcing, as in Fomicheva et al. 2020 ("Unsupervised
Quality Estimation for Neural Machine Translation", section 3), with the opposite sign
where theirs grow with uncertainty. docs/decoding.md has what they are worth against
chrF. A number depends on the line, its translation, the model and the options alone.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import programs
from t2t_jax.decoding.devices import gather_results
from t2t_jax.decoding.inputs import Member
from t2t_jax.decoding.scoring import Pairs, run_batches
from t2t_jax.io.errors import UserError, did_you_mean


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
