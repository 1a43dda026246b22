"""One workdir, one run; a run whose workdir is taken away; two that score at once."""

import hashlib
import json
import os
import shutil
import socket
import threading
import time

import pytest

from t2t_jax import Translator, UserError, train
from t2t_jax.data.corpus import open_corpus
from t2t_jax.evaluation import scores
from t2t_jax.io import atomic as product_files
from t2t_jax.tasks.task import Task
from t2t_jax.training import loop
from tests.faults.damage import QUIET
from tests.small_run import assert_same_run, config_for, files

pytestmark = pytest.mark.usefixtures("compiled_once")

# What depends on evaluations, which `QUIET` has not, and on the config.
EVALUATED = ("best", "metrics", "scores", "translations", "config", "names")


def without_tensorboard(workdir):
    """Each start has files of its own there."""
    return {n: f for n, f in files(workdir).items() if not n.startswith("tensorboard")}


@pytest.fixture
def before_step(monkeypatch):
    """Calls a function before one step of a run, when all before it is written."""
    true_step = loop.TrainingRun._step

    def install(step_number, function):
        def step(self):
            if self.step == step_number - 1:
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
    train(config_for(text, data=QUIET), workdir)
    (message,) = refused
    holder = f"process {os.getpid()} on {socket.gethostname()}, since 20"
    assert message.startswith(f"{workdir} is in use by {holder}")
    assert_same_run(trained[0], workdir, *EVALUATED)
    assert not (workdir / ".lock").exists()


TAKEN = "process 1 on elsewhere, since 2026-01-01 00:00:00"


def test_a_run_whose_workdir_was_taken_over_writes_nothing_more(
    text, tmp_path, before_step
):
    """As in a bucket, where there are no locks."""
    workdir, files_then = tmp_path / "work", []

    def take_over(*_):
        (workdir / ".lock").write_text(f"{TAKEN}\nanother\n")
        files_then.append(without_tensorboard(workdir))

    before_step(9, take_over)
    with pytest.raises(UserError, match=f"no longer this run's: .* by {TAKEN}"):
        train(config_for(text, data=QUIET), workdir)
    assert without_tensorboard(workdir) == files_then[0]
    assert (workdir / "checkpoints/state/8/manifest.json").exists()


def test_a_run_whose_workdir_is_renamed_ends_and_makes_no_new_one(
    trained, text, tmp_path, before_step
):
    workdir, renamed = tmp_path / "work", tmp_path / "renamed"
    before_step(7, lambda: workdir.rename(renamed))
    with pytest.raises(UserError, match="its .lock was removed"):
        train(config_for(text, data=QUIET), workdir)
    assert not workdir.exists()
    before_step(1, lambda: None)
    train(config_for(text, data=QUIET), renamed)
    assert_same_run(trained[0], renamed, *EVALUATED)


def test_two_that_score_at_once_lose_no_score(trained, text, tmp_path, monkeypatch):
    """Their checkpoints translate at once, each in its own way."""
    scored = shutil.copytree(trained[0], tmp_path / "work")
    translate = lambda self, lines, **_: [f"{self.steps}" for _ in lines]  # noqa: E731
    monkeypatch.setattr(Translator, "translate", translate)
    monkeypatch.setattr(Task, "extra_scores", lambda *_: {"perplexity": 2.0})
    keep_earlier = product_files.keep_earlier

    def slowly(*files):
        keep_earlier(*files)
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
    scored_checkpoints = []
    for file in (scored / "scores").iterdir():
        content = json.loads(file.read_text())
        name = file.name.replace(".json", ".de")
        lines = (scored / "translations" / name).read_bytes()
        assert content["translations_sha256"] == hashlib.sha256(lines).hexdigest()
        scored_checkpoints.append(tuple(content["checkpoints"]))
    assert {*scored_checkpoints} == {(8,), (8, 12), (12,)}
