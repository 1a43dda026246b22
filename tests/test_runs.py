"""Runs that end early, start from another run, read varied text or two vocabularies."""

import json
import shutil
import sys

import jax
import numpy as np
import pytest

from t2t_jax import Translator, UserError, train
from t2t_jax.config import Config, changed, from_config_dict
from t2t_jax.data.corpus import open_corpus
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.decoding.jobs import InputFile
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.evaluation import dev_answers
from t2t_jax.extensions.data.variation import text_variation_of
from t2t_jax.extensions.run.rerun import batch_of_step
from t2t_jax.extensions.run.synthetic_text import PairOptions, write_pairs
from t2t_jax.run import initialization
from t2t_jax.tasks.table import task_of
from t2t_jax.training import metrics_log
from t2t_jax.training.averaging import parameter_steps
from t2t_jax.workdir import Workdir
from tests.small_run import assert_same, config_for, final_parameters, logged

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture
def scripted(monkeypatch):
    """Dev BLEU as a test writes it, in place of translations."""
    scores = iter([1.0, 3.0, 2.0, 3.0, 9.0])
    evaluate = lambda self, parameters, step: {"bleu": next(scores)}  # noqa: E731
    monkeypatch.setattr(dev_answers.DevAnswers, "__call__", evaluate)


def steps_evaluated(workdir):
    return [entry["step"] for entry in logged(workdir, "dev")]


def test_patience_ends_a_run_and_the_best_is_kept(text, tmp_path, scripted, capsys):
    workdir = tmp_path / "work"
    sections = {
        "train": {"steps": 100, "eval_every": 3, "patience": 2},
        "decode": {"checkpoint": "best"},
    }
    scores = train(config_for(text, **sections), workdir)
    message = capsys.readouterr().err
    assert "dev bleu did not improve on 3.00, reached at step 6, in 2" in message
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


