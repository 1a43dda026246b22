"""Adam with the paper's learning rate (section 5.3)."""

import jax.numpy as jnp
import optax

from t2t_jax.config import Config


def inverse_sqrt_schedule(width: int, warmup: int) -> optax.Schedule:
    """width^-0.5 * min(step^-0.5, step * warmup^-1.5) (equation 3).

    The returned function takes the number of updates made so far, so that the first
    update, with 0 made, is the paper's step_num 1.
    """

    def learning_rate(count):
        step = jnp.asarray(count, jnp.float32) + 1
        return width**-0.5 * jnp.minimum(step**-0.5, step * warmup**-1.5)

    return learning_rate


def schedule(config: Config) -> optax.Schedule:
    """The learning rate of a config."""
    return inverse_sqrt_schedule(config.model.width, config.train.warmup)


def adam(config: Config) -> optax.GradientTransformation:
    """Adam (Kingma and Ba 2015) with beta 0.9, 0.98 and epsilon 1e-9 by default."""
    train = config.train
    return optax.adam(
        schedule(config), b1=train.adam_b1, b2=train.adam_b2, eps=train.adam_epsilon
    )
