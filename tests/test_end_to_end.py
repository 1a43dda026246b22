"""The whole way of the data: text files to scores, stopped, continued, done again."""

import functools
import json
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

from t2t_jax import Translator, UserError, train
from t2t_jax.data.corpus import open_corpus
from t2t_jax.evaluation.scores import score_set
from t2t_jax.io.atomic import read_checked_json
from t2t_jax.run import rerun
from t2t_jax.training import loop, losses
from t2t_jax.training.averaging import parameter_steps
from tests.small_run import ROOT, assert_same, config_for, files, final_parameters

pytestmark = pytest.mark.usefixtures("compiled_once")


def test_a_workdir_is_all_there(trained):
    workdir, scores = trained
    there = {p.name for p in workdir.iterdir()}
    assert there == {
        *("config.json", "training_text.json", "tokenizer.model"),
        *("checkpoints", "metrics.jsonl", "starts.jsonl"),
        *("tensorboard", "scores", "translations"),
    }
    text = json.loads((workdir / "training_text.json").read_text())
    assert (text["read"], text["kept"]) == (300, 300)
    assert set(text["left_out"]) == {"empty", "duplicate", "too long", "length ratio"}
    metrics = [json.loads(line) for line in (workdir / "metrics.jsonl").open()]
    assert [(m["step"], m["kind"]) for m in metrics] == [
        *(
            (3, "train"),
            (6, "train"),
            (6, "dev"),
            (9, "train"),
            (12, "train"),
            (12, "dev"),
        )
    ]
    assert all(np.isfinite(m["loss"]) for m in metrics)
    assert {"bleu", "chrf", "perplexity"} <= set(metrics[2])
    stored = read_checked_json(workdir / "scores" / "test.json")
    assert stored == scores["test"]
    assert {"bleu", "signature", "chrf", "perplexity", "lines"} <= set(stored)
    assert (stored["lines"], stored["checkpoints"]) == (10, [8, 12])
    translations = (workdir / "translations" / "test.de").read_text().splitlines()
    assert len(translations) == 10
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
    other = config_for(text, model={"layers": 2}, train={"steps": 20, "seed": 4})
    before = files(workdir)
    with pytest.raises(UserError) as error:
        train(other, workdir)
    assert "--config.model.layers: 1 there, 2 now" in str(error.value)
    assert "--config.train.seed: 0 there, 4 now" in str(error.value)
    assert "train.steps" not in str(error.value)
    assert files(workdir) == before


def test_a_start_that_failed_is_not_yet_a_run(text, tmp_path):
    """A mistake that is mended is no other config of an earlier run."""
    for field, value, told in (
        ("vocab_size", 30_000, "vocab_size=30000 does not fit"),
        ("batch_tokens", 64, "batch_tokens=64 is too small"),
        ("test", "tset", "tset.en does not exist"),
        ("test", "test,grammar:test", "are both called 'test'"),
    ):
        wrong = config_for(text, data={field: value})
        with pytest.raises(UserError, match=told):
            train(wrong, tmp_path / "work")
    right = config_for(text, data={"test": ""}, train={"steps": 1, "eval_every": 9})
    assert train(right, tmp_path / "work") == {}


def test_a_run_continued_twice_is_one_run(trained, text, tmp_path):
    """Dropout on; to the bit."""
    for steps in (4, 7, 12):
        train(config_for(text, train={"steps": steps}), tmp_path / "work")
    whole, parts = (final_parameters(w, text) for w in (trained[0], tmp_path / "work"))
    assert_same(whole, parts)


@pytest.mark.slow
def test_a_run_on_eight_devices_that_is_continued_is_one_run(
    text, tmp_path, all_devices, monkeypatch
):
    """Dropout on; to the bit."""
    mesh = functools.partial(loop.meshes.make_mesh, devices=all_devices)
    monkeypatch.setattr(loop.meshes, "make_mesh", mesh)
    data = {"dev": "", "test": ""}
    for name, stops in (("whole", [12]), ("parts", [4, 7, 12])):
        for steps in stops:
            config = config_for(text, data=data, train={"steps": steps})
            train(config, tmp_path / name)
    whole, parts = (final_parameters(tmp_path / w, text) for w in ("whole", "parts"))
    assert_same(whole, parts)
    assert len(all_devices) == 8


def test_the_average_does_not_know_where_a_run_was_stopped(trained, text, tmp_path):
    """Steps 4, 8 and 12 are saved on schedule; ends at 6 and 7 are no such steps."""
    for steps in (6, 7, 12):
        train(config_for(text, train={"steps": steps}), tmp_path / "work")
    whole, parts = (Translator.load(w) for w in (trained[0], tmp_path / "work"))
    assert whole.steps == parts.steps == (8, 12)
    assert_same(*(jax.device_get(t.parameters) for t in (whole, parts)))


def test_a_text_changed_under_a_run_is_refused(text, tmp_path):
    folder = tmp_path / "text"
    shutil.copytree(text, folder)
    config = config_for(folder, data={"test": ""}, train={"steps": 1, "eval_every": 9})
    train(config, tmp_path / "work")
    lines = (folder / "train.en").read_text().replace("the", "a")
    (folder / "train.en").write_text(lines)
    config.train.steps = 2
    with pytest.raises(UserError, match="is not what it was when the run began"):
        train(config, tmp_path / "work")


