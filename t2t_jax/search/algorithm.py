"""The interface of a search algorithm: `BeamSearch` and `Sampling`."""

from typing import Any, Protocol

from jax import Array

from t2t_jax.search.hypotheses import Hypotheses, Step
from t2t_jax.search.rules import Rules


class Algorithm(Protocol):
    """A search in three parts, so that it can pause and its rows can be reused.

    Algorithms are hashable, since they are static arguments of compiled programs.
    States are pytrees whose leaves have leading axis [batch], with the attributes
    `cache` and `stopped_b`.
    """

    @property
    def rows(self) -> int:
        """The number of hypotheses of each sentence that a step extends."""

    def start(
        self,
        cache: Any,
        limit_b: Array,
        rules: Rules | None = None,
        rng_b: Array | None = None,
        *,
        max_length: int,
    ) -> Any:
        """Returns the state before the first token.

        Args:
          cache: as for `beam_search`, with `rows` in place of the beam.
          limit_b: int32, the longest output of each sentence in tokens, EOS included.
          rules: constraints on the outputs, or None.
          rng_b: a `jax.random` key for each sentence.
          max_length: the width of the token arrays.
        """

    def advance(
        self,
        step: Step,
        state: Any,
        position: Array | int,
        until: Array | int,
        rules: Rules | None = None,
        present_b: Array | None = None,
    ) -> Any:
        """Advances from `position` to `until`, or until all sentences have stopped.

        Args:
          step: as for `beam_search`.
          state: its cache has room for `until` positions.
          position, until: int32, the same for all sentences.
          present_b: bool; False for rows without a sentence, which keep no search
            running.
        """

    def result(self, state: Any, rules: Rules | None = None) -> Hypotheses:
        """Returns the hypotheses of sentences that have stopped."""
