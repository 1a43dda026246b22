"""What is alarming, what has diverged, and where the data goes on after a rollback."""

import math

import pytest

from t2t_jax import UserError
from t2t_jax.config import Config, from_config_dict
from t2t_jax.data.feeding import Position
from t2t_jax.training.divergence import Rollback, Rollbacks, alarms, find_divergence
from t2t_jax.workdir import Workdir


def row(step, norm=1.0, loss=2.0, in_a_row=0):
    values = {"gradient_norm": norm, "loss": loss, "skipped_in_a_row": in_a_row}
    return {"step": step, **values}


def test_what_is_not_finite_is_always_alarming():
    rows = [row(1), row(2, norm=math.inf), row(3, norm=math.nan), row(4, loss=math.nan)]
    assert [a["step"] for a in alarms(Config(), rows, [])] == [2, 3, 4]


def test_a_norm_is_alarming_beside_what_is_usual():
    usual = [1.0, 2.0, 3.0, math.inf, 2.0, 2.0]
    rows = [row(1, norm=9.9), row(2, norm=10.1)]
    found = alarms(Config(), rows, usual)  # 5 times the median of the finite ones
    assert [(a["step"], a["usual_norm"]) for a in found] == [(2, 2.0)]
    assert alarms(Config(), rows, usual[:5]) == []  # too few to say
    assert alarms(Config(), rows, [100.0] * 20 + usual * 4)  # the last 20 count
    never = from_config_dict({"train": {"alarm_norm": 0}})
    assert alarms(never, rows, usual) == []


def test_a_run_has_diverged_by_skipped_steps_in_a_row():
    config = from_config_dict({"train": {"max_skipped": 3}})
    rows = [row(5, in_a_row=1), row(6, in_a_row=2), row(7, in_a_row=3), row(8)]
    assert find_divergence(config, rows, 2.0, math.inf).step == 5
    assert find_divergence(config, [*rows[:2], row(7)], 2.0, math.inf) is None
    before = [row(7, in_a_row=5), row(8, in_a_row=6)]  # it began before the reading
    assert find_divergence(config, before, math.nan, 1.0).step == 3


def test_a_run_has_diverged_by_a_risen_loss_where_that_is_asked_for():
    config = from_config_dict({"train": {"max_rise": 1.5}})
    rows = [row(5), row(6)]
    assert find_divergence(config, rows, 4.4, 3.0) is None
    trouble = find_divergence(config, rows, 4.6, 3.0)
    assert trouble.step == 5
    assert "the loss rose to 4.600, from 3.000" in trouble.why
    assert find_divergence(config, rows, 4.6, math.inf) is None  # nothing was lower yet
    assert find_divergence(Config(), rows, 99.0, 3.0) is None


def rollback(step, to):
    return Rollback(step, Position(), Position(*to), "inf")


def test_data_goes_on_where_the_last_rollback_put_it(tmp_path):
    rollbacks = Rollbacks(Workdir(tmp_path))
    own = Position(7, 7)
    assert rollbacks.last_before(5) == (0, Position())
    rollbacks.add(rollback(4, (0, 9)))
    rollbacks.add(rollback(8, (0, 15)))
    assert rollbacks.position(4, own) == Position(0, 9)
    assert rollbacks.position(5, own) == own
    assert rollbacks.last_before(4) == (0, Position())  # step 4 came before
    assert rollbacks.last_before(5) == (4, Position(0, 9))
    assert rollbacks.last_before(9) == (8, Position(0, 15))
    rollbacks.add(rollback(4, (1, 0)))  # back over the second, and the first again
    assert Rollbacks(Workdir(tmp_path)).all == rollbacks.all
    assert rollbacks.position(4, own) == Position(1, 0)
    assert rollbacks.position(8, own) == own
    assert rollbacks.last_before(9) == (4, Position(1, 0))


def test_a_damaged_file_of_rollbacks_is_told(tmp_path):
    for content in (b"", b"[{}]", b'{"a": 1}', b"[[1]]", b"\xff\xfe"):
        (tmp_path / "rollbacks.json").write_bytes(content)
        with pytest.raises(UserError, match=r"rollbacks.json is damaged"):
            Rollbacks(Workdir(tmp_path))
