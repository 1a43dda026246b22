"""Feed-forward layer: max(0, x)^2 as activation (So et al. 2021, Primer)."""

from functools import partial

import jax

from t2t_jax.model.feed_forward import FEED_FORWARD, FeedForward

FEED_FORWARD["squared_relu"] = partial(FeedForward, lambda x: jax.nn.relu(x) ** 2)
