"""Log-probabilities of texts that are longer than a model's rows.

A window slides along the text. Each piece is predicted once, from the earlier pieces of
the window that first contains it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import scoring
from t2t_jax.decoding.inputs import Member
from t2t_jax.io.errors import UserError


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
    scores = scoring.score(vocabulary, members, parts, alpha=0.0, penalty="none")
    of_parts = iter(score.log_probs for score in scores)
    return [
        [x for w in windows_ for x in next(of_parts)[w.first - w.begin :]]
        for windows_ in of_texts
    ]
