"""Trackers get each metric once, and none of them stops a run."""

import contextlib
import os
import sqlite3
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import RecordWriter

from t2t_jax import train
from t2t_jax.extensions.run.trackers import Background
from t2t_jax.io.errors import UserError
from t2t_jax.training.metrics_log import read_log
from t2t_jax.training.reporter import Reporter
from t2t_jax.training.trackers import TRACKERS
from t2t_jax.workdir import Workdir
from tests.small_run import ROOT, config_for, flags_for


@pytest.fixture
def sent(finished, monkeypatch):
    """What a service of the network gets; it fails at steps `fails`; 0 is its start."""

    def send(step, values):
        if step in sent.fails:
            raise ConnectionError("no route to it")
        sent.append((step, *values))

    def _open_service(name, config, known):
        send(0, [name, config["train"]["steps"], known])
        return "the id", send, lambda: sent.append("end")

    monkeypatch.setitem(TRACKERS, "service", partial(Background, _open_service))
    sent = type("Sent", (list,), {"fails": ()})()
    return sent


def record(finished, first, last):
    reporter = Reporter(Workdir(finished), first, 12, ["service", "tensorboard"])
    for step in range(first + 1, last + 1):
        reporter.record(step, "train", {"loss": 1.0 / step})
    reporter.close()


def test_a_continued_run_is_one_run_there(finished, sent, capsys):
    record(finished, 12, 14)
    record(finished, 13, 15)  # repeats step 14
    loss = "train/loss"
    assert sent[:4] == [(0, finished.name, 12, None), (13, loss), (14, loss), "end"]
    assert sent[4:] == [(0, finished.name, 12, "the id"), (15, loss), "end"]
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(("fails", "steps"), [({0}, []), ({14, 15}, [0, 13, 16])])
def test_a_tracker_that_fails_warns_once(finished, sent, capsys, fails, steps):
    sent.fails = fails
    record(finished, 12, 16)
    errors = capsys.readouterr().err
    assert errors.count("warning: service lacks metrics") == 1
    assert "no route to it" in errors
    assert {*range(13, 17)} < {*read_log(finished / "metrics.jsonl").metrics("train")}
    assert [entry[0] for entry in sent if entry != "end"] == steps


def test_a_missing_package_is_refused_and_a_folder_is_no_package(
    text, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in ("wandb", "mlflow"):
        (tmp_path / name).mkdir()
        monkeypatch.delitem(sys.modules, name, raising=False)
        with pytest.raises(UserError, match=f"pip install {name}"):
            train(config_for(text), tmp_path / "run", track=[name])
    with pytest.raises(UserError, match="did you mean 'wandb'"):
        train(config_for(text), tmp_path / "run", track=["wandbb"])
    assert not (tmp_path / "run").exists()


def test_tensorboard_reads_the_file(tmp_path):
    board = TRACKERS["tensorboard"](Workdir(tmp_path), 3)
    board.add(5, "train", {"loss": 0.5})
    board.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    content, events = file.read_bytes(), []
    again = RecordWriter(str(tmp_path / "again"))  # as tensorboardX writes records
    while rest := content[sum(16 + len(event) for event in events) :]:
        events.append(rest[12 : 12 + struct.unpack("<Q", rest[:8])[0]])
        again.write(events[-1])
    again.close()
    assert (tmp_path / "again").read_bytes() == content
    version, start, loss = map(Event.FromString, events)
    assert (version.file_version, start.step, loss.step) == ("brain.Event:2", 4, 5)
    (value,) = loss.summary.value
    assert (value.tag, value.simple_value) == ("train/loss", 0.5)


@pytest.mark.slow
def test_real_trackers_have_all_metrics_of_a_continued_run(text, tmp_path):
    """On this disk; $TRACKERS_PYTHON may name a Python that has the packages."""
    python = os.environ.get("TRACKERS_PYTHON", sys.executable)
    needs = [python, "-c", "import mlflow, sqlalchemy, wandb"]
    if subprocess.run(needs, capture_output=True).returncode:
        pytest.skip("needs pip install mlflow wandb")
    store, run = tmp_path / "runs.db", tmp_path / "run"
    env = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{store}"}
    env |= {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    for steps in (6, 12):
        flags = flags_for(text, run, train={"steps": steps})
        words = [python, "-m", "t2t_jax.main", *flags, "--track=mlflow,wandb"]
        ended = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True)
        assert ended.returncode == 0, ended.stderr
        assert b"lacks metrics" not in ended.stderr
    assert not (run / "tensorboard").exists()
    log, ids = read_log(run / "metrics.jsonl"), [*map(Path.read_text, run.glob("*.id"))]
    logged = {
        (f"{kind}/loss", step, values["loss"])
        for kind in ("train", "dev")
        for step, values in log.metrics(kind).items()
    }
    assert len(logged) == 6
    with contextlib.closing(sqlite3.connect(store)) as database:
        rows = database.execute("select run_uuid, key, step, value from metrics")
        rows = [row for row in rows if row[1].endswith("/loss")]
        ((fields,),) = database.execute("select count(*) from params")
    assert {row[1:] for row in rows} == logged
    assert {row[0] for row in rows} < {*ids}
    assert fields > 90
    first, second = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert first.name == second.name  # the id, so W&B makes one run of both
    stored = first.read_bytes() + second.read_bytes()
    assert all(str(loss).encode() in stored for *_, loss in logged)
    assert b'"warmup":6' in stored