def test_a_run_starts_from_another(trained, text, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # as on Python 3.14
    parent = shutil.copytree(trained[0], tmp_path / "there")
    start = {"init_from": str(parent), "steps": 1, "save_every": 1, "eval_every": 1}
    start |= {"peak_learning_rate": 1e-30}  # so that one step changes nothing
    config = config_for(
        text,
        data={"train": "dev", "test": "", "feeder": "auto"},
        model={"dropout": 0.3},
        train=start,
    )
    train(config, tmp_path / "work")
    message = capsys.readouterr().err
    assert "(scores: the first 4), fed by numpy (TensorFlow is not inst" in message
    assert f"using the tokenizer of {parent}" in message
    assert f"starting from {parent}, steps 8, 12" in message
    tokenizers = [w / "tokenizer.model" for w in (parent, tmp_path / "work")]
    assert tokenizers[0].read_bytes() == tokenizers[1].read_bytes()
    translators = map(Translator.load, (parent, tmp_path / "work"))
    assert_same(*(jax.device_get(t.parameters) for t in translators))
    shutil.rmtree(parent)  # it is not needed any more
    config.train.update(steps=2)
    train(config, tmp_path / "work")


UNUSABLE = [
    ({"model": {"width": 64}}, r"config.model.width=32 there, 64 here"),
    ({"train": {"init_checkpoint": "999"}}, "has no checkpoint of step 999"),
    (
        {"model": {"width": 8_000_000}, "train": {"init_from": ""}},
        "out of memory: .* Use a smaller model",
    ),
]


@pytest.mark.parametrize(("sections", "message"), UNUSABLE)
def test_what_cannot_be_started_from_is_told(
    trained, text, tmp_path, sections, message
):
    start = {"init_from": str(trained[0])} | sections.get("train", {})
    config = config_for(text, **(sections | {"train": start}))
    with pytest.raises(UserError, match=message):
        train(config, tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_a_run_on_tagged_pairs_wants_the_tag_as_a_symbol(tmp_path):
    (tmp_path / "mono").write_text("Ein Hund.\n")
    best = Hypothesis("A DOG.", 0.0, 0.0, True)
    write_pairs(
        lambda lines, _: [Translation(line, (best,)) for line in lines],
        InputFile(tmp_path / "mono", (1, 1)),
        tmp_path / "bt",
        ("de", "en"),
        PairOptions(tag="<bt>"),
        note={"input": "mono"},
        made_from={},
        resume=False,
        batch_size=3,
    )
    corpus = open_corpus(str(tmp_path / "bt"), "en", "de")
    assert [*corpus.pairs()] == [("<bt> A DOG.", "Ein Hund.")]
    data = {"source": "en", "target": "de", "dir": str(tmp_path), "train": "bt@0.5"}
    for symbols, message in (
        ("", "symbols='<bt>'"),
        ("<x>", "symbols='<x>,<bt>'"),
        ("<x>,<bt>", "nothing.en"),  # accepted, so that the dev set is missed
    ):
        config = changed(Config(), "data", symbols=symbols, dev="nothing", **data)
        with pytest.raises(UserError, match=message):
            train(config, tmp_path / "run")


# ------------------------------------------------- text that varies by epoch

STEPS = 8
AUGMENT = "neighbours@0.3,typos@0.4,case@0.2"


def varied_config(text, **data):
    varied = {"train": "train@0.2", "dev": "", "test": ""}  # a few batches an epoch
    varied |= {"augment": AUGMENT, "subword_dropout": 0.2}
    return config_for(text, data=varied | data, train={"steps": STEPS})


@pytest.fixture(scope="module")
def varied(text, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("varied") / "work"
    train(varied_config(text), workdir)
    return workdir


def test_whatwas_shows_the_text_of_the_epoch(varied, text):
    sides = (text / f"train.{language}" for language in ("en", "de"))
    lines = [side.read_text(encoding="utf-8").splitlines() for side in sides]
    stored = list(zip(*lines, strict=True))
    variation, differ = text_variation_of(AUGMENT), set()
    for step in (1, STEPS):
        position, lines_shown = batch_of_step(varied, step)
        # All lines are kept, and are one part.
        varied_pairs = variation(stored, np.arange(1, 301), 0, position.epoch)
        for entry in map(json.loads, lines_shown):
            pair, before = varied_pairs[entry["line"] - 1], stored[entry["line"] - 1]
            assert (entry["source"], entry["target"]) in (pair, before)
            # Those that are too long for a row keep their text.
            if (entry["source"], entry["target"]) != before:
                differ.add(entry["line"])
    assert len(differ) > 5


def test_a_run_keeps_its_variation_and_refuses_what_does_not_apply(varied, text):
    with pytest.raises(UserError, match="another config:\n.*config.data.augment: "):
        train(varied_config(text, augment=""), varied)
    data = {"train": "grammar:train", "augment": "typos"}
    fields = {"task": {"kind": "language_model"}, "data": data}
    with pytest.raises(UserError, match="augment='typos' does not apply to .*leave it"):
        task_of(from_config_dict(fields)).check_variation()


# ------------------------------------------------- a vocabulary for each language

MODEL = {"tied": "target"}
DATA = {"joint_vocabulary": False, "source_vocab_size": 380, "test": "", "dev": ""}


@pytest.fixture(scope="module")
def separate(text, tmp_path_factory):
    """A run that was stopped after 1 step and continued."""
    workdir = tmp_path_factory.mktemp("separate") / "work"
    for steps in (1, 2):
        fields = {"steps": steps, "save_every": 1}
        train(config_for(text, model=MODEL, data=DATA, train=fields), workdir)
    return workdir


def test_a_translator_has_both_vocabularies(separate):
    translator = Translator.load(separate)
    assert translator.vocabulary.sizes == (400, 380)
    (translation,) = translator.translate([line := "The cat sleeps."], warn=False)
    (score,) = translator.score([(line, translation)])
    assert score.log_prob == pytest.approx(translation.log_prob, abs=1e-3)


def test_a_run_starts_from_one_with_the_same_vocabularies(separate, text, tmp_path):
    def config(data):
        start = {"init_from": str(separate)}
        return from_config_dict(config_for(text, data=data, model=MODEL, train=start))

    initialization.check_source(config(DATA))
    inherited = initialization.vocabulary(config(DATA)).sides
    parent = Workdir(separate).vocabulary().sides
    assert [side.model for side in inherited] == [side.model for side in parent]
    with pytest.raises(UserError, match="joint_vocabulary=False there, True here"):
        initialization.check_source(config({}))
    lines = (text / "train.en").read_text(encoding="utf-8").splitlines()
    tokenizer = tmp_path / "other.model"
    tokenizer.write_bytes(train_tokenizer(lines, 350))
    data = DATA | {"source_vocab_size": 0, "source_tokenizer": str(tokenizer)}
    with pytest.raises(UserError, match="data.source_tokenizer=.*other.model differs"):
        initialization.vocabulary(config(data))


def test_dev_scores_are_of_the_averaged_parameters_that_are_saved(
    text, tmp_path, monkeypatch
):
    """With a moving average, both its loss and its answers."""
    answered = {}

    def answer(self, parameters, step):
        answered[step] = jax.device_get(parameters)
        return {"bleu": 1.0}

    monkeypatch.setattr(dev_answers.DevAnswers, "__call__", answer)
    fields = {"steps": 6, "save_every": 3, "eval_every": 3, "ema_decay": 0.9}
    train(config_for(text, train=fields, data={"test": ""}), tmp_path / "work")
    losses = {e["step"]: e["loss"] for e in logged(tmp_path / "work", "dev")}
    pairs = [*open_corpus("dev", "en", "de", str(text)).pairs()]
    for step in (3, 6):
        saved = Translator.load(tmp_path / "work", step)
        assert_same(answered[step], jax.device_get(saved.parameters))
        scores = saved.score(pairs)
        tokens = sum(len(score.pieces) for score in scores)
        nll = -sum(score.log_prob for score in scores) / tokens
        assert losses[step] == pytest.approx(nll, rel=1e-4)


def test_minutes_between_saves_are_steps_by_the_first_logged_speed(
    trained, text, tmp_path, monkeypatch, capsys
):
    def of_two_seconds(file, read_log=metrics_log.read_log):
        log = read_log(file)
        rows = [{**e, "seconds_per_step": 2.0} for e in log.entries if e["step"] <= 3]
        return log._replace(entries=rows)

    monkeypatch.setattr("t2t_jax.extensions.run.save_minutes.read_log", of_two_seconds)
    # 5 steps; 4 is the nearest number below that divides 12.
    config = config_for(text, train={"save_every": 1250, "save_minutes": 10 / 60})

    def stop(step, loss, metrics, state):
        if step == 2:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(config, tmp_path / "run", after_step=stop)
    for _ in range(2):  # the second has nothing left to train
        train(config, tmp_path / "run")
        assert Workdir(tmp_path / "run").config().train.save_every == 4
    assert "saving every 4 steps" in capsys.readouterr().err
    # One that is asked to end while the first steps are timed ends there.
    options = {"eval_every": 2, "save_minutes": 1}
    ended = config_for(text, train=options)
    train(ended, tmp_path / "ended", after_step=lambda step, *_: step == 3)
    assert parameter_steps(tmp_path / "ended") == [3]
    assert steps_evaluated(tmp_path / "ended") == [2, 3]
    # The run with `save_every=4`: its end, and what is averaged.
    assert parameter_steps(tmp_path / "run") == parameter_steps(trained[0])
    assert_same(
        *(final_parameters(run, text) for run in (trained[0], tmp_path / "run"))
    )
    # With more steps, which 5 divides, it goes on with those that it began with.
    config.train.steps = 15
    train(config, tmp_path / "run")
    assert Workdir(tmp_path / "run").config().train.save_every == 4
