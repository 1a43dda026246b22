"""Scores of language models: bits per byte, perplexity per word and per token.

All follow from the log-probability of each text. The first two do not depend on how a
model splits text into tokens, so they compare models of any vocabulary, provided that a
model can spell every word. A line has an end, which counts as a byte (of UTF-8) and as
a word; so does each line of a document. Words are separated by white space.

Shape suffixes: n examples, k numbers per example.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from t2t_jax.io.errors import UserError
from t2t_jax.metrics.measures import Measure, Pair

NLL, PIECES, BYTES, WORDS = range(4)  # the numbers of an example


def perplexity(nats: float) -> float:
    """exp of a mean cross-entropy in nats; finite for any finite input.

    Cross-entropies above 700 count as 700.
    """
    # math.exp overflows above 709.
    return math.exp(min(nats, 700.0))


def answer(log_prob: float, pieces: int) -> str:
    """Formats the log-probability of a text and its end, and its number of pieces."""
    return f"{log_prob:.6f}\t{pieces}"


def statistics(answers: Sequence[str], pairs: Sequence[Pair]) -> np.ndarray:
    """Counts nats, tokens, bytes and words of each text, float64 [n, 4]."""
    rows_nk = np.zeros((len(pairs), 4))
    for number, (line, (_, text)) in enumerate(zip(answers, pairs, strict=True), 1):
        try:
            log_prob, pieces = line.split("\t")
            log_prob, pieces = float(log_prob), int(pieces)
        except ValueError:
            raise UserError(
                f"line {number} of the answers: got {line[:60]!r}; want LOG_PROB, a "
                "tab, and the number of tokens"
            ) from None
        lines = f"{text}\n"
        words = len(lines.split()) + lines.count("\n")
        rows_nk[number - 1] = -log_prob, pieces, len(lines.encode()), words
    return rows_nk


def _bits_per_byte(sums: np.ndarray) -> np.ndarray:
    return sums[..., NLL] / np.log(2) / sums[..., BYTES]


def _perplexity_per(unit: int, sums: np.ndarray) -> np.ndarray:
    """`perplexity` per word or piece."""
    return np.exp(np.minimum(sums[..., NLL] / sums[..., unit], 700.0))


def _measure(description: str, score: Callable, digits: int = 2) -> Measure:
    return Measure(
        description, statistics, score, higher_is_better=False, digits=digits
    )


LIKELIHOODS = {
    "bits_per_byte": _measure(
        "bits per byte of UTF-8, ends of lines included", _bits_per_byte, digits=3
    ),
    "perplexity_per_word": _measure(
        "perplexity per word, ends of lines included", partial(_perplexity_per, WORDS)
    ),
    "perplexity": _measure(
        "perplexity per token, EOS included", partial(_perplexity_per, PIECES)
    ),
}
