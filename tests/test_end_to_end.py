"""The whole way of the data: text files to scores, stopped, continued, done again."""

import json
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
    assert [m["step"] for m in metrics if m["kind"] == "train"] == [3, 6, 9, 12]
    assert [m["step"] for m in metrics if m["kind"] == "dev"] == [6, 12]
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


def test_translate_gives_a_line_for_a_line_as_a_user_starts_it(trained):
    workdir, _ = trained
    lines = ["The cat sleeps.", "", "\u2028", "A dog!"]
    done = subprocess.run(
        [sys.executable, "-m", "t2t_jax", "translate", f"--workdir={workdir}"],
        cwd=ROOT,
        input="".join(f"{line}\n" for line in lines).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    output = done.stdout.decode().split("\n")
    assert output.pop() == ""
    found = Translator.load(workdir).translate(lines)
    assert output == [translation.text for translation in found]


def test_whatwas_prints_a_pair_a_line(trained, commands):
    done = commands("whatwas", f"--workdir={trained[0]}", "--step=3")
    assert "step 3 is trained on batch 2 of epoch 0" in done.stderr
    assert done.stdout.splitlines() == rerun.batch_of_step(trained[0], 3)[1]


def test_translate_prints_what_is_asked_for(trained, commands):
    workdir, _ = trained
    arguments = (f"--workdir={workdir}", "--beam=3", "--nbest=2", "--checkpoint=last")
    done = commands("translate", *arguments, source=b"The cat sleeps.\nA dog.\n")
    rows = [line.split(" ||| ") for line in done.stdout.splitlines()]
    wanted = Translator.load(workdir, "last").translate(
        ["The cat sleeps.", "A dog."], beam=3, nbest=2
    )
    assert [(int(n), text) for n, text, _ in rows] == [
        (n, h.text) for n, found in enumerate(wanted) for h in found.hypotheses
    ]
    assert [float(s) for *_, s in rows] == pytest.approx(
        [h.score for found in wanted for h in found.hypotheses], abs=1e-5
    )


# A command, its flags, what it reads, and words of the error.
MISTAKES = [
    ("translate", "--workdir=WORK", b"a\n\xff\n", "standard input, line 2: byte 1"),
    ("translate", "--workdir=/nowhere", b"", "is not a workdir"),
    ("translate", "", b"", "--workdir"),
    ("translate", "--workdir=WORK --beem=3", b"", "Did you mean: beam ?"),
    ("translate", "--workdir=WORK in.txt", b"", "'in.txt' is not a flag"),
    ("evaluate", "--workdir=WORK --test=nix", b"", "nix.en does not exist"),
    (
        "evaluate",
        "--workdir=WORK --test=grammar:test --baseline=nix.de",
        b"",
        "--baseline: nix.de is not a file",
    ),
    ("whatwas", "--workdir=WORK --step=99", b"", "from 1 to 12"),
    ("main", "--config=configs/tny.py", b"", "did you mean 'configs/tiny.py'?"),
    ("main", "--config.model.layrs=3", b"", "did you mean 'model.layers'?"),
    ("main", "--config.model.layers=two", b"", "want int, such as 6"),
    ("main", "--config.data.train=", b"", "config.data.train is empty"),
]


@pytest.mark.parametrize(("module", "flags", "source", "told"), MISTAKES)
def test_mistakes_are_told_without_a_traceback(
    trained, commands, module, flags, source, told
):
    flags = flags.replace("WORK", str(trained[0])).split()
    status, _, error = commands(module, *flags, source=source)
    assert (status, "Traceback" in error) == (2, False), error
    assert told in error
    assert len(error.strip().splitlines()) == 1


def test_evaluate_scores_any_files(trained, text, tmp_path, commands):
    for language in ("en", "de"):
        content = (text / f"dev.{language}").read_bytes()
        (tmp_path / f"mine.{language}").write_bytes(content)
    workdir = shutil.copytree(trained[0], tmp_path / "work")
    done = commands("evaluate", f"--workdir={workdir}", f"--test={tmp_path}/mine")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lines"] == 20
    assert len((workdir / "translations/mine.de").read_text().splitlines()) == 20
