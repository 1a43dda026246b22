"""Metrics are kept once, whole, in order; means are over all tokens of an interval."""

import json

import numpy as np
import pytest

from t2t_jax.data.feeding import Position
from t2t_jax.training.metrics_log import Meter, MetricsLog, read_log
from t2t_jax.training.reporter import Reporter
from t2t_jax.workdir import Workdir


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_steps_made_again_are_not_written_twice(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = MetricsLog(path)
    assert lines.write(10, "train", {"loss": 2.0})
    assert lines.write(20, "train", {"loss": 1.0})
    lines.close()
    lines = MetricsLog(path)
    assert not lines.write(20, "train", {"loss": 9.0})
    assert lines.write(20, "dev", {"loss": 1.5})
    assert lines.write(30, "train", {"loss": 0.5})
    lines.close()
    assert [(e["step"], e["kind"], e["loss"]) for e in read(path)] == [
        (10, "train", 2.0),
        (20, "train", 1.0),
        (20, "dev", 1.5),
        (30, "train", 0.5),
    ]


def test_half_a_line_left_by_a_crash_is_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "kind": "train", "loss": 3.0}\n{"step": 2, "ki')
    lines = MetricsLog(path)
    lines.write(2, "train", {"loss": float("nan"), "gradient_norm": float("inf")})
    lines.close()
    entries = read(path)
    assert [entry["step"] for entry in entries] == [1, 2]
    assert (entries[1]["loss"], entries[1]["gradient_norm"]) == (None, None)


def test_a_line_that_only_lacks_its_end_stays(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "kind": "train", "loss": 3.0}')
    lines = MetricsLog(path)
    lines.write(2, "train", {"loss": 2.0})
    lines.close()
    assert [entry["step"] for entry in read(path)] == [1, 2]


def test_the_end_of_a_line_that_no_run_wrote_becomes_a_damaged_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "kind": "dev"}\n[]\n{"kind": "dev"')
    assert read_log(path).damaged == [2]  # a run may be writing the third
    MetricsLog(path).close()
    assert path.read_text().endswith('{"kind": "dev"\n')
    assert read_log(path).damaged == [2, 3]


def test_outside_a_terminal_progress_is_lines(tmp_path, capsys):
    watch = Reporter(Workdir(tmp_path), 0, 100)
    values = {"loss": 1.5, "tokens_per_second": 1234.0, "skipped": 2.0}
    values |= {"seconds_per_step": 1.25, "mfu": 0.375}
    watch.record(10, "train", values)
    watch.progress(10, values, seconds_left=90)
    watch.close()
    line = (
        "step 10/100  loss 1.500  tokens/s 1,234  ms/step 1,250  MFU 37.5%  skipped 2  "
        "left 01:30"
    )
    assert line in capsys.readouterr().err
    assert read(tmp_path / "metrics.jsonl")[0]["loss"] == 1.5
    assert list((tmp_path / "tensorboard").iterdir())


# ------------------------------------------------------------------------------ means


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
    values = meter.read()
    assert meter.unread() == []
    assert values["loss"] == pytest.approx((2.0 * 30 + 4.0 * 10) / 40)
    assert values["perplexity"] == pytest.approx(np.exp((1.0 * 30 + 2.0 * 10) / 40))
    assert values["kl"] == pytest.approx(2.0)
    assert (values["gradient_norm"], values["skipped_in_a_row"]) == (5.0, 3.0)
    assert (values["learning_rate"], values["skipped"]) == (4.0, 2.0)
    assert values["tokens_per_second"] == pytest.approx(80 / values["seconds"])
    # Steps of an earlier version have no counts: they are weighed by tokens.
    old = {"step": 1, **metrics(2.0, 30)}
    del old["loss_count"], old["nll_count"]
    meter = Meter([old])
    add(meter, metrics(4.0, 10), 2)
    assert meter.read()["loss"] == pytest.approx(2.5)


def test_a_skipped_step_does_not_hide_the_others():
    meter = Meter()
    for loss in (2.0, np.nan, 4.0):
        add(meter, metrics(loss, 10, norm=loss, skipped=1))
    assert meter.read()["loss"] == pytest.approx(3.0)
    add(meter, metrics(np.nan, 10))
    assert np.isnan(meter.read()["loss"])


def test_what_is_not_read_goes_on_in_another_meter_to_the_bit():
    undisturbed, stopped = Meter(), Meter()
    steps = [metrics(1 / 3, 30), metrics(np.nan, 7, norm=np.inf), metrics(0.7, 10)]
    for number, values in enumerate(steps, 1):
        add(undisturbed, values, number)
        if number < 3:
            add(stopped, values, number)
    second = Meter(json.loads(json.dumps(stopped.unread())))
    add(second, steps[2], 3)
    assert str(undisturbed.unread()) == str(second.unread())
    values = [meter.read() for meter in (undisturbed, second)]
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
