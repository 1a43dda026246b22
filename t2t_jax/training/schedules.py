"""Learning rate schedules (section 5.3): `SCHEDULES`.

All of them rise linearly for `config.train.warmup` updates. They take the number of
updates so far: 0 is the paper's step_num 1.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import optax

from t2t_jax.config import Config
from t2t_jax.sections import field


class Schedule(NamedTuple):
    """A learning rate schedule.

    Attributes:
      rate: config -> the learning rate as a function of the updates so far.
      formula: config -> the same as text, of `step`, which is updates + 1.
      fixes: ("steps",) if the rate depends on `train.steps`, so that a run cannot
        continue with another number of them.
      Options: a dataclass of hyperparameters, `config.train.options`.
    """

    rate: Callable[[Config], optax.Schedule]
    formula: Callable[[Config], str]
    fixes: tuple[str, ...]
    Options: type | None = None


def schedule(config: Config) -> optax.Schedule:
    """The learning rate schedule that a config chooses."""
    return config.train.variant("schedule").rate(config)


def formula(config: Config) -> str:
    """The formula of the learning rate at a step (from 1), as text."""
    return config.train.variant("schedule").formula(config)


# ----------------------------------------------------------------------------- warm-up


def peak(config: Config) -> float:
    """The highest learning rate; by default the paper's, (width * warmup)^-0.5."""
    train = config.train
    return train.peak_learning_rate or (config.model.width * train.warmup) ** -0.5


def peak_text(config: Config) -> str:
    """`peak`, as the first factor of a formula."""
    train = config.train
    if train.peak_learning_rate:
        return f"{train.peak_learning_rate:g}"
    return f"({config.model.width} * {train.warmup})^-0.5"


def steps_after_warmup(config: Config) -> int:
    """Updates from the peak until the rate is 0, once all `train.steps` are made."""
    return max(1, config.train.steps + 1 - config.train.warmup)


def after_warmup(config: Config, then: optax.Schedule) -> optax.Schedule:
    """Rises linearly to the peak at step `warmup`; `then` counts from there."""
    warmup, top = config.train.warmup, peak(config)
    # As in equation 3, the first update already has a rate: peak / warmup.
    rise = optax.linear_schedule(top / warmup, top, warmup - 1)
    return optax.join_schedules([rise, then], [warmup - 1])


# ------------------------------------------------------------------------- the entries


def paper(config: Config) -> optax.Schedule:
    """width^-0.5 * min(step^-0.5, step * warmup^-1.5) (equation 3).

    The learning rate rises linearly for `warmup` updates and then falls with the
    inverse square root of their number. `peak_learning_rate` scales the whole curve.
    """
    width, warmup = config.model.width, config.train.warmup
    peak = config.train.peak_learning_rate
    # At step `warmup` the minimum is warmup^-0.5, so this scale makes it `peak`.
    scale = peak * warmup**0.5 if peak else width**-0.5

    def learning_rate(count):
        step = jnp.asarray(count, jnp.float32) + 1
        return scale * jnp.minimum(step**-0.5, step * warmup**-1.5)

    return learning_rate


def paper_formula(config: Config) -> str:
    train = config.train
    scale = f"{config.model.width}^-0.5"
    if train.peak_learning_rate:
        scale = f"{train.peak_learning_rate:g} * {train.warmup}^0.5"
    return f"{scale} * min(step^-0.5, step * {train.warmup}^-1.5)"


def linear(config: Config) -> optax.Schedule:
    """Falls linearly to 0 at the end of the run (Devlin et al. 2019)."""
    fall = optax.linear_schedule(peak(config), 0.0, steps_after_warmup(config))
    return after_warmup(config, fall)


def linear_formula(config: Config) -> str:
    train, steps = config.train, steps_after_warmup(config)
    return (
        f"{peak_text(config)} * min(step / {train.warmup}, "
        f"({train.warmup + steps} - step) / {steps})"
    )


def cosine(config: Config) -> optax.Schedule:
    """Falls to 0 as half a cosine wave (Loshchilov and Hutter 2017, no restarts)."""
    fall = optax.cosine_decay_schedule(peak(config), steps_after_warmup(config))
    return after_warmup(config, fall)


def cosine_formula(config: Config) -> str:
    warmup, steps = config.train.warmup, steps_after_warmup(config)
    return (
        f"{peak_text(config)} * min(step / {warmup}, "
        f"(1 + cos(pi * max(0, step - {warmup}) / {steps})) / 2)"
    )


def constant(config: Config) -> optax.Schedule:
    """Stays at the peak."""
    return after_warmup(config, optax.constant_schedule(peak(config)))


def constant_formula(config: Config) -> str:
    return f"{peak_text(config)} * min(step / {config.train.warmup}, 1)"


@dataclasses.dataclass(frozen=True)
class WarmupStableDecay:
    """Options of `warmup_stable_decay`."""

    # The last share of `train.steps`, in which the rate falls linearly to 0.
    decay_share: float = field(
        0.2,
        above=0,
        high=1,
        hint="for a rate that never falls, config.train.schedule='constant'",
    )


def decay_steps(config: Config) -> int:
    """Updates in which `warmup_stable_decay` falls; none of them are warm-up."""
    share = config.train.own_options(SCHEDULES["warmup_stable_decay"]).decay_share
    return max(1, min(round(share * config.train.steps), steps_after_warmup(config)))


def warmup_stable_decay(config: Config) -> optax.Schedule:
    """Stays at the peak, then falls to 0 (Hu et al. 2024), here linearly."""
    fall = decay_steps(config)
    stable = optax.join_schedules(
        [
            optax.constant_schedule(peak(config)),
            optax.linear_schedule(peak(config), 0.0, fall),
        ],
        [steps_after_warmup(config) - fall],
    )
    return after_warmup(config, stable)


def warmup_stable_decay_formula(config: Config) -> str:
    warmup, fall = config.train.warmup, decay_steps(config)
    end = warmup + steps_after_warmup(config)
    return f"{peak_text(config)} * min(step / {warmup}, 1, ({end} - step) / {fall})"


SCHEDULES = {
    "paper": Schedule(paper, paper_formula, fixes=()),
    "linear": Schedule(linear, linear_formula, fixes=("steps",)),
    "cosine": Schedule(cosine, cosine_formula, fixes=("steps",)),
    "constant": Schedule(constant, constant_formula, fixes=()),
    "warmup_stable_decay": Schedule(
        warmup_stable_decay,
        warmup_stable_decay_formula,
        fixes=("steps",),
        Options=WarmupStableDecay,
    ),
}
