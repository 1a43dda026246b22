"""A dev set: its batches, what they refuse, and perplexity over its tokens."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

from t2t_jax import UserError, train
from t2t_jax.config import Config, DataConfig, ModelConfig
from t2t_jax.data.filling import ragged
from t2t_jax.data.pairs import Pairs
from t2t_jax.metrics.likelihoods import perplexity
from t2t_jax.model.model import build
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.training.step import compile_steps
from t2t_jax.training.validation import cross_entropy_of
from tests.small_run import config_for

pytestmark = pytest.mark.usefixtures("quick_compiler")

CONFIG = Config(
    model=ModelConfig(layers=1, width=16, heads=2, hidden=16),
    data=DataConfig(batch_tokens=128, row_length=16),
)


def test_it_is_a_mean_over_tokens_of_any_batches():
    rng = np.random.default_rng(0)
    rows = [[rng.integers(3, 30, n) for n in rng.integers(2, 15, 40)] for _ in range(2)]
    steps = compile_steps(
        build(CONFIG.model, 30), CONFIG, make_mesh(devices=jax.devices()[:1]), 1
    )
    parameters = steps.init().parameters

    def of(sources, targets, config=CONFIG):
        pairs = Pairs(ragged(sources), ragged(targets), {})
        return cross_entropy_of(steps, parameters, pairs, config)

    whole = of(*rows)
    assert whole["perplexity"] == pytest.approx(np.exp(whole["loss"]))
    other = dataclasses.replace(CONFIG.data, batch_tokens=1_024, batching="bucketed")
    again = of(*rows, dataclasses.replace(CONFIG, data=other))
    assert again["loss"] == pytest.approx(whole["loss"], rel=1e-5)
    long = of([[5] * 300, [6, 7]], [[8] * 2, [9] * 400])  # nothing is too long
    assert np.isfinite(long["loss"])
    assert np.isfinite(perplexity(1e6))  # a hopeless one is a number


def test_a_dev_line_beyond_learned_positions_is_refused_before_training(text, tmp_path):
    folder = shutil.copytree(text, tmp_path / "text")
    for language in ("en", "de"):
        with open(folder / f"dev.{language}", "a", encoding="utf-8") as f:
            f.write("der Hund " * 100 + "\n")
    model = {"positions": "learned", "max_positions": 120}
    with pytest.raises(UserError, match="rows of the dev set have up to"):
        train(config_for(folder, model=model), tmp_path / "work")
    assert not (tmp_path / "work/config.json").exists()
