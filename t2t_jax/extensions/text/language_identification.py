"""Guesses the language of a text, by py3langid (Lui and Baldwin 2012).

Measured: docs/results/serving.md.
"""

import functools
from collections.abc import Iterable
from typing import NamedTuple

from t2t_jax.text.characters import class_name
from t2t_jax.text.languages import identify

LONGEST = 1_000  # characters of a text that are read
# Scripts of languages that have several; simplified and traditional count as one.
_SCRIPTS = {"Latn": "Latin", "Cyrl": "Cyrillic", "Arab": "Arabic", "Deva": "Devanagari"}


class Guess(NamedTuple):
    """A guess among some languages.

    Attributes:
      code: of the likeliest of them.
      confidence: the probability of that language, 0 to 1; 0 without a letter.
      among: the probability that the text is in one of the languages at all.
    """

    code: str
    confidence: float
    among: float


class Guesser:
    """Guesses which of some languages a text is written in, if in any.

    Args:
      codes: of the languages, in any spelling. One that the library does not know is
        guessed for all text that is in none of the others.
    """

    def __init__(self, codes: Iterable[str]):
        self.codes = [*dict.fromkeys(codes)]

    def guess(self, text: str) -> Guess:
        """Compares the languages with each other and with the likeliest other one.

        The other languages count as one, the likeliest of them: else a short text would
        always be in one of a hundred others.
        """
        letters = [class_name(c) for c in text[:LONGEST] if c.isalpha()]
        if not letters:
            return Guess(self.codes[0], 0.0, 0.0)
        probability_of = probabilities(text)  # by name; `candidates` by code
        names = {code: identify(code).code for code in self.codes}
        candidates = {c: probability_of.get(name) for c, name in names.items()}
        rivals = [p for n, p in probability_of.items() if n not in names.values()]
        if None in candidates.values():  # not known to the library
            unknown, rivals = sum(rivals), [0.0]
            candidates = {c: unknown if p is None else p for c, p in candidates.items()}

        def rank(code: str) -> tuple[float, int]:
            script = identify(code).script or identify(code).usual
            return candidates[code], letters.count(_SCRIPTS.get(script))

        best = max(candidates, key=rank)
        among = candidates[best] / (candidates[best] + max(rivals))
        total = sum({names[code]: p for code, p in candidates.items()}.values())
        return Guess(best, among * candidates[best] / total, among)


def probabilities(text: str) -> dict[str, float]:
    """The probability of each known language, by `Language.code`."""
    identifier, codes = _identifier()
    probability_of = dict.fromkeys(codes.values(), 0.0)
    for label, probability in identifier.rank(text[:LONGEST]):
        probability_of[codes[label]] += probability
    return probability_of


@functools.cache
def _identifier():
    # With the first text: reading its model takes half a second and 75 MB.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return identifier, {label: identify(label).code for label in identifier.labels}
