"""Position scheme: KERPLE, its logarithmic kernel (Chi et al. 2022).

Scores fall with the logarithm of the distance. Each head learns how fast.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from t2t_jax.model.positions import POSITIONS, Position


class Kerple(Position):
    """Adds -r1 log(1 + r2 distance) to the scores; r1, r2 > 0 for each head."""

    def __init__(self, config, causal, rng):
        drawn_rh = 0.1 * jax.random.normal(rng, (2, config.heads))
        self.log_r = nnx.Param(drawn_rh, axes=("positions", "heads"))

    def scores(self, q_bthk, mask):
        r1_h11, r2_h11 = jnp.exp(self.log_r[...])[:, :, None, None]
        distance_b1ts = jnp.abs(mask.distance())[:, None].astype(jnp.float32)
        return -r1_h11 * jnp.log1p(r2_h11 * distance_b1ts)


POSITIONS["kerple"] = Kerple
