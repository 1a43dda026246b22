"""`Choice`: the interface of a choice among several hypotheses of a line.

A choice asks the translator for candidates and gives each of them a number, by which
`choosing.py` ranks them. Numbers of a line must follow from the candidates of that line
alone, so that translations do not depend on the lines beside them.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from t2t_jax.config import Config
from t2t_jax.decoding.results import Translation
from t2t_jax.io.errors import UserError

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator

# The arguments of `Translator.translate` that `Translator.sample` has, too.
SHARED = (
    *("alpha", "penalty", "prefix", "must_not"),
    *("batch_size", "first_line", "warn"),
)


class Choice:
    """A choice of `config.decode.choose`, with its options.

    Models that it needs are loaded when it is made.

    Attributes:
      Options: a frozen dataclass of hyperparameters, `config.decode.options`.
      options: those of the config.
    """

    Options: ClassVar[type | None] = None

    def __init__(self, config: Config):
        self.options = config.decode.own_options(type(self))

    @classmethod
    def check(cls, config: Config) -> None:
        """Checks what the choice needs, without loading a model.

        Raises:
          UserError: something is missing, so that translating would fail.
        """

    def candidates(
        self, translator: "Translator", lines: Sequence[str], search: dict
    ) -> list[Translation]:
        """Returns the hypotheses of each line to choose from.

        Args:
          translator: with the choice "probability".
          search: the arguments of `Translator.translate`, except `lines` and `nbest`.

        Raises:
          UserError: an argument that the choice cannot follow.
        """
        raise NotImplementedError

    def scores(
        self, translator: "Translator", found: Sequence[Translation], search: dict
    ) -> list[np.ndarray]:
        """Returns a number for each hypothesis of each line, the best one's highest.

        Args:
          found: what `candidates` has found, without lines that have nothing to choose
            from.
          translator, search: as for `candidates`.
        """
        raise NotImplementedError

    def provenance(self) -> dict:
        """Returns what the choice depends on besides the translator, for JSON."""
        return dataclasses.asdict(self.options) if self.options else {}


def beam_candidates(
    translator: "Translator", lines: Sequence[str], nbest: int, search: dict
) -> list[Translation]:
    """Finds the `nbest` best hypotheses of each line, with a beam at least as wide.

    Raises:
      UserError: the caller asks for a narrower beam.
    """
    beam = search["beam"]
    if beam is not None and beam < nbest:
        raise UserError(
            f"beam={beam}, but the choice is among nbest={nbest} hypotheses; want a "
            f"beam of at least {nbest}, or a smaller nbest in the options of the choice"
        )
    beam = max(translator.config.decode.beam, nbest) if beam is None else beam
    return translator.translate(lines, **(search | {"beam": beam, "nbest": nbest}))


def sampled_candidates(
    translator: "Translator", lines: Sequence[str], search: dict, **sampling
) -> list[Translation]:
    """Draws hypotheses of each line, with options of `Translator.sample`.

    Raises:
      UserError: the caller gives options of a beam search.
    """
    shared = {name: value for name, value in search.items() if name in SHARED}
    of_beam = {name: value for name, value in search.items() if name not in SHARED}
    # None and no phrases are left out; a number is an option, also if it is 0.
    if given := [name for name, value in of_beam.items() if value or value == 0]:
        raise UserError(
            f"{', '.join(given)}: an option of beam search, but this choice draws its "
            "candidates; leave it out, or choose among a beam: mbr:candidates=beam"
        )
    return translator.sample(lines, **shared, **sampling)
