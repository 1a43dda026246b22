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
from t2t_jax.training.validation import cross_entropy_of, dev_plan
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
    # By hand, from halves of unequal size.
    halves = [of(rows[0][part], rows[1][part]) for part in (slice(7), slice(7, None))]
    tokens = [sum(map(len, rows[1][part])) for part in (slice(7), slice(7, None))]
    mean = sum(h["loss"] * n for h, n in zip(halves, tokens, strict=True)) / sum(tokens)
    assert whole["loss"] == pytest.approx(mean, rel=1e-5)


def test_a_hopeless_perplexity_is_a_number():
    assert np.isfinite(perplexity(1e6))


def test_dev_batches_are_of_the_kind_of_the_config_and_hold_the_longest():
    lengths = np.random.default_rng(0).integers(2, 60, (2, 300))
    lengths[0, 7] = 700  # longer than the budget
    pairs = Pairs(*(ragged([[5] * n for n in side]) for side in lengths), {})
    for batching in ("packed", "bucketed"):
        data = DataConfig(batch_tokens=256, row_length=64, batching=batching, buckets=4)
        plan = dev_plan(pairs, Config(data=data))
        assert (len(plan.shapes) > 1) == (batching == "bucketed")
        assert max(shape.source for shape in plan.shapes) >= 700
        assert sorted(np.concatenate([x.pair_p for x in plan])) == [*range(300)]


def test_a_dev_line_beyond_learned_positions_is_refused_before_training(text, tmp_path):
    folder = shutil.copytree(text, tmp_path / "text")
    for language in ("en", "de"):
        with open(folder / f"dev.{language}", "a", encoding="utf-8") as f:
            f.write("der Hund " * 100 + "\n")
    model = {"positions": "learned", "max_positions": 120}
    config = config_for(folder, model=model)
    with pytest.raises(UserError, match="rows of the dev set have up to"):
        train(config, tmp_path / "work")
    assert not (tmp_path / "work/config.json").exists()
