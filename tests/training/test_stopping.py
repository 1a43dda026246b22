"""When training ends, and what it says then."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.config import Config, DataConfig, TrainConfig
from t2t_jax.training.stopping import Clock, best_step, reason_to_stop


def reason(step=5, seconds=0.0, bleu=None, **train):
    data = DataConfig(dev="dev")  # patience wants one
    defaults = {"steps": 100, "eval_every": 1}
    config = Config(data=data, train=TrainConfig(**defaults | train))
    return reason_to_stop(config, step, seconds, bleu or {}, "bleu")


def test_steps_and_minutes_end_it():
    assert reason(step=99) == ""
    assert reason(seconds=1e9, bleu={1: 3.0, 2: 2.0, 3: 1.0}) == ""  # no limit was set
    assert reason(step=100) == "100 of 100 steps are trained"
    assert reason(minutes=2.0, seconds=119.9) == ""
    assert "minutes=2 was reached after 5 of 100" in reason(minutes=2.0, seconds=120.0)


def test_patience_counts_evaluations_since_the_best():
    bleu = {10: 20.0, 20: 30.0, 30: 29.0, 40: 30.0}
    assert reason(bleu=bleu, patience=3) == ""
    told = reason(bleu=bleu, patience=2)  # an equal BLEU is not a better one
    assert "bleu did not improve on 30.00, reached at step 20, in 2" in told
    assert reason(bleu=bleu | {50: 30.1}, patience=2) == ""
    stops = {33: 1.0, 37: 1.0}  # evaluations where the run was stopped do not count
    assert reason(bleu=bleu | stops, patience=3, eval_every=10) == ""


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(1, 5))
def test_it_ends_when_the_last_evaluations_brought_nothing(scores, patience):
    bleu = dict(enumerate(scores))
    older, latest = scores[:-patience], scores[-patience:]
    ended = bool(older) and max(latest) <= max(older)
    assert bool(reason(bleu=bleu, patience=patience)) == ended
    assert bleu[best_step(bleu)] == max(scores)


def test_a_clock_goes_on_from_the_seconds_of_earlier_runs(monkeypatch):
    now = [50.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    clock = Clock(1_000.0)
    now[0] += 7
    assert clock.seconds() == pytest.approx(1_007)


def test_patience_wants_a_dev_bleu():
    with pytest.raises(ValueError, match="goes by the dev score"):
        Config(train=dataclasses.replace(Config().train, patience=2))
