"""Metrics are kept once, whole, in order."""

import json

from t2t_jax.training.metrics_log import MetricsLog
from t2t_jax.training.reporter import Reporter
from t2t_jax.workdir import Workdir


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_steps_made_again_are_not_written_twice(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = MetricsLog(path)
    assert lines.write(10, "train", {"loss": 2.0})
    assert lines.write(10, "dev", {"loss": 2.5})
    assert lines.write(20, "train", {"loss": 1.0})
    lines.close()
    lines = MetricsLog(path)
    assert not lines.write(20, "train", {"loss": 9.0})
    assert lines.write(20, "dev", {"loss": 1.5})
    assert lines.write(30, "train", {"loss": 0.5})
    lines.close()
    assert [(e["step"], e["kind"], e["loss"]) for e in read(path)] == [
        (10, "train", 2.0),
        (10, "dev", 2.5),
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


def test_outside_a_terminal_progress_is_lines(tmp_path, capsys):
    Reporter(Workdir(tmp_path), 100, 100).close()  # without a metric, no file
    assert not (tmp_path / "tensorboard").exists()
    watch = Reporter(Workdir(tmp_path), 0, 100)
    values = {"loss": 1.5, "tokens_per_second": 1234.0, "skipped": 2.0}
    values |= {"seconds_per_step": 1.25, "mfu": 0.375}
    watch.record(10, "train", values)
    watch.progress(10, values, seconds_left=90)
    watch.close()
    told = capsys.readouterr().err
    assert (
        "step 10/100  loss 1.500  tokens/s 1,234  ms/step 1,250  MFU 37.5%  skipped 2  "
        "left 01:30"
    ) in told
    assert read(tmp_path / "metrics.jsonl")[0]["loss"] == 1.5
    assert list((tmp_path / "tensorboard").iterdir())
