"""Runs that start from another run, and runs that end before their last step."""

import json
import shutil

import jax
import pytest

from t2t_jax import Translator, UserError, train
from t2t_jax.evaluation import dev_answers
from t2t_jax.training import checkpoint_folders, reporter
from t2t_jax.training.averaging import parameter_steps
from tests.small_run import assert_same, config_for, parameters_of

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture
def scripted(monkeypatch):
    """Dev BLEU as a test writes it, in place of translations."""
    scores = iter([1.0, 3.0, 2.0, 3.0, 9.0])
    evaluate = lambda self, parameters, step: {"bleu": next(scores)}  # noqa: E731
    monkeypatch.setattr(dev_answers.DevAnswers, "__call__", evaluate)


def steps_evaluated(workdir):
    entries = [json.loads(line) for line in (workdir / "metrics.jsonl").open()]
    return [entry["step"] for entry in entries if entry["kind"] == "dev"]


def test_patience_ends_a_run_and_the_best_is_kept(text, tmp_path, scripted, capsys):
    workdir = tmp_path / "work"
    sections = {
        "train": {"steps": 100, "eval_every": 3, "patience": 2},
        "decode": {"checkpoint": "best"},
    }
    scores = train(config_for(text, **sections), workdir)
    told = capsys.readouterr().err
    assert "dev bleu did not improve on 3.00, reached at step 6, in 2" in told
    assert steps_evaluated(workdir) == [3, 6, 9, 12]
    assert parameter_steps(workdir, "best") == [6]
    assert scores["test"]["checkpoints"] == [6]
    assert Translator.load(workdir).steps == Translator.load(workdir, "best").steps

    assert train(config_for(text, **sections), workdir) == scores
    assert f"{workdir} is finished: dev bleu" in capsys.readouterr().err
    sections["train"] |= {"patience": 3, "steps": 15}  # patience is safe to raise
    train(config_for(text, **sections), workdir)
    assert steps_evaluated(workdir) == [3, 6, 9, 12, 15]
    assert parameter_steps(workdir, "best") == [15]


def test_patience_goes_by_what_is_trained_not_by_what_a_killed_run_told(
    text, tmp_path, scripted, monkeypatch
):
    """Killed after an evaluation was told and before its step was saved."""
    fields = {"steps": 100, "eval_every": 3, "patience": 1, "save_every": 3}
    config = config_for(text, train=fields, data={"test": ""})
    told = reporter.Reporter.record

    def record(self, step, kind, values):
        told(self, step, kind, values)
        if step == 9 and kind == "dev":
            raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(reporter.Reporter, "record", record)
        patch.setattr(checkpoint_folders, "seal", lambda *a, **k: None)
        with pytest.raises(SystemExit):
            train(config, tmp_path / "work")
    train(config, tmp_path / "work")
    assert steps_evaluated(tmp_path / "work") == [3, 6, 9]
    assert parameter_steps(tmp_path / "work")[-1] == 9


def test_a_time_limit_counts_all_restarts_and_ends_as_steps_do(text, tmp_path, capsys):
    workdir, limit = tmp_path / "work", {"steps": 12, "minutes": 1e-6}
    train(config_for(text, train=limit), workdir)
    assert "minutes=1e-06 was reached after 1 of 12 steps" in capsys.readouterr().err
    assert steps_evaluated(workdir) == [1]  # evaluated, saved and scored as ever
    assert (workdir / "scores" / "test.json").exists()
    train(config_for(text, train=limit), workdir)
    assert "is finished: the limit config.train.minutes" in capsys.readouterr().err
    train(config_for(text, train=limit | {"minutes": 0.0}), workdir)
    assert "continuing after step 1" in capsys.readouterr().err
    assert Translator.load(workdir).steps == (8, 12)


def test_a_run_starts_from_another(trained, text, tmp_path, capsys):
    there = shutil.copytree(trained[0], tmp_path / "there")
    start = {"init_from": str(there), "steps": 1, "save_every": 1, "eval_every": 1}
    start |= {"peak_learning_rate": 1e-30}  # so that one step changes nothing
    mine = config_for(
        text, data={"train": "dev", "test": ""}, model={"dropout": 0.3}, train=start
    )
    train(mine, tmp_path / "work")
    told = capsys.readouterr().err
    assert f"using the tokenizer of {there}" in told
    assert f"starting from {there}, steps 8, 12" in told
    tokenizers = [w / "tokenizer.model" for w in (there, tmp_path / "work")]
    assert tokenizers[0].read_bytes() == tokenizers[1].read_bytes()
    theirs, ours = Translator.load(there), Translator.load(tmp_path / "work")
    assert_same(*(jax.device_get(t.parameters) for t in (theirs, ours)))

    mine.train.update(init_checkpoint="last")
    train(mine, tmp_path / "last")
    last = parameters_of(there, 12, theirs.model.shapes)
    assert_same(jax.device_get(Translator.load(tmp_path / "last").parameters), last)
    shutil.rmtree(there)  # it is not needed any more
    mine.train.update(steps=2)
    train(mine, tmp_path / "last")


UNUSABLE = [
    ({"model": {"width": 64}}, r"config.model.width=32 there, 64 here"),
    ({"train": {"init_checkpoint": "999"}}, "has no checkpoint of step 999"),
    (
        {"model": {"width": 8_000_000}, "train": {"init_from": ""}},
        "out of memory: .* Use a smaller model",
    ),
]


@pytest.mark.parametrize(("sections", "told"), UNUSABLE)
def test_what_cannot_be_started_from_is_told(trained, text, tmp_path, sections, told):
    start = {"init_from": str(trained[0])} | sections.get("train", {})
    config = config_for(text, **(sections | {"train": start}))
    with pytest.raises(UserError, match=told):
        train(config, tmp_path / "work")
    assert not (tmp_path / "work").exists()
