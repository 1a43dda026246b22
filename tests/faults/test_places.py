"""Places that may not be written, text that changes, other machines, odd clocks."""

import itertools
import json
import shutil
import time

import pytest

from t2t_jax import Translator, UserError, train
from t2t_jax.data.corpus import open_corpus
from t2t_jax.evaluation import dev_answers
from t2t_jax.evaluation.scores import read_answers, score_set, scores_and_answers
from t2t_jax.training import loop
from tests.faults.disks import read_only
from tests.small_run import assert_same_run, config_for, files

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture
def finished(trained, tmp_path):
    """A finished run, to do harm to."""
    return shutil.copytree(trained[0], tmp_path / "work")


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


def test_a_cache_folder_that_cannot_be_written_is_told(text, tmp_path, monkeypatch):
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.setenv("T2T_JAX_CACHE", str(place / "cache"))
    told = f"^{place}/cache cannot be written: .*T2T_JAX_CACHE"
    with read_only(place), pytest.raises(UserError, match=told):
        train(config_for(text), tmp_path / "work")
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(("name", "told"), [("train", "training"), ("dev", "dev")])
def test_a_run_does_not_go_on_with_another_text(text, tmp_path, finished, name, told):
    folder = tmp_path / "text"
    shutil.copytree(text, folder)
    file = folder / f"{name}.de"
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([*lines[:-1], "Das ist neu."]) + "\n", encoding="utf-8")
    before = files(finished)
    wanted = f"the {told} text of {finished} is not what it was .* put the text back"
    with pytest.raises(UserError, match=wanted):
        train(config_for(folder, train={"steps": 13}), finished)
    assert files(finished) == before


def test_another_machine_is_told_and_the_same_is_not(
    text, finished, monkeypatch, capsys
):
    evaluate = lambda self, parameters, step: {"bleu": 1.0}  # noqa: E731
    monkeypatch.setattr(dev_answers.DevAnswers, "__call__", evaluate)

    def told(steps):
        train(config_for(text, data={"test": ""}, train={"steps": steps}), finished)
        return capsys.readouterr().err

    assert "warning" not in told(13)
    here = loop.describe_machine()
    monkeypatch.setattr(loop, "describe_machine", lambda: here | {"cores": 4_096})
    assert (
        f"warning: the machine is not that of the last start (cores {here['cores']} -> "
        "4096); the run continues, but not to identical bytes\n"
    ) in told(14)
    assert "warning" not in told(15)
    starts = map(json.loads, (finished / "starts.jsonl").open())
    assert [(s["step"], s["machine"]["cores"] == 4_096) for s in starts] == [
        *((0, False), (12, False), (13, True), (14, True))
    ]


def test_a_clock_that_jumps_changes_nothing(trained, text, tmp_path, monkeypatch):
    """By a minute: Orbax gives up a save that seems to take many."""
    jumps = itertools.cycle([0, 60, -60])
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + next(jumps))
    train(config_for(text, train={"minutes": 20.0}), tmp_path / "work")
    # The config, which the scores hold too, has another limit.
    assert_same_run(trained[0], tmp_path / "work", "config", "scores")