def test_scores_of_before_are_kept_beside(trained, text, tmp_path):
    workdir = tmp_path / "work"
    train(config_for(text, train={"steps": 4}), workdir)
    first = (workdir / "scores/test.json").read_bytes()
    lines = (workdir / "translations/test.de").read_bytes()
    train(config_for(text, train={"steps": 8}), workdir)
    assert (workdir / "scores/test.1.json").read_bytes() == first
    assert (workdir / "translations/test.1.de").read_bytes() == lines
    assert (workdir / "scores/test.json").read_bytes() != first
    assert not (workdir / "scores/test.2.json").exists()


def test_the_average_is_what_is_scored(trained, text):
    workdir, scores = trained
    translator = Translator.load(workdir)
    assert translator.steps == (8, 12)
    corpus = open_corpus("test", "en", "de", str(text))
    lines = (workdir / "translations/test.de").read_text().splitlines()
    found = translator.translate([source for source, _ in corpus.pairs()])
    assert [str(translation) for translation in found] == lines
    assert score_set(translator, corpus, workdir) == scores["test"]
    last = Translator.load(workdir, "last")
    assert last.steps == (12,)
    assert_same(jax.device_get(last.parameters), final_parameters(workdir, text))


@pytest.mark.slow
def test_gradients_that_are_never_finite_end_the_run(text, tmp_path, monkeypatch):
    true_loss = losses.projected
    monkeypatch.setattr(
        losses, "projected", lambda *a: [x * np.inf for x in true_loss(*a)]
    )
    config = config_for(
        text, train={"max_skipped": 5, "save_every": 2, "eval_every": 99}
    )
    with pytest.raises(loop.DivergedError, match="at step 6, 6 gradients in a row"):
        train(config, tmp_path / "work")
    metrics = [json.loads(line) for line in (tmp_path / "work/metrics.jsonl").open()]
    assert metrics[-1]["skipped"] == 6
    assert parameter_steps(tmp_path / "work") == [2, 4]


def run(module, *arguments, **options):
    """Runs a command as a user does."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "t2t_jax", module, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, check=False, **options
    )


def test_translate_gives_a_line_for_a_line(trained):
    workdir, _ = trained
    lines = ["The cat sleeps.", "", "\u2028", "A dog!"]
    source = "".join(f"{line}\n" for line in lines).encode()
    done = run("translate", f"--workdir={workdir}", input=source)
    assert done.returncode == 0, done.stderr
    output = done.stdout.decode().split("\n")
    assert output.pop() == ""
    found = Translator.load(workdir).translate(lines)
    assert output == [translation.text for translation in found]


def test_whatwas_prints_a_pair_a_line(trained):
    done = run("whatwas", f"--workdir={trained[0]}", "--step=3")
    assert b"step 3 is trained on batch 2 of epoch 0" in done.stderr
    assert done.stdout.decode().splitlines() == rerun.batch_of_step(trained[0], 3)[1]


def test_translate_prints_what_is_asked_for(trained):
    workdir, _ = trained
    arguments = (f"--workdir={workdir}", "--beam=3", "--nbest=2", "--checkpoint=last")
    done = run("translate", *arguments, input=b"The cat sleeps.\nA dog.\n")
    rows = [line.split(" ||| ") for line in done.stdout.decode().splitlines()]
    wanted = Translator.load(workdir, "last").translate(
        ["The cat sleeps.", "A dog."], beam=3, nbest=2
    )
    assert [(int(n), text) for n, text, _ in rows] == [
        (n, h.text) for n, found in enumerate(wanted) for h in found.hypotheses
    ]
    assert [float(s) for *_, s in rows] == pytest.approx(
        [h.score for found in wanted for h in found.hypotheses], abs=1e-5
    )


@pytest.mark.parametrize(
    ("module", "arguments", "source", "told"),
    [
        (
            "translate",
            ["--workdir=WORK"],
            b"a\n\xff\n",
            "standard input, line 2: byte 1",
        ),
        ("translate", ["--workdir=/nowhere"], b"", "is not a workdir"),
        ("translate", [], b"", "--workdir"),
        ("translate", ["--workdir=WORK", "--beem=3"], b"", "Did you mean: beam ?"),
        ("translate", ["--workdir=WORK", "in.txt"], b"", "'in.txt' is not a flag"),
        ("evaluate", ["--workdir=WORK", "--test=nix"], b"", "nix.en does not exist"),
        (
            "evaluate",
            ["--workdir=WORK", "--test=grammar:test", "--baseline=nix.de"],
            b"",
            "--baseline: nix.de is not a file",
        ),
        ("whatwas", ["--workdir=WORK", "--step=99"], b"", "from 1 to 12"),
        ("main", ["--config=configs/tny.py"], b"", "did you mean 'configs/tiny.py'?"),
        ("main", ["--config.model.layrs=3"], b"", "did you mean 'model.layers'?"),
        ("main", ["--config.model.layers=two"], b"", "want int, such as 6"),
        ("main", ["--config.data.train="], b"", "config.data.train is empty"),
    ],
)
def test_mistakes_are_told_without_a_traceback(
    trained, commands, module, arguments, source, told
):
    arguments = [a.replace("WORK", str(trained[0])) for a in arguments]
    status, _, error = commands(module, *arguments, source=source)
    assert (status, "Traceback" in error) == (2, False), error
    assert told in error
    assert len(error.strip().splitlines()) == 1


def test_evaluate_scores_any_files(trained, text, tmp_path):
    for language in ("en", "de"):
        content = (text / f"dev.{language}").read_bytes()
        (tmp_path / f"mine.{language}").write_bytes(content)
    workdir = shutil.copytree(trained[0], tmp_path / "work")
    done = run("evaluate", f"--workdir={workdir}", f"--test={tmp_path}/mine")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lines"] == 20
    assert len((workdir / "translations/mine.de").read_text().splitlines()) == 20
