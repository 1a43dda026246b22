"""What is told of a stretch of steps is of all of its tokens."""

import json

import numpy as np
import pytest

from t2t_jax.data.feeding import Position
from t2t_jax.training.metrics_log import Meter


def metrics(loss, tokens, norm=1.0, skipped=0, in_a_row=0):
    counts = dict.fromkeys(
        ("tokens", "source_tokens", "loss_count", "nll_count"), np.int32(tokens)
    )
    return counts | {
        "loss": np.float32(loss),
        "nll": np.float32(loss / 2),
        "gradient_norm": np.float32(norm),
        "learning_rate": np.float32(loss),
        "skipped": np.int32(skipped),
        "skipped_in_a_row": np.int32(in_a_row),
    }


def add(meter, values, step=1):
    meter.add(step, Position(0, step), values)


def test_means_are_over_what_is_counted_and_alarms_are_the_worst():
    meter = Meter()
    for kl, count, values in (
        (5.0, 1, metrics(2.0, 30, norm=5.0, skipped=1, in_a_row=3)),
        (1.0, 3, metrics(4.0, 10, norm=2.0, skipped=2)),
    ):
        add(meter, values | {"kl": np.float32(kl), "kl_count": np.int32(count)})
    assert meter.unread() == meter.unread()
    values = meter.read()
    assert meter.unread() == []
    assert values["loss"] == pytest.approx((2.0 * 30 + 4.0 * 10) / 40)
    assert values["perplexity"] == pytest.approx(np.exp((1.0 * 30 + 2.0 * 10) / 40))
    assert values["kl"] == pytest.approx(2.0)
    assert not {"nll", "loss_count", "kl_count"} & set(values)
    assert (values["gradient_norm"], values["skipped_in_a_row"]) == (5.0, 3.0)
    assert (values["learning_rate"], values["skipped"]) == (4.0, 2.0)
    assert values["tokens_per_second"] == pytest.approx(80 / values["seconds"])
    add(meter, metrics(8.0, 10))
    assert meter.read()["loss"] == pytest.approx(8.0)


def test_steps_without_counts_from_an_earlier_version_are_weighed_by_tokens():
    old = {"step": 1, **metrics(2.0, 30)}
    del old["loss_count"], old["nll_count"]
    meter = Meter([old])
    add(meter, metrics(4.0, 10), 2)
    assert meter.read()["loss"] == pytest.approx(2.5)


def test_a_skipped_step_does_not_hide_the_others():
    meter = Meter()
    for loss in (2.0, np.nan, 4.0):
        add(meter, metrics(loss, 10, norm=loss, skipped=1))
    values = meter.read()
    assert values["loss"] == pytest.approx(3.0)
    add(meter, metrics(np.nan, 10))
    assert np.isnan(meter.read()["loss"])


def test_what_is_not_read_goes_on_in_another_meter_to_the_bit():
    whole, first = Meter(), Meter()
    steps = [metrics(1 / 3, 30), metrics(np.nan, 7, norm=np.inf), metrics(0.7, 10)]
    for number, values in enumerate(steps, 1):
        add(whole, values, number)
    for number, values in enumerate(steps[:2], 1):
        add(first, values, number)
    saved = json.loads(json.dumps(first.unread()))
    second = Meter(saved)
    add(second, steps[2], 3)
    told = [str(meter.unread()) for meter in (whole, second)]
    assert told[0] == told[1]
    rows = [(row["step"], row["batch"]) for row in second.unread()]
    assert rows == [(1, 1), (2, 2), (3, 3)]
    values = [meter.read() for meter in (whole, second)]
    for name in ("loss", "perplexity", "gradient_norm"):
        assert values[0][name] == values[1][name]


def test_the_share_of_the_peak_is_of_the_steps_on_the_clock():
    meter = Meter(peak=1e6)
    meter.add(1, Position(), metrics(1.0, 10), flops=7e9)
    meter.leave_out_compilation()
    for step in (2, 3):
        meter.add(step, Position(), metrics(1.0, 10), flops=3e6)
    values = meter.read()
    assert values["mfu"] == pytest.approx(6.0 / values["seconds"])
    assert values["seconds_per_step"] == pytest.approx(values["seconds"] / 2)
    assert "mfu" not in Meter([{"step": 1, **metrics(1.0, 10)}]).read()
