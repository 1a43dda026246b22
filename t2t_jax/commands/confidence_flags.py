"""`translate --confidence`: how sure the model is, printed after each translation."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import flags

from t2t_jax.decoding.results import Translation
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.sections import table_names

if TYPE_CHECKING:
    from t2t_jax.decoding.scoring import ConfidenceOptions
    from t2t_jax.decoding.translator import Translator

CONFIDENCE = "confidence", "min_confidence"
DEFAULT = "log_prob"  # with --min_confidence alone
LOW, OK = "low", "ok"


def define_confidence_flags() -> None:
    """Defines --confidence and --min_confidence."""
    flags.DEFINE_string(
        "confidence",
        None,
        "Print TRANSLATION ||| CONFIDENCE, how sure the model is, higher is more sure: "
        f"{', '.join(table_names('decoding.scoring.CONFIDENCES'))}; those with dropout "
        "take options, as in dropout_mean:passes=10,seed=0.",
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

    def __init__(
        self, measure: str, options: "ConfidenceOptions", lowest: float | None
    ):
        self.measure, self._options, self._lowest = measure, options, lowest
        self._low = 0  # lines that are marked
        self._best: list[float] = []  # the confidence in each line

    @classmethod
    def from_flags(cls, args: flags.FlagValues) -> "Marks | None":
        """Reads the flags; None if neither is given."""
        if args.confidence is None and args.min_confidence is None:
            return None
        lowest = args.min_confidence
        if lowest is not None and math.isnan(lowest):
            raise UserError("--min_confidence=nan; want a number, such as -0.5")
        from t2t_jax.decoding.scoring import parse_confidence

        spec = DEFAULT if args.confidence is None else args.confidence
        return cls(*parse_confidence(spec), lowest)

    def check(self, translator: "Translator") -> None:
        """Raises UserError if the measure needs dropout, and a model has none."""
        from t2t_jax.decoding.scoring import check_dropout

        check_dropout(self.measure, translator.members)

    def options(self) -> dict:
        """Returns what the output depends on, for the record of a job."""
        from t2t_jax.decoding.scoring import DROPPING

        options = dataclasses.asdict(self._options) if self.measure in DROPPING else {}
        settings = {"measure": self.measure, **options, "lowest": self._lowest}
        return {"confidence": settings}

    def fields(
        self, translator: "Translator", translations: Sequence[Translation]
    ) -> Iterator[str]:
        """Returns the fields of all hypotheses of some lines, in order."""
        pairs = [(t.source, h) for t in translations for h in t.hypotheses]
        options = dataclasses.asdict(self._options)
        confidences = translator.confidence(pairs, self.measure, warn=False, **options)
        low = [self._lowest is not None and x < self._lowest for x in confidences]
        best = 0  # index of the first hypothesis of a line
        for translation in translations:
            self._low += low[best]
            self._best.append(confidences[best])
            best += len(translation.hypotheses)
        if self._lowest is None:
            return iter([f"{x:.6g}" for x in confidences])
        marks = [LOW if is_low else OK for is_low in low]
        return iter(
            [f"{x:.6g} ||| {m}" for x, m in zip(confidences, marks, strict=True)]
        )

    def report(self) -> None:
        """Reports the confidence in all lines of this command, and the marked ones."""
        from t2t_jax.decoding.scoring import document_confidence

        lines = f"{len(self._best):,} lines"
        if self._lowest is not None:
            say(
                f"{self._low:,} of {lines} are marked {LOW}: their {self.measure} is "
                f"below {self._lowest:g}"
            )
        if len(self._best) > 1:
            value, half = document_confidence(self._best, self.measure)
            say(
                f"confidence in the {lines} by {self.measure}: {value:.4f} ± {half:.4f}"
            )
