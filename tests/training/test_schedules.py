"""Laws of every schedule in the table; its printed formula; when it binds a run."""

import math

import numpy as np
import pytest

from t2t_jax import config as fields
from t2t_jax.config import from_config_dict
from t2t_jax.io.errors import UserError
from t2t_jax.training.schedules import SCHEDULES, formula, schedule

WARMUP, STEPS = 20, 100


def config_of(name, steps=STEPS, warmup=WARMUP, peak=0.0, **options):
    train = {"schedule": name, "steps": steps, "warmup": warmup, "options": options}
    return from_config_dict({"train": train | {"peak_learning_rate": peak}})


def rates(config):
    return np.asarray(schedule(config)(np.arange(config.train.steps)), np.float64)


@pytest.mark.parametrize("warmup", [1, WARMUP, 2 * STEPS])
@pytest.mark.parametrize("name", SCHEDULES)
def test_it_rises_to_its_peak_and_stays_positive(name, warmup):
    rate_s = rates(config_of(name, warmup=warmup, peak=0.5))
    assert np.isfinite(rate_s).all()
    assert (rate_s > 0).all()
    np.testing.assert_allclose(
        rate_s[:warmup], 0.5 * np.arange(1, STEPS + 1)[:warmup] / warmup, rtol=1e-5
    )
    assert (np.diff(rate_s[warmup - 1 :]) <= 1e-7).all()  # never rises again
    assert np.abs(np.diff(rate_s)).max() <= 1.01 * 0.5 / min(warmup, WARMUP)  # no jumps
    papers = rates(config_of(name, warmup=warmup)).max()
    if warmup <= STEPS:
        assert papers == pytest.approx((512 * warmup) ** -0.5, rel=1e-5)


@pytest.mark.parametrize(("peak", "warmup"), [(0.0, WARMUP), (0.5, 1)])
@pytest.mark.parametrize("name", SCHEDULES)
def test_its_formula_is_what_it_computes(name, peak, warmup):
    config = config_of(name, peak=peak, warmup=warmup)
    code, functions = (
        formula(config).replace("^", "**"),
        {"cos": math.cos, "pi": math.pi},
    )
    by_formula = [eval(code, functions | {"step": step + 1}) for step in range(STEPS)]
    np.testing.assert_allclose(rates(config), by_formula, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", SCHEDULES)
def test_it_says_if_it_depends_on_the_length_of_the_run(name):
    short, twice = (config_of(name, steps=n) for n in (STEPS, 2 * STEPS))
    independent = np.allclose(rates(short), rates(twice)[:STEPS])
    assert independent == ("steps" not in SCHEDULES[name].fixes)
    assert fields.differences(short, twice) == {
        "train.steps": (STEPS, 2 * STEPS, independent)
    }


def test_points_by_hand():
    # From the peak, at 20 updates less one, to 0 at 100: 81 updates.
    assert rates(config_of("linear", peak=0.5))[-1] == pytest.approx(0.5 / 81)
    middle = rates(config_of("cosine", warmup=1, steps=100, peak=0.5))[50]
    assert middle == pytest.approx(0.25)
    stable = rates(config_of("warmup_stable_decay", peak=0.5, decay_share=0.1))
    np.testing.assert_allclose(stable[WARMUP - 1 : 91], 0.5)
    np.testing.assert_allclose(stable[90:], 0.05 * np.arange(10, 0, -1), rtol=1e-5)


def test_an_option_of_another_schedule_or_out_of_range_is_told():
    with pytest.raises(UserError, match="which this config does not choose"):
        config_of("linear", decay_share=0.5)
    with pytest.raises(UserError, match="want above 0 and at most 1"):
        config_of("warmup_stable_decay", decay_share=1.5)
