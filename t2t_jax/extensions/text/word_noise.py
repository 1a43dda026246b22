"""Noise on the words of a line: some dropped, some blanked, some moved a little.

Back-translations with noise teach more than clean ones, once there is enough parallel
text (Edunov et al. 2018, "Understanding Back-Translation at Scale", section 3): what
a search finds is too regular, and noise makes sources richer.

Noise is written as `drop@0.1,blank@0.1,swap@3`, and applied in this order. It is a pure
function of (seed, number of the line), whatever the other lines.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.text.counter_random import uniform

BLANK = "<blank>"  # stands for a word; one token if config.data.symbols names it


def drop(words: Sequence[str], share: float, numbers: np.ndarray) -> list[str]:
    """Drops each word with probability `share`; keeps one if that drops them all.

    Args:
      words: the words of a line.
      share: 0 < share < 1.
      numbers: uniform in [0, 1), one for each word.
    """
    is_kept = numbers >= share
    if len(words) and not is_kept.any():
        is_kept[np.argmax(numbers)] = True  # each word with the same probability
    return [word for word, keep in zip(words, is_kept, strict=True) if keep]


def blank(words: Sequence[str], share: float, numbers: np.ndarray) -> list[str]:
    """Replaces each word by `BLANK` with probability `share`; arguments as `drop`."""
    return [
        BLANK if number < share else word
        for word, number in zip(words, numbers, strict=True)
    ]


def swap(words: Sequence[str], distance: float, numbers: np.ndarray) -> list[str]:
    """Shuffles words, none of which moves by more than `distance` places.

    Sorts word i by i + u with u uniform in [0, distance + 1): two words that are more
    than `distance` apart keep their order (Lample et al. 2018, "Unsupervised Machine
    Translation Using Monolingual Corpora Only", section 2.3).

    Args:
      words: the words of a line.
      distance: a whole number of places, at least 1.
      numbers: uniform in [0, 1), one for each word.
    """
    order = np.argsort(np.arange(len(words)) + numbers * (distance + 1), kind="stable")
    return [words[i] for i in order]


class Kind(NamedTuple):
    """A kind of noise.

    Attributes:
      apply: (words, amount, numbers) -> words.
      amounts: a regular expression of the amounts that it takes.
      expected: the same for people.
      stream: tells its random numbers from those of other kinds; never changes.
    """

    apply: Callable[[Sequence[str], float, np.ndarray], list[str]]
    amounts: str
    expected: str
    stream: int


_SHARE = r"0?\.0*[1-9]\d*"
_SHARE_EXPECTED = "the share of words, above 0 and below 1"
# A kind of noise is a function and a line here.
NOISES = {
    "drop": Kind(drop, _SHARE, _SHARE_EXPECTED, 1),
    "blank": Kind(blank, _SHARE, _SHARE_EXPECTED, 2),
    "swap": Kind(swap, r"[1-9]\d{0,8}", "a number of places, at least 1", 3),
}


class WordNoise(NamedTuple):
    """One kind of noise, and how much of it: `drop@0.1`."""

    name: str
    amount: float

    def __str__(self) -> str:
        is_whole = self.amount.is_integer()
        return f"{self.name}@{int(self.amount) if is_whole else self.amount!r}"


def named_amounts(
    parts: Iterable[str], names: Collection[str], context: str, kind: str
) -> dict[str, str | None]:
    """Splits parts such as `drop@0.1` into names and amounts.

    Args:
      parts: Names, each perhaps with an @ and its amount.
      names: Those that there are.
      context: What error messages begin with.
      kind: What a name is of, for error messages.

    Returns:
      The amounts by name, in the order of the parts; None without an @.

    Raises:
      UserError: An unknown name, or one that is given twice.
    """
    amounts: dict[str, str | None] = {}
    for part in parts:
        name, separator, amount = part.partition("@")
        if name not in names:
            raise UserError(
                f"{context}: no {kind} {name!r}" + did_you_mean(name, names)
            )
        if name in amounts:
            raise UserError(f"{context} names {name} twice; want it once")
        amounts[name] = amount if separator else None
    return amounts


def parse_noise(written: str) -> tuple[WordNoise, ...]:
    """Parses `drop@0.1,swap@3`; "" is none.

    Raises:
      UserError: an unknown kind, one that is given twice, or an amount out of range.
    """
    parts = [*map(str.strip, written.split(","))] if written else []
    amounts = named_amounts(parts, NOISES, f"noise {written!r}", "noise")
    for part, (name, amount) in zip(parts, amounts.items(), strict=True):
        kind = NOISES[name]
        if not amount or not re.fullmatch(kind.amounts, amount, re.A):
            raise UserError(f"noise {part!r}: want {name}@AMOUNT, {kind.expected}")
    return tuple(WordNoise(name, float(amount)) for name, amount in amounts.items())


def add_noise(line: str, noises: Sequence[WordNoise], seed: int, number: int) -> str:
    """Adds noise to a line; it keeps at least one word, if it has any.

    Args:
      line: text. White space separates words; it becomes one space between any two.
      noises: applied in this order; without any the line is returned as it is.
      seed: of the random numbers.
      number: of the line in its file.
    """
    if not noises:
        return line
    words = line.split()
    for name, amount in noises:
        kind = NOISES[name]
        numbers = uniform(kind.stream, seed, number, np.arange(len(words)))
        words = kind.apply(words, amount, numbers)
    return " ".join(words)
