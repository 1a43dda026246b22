"""One workdir, one run; a run whose workdir is taken away; two that score at once."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from t2t_jax import Translator, UserError, train
from t2t_jax.data.corpus import open_corpus
from t2t_jax.evaluation import scores
from t2t_jax.io import atomic as product_files
from t2t_jax.tasks.task import Task
from t2t_jax.training import loop
from t2t_jax.workdir import Workdir
from tests.faults.processes import checkpoints
from tests.small_run import ROOT, config_for, files

pytestmark = pytest.mark.usefixtures("compiled_once")

PLAIN = {"data": {"dev": "", "test": ""}}  # trains as ever, and that is all
HOLDING = """
import sys, time
from t2t_jax.workdir import Workdir
with Workdir(sys.argv[1]).hold():
    print("held", flush=True)
    time.sleep(999)
"""


def trained_parts(workdir):
    """What does not depend on evaluations."""
    return {n: c for n, c in checkpoints(workdir).items() if not n.startswith("best")}


def without_tensorboard(workdir):
    """Each start has files of its own there, which nothing is read from."""
    return {n: f for n, f in files(workdir).items() if not n.startswith("tensorboard")}


@pytest.fixture
def before_step(monkeypatch):
    """Calls a function before one step of a run, when all before it is written."""
    true_step = loop.TrainingRun._step

    def install(at, function):
        def step(self):
            if self.step == at - 1:
                self.checkpoints.wait()
                function()
            true_step(self)

        monkeypatch.setattr(loop.TrainingRun, "_step", step)

    return install


def test_a_second_run_is_refused_and_the_first_undisturbed(
    trained, text, tmp_path, before_step
):
    workdir, refused = tmp_path / "work", []

    def second():
        before = without_tensorboard(workdir)
        with pytest.raises(UserError) as error:  # before a text is looked for
            train(config_for(text, data={"train": "nowhere"}), workdir)
        assert without_tensorboard(workdir) == before
        refused.append(str(error.value))

    before_step(6, second)
    train(config_for(text, **PLAIN), workdir)
    (told,) = refused
    holder = f"process {os.getpid()} on {socket.gethostname()}, since 20"
    assert told.startswith(f"{workdir} is in use by {holder}")
    assert told.endswith(". Wait for it or stop it, or give another --workdir")
    assert trained_parts(workdir) == trained_parts(trained[0])
    assert not (workdir / ".lock").exists()


def test_the_lock_of_a_process_that_was_killed_is_none(tmp_path):
    command = [sys.executable, "-c", HOLDING, str(tmp_path / "work")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with process.stdout:
        assert process.stdout.readline() == "held\n"
        refused = pytest.raises(UserError, match=f"in use by process {process.pid} on")
        with refused, Workdir(tmp_path / "work").hold():
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / "work/.lock").exists()
    with Workdir(tmp_path / "work").hold() as check:
        check()
    assert not (tmp_path / "work/.lock").exists()


TAKEN = "process 1 on elsewhere, since 2026-01-01 00:00:00"


@pytest.mark.parametrize(("step", "saved"), [(7, "state/4"), (9, "state/8")])
def test_a_run_whose_workdir_was_taken_over_writes_nothing_more(
    text, tmp_path, before_step, step, saved
):
    """As in a bucket, where there are no locks."""
    workdir, then = tmp_path / "work", []

    def take_over(*_):
        (workdir / ".lock").write_text(f"{TAKEN}\nanother\n")
        then.append(without_tensorboard(workdir))

    before_step(step, take_over)
    with pytest.raises(UserError) as error:
        train(config_for(text, **PLAIN), workdir)
    assert str(error.value) == (
        f"{workdir} is no longer this run's: it was taken over by {TAKEN}. This run "
        "ends here and writes nothing more"
    )
    assert without_tensorboard(workdir) == then[0]
    assert saved in checkpoints(workdir)


def test_a_workdir_that_is_renamed_under_a_run_goes_on_under_its_new_name(
    trained, text, tmp_path, before_step
):
    workdir, renamed = tmp_path / "work", tmp_path / "renamed"
    before_step(7, lambda: workdir.rename(renamed))
    with pytest.raises(UserError, match="its .lock was removed"):
        train(config_for(text, **PLAIN), workdir)
    assert not workdir.exists()
    before_step(1, lambda: None)
    train(config_for(text, **PLAIN), renamed)
    assert trained_parts(renamed) == trained_parts(trained[0])


def test_a_workdir_that_is_deleted_under_a_run_stays_deleted(
    text, tmp_path, before_step
):
    workdir = tmp_path / "work"
    before_step(7, lambda: shutil.rmtree(workdir))
    with pytest.raises(UserError, match="its .lock was removed"):
        train(config_for(text, **PLAIN), workdir)
    assert not workdir.exists()


@pytest.fixture
def scored(trained, tmp_path, monkeypatch):
    """A finished workdir; its checkpoints translate at once, each in its own way."""
    shutil.copytree(trained[0], tmp_path / "work")
    monkeypatch.setattr(
        Translator,
        "translate",
        lambda self, lines, **_: [f"{self.steps}" for _ in lines],
    )
    monkeypatch.setattr(Task, "extra_scores", lambda *_: {"perplexity": 2.0})
    return tmp_path / "work"


def test_two_that_score_at_once_lose_no_score(scored, text, monkeypatch):
    keep_earlier = product_files.keep_earlier

    def slowly(*both):
        keep_earlier(*both)
        time.sleep(0.3)

    monkeypatch.setattr(product_files, "keep_earlier", slowly)
    corpus = open_corpus("test", "en", "de", str(text))
    threads = [
        threading.Thread(target=scores.score_set, args=(translator, corpus, scored))
        for translator in (Translator.load(scored, step) for step in (8, 12))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = []
    for file in (scored / "scores").iterdir():
        content = json.loads(file.read_text())
        name = file.name.replace(".json", ".de")
        lines = (scored / "translations" / name).read_bytes()
        assert content["translations_sha256"] == hashlib.sha256(lines).hexdigest()
        found.append(tuple(content["checkpoints"]))
    assert {*found} == {(8,), (8, 12), (12,)}


def test_scores_that_another_moves_away_meanwhile_are_made_anew(
    scored, text, monkeypatch
):
    read = scores._read

    def moved(path, lines):
        product_files.keep_earlier(path, lines)
        return read(path, lines)

    monkeypatch.setattr(scores, "_read", moved)
    corpus = open_corpus("test", "en", "de", str(text))
    found = scores.score_set(Translator.load(scored, 12), corpus, scored)
    assert found["checkpoints"] == [12]
    assert (scored / "scores/test.1.json").exists()
