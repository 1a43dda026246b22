"""When training ends; what is alarming; where the data goes on after a rollback."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax import UserError
from t2t_jax.config import Config, DataConfig, TrainConfig, from_config_dict
from t2t_jax.data.feeding import Position
from t2t_jax.training.divergence import Rollback, Rollbacks, alarms, find_divergence
from t2t_jax.training.stopping import best_step, reason_to_stop
from t2t_jax.workdir import Workdir


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
    message = reason(bleu=bleu, patience=2)  # an equal BLEU is not a better one
    assert "bleu did not improve on 30.00, reached at step 20, in 2" in message
    stops = {33: 1.0, 37: 1.0}  # evaluations where the run was stopped do not count
    assert reason(bleu=bleu | stops, patience=3, eval_every=10) == ""
    # Nor is one the best: a run that was stopped there ends where any other does.
    high = {17: 99.0, 37: 99.0}
    assert reason(bleu=bleu | high, patience=2, eval_every=10) == message
    assert reason(bleu={10: 20.0, 20: 30.0} | high, patience=1, eval_every=10) == ""
    assert reason(bleu=high, patience=1, eval_every=10) == ""
    with pytest.raises(ValueError, match="goes by the dev score"):
        Config(train=dataclasses.replace(Config().train, patience=2))


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(1, 5))
def test_it_ends_when_the_last_evaluations_brought_nothing(scores, patience):
    bleu = dict(enumerate(scores))
    earlier, latest = scores[:-patience], scores[-patience:]
    ended = bool(earlier) and max(latest) <= max(earlier)
    assert bool(reason(bleu=bleu, patience=patience)) == ended
    assert bleu[best_step(bleu)] == max(scores)


# ------------------------------------------------------------------------- divergence


def row(step, norm=1.0, loss=2.0, in_a_row=0):
    values = {"gradient_norm": norm, "loss": loss, "skipped_in_a_row": in_a_row}
    return {"step": step, **values}


def test_a_norm_is_alarming_if_it_is_not_finite_or_far_above_the_usual():
    rows = [row(1), row(2, norm=math.inf), row(3, norm=math.nan), row(4, loss=math.nan)]
    assert [a["step"] for a in alarms(Config(), rows, [])] == [2, 3, 4]
    usual = [1.0, 2.0, 3.0, math.inf, 2.0, 2.0]
    rows = [row(1, norm=9.9), row(2, norm=10.1)]
    alarming = alarms(Config(), rows, usual)  # 5 times the median of the finite ones
    assert [(a["step"], a["usual_norm"]) for a in alarming] == [(2, 2.0)]
    assert alarms(Config(), rows, [100.0] * 20 + usual * 4)  # the last 20 count
    never = from_config_dict({"train": {"alarm_norm": 0}})
    assert alarms(never, rows, usual) == []


def test_a_run_has_diverged_by_skipped_steps_or_a_risen_loss():
    config = from_config_dict({"train": {"max_skipped": 3}})
    rows = [row(5, in_a_row=1), row(6, in_a_row=2), row(7, in_a_row=3), row(8)]
    assert find_divergence(config, rows, 2.0, math.inf).step == 5
    assert find_divergence(config, [*rows[:2], row(7)], 2.0, math.inf) is None
    streak = [row(7, in_a_row=5), row(8, in_a_row=6)]  # it began before the reading
    assert find_divergence(config, streak, math.nan, 1.0).step == 3
    config = from_config_dict({"train": {"max_rise": 1.5}})
    rows = [row(5), row(6)]
    assert find_divergence(config, rows, 4.4, 3.0) is None
    trouble = find_divergence(config, rows, 4.6, 3.0)
    assert trouble.step == 5
    assert "the loss rose to 4.600, from 3.000" in trouble.why
    assert find_divergence(Config(), rows, 99.0, 3.0) is None


def test_data_goes_on_where_the_last_rollback_put_it(tmp_path):
    rollbacks = Rollbacks(Workdir(tmp_path))
    unmoved = Position(7, 7)
    assert rollbacks.last_before(5) == (0, Position())

    def go_back(step, position):
        rollbacks.add(Rollback(step, Position(), Position(*position), "inf"))

    go_back(4, (0, 9))
    go_back(8, (0, 15))
    assert rollbacks.position(4, unmoved) == Position(0, 9)
    assert rollbacks.position(5, unmoved) == unmoved
    assert rollbacks.last_before(4) == (0, Position())  # step 4 came before
    assert rollbacks.last_before(5) == (4, Position(0, 9))
    go_back(4, (1, 0))  # back over the second, and the first again
    assert Rollbacks(Workdir(tmp_path)).all == rollbacks.all
    assert rollbacks.position(4, unmoved) == Position(1, 0)
    assert rollbacks.position(8, unmoved) == unmoved
    assert rollbacks.last_before(9) == (4, Position(1, 0))
    for content in (b"", b"[{}]", b"\xff\xfe"):
        (tmp_path / "rollbacks.json").write_bytes(content)
        with pytest.raises(UserError, match=r"rollbacks.json is damaged"):
            Rollbacks(Workdir(tmp_path))
