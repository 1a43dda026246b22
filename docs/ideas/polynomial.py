"""Schedule: falls as a power of the steps left (You et al. 2017, with power 2)."""

import dataclasses

import optax

from t2t_jax.sections import field
from t2t_jax.training.schedules import (
    SCHEDULES,
    Schedule,
    after_warmup,
    peak,
    peak_text,
    steps_after_warmup,
)


@dataclasses.dataclass(frozen=True)
class Options:
    """`decay_power`: the exponent of the share of steps left."""

    decay_power: float = field(2.0, low=0)


def power(config):
    return config.train.own_options(SCHEDULES["polynomial"]).decay_power


def rate(config):
    left = steps_after_warmup(config)
    fall = optax.polynomial_schedule(peak(config), 0.0, power(config), left)
    return after_warmup(config, fall)


def formula(config):
    """The same as text; the tests compare the two."""
    warmup, left = config.train.warmup, steps_after_warmup(config)
    return (
        f"{peak_text(config)} * min(step / {warmup}, "
        f"(({warmup + left} - step) / {left})^{power(config):g})"
    )


# `fixes`: a run cannot continue with another number of steps.
SCHEDULES["polynomial"] = Schedule(rate, formula, fixes=("steps",), Options=Options)
