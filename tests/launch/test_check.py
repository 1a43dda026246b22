"""`check`: what a run would find, without starting it."""

import pytest

from t2t_jax.config import from_config_dict
from t2t_jax.data.prepare import prepared_pairs
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import open_text
from t2t_jax.tools.plan.check_command import MISSING, rows
from tests.small_run import config_for, contents


@pytest.fixture
def checked(text, tmp_path, monkeypatch):
    """Checks a config with a cache of its own; returns (state, details) by name."""
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path))

    def check(**data):
        config = from_config_dict(config_for(text, data=data))
        found = rows(config, task_of(config), str(tmp_path / "runs/new"), "")
        return config, {what: (state, details) for state, what, details in found}

    return check


def test_what_is_there_and_what_is_missing(checked, tmp_path):
    config, found = checked()
    missing = {what: details for what, (s, details) in found.items() if s == MISSING}
    assert missing.keys() == {"prepared text"}
    assert "python -m t2t_jax prepare" in missing["prepared text"]
    assert found.keys() > {"versions", "data.train", "data.dev", "disk"}
    task = task_of(config)
    training, _, _ = open_text(task)
    pairs = prepared_pairs(training, task.vocabulary(training), task.data(), task)
    before = contents(tmp_path)
    assert str(pairs.folder) in checked()[1]["prepared text"][1]
    # Other options want other arrays; a look makes none.
    assert checked(max_length=9)[1]["prepared text"][0] == MISSING
    assert contents(tmp_path) == before


def test_sets_that_would_be_fetched_and_text_that_is_not_there(checked):
    _, found = checked(test="sacrebleu:wmt14/full")
    assert found["data.test"][0] == MISSING
    _, found = checked(train="none")
    assert found["text"][0] == MISSING
    assert "none.en does not exist" in found["text"][1]
    # One answer names all fields that have to go.
    _, found = checked(columns="2,3", min_score=0.5)
    assert found["text"][1].endswith(
        "want --config.data.columns= --config.data.min_score=0"
    )
