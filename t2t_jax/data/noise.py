"""The interface of noise: examples that change from epoch to epoch.

Noise is a pure function of (seed, epoch, number of the pair): a resumed run sees the
same examples, and any batch can be looked up again.
"""

from typing import TYPE_CHECKING, Protocol

import numpy as np

from t2t_jax.data.plan import Layout

if TYPE_CHECKING:
    from t2t_jax.data.prepare import Pairs


class Noise(Protocol):
    """Makes the examples of an epoch from stored pairs.

    The lengths must not depend on seed and epoch, because the shapes of batches and
    their plan follow from them.
    """

    def lengths(self, pairs: "Pairs") -> tuple[np.ndarray, np.ndarray]:
        """Returns the source and target lengths of the examples, int [pairs]."""

    def fill(
        self, layout: Layout, pairs: "Pairs", seed: int, epoch: int
    ) -> dict[str, np.ndarray]:
        """Builds the arrays of one batch, with the names of `filling.fill`."""
