"""Whole runs on text that varies from epoch to epoch."""

import json

import numpy as np
import pytest

from t2t_jax import UserError, train
from t2t_jax.config import Config, DataConfig, ModelConfig, TaskConfig
from t2t_jax.data.variation import text_variation_of
from t2t_jax.io.atomic import checked_json, read_checked_json
from t2t_jax.run.rerun import batch_of_step
from t2t_jax.tasks.table import TASKS, task_of
from tests.small_run import assert_same, config_for, final_parameters

pytestmark = pytest.mark.usefixtures("compiled_once", "quick_compiler")

DATA = {
    "train": "train@0.2",  # a few batches an epoch
    "dev": "",
    "test": "",
    "augment": "neighbours@0.3,typos@0.4,case@0.2",
    "subword_dropout": 0.2,
}
STEPS = 8


def config(text, steps=STEPS, **data):
    fields = {"save_every": 2, "steps": steps}
    return config_for(text, data=DATA | data, train=fields)


@pytest.fixture(scope="module")
def runs(text, tmp_path_factory):
    """A run, and the same one stopped in the middle of an epoch and continued."""
    folder = tmp_path_factory.mktemp("varied")
    train(config(text), folder / "whole")
    for steps in (STEPS - 1, STEPS):
        train(config(text, steps), folder / "stopped")
    return folder


def test_a_resumed_run_ends_in_the_same_bytes(runs, text):
    assert_same(*(final_parameters(runs / name, text) for name in ("whole", "stopped")))
    epochs = [
        batch_of_step(runs / "stopped", step)[0].epoch for step in (STEPS - 1, STEPS)
    ]
    assert epochs[0] == epochs[1] > 0  # it was stopped in the middle of a later epoch


def test_whatwas_shows_the_text_of_the_epoch(runs, text):
    sides = (text / f"train.{language}" for language in ("en", "de"))
    lines = [side.read_text(encoding="utf-8").splitlines() for side in sides]
    stored = list(zip(*lines, strict=True))
    variation = text_variation_of(DATA["augment"])
    changed = set()
    for step in (1, STEPS):
        position, found = batch_of_step(runs / "whole", step)
        # All lines are kept, and are one part.
        after = variation(stored, np.arange(1, 301), 0, position.epoch)
        for shown in map(json.loads, found):
            pair, before = after[shown["line"] - 1], stored[shown["line"] - 1]
            assert (shown["source"], shown["target"]) in (pair, before)
            # Those that are too long for a row keep their text.
            if (shown["source"], shown["target"]) != before:
                changed.add(shown["line"])
    assert len(changed) > 5


@pytest.mark.parametrize(
    "data", [{"subword_dropout": 0.1}, {"augment": ""}, {"augment": "typos@0.1"}]
)
def test_a_run_keeps_its_variation(runs, text, data):
    (name,) = data
    with pytest.raises(UserError, match=f"another config:\n.*config.data.{name}: "):
        train(config(text, **data), runs / "whole")


def test_text_that_changed_since_is_not_looked_up(runs, text, tmp_path):
    # `data.dir` may change in a run.
    for language in ("en", "de"):
        lines = (text / f"train.{language}").read_text(encoding="utf-8").splitlines()
        (tmp_path / f"train.{language}").write_text("\n".join(lines[::-1]) + "\n")
    file = runs / "whole/config.json"
    before = file.read_bytes()
    moved = read_checked_json(file)
    moved["data"]["dir"] = str(tmp_path)
    file.write_bytes(checked_json(moved))
    try:
        with pytest.raises(UserError, match="changed since it was prepared"):
            batch_of_step(runs / "whole", 1)
    finally:
        file.write_bytes(before)


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize(
    "field", [{"augment": "typos"}, {"augment": "case"}, {"subword_dropout": 0.1}]
)
def test_tasks_refuse_what_does_not_apply(kind, field):
    train = "en-de:grammar:train" if kind == "text_to_text" else "grammar:train"
    task = task_of(
        Config(
            task=TaskConfig(kind=kind),
            model=ModelConfig(tied="none"),
            data=DataConfig(train=train, joint_vocabulary=False, **field),
        )
    )
    ((name, value),) = field.items()
    applies = name in task.varies
    if kind == "classification" and value == "case":
        with pytest.raises(UserError, match="case may change targets, which are label"):
            task.check_variation()
    elif applies:
        task.check_variation()
    else:
        wrong = f"config.data.{name}={value!r} does not apply to .*{kind!r}; leave it"
        with pytest.raises(UserError, match=wrong):
            task.check_variation()
    assert applies == (
        kind in ("translation", "classification")
        or (kind, name) == ("text_to_text", "subword_dropout")
    )


def test_spans_are_cut_out_of_text_that_does_not_vary():
    data = DataConfig(train="en-de:grammar:train,spans:news.en", subword_dropout=0.1)
    task = task_of(Config(task=TaskConfig(kind="text_to_text"), data=data))
    with pytest.raises(UserError, match="with places of spans.*leave one of the two"):
        task.check_variation()
