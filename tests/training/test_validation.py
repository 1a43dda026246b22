"""Perplexity of a set: over its tokens, however they are batched."""

import dataclasses

import jax
import numpy as np
import pytest

from t2t_jax.config import Config, DataConfig, ModelConfig
from t2t_jax.data.filling import ragged
from t2t_jax.data.pairs import Pairs
from t2t_jax.metrics.likelihoods import perplexity
from t2t_jax.model.model import build
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.training.step import compile_steps
from t2t_jax.training.validation import cross_entropy_of

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
    # By hand, from halves of unequal size.
    halves = [of(rows[0][part], rows[1][part]) for part in (slice(7), slice(7, None))]
    tokens = [sum(map(len, rows[1][part])) for part in (slice(7), slice(7, None))]
    mean = sum(h["loss"] * n for h, n in zip(halves, tokens, strict=True)) / sum(tokens)
    assert whole["loss"] == pytest.approx(mean, rel=1e-5)


def test_nothing_is_too_long():
    rows = [[[5] * 300, [6, 7]], [[8] * 2, [9] * 400]]
    steps = compile_steps(
        build(CONFIG.model, 30), CONFIG, make_mesh(devices=jax.devices()[:1]), 1
    )
    pairs = Pairs(*map(ragged, rows), {})
    assert np.isfinite(
        cross_entropy_of(steps, steps.init().parameters, pairs, CONFIG)["loss"]
    )


def test_a_hopeless_perplexity_is_a_number():
    assert np.isfinite(perplexity(1e6))
