"""Whole runs on text that varies from epoch to epoch."""

import json

import numpy as np
import pytest

from t2t_jax import UserError, train
from t2t_jax.config import from_config_dict
from t2t_jax.data.variation import text_variation_of
from t2t_jax.run.rerun import batch_of_step
from t2t_jax.tasks.table import TASKS, task_of
from tests.small_run import assert_same, config_for, final_parameters

pytestmark = pytest.mark.usefixtures("compiled_once", "quick_compiler")

STEPS = 8
AUGMENT = "neighbours@0.3,typos@0.4,case@0.2"


def config(text, steps=STEPS, **data):
    varied = {"train": "train@0.2", "dev": "", "test": ""}  # a few batches an epoch
    varied |= {"augment": AUGMENT, "subword_dropout": 0.2}
    fields = {"save_every": 2, "steps": steps}
    return config_for(text, data=varied | data, train=fields)


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
    steps = STEPS - 1, STEPS
    epochs = [batch_of_step(runs / "stopped", step)[0].epoch for step in steps]
    assert epochs[0] == epochs[1] > 0  # it was stopped in the middle of a later epoch


def test_whatwas_shows_the_text_of_the_epoch(runs, text):
    sides = (text / f"train.{language}" for language in ("en", "de"))
    lines = [side.read_text(encoding="utf-8").splitlines() for side in sides]
    stored = list(zip(*lines, strict=True))
    variation, changed = text_variation_of(AUGMENT), set()
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


def test_a_run_keeps_its_variation(runs, text):
    with pytest.raises(UserError, match="another config:\n.*config.data.augment: "):
        train(config(text, augment=""), runs / "whole")


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize(
    ("name", "value"), [("augment", "typos"), ("subword_dropout", 0.1)]
)
def test_tasks_refuse_what_does_not_apply(kind, name, value):
    train = "en-de:grammar:train" if kind == "text_to_text" else "grammar:train"
    data = {"train": train, "joint_vocabulary": False, name: value}
    fields = {"task": {"kind": kind}, "model": {"tied": "none"}, "data": data}
    task = task_of(from_config_dict(fields))
    if name in task.varies:
        task.check_variation()
    else:
        told = f"config.data.{name}={value!r} does not apply to .*{kind!r}; leave it"
        with pytest.raises(UserError, match=told):
            task.check_variation()
