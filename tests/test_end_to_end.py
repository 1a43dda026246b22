"""The whole way of the data: text files to scores, stopped, continued, done again."""

import json
import shutil

import jax
import numpy as np
import pytest

from t2t_jax import Translator, UserError, load_config, train
from t2t_jax.data.corpus import open_corpus
from t2t_jax.evaluation.scores import score_set
from t2t_jax.extensions.run import rerun
from tests.small_run import (
    assert_same,
    config_for,
    files,
    final_parameters,
    logged,
)

pytestmark = pytest.mark.usefixtures("compiled_once")


def test_a_workdir_is_all_there(trained):
    workdir, scores = trained
    names = {p.name for p in workdir.iterdir()}
    assert names == {
        *("config.json", "training_text.json", "tokenizer.model"),
        *("checkpoints", "metrics.jsonl", "starts.jsonl", "time.jsonl"),
        *("tensorboard", "scores", "translations"),
    }
    text = json.loads((workdir / "training_text.json").read_text())
    assert (text["read"], text["kept"]) == (300, 300)
    metrics = [logged(workdir, kind) for kind in ("train", "dev")]
    assert [[m["step"] for m in part] for part in metrics] == [[3, 6, 9, 12], [6, 12]]
    assert all(np.isfinite(m["loss"]) for part in metrics for m in part)
    assert (scores["test"]["lines"], scores["test"]["checkpoints"]) == (10, [8, 12])
    assert not [name for name in files(workdir) if ".py" in name or "pkl" in name]


def test_the_same_command_again_says_it_is_finished(trained, text, capsys):
    workdir, scores = trained
    before = files(workdir)
    assert train(config_for(text), workdir) == scores
    assert (
        f"{workdir} is finished: 12 of 12 steps are trained" in capsys.readouterr().err
    )
    assert files(workdir) == before


def test_another_config_is_refused_with_the_differences(trained, text):
    workdir, _ = trained
    config = config_for(text, model={"layers": 2}, train={"steps": 20, "seed": 4})
    before = files(workdir)
    with pytest.raises(UserError) as error:
        train(config, workdir)
    assert "--config.model.layers: 1 there, 2 now" in str(error.value)
    assert "--config.train.seed: 0 there, 4 now" in str(error.value)
    assert "train.steps" not in str(error.value)
    assert files(workdir) == before


def test_a_start_that_failed_is_not_yet_a_run(text, tmp_path):
    """A mistake that is mended is no other config of an earlier run."""
    for field, value, message in (
        ("vocab_size", 30_000, "vocab_size=30000 does not fit"),
        ("test", "test,grammar:test", "are both called 'test'"),
    ):
        wrong = config_for(text, data={field: value})
        with pytest.raises(UserError, match=message):
            train(wrong, tmp_path / "work")
    right = config_for(text, data={"test": ""}, train={"steps": 1, "eval_every": 9})
    assert train(right, tmp_path / "work") == {}


def test_the_average_is_what_is_scored(trained, text):
    workdir, scores = trained
    translator = Translator.load(workdir)
    assert translator.steps == (8, 12)
    corpus = open_corpus("test", "en", "de", str(text))
    assert score_set(translator, corpus, workdir) == scores["test"]
    last_translator = Translator.load(workdir, "last")
    assert last_translator.steps == (12,)
    assert_same(
        jax.device_get(last_translator.parameters), final_parameters(workdir, text)
    )


def test_whatwas_prints_a_pair_a_line(trained, commands):
    ended = commands("whatwas", f"--workdir={trained[0]}", "--step=3")
    assert "step 3 is trained on batch 2 of epoch 0" in ended.stderr
    assert ended.stdout.splitlines() == rerun.batch_of_step(trained[0], 3)[1]


def test_evaluate_scores_any_files(trained, text, tmp_path, commands):
    for language in ("en", "de"):
        content = (text / f"dev.{language}").read_bytes()
        (tmp_path / f"mine.{language}").write_bytes(content)
    workdir = shutil.copytree(trained[0], tmp_path / "work")
    ended = commands("evaluate", f"--workdir={workdir}", f"--test={tmp_path}/mine")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["lines"] == 20
    assert len((workdir / "translations/mine.de").read_text().splitlines()) == 20


@pytest.mark.slow
def test_tiny_learns_its_language(tmp_path):
    """The README's main job: three minutes on two cores, and the bounds it promises."""
    scores = train(load_config("configs/tiny.py"), tmp_path / "work")
    assert scores["test"]["bleu"] >= 90
    assert scores["unseen"]["bleu"] >= 80
    assert scores["agreement"]["bleu"] >= 80
