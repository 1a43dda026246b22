"""Minimum Bayes risk: the hypothesis that is most like all others.

Kumar and Byrne 2004 over the n-best list of a beam; Eikema and Aziz 2020 over samples,
here by epsilon sampling as in Freitag et al. 2023.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from t2t_jax.decoding.choice import Choice, beam_candidates, sampled_candidates
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.metrics.text_measures import UTILITIES
from t2t_jax.sections import field

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator


@dataclasses.dataclass(frozen=True)
class MinimumBayesRiskOptions:
    """Options of `mbr`."""

    # Candidates are drawn ("samples"), or are the n-best list of a beam ("beam").
    candidates: str = field("samples", ("samples", "beam"), safe=True)
    # How alike two texts are: an entry of `UTILITIES`.
    utility: str = field("chrf", safe=True)
    # Hypotheses that are drawn; one of them alone has nothing to agree with.
    samples: int = field(32, low=2, safe=True)
    # Pieces of a smaller probability are not drawn, but for the most probable one.
    epsilon: float = field(0.02, low=0, safe=True)
    # Seed of the samples.
    seed: int = field(0, low=0, safe=True)
    # Hypotheses of the beam to choose from.
    nbest: int = field(12, low=1, safe=True)

    def __post_init__(self):
        if self.utility not in UTILITIES:
            raise UserError(
                f"config.decode.options.utility={self.utility!r}"
                f"{did_you_mean(self.utility, UTILITIES)}"
            )
        if self.epsilon >= 1:
            raise UserError(
                f"config.decode.options.epsilon={self.epsilon}; want a probability "
                "below 1, such as 0.02, or 0 to draw from all pieces"
            )
        if self.seed >= 1 << 32:
            raise UserError(
                f"config.decode.options.seed={self.seed}; want 0 <= seed < 2^32"
            )


class MinimumBayesRisk(Choice):
    """Takes the hypothesis with the highest expected utility against the others.

    Each candidate is a possible reference. Samples count alike, as often as they were
    drawn; those of a beam count with their probabilities, which are made to sum to 1.
    """

    Options = MinimumBayesRiskOptions

    def candidates(
        self, translator: "Translator", lines: Sequence[str], search: dict
    ) -> list[Translation]:
        """Draws candidates or searches for them."""
        options = self.options
        if options.candidates == "beam":
            return beam_candidates(translator, lines, options.nbest, search)
        drawn = {
            name: getattr(options, name) for name in ("samples", "epsilon", "seed")
        }
        return sampled_candidates(translator, lines, search, **drawn)

    def scores(
        self, translator: "Translator", found: Sequence[Translation], search: dict
    ) -> list[np.ndarray]:
        """Computes the expected utility of each hypothesis, 0 to 100."""
        utility, language = (
            UTILITIES[self.options.utility],
            translator.config.data.target,
        )
        weigh = drawn_alike if self.options.candidates == "samples" else posterior
        return [
            expected_utilities(
                [h.text for h in t.hypotheses], weigh(t.hypotheses), utility, language
            )
            for t in found
        ]

    def provenance(self) -> dict:
        """Returns the options that have an influence."""
        unused = {"samples": ["nbest"], "beam": ["samples", "epsilon", "seed"]}
        values = super().provenance()
        return {
            k: v for k, v in values.items() if k not in unused[self.options.candidates]
        }


def drawn_alike(hypotheses: Sequence[Hypothesis]) -> np.ndarray:
    """Returns the weights of samples: they were drawn by their probabilities."""
    return np.full(len(hypotheses), 1 / len(hypotheses))


def posterior(hypotheses: Sequence[Hypothesis]) -> np.ndarray:
    """Returns the probabilities of hypotheses among themselves."""
    log_prob = np.array([h.log_prob for h in hypotheses], np.float64)
    p = np.exp(log_prob - log_prob.max())
    return p / p.sum()


def expected_utilities(
    texts: Sequence[str], weights: np.ndarray, utility, language: str = ""
) -> np.ndarray:
    """Computes each text's mean utility, with every text as a reference.

    Args:
      texts: n candidates; equal ones get equal values.
      weights: float64 [n], of the texts as references.
      utility: an entry of `UTILITIES`.
      language: of the texts.

    Returns:
      float64 [n].
    """
    row = {text: n for n, text in enumerate(dict.fromkeys(texts))}
    rows = [row[text] for text in texts]
    # Each different text is compared once, however often it was drawn.
    weight_r = np.bincount(rows, weights, minlength=len(row))
    expected = utility([*row], [*row], language) @ weight_r
    return expected[rows]
