"""Guesses the language of a text, by py3langid (Lui and Baldwin 2012).

Measured: docs/results/serving.md.
"""

import functools
from collections.abc import Iterable
from typing import NamedTuple

from t2t_jax.text.characters import class_name
from t2t_jax.text.languages import identify

LONGEST = 1_000  # characters of a text that are read
# Of languages that are written in several; simplified and traditional are not told.
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
        _identifier()  # now, not with the first text

    def guess(self, text: str) -> Guess:
        """Compares the languages with each other and with the likeliest other one.

        All other languages together count as much as that one: else a short text would
        always be in one of a hundred others.
        """
        letters = [class_name(c) for c in text[:LONGEST] if c.isalpha()]
        if not letters:
            return Guess(self.codes[0], 0.0, 0.0)
        others = probabilities(text)
        names = {code: identify(code).code for code in self.codes}
        own = {c: others.get(name) for c, name in names.items()}
        others = [p for name, p in others.items() if name not in names.values()]
        if None in own.values():  # not known to the library
            left, others = sum(others), [0.0]
            own = {code: left if p is None else p for code, p in own.items()}

        def rank(code: str) -> tuple[float, int]:
            known = identify(code)
            return own[code], letters.count(_SCRIPTS.get(known.script or known.usual))

        best = max(own, key=rank)
        among = own[best] / (own[best] + max(others))
        of_languages = sum({names[code]: p for code, p in own.items()}.values())
        return Guess(best, among * own[best] / of_languages, among)


def probabilities(text: str) -> dict[str, float]:
    """The probability of each known language, by `Language.code`."""
    identifier, codes = _identifier()
    found = dict.fromkeys(codes.values(), 0.0)
    for label, probability in identifier.rank(text[:LONGEST]):
        found[codes[label]] += probability
    return found


@functools.cache
def _identifier():
    # Reading its model takes half a second and 75 MB.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return identifier, {label: identify(label).code for label in identifier.labels}
