"""The flags of `translate` that say how sure the model is of each line."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

from absl import flags

from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.scoring import (
    CONFIDENCES,
    DROPPING,
    ConfidenceOptions,
    check_dropout,
    parse_confidence,
)
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say

CONFIDENCE = "confidence", "min_confidence"
DEFAULT = "log_prob"  # with --min_confidence alone
LOW, OK = "low", "ok"


def define_confidence_flags() -> None:
    """Defines --confidence and --min_confidence."""
    flags.DEFINE_string(
        "confidence",
        None,
        "Print TRANSLATION ||| CONFIDENCE, how sure the model is, higher is more sure: "
        f"{', '.join(CONFIDENCES)}; those with dropout take options, as in "
        "dropout_mean:passes=10,seed=0.",
    )
    flags.DEFINE_float(
        "min_confidence",
        None,
        "Print TRANSLATION ||| CONFIDENCE ||| MARK, where the mark of a confidence "
        f"below this is {LOW}, and otherwise {OK}; without --confidence by {DEFAULT}. "
        "No line is dropped.",
    )


class Marks:
    """Prints a confidence after each translation, and a mark with --min_confidence.

    Args:
      measure, options: of `parse_confidence`.
      lowest: the lowest confidence that is not marked; None marks none.
    """

    def __init__(self, measure: str, options: ConfidenceOptions, lowest: float | None):
        self._measure, self._options, self._lowest = measure, options, lowest
        self._lines = self._low = 0

    @classmethod
    def of(cls, given: flags.FlagValues) -> "Marks | None":
        """Reads the flags; None if neither is given.

        Raises:
          UserError: a value is wrong.
        """
        if given.confidence is None and given.min_confidence is None:
            return None
        lowest = given.min_confidence
        if lowest is not None and math.isnan(lowest):
            raise UserError("--min_confidence=nan; want a number, such as -0.5")
        chosen = DEFAULT if given.confidence is None else given.confidence
        return cls(*parse_confidence(chosen), lowest)

    def check(self, translator: Translator) -> None:
        """Raises UserError if the models of a translator have no such confidence."""
        check_dropout(self._measure, translator.members)

    def options(self) -> dict:
        """Returns what the output depends on, for the record of a job."""
        options = dataclasses.asdict(self._options) if self._measure in DROPPING else {}
        chosen = {"measure": self._measure, **options, "lowest": self._lowest}
        return {"confidence": chosen}

    def fields(
        self, translator: Translator, translations: Sequence[Translation]
    ) -> Iterator[str]:
        """Returns the fields of all hypotheses of some lines, in order."""
        pairs = [(t.source, h) for t in translations for h in t.hypotheses]
        options = dataclasses.asdict(self._options)
        found = translator.confidence(pairs, self._measure, warn=False, **options)
        best = 0  # the place of the first hypothesis of a line
        for translation in translations:
            self._lines += 1
            self._low += self._is_low(found[best])
            best += len(translation.hypotheses)
        return iter([self._field(confidence) for confidence in found])

    def _is_low(self, confidence: float) -> bool:
        return self._lowest is not None and confidence < self._lowest

    def _field(self, confidence: float) -> str:
        text = f"{confidence:.6g}"
        if self._lowest is None:
            return text
        return f"{text} ||| {LOW if self._is_low(confidence) else OK}"

    def report(self) -> None:
        """Reports how many of the lines of this command are marked."""
        if self._lowest is not None:
            say(
                f"{self._low:,} of {self._lines:,} lines are marked {LOW}: their "
                f"{self._measure} is below {self._lowest:g}"
            )
