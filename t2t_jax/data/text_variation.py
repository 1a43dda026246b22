"""Training text that varies: chooses the lines of an epoch that are augmented, and how.

`config.data.augment="typos,case@0.05"` names entries of `AUGMENTATIONS`, each with the
share of lines that it changes in an epoch. What happens to a line is a pure function of
the seed, the epoch and the line's number (and of the next lines, for `neighbours`).
"""

import dataclasses
import re
import zlib
from collections.abc import Sequence

import numpy as np

from t2t_jax.data.augmentation import AUGMENTATIONS, MOST_NEIGHBOURS
from t2t_jax.data.corpus import Pair
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.text.counter_random import Stream, hashed, uniform

DEFAULT_SHARE = 0.1
# What a line's random numbers are for.
_CHOICE, _CHANGE = range(2)


@dataclasses.dataclass(frozen=True)
class TextVariation:
    """Changes a share of the lines in each epoch.

    Attributes:
      shares: The share of lines, above 0 and at most 1, by the name in `AUGMENTATIONS`,
        in the order of the table.
      symbols: Strings that are one piece, such as tags. Those that begin a line stay
        there unchanged; a line with another one further on is not changed.
    """

    shares: dict[str, float]
    symbols: tuple[str, ...] = ()

    @property
    def changing_target(self) -> list[str]:
        """The names of the augmentations that may change targets."""
        return [name for name in self.shares if AUGMENTATIONS[name].changes_target]

    def __call__(
        self, pairs: Sequence[Pair], numbers: np.ndarray, seed: int, epoch: int
    ) -> list[Pair]:
        """Returns the pairs as an epoch has them.

        A line depends on its number alone, not on the others of the chunk, with one
        exception: `neighbours` joins lines of the same chunk only. So chunks must begin
        at the same lines in every run.

        Args:
          pairs: A chunk of one corpus, in order.
          numbers: The number of each pair in the training text, int64 [pairs]; numbers
            that follow one another are lines that do.
          seed, epoch: What the choice depends on.

        Returns:
          As many pairs; those that nothing changes are the given objects.
        """
        varied = list(pairs)
        for name, share in self.shares.items():
            # A hash of the name, so that no augmentation depends on the others given.
            keys = seed, epoch, zlib.crc32(name.encode()), numbers
            chosen = np.flatnonzero(uniform(*keys, _CHOICE) < share)
            starts = hashed(*keys, _CHANGE)[chosen].tolist()
            change = AUGMENTATIONS[name].change
            for i, start in zip(chosen.tolist(), starts, strict=True):
                following = self._following(pairs, numbers, i)
                varied[i] = self._changed(change, varied[i], Stream(start), following)
        return varied

    def _following(self, pairs, numbers: np.ndarray, i: int) -> list[Pair]:
        """The next lines of the chunk as far as none was left out between them."""
        following = []
        for n in range(i + 1, min(i + 1 + MOST_NEIGHBOURS, len(pairs))):
            if numbers[n] != numbers[i] + n - i:
                break
            following.append(pairs[n])
        return following

    def _changed(self, change, pair: Pair, draws: Stream, following) -> Pair:
        """Changes a pair, but not the symbols that its lines begin with."""
        tags, text = self._split(pair)
        if not all(side.strip() for side in text):
            return pair  # one-sided text, or nothing to change
        if any(symbol in side for symbol in self.symbols for side in text):
            return pair
        alike = []
        for other in following:
            other_tags, other_text = self._split(other)
            # Lines of different tags do not form one text.
            if other_tags != tags or any(
                s in t for s in self.symbols for t in other_text
            ):
                break
            alike.append(other_text)
        changed = change(text, draws, alike)
        if changed is text:
            return pair
        return tags[0] + changed[0], tags[1] + changed[1]

    def _split(self, pair: Pair) -> tuple[Pair, Pair]:
        """Splits both sides into the symbols they begin with, and text."""
        if not self.symbols:
            return ("", ""), pair
        tags = "|".join(map(re.escape, self.symbols))
        found = [re.match(rf"(?:(?:{tags})\s*)*", side).end() for side in pair]
        return (
            (pair[0][: found[0]], pair[1][: found[1]]),
            (pair[0][found[0] :], pair[1][found[1] :]),
        )


def text_variation_of(
    augment: str, symbols: Sequence[str] = ()
) -> TextVariation | None:
    """Reads `config.data.augment`.

    Args:
      augment: Names of `AUGMENTATIONS`, separated by commas, each perhaps with its
        share of lines: "typos,case@0.05".
      symbols: As of `TextVariation`.

    Returns:
      The variation; None if `augment` is empty.

    Raises:
      UserError: An unknown name, one given twice, or a share that is not above 0 and at
        most 1.
    """
    shares: dict[str, float] = {}
    for written in filter(None, map(str.strip, augment.split(","))):
        name, at, number = written.partition("@")
        if name not in AUGMENTATIONS:
            raise UserError(
                f"config.data.augment={augment!r}: no augmentation {name!r}"
                + did_you_mean(name, AUGMENTATIONS)
            )
        if name in shares:
            raise UserError(
                f"config.data.augment={augment!r} names {name} twice; want it once"
            )
        try:
            share = float(number) if at else DEFAULT_SHARE
        except ValueError:
            share = np.nan
        if not 0 < share <= 1:
            raise UserError(
                f"config.data.augment={augment!r}: {written} has no valid share; want "
                f"{name}@SHARE with the share of lines that it changes in an epoch, "
                f"above 0 and at most 1, such as {name}@{DEFAULT_SHARE}"
            )
        shares[name] = share
    if not shares:
        return None
    ordered = {name: shares[name] for name in AUGMENTATIONS if name in shares}
    return TextVariation(ordered, tuple(symbols))
