"""A run's frozen models: which are read, which are refused, and what is stored."""

import jax
import numpy as np
import pytest

from t2t_jax.config import Config, changed, from_config_dict
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.training.averaging import parameters_sha256
from t2t_jax.training.frozen_models import check_frozen, check_positions, open_frozen
from t2t_jax.workdir import Workdir
from tests.decoding.small_translator import renumbered, vocabulary
from tests.small_run import stored

MODEL = {"layers": 1, "width": 8, "heads": 2, "hidden": 8}
TEXT = {"prepared": "a", "dev": "b"}


def config_of(*teachers, task="translation", **model) -> Config:
    options = {"teacher": ", ".join(map(str, teachers))}
    loss = {"loss": "distillation", "options": options} if teachers else {}
    return from_config_dict(
        {"model": MODEL | model, "train": loss, "task": {"kind": task}}
    )


def opened(config):
    model = build(config.model, *vocabulary().sizes)
    return open_frozen(config, model, vocabulary())


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    return stored(folder, config_of(width=16, dropout=0.3), vocabulary())[0]


def test_teachers_are_read_and_hashed(teacher, tmp_path):
    second_teacher, *_ = stored(tmp_path / "other", config_of(), vocabulary(), seed=1)
    frozen = opened(config_of(teacher, second_teacher, dtype="bfloat16"))
    parameters, parameters2 = frozen.read()
    assert frozen.read() == []  # memory of the host is freed
    assert [parameters_sha256(x) for x in (parameters, parameters2)] == frozen.sha256
    shapes = jax.tree.map(np.shape, frozen.models[0].shapes)
    assert jax.tree.map(np.shape, parameters) == shapes
    assert len({*frozen.sha256, *opened(config_of(teacher)).sha256}) == 2
    # A single value is another teacher.
    jax.tree.leaves(parameters2)[0].flat[0] += 1e-3
    assert parameters_sha256(parameters2) != frozen.sha256[1]


def test_models_that_do_not_fit_are_refused(teacher, tmp_path):
    def place(name, config, tokenizer=None):
        return config_of(stored(tmp_path / name, config, tokenizer or vocabulary())[0])

    with pytest.raises(UserError, match="is not a workdir"):
        check_frozen(config_of(tmp_path / "no"))
    check_frozen(config_of(teacher))
    columns = {"kind": "bytenet", "heads": 8, "hidden": 2048}
    column = place("column", config_of(**columns))
    lm = config_of(task="language_model", kind="decoder_only")
    for config, message in (
        (
            place("other", config_of(), renumbered()),
            r"SHA-256 (\w{12}) there, (?!\1)\w{12} here",
        ),
        (place("lm", lm), "same task"),
        (
            changed(column, "data", batching="packed"),
            r"column: .*'bytenet' cannot tell .* packed",
        ),
    ):
        with pytest.raises(UserError, match=message):
            opened(config)
    opened(changed(column, "data", batching="bucketed"))
    short = place("short", config_of(positions="learned", max_positions=16))
    with pytest.raises(UserError, match="up to 17 tokens, but .* has 16 positions"):
        check_positions(short, opened(short), 17)


def test_a_run_does_not_continue_with_another_teacher(tmp_path):
    workdir = Workdir(tmp_path)
    config = config_of("teacher")
    workdir.store(config, vocabulary(), TEXT | {"frozen": ["1" * 64]})
    moved = config_of("moved")
    assert [*workdir.changes(moved)] == ["train.options.teacher"]
    workdir.store(moved, vocabulary(), TEXT | {"frozen": ["1" * 64]})
    for hashes in (["2" * 64], ["1" * 64, "2" * 64]):
        with pytest.raises(UserError, match="SHA-256 1{12} then, .*2{12} now"):
            workdir.store(moved, vocabulary(), TEXT | {"frozen": hashes})
