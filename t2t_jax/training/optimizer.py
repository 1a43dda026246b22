"""Adam with the paper's learning rate (section 5.3)."""

import jax.numpy as jnp
import optax

from t2t_jax.config import Config


def inverse_sqrt_schedule(
    width: int, warmup: int, peak: float | None = None
) -> optax.Schedule:
    """width^-0.5 * min(step^-0.5, step * warmup^-1.5) (equation 3).

    The learning rate rises linearly for `warmup` updates and then falls with the
    inverse square root of their number. The returned function takes the number of
    updates so far: 0 is the paper's step_num 1.

    Args:
      peak: the highest learning rate, reached at step `warmup`; scales the whole
        curve. The paper's is (width * warmup)^-0.5.
    """
    # At step `warmup` the minimum is warmup^-0.5, so this scale makes it `peak`.
    scale = width**-0.5 if peak is None else peak * warmup**0.5

    def learning_rate(count):
        step = jnp.asarray(count, jnp.float32) + 1
        return scale * jnp.minimum(step**-0.5, step * warmup**-1.5)

    return learning_rate


def schedule(config: Config) -> optax.Schedule:
    """The learning rate schedule of a config."""
    peak = config.train.peak_learning_rate or None  # 0: the paper's
    return inverse_sqrt_schedule(config.model.width, config.train.warmup, peak)


def adam(config: Config) -> optax.GradientTransformation:
    """Adam (Kingma and Ba 2015); by default beta 0.9 and 0.98, epsilon 1e-9."""
    train = config.train
    return optax.adam(
        schedule(config), b1=train.adam_b1, b2=train.adam_b2, eps=train.adam_epsilon
    )
