"""Disks that are full or read-only; other text, another machine, a clock that jumps."""

import contextlib
import itertools
import json
import os
import pwd
import shutil
import subprocess
import threading
import time

import pytest

from t2t_jax import Translator, UserError, train
from t2t_jax.commands import runner
from t2t_jax.data.corpus import open_corpus
from t2t_jax.data.tfds import data_folder
from t2t_jax.evaluation import dev_answers
from t2t_jax.evaluation.scores import read_answers, score_set, scores_and_answers
from t2t_jax.io import sealed
from t2t_jax.io.cache import cache_folder
from t2t_jax.io.locations import locate
from t2t_jax.parallel import nondeterminism
from t2t_jax.training import loop
from t2t_jax.training.checkpoint_folders import sealed_steps
from t2t_jax.workdir import Workdir
from tests.faults.damage import QUIET
from tests.small_run import assert_same_run, config_for, files

pytestmark = pytest.mark.usefixtures("compiled_once")


def mount(*arguments):
    command = ["mount", *map(str, arguments)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")


@contextlib.contextmanager
def small_disk(folder, size):
    """A folder becomes a disk of its own; yields a function that makes it larger."""
    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    try:
        yield lambda size: mount("-o", f"remount,size={size}", folder)
    finally:
        subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def read_only(folder):
    """A folder that may only be read, by root too."""
    if os.geteuid():
        places = [folder, *folder.rglob("*")]
        modes = [place.stat().st_mode for place in places]
        for place, mode in zip(places, modes, strict=True):
            place.chmod(mode & ~0o222)
        yield
        for place, mode in zip(places, modes, strict=True):
            place.chmod(mode)
        return
    mount("--bind", folder, folder)
    try:
        mount("-o", "remount,bind,ro", folder)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def intact_steps(workdir, kind="state"):
    """The checkpoints that count, all of which are as they were written."""
    folder = Workdir(workdir).checkpoints / kind
    steps = sealed_steps(folder)
    assert not any(sealed.damage(folder / str(step)) for step in steps)
    return steps


def test_a_full_disk_is_told_and_with_room_the_run_goes_on(
    undisturbed, text, tmp_path, capsys
):
    workdir = tmp_path / "disk" / "work"
    config = config_for(text, data=QUIET)
    with small_disk(tmp_path / "disk", "2m") as resize:
        with pytest.raises(SystemExit, match="2"):
            runner._catch_errors(lambda _: train(config, workdir), [])
        error, safe = capsys.readouterr().err.splitlines()[-2:]
        assert "error: the checkpoint of step 8 could not be written to " in error
        assert "[Errno 28] it needs 1.5 MB, and " in error
        assert "Earlier checkpoints are intact, the last of step 4" in safe
        assert intact_steps(workdir) == intact_steps(workdir, "parameters") == [4]
        resize("64m")
        train(config, workdir)
        assert "continuing after step 4" in capsys.readouterr().err
        assert_same_run(undisturbed, workdir)


class Full:
    """A file on a disk that is full: the first half of a line fits."""

    def __init__(self, file):
        self._file = file

    def write(self, line):
        self._file.write(line[: len(line) // 2])
        self._file.flush()
        raise OSError(27, "File too large", "metrics.jsonl")

    def close(self):
        self._file.close()


def test_metrics_that_cannot_grow_end_the_run_and_leave_no_half_line(
    trained, text, tmp_path, monkeypatch, capsys
):
    record, workdir = loop.Reporter.record, tmp_path / "work"

    def limited(self, step, kind, values):
        if kind == "dev":
            self._lines._file = Full(self._lines._file)
        return record(self, step, kind, values)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Reporter, "record", limited)
        with pytest.raises(SystemExit, match="2"):
            runner._catch_errors(lambda _: train(config_for(text), workdir), [])
    message = (
        "too large: 'metrics.jsonl'. Everything written before is complete; fix this"
    )
    assert message in capsys.readouterr().err
    lines = (workdir / "metrics.jsonl").read_bytes().split(b"\n")
    assert [json.loads(line)["kind"] for line in lines[:-1]] == ["train"] * 2
    assert lines[-1]
    train(config_for(text), workdir)
    assert_same_run(trained[0], workdir)


def test_a_workdir_that_may_only_be_read_translates_and_prints_scores(
    trained, text, finished, capsys
):
    test, dev = (open_corpus(name, "en", "de", str(text)) for name in ("test", "dev"))
    with read_only(finished):
        before = files(finished)
        translator = Translator.load(finished)
        assert score_set(translator, test, finished) == trained[1]["test"]
        with pytest.raises(UserError, match="cannot be written"):  # as training does
            score_set(translator, dev, finished, keep=True)
        capsys.readouterr()
        scores, answers = scores_and_answers(translator, dev, finished)
        warning = "warning: scores of dev will not be stored: "
        assert f"{warning}{finished} cannot be written" in capsys.readouterr().err
        with pytest.raises(UserError, match="Training needs a writable folder"):
            train(config_for(text, train={"steps": 13}), finished)
        assert files(finished) == before
    assert scores == score_set(translator, dev, finished)
    assert answers == read_answers(scores, dev, finished)


def test_a_named_folder_needs_no_home_and_a_missing_home_is_told(
    tmp_path, monkeypatch, capsys
):
    """As for a container's user without an entry in /etc/passwd."""

    def nobody(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "XDG_CACHE_HOME", "TFDS_DATA_DIR", "T2T_JAX_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for call in (cache_folder, data_folder, lambda: locate("~/work")):
        with pytest.raises(SystemExit, match="2"):
            runner._catch_errors(lambda _, call=call: call(), [])
        assert "error: Could not determine home directory: set HOME" in (
            capsys.readouterr().err
        )
    for name, call in (
        ("T2T_JAX_CACHE", cache_folder),
        ("TFDS_DATA_DIR", data_folder),
    ):
        monkeypatch.setenv(name, str(tmp_path))
        assert str(call()) == str(tmp_path)
    assert locate(tmp_path) == tmp_path


def test_a_thread_that_cannot_start_is_told_in_a_line(capsys):
    before = threading.stack_size(1 << 47)  # more than there are addresses
    try:
        with pytest.raises(SystemExit, match="2"):
            runner._catch_errors(lambda _: threading.Thread().start(), [])
    finally:
        threading.stack_size(before)
    assert "can't start new thread: this process may have no more threads" in (
        capsys.readouterr().err
    )


def test_a_cache_folder_that_cannot_be_written_is_told(text, tmp_path, monkeypatch):
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.setenv("T2T_JAX_CACHE", str(place / "cache"))
    message = f"^{place}/cache cannot be written: .*T2T_JAX_CACHE"
    with read_only(place), pytest.raises(UserError, match=message):
        train(config_for(text), tmp_path / "work")
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(("name", "set_name"), [("train", "training"), ("dev", "dev")])
def test_a_run_does_not_go_on_with_another_text(
    text, tmp_path, finished, name, set_name
):
    folder = tmp_path / "text"
    shutil.copytree(text, folder)
    file = folder / f"{name}.de"
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([*lines[:-1], "Das ist neu."]) + "\n", encoding="utf-8")
    before = files(finished)
    message = (
        f"the {set_name} text of {finished} is not what it was .* put the text back"
    )
    with pytest.raises(UserError, match=message):
        train(config_for(folder, train={"steps": 13}), finished)
    assert files(finished) == before


@pytest.fixture
def messages_until(text, finished, monkeypatch, capsys):
    """Continues a finished run to a step; returns what it says."""
    monkeypatch.setattr(dev_answers.DevAnswers, "__call__", lambda *_: {"bleu": 1.0})

    def run(steps):
        train(config_for(text, data={"test": ""}, train={"steps": steps}), finished)
        return capsys.readouterr().err

    return run


def test_another_machine_is_told_and_the_same_is_not(
    messages_until, finished, monkeypatch
):
    assert "warning" not in messages_until(13)
    machine = loop.describe_machine()
    monkeypatch.setattr(loop, "describe_machine", lambda: machine | {"cores": 4_096})
    changed = f"not that of the last start (cores {machine['cores']} -> 4096); the run"
    assert changed in messages_until(14)
    starts = map(json.loads, (finished / "starts.jsonl").open())
    assert [(s["step"], s["machine"]["cores"] == 4_096) for s in starts] == [
        *((0, False), (12, False), (13, True))
    ]


def test_other_kernels_of_the_autotuner_are_told(messages_until, tmp_path, monkeypatch):
    choices = tmp_path / "choices"
    choices.mkdir()
    monkeypatch.setattr(nondeterminism, "_folder", lambda: choices)
    (choices / "tile of a product").write_text("128x128")
    assert "warning" not in messages_until(13)
    (choices / "tile of another").write_text("64x64")
    assert "warning" not in messages_until(14)
    (choices / "tile of a product").write_text("128x64")
    assert "kernels that XLA chose for the last start" in messages_until(15)


def test_a_clock_that_jumps_changes_nothing(trained, text, tmp_path, monkeypatch):
    """By a minute: Orbax gives up a save that seems to take many."""
    jumps = itertools.cycle([0, 60, -60])
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + next(jumps))
    config = config_for(text, data=QUIET, train={"minutes": 20.0})
    train(config, tmp_path / "work")
    not_made = ("best", "metrics", "scores", "translations", "config", "names")
    assert_same_run(trained[0], tmp_path / "work", *not_made)
