"""One update: what it changes, what it does not, and what it counts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.config import Config, ModelConfig, TrainConfig
from t2t_jax.data.batching import plan_epoch
from t2t_jax.data.filling import fill, ragged
from t2t_jax.model.model import build
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.training.schedules import inverse_sqrt_schedule
from t2t_jax.training.step import compile_steps

pytestmark = pytest.mark.usefixtures("quick_compiler")

CONFIG = Config(
    model=ModelConfig(layers=1, width=16, heads=2, hidden=32),
    train=TrainConfig(warmup=5),
)
V = 30


def batch_of(n, seed=0, batch_tokens=256, **options):
    rng = np.random.default_rng(seed)
    sides = [
        ragged([rng.integers(3, V, k) for k in rng.integers(2, 9, n)]) for _ in range(2)
    ]
    options = {
        "batching": "packed",
        "row_length": 16,
        "batch_tokens": batch_tokens,
    } | options
    plan = plan_epoch(
        *(s.lengths for s in sides), seed=0, epoch=0, shuffle=False, **options
    )
    assert len(plan) == 1
    return {name: jnp.asarray(x) for name, x in fill(plan[0], *sides).items()}


def steps_of(**model):
    config = dataclasses.replace(
        CONFIG, model=dataclasses.replace(CONFIG.model, **model)
    )
    return compile_steps(
        build(config.model, V), config, make_mesh(devices=jax.devices()[:1]), bos=1
    )


def host(tree):
    return jax.tree.map(np.array, jax.device_get(tree))


def assert_trees_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture(scope="module")
def steps():
    return steps_of()


def test_a_step_is_a_function_of_state_and_batch(steps):
    batch = batch_of(20)
    runs = [host(steps.train(steps.init(), batch)) for _ in range(2)]
    assert_trees_equal(*runs)
    state, metrics = runs[0]
    assert (state.step, state.skipped, metrics["tokens"]) == (
        1,
        0,
        np.count_nonzero(batch["target_segment"]),
    )


def test_dropout_differs_from_step_to_step(steps):
    batch, state = batch_of(20), steps.init()
    later = state._replace(step=jnp.int32(7))
    losses = [float(steps.train(s, batch)[1]["loss"]) for s in (steps.init(), later)]
    assert losses[0] != losses[1]


def test_empty_rows_do_not_change_the_loss():
    """The loss is a mean over real tokens, however much padding there is."""
    steps = steps_of(dropout=0.0)
    batch = batch_of(20)
    padded = {name: jnp.pad(x, ((0, 24), (0, 0))) for name, x in batch.items()}
    results = [host(steps.train(steps.init(), b)) for b in (batch, padded)]
    (state, metrics), (other, other_metrics) = results
    assert metrics["loss"] == pytest.approx(other_metrics["loss"], rel=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), state, other)


def test_a_gradient_that_is_not_finite_changes_only_the_counters(steps):
    batch = batch_of(20)
    good, _ = steps.train(steps.init(), batch)
    before = host(good)
    poisoned = jax.tree.map(jnp.copy, good)
    tokens = poisoned.parameters["embedding"]["tokens"]
    poisoned.parameters["embedding"]["tokens"] = tokens.at[5].set(jnp.inf)
    poisoned_before = host(poisoned)
    state, metrics = steps.train(poisoned, batch)
    assert not np.isfinite(metrics["gradient_norm"])
    assert_trees_equal(host(state.parameters), poisoned_before.parameters)
    assert_trees_equal(host(state.optimizer), before.optimizer)
    assert (int(state.step), int(state.skipped), int(state.skipped_in_a_row)) == (
        2,
        1,
        1,
    )
    state, metrics = steps.train(state, batch)
    assert (int(state.skipped), int(state.skipped_in_a_row)) == (2, 2)
    assert int(metrics["skipped_in_a_row"]) == 2
    state = state._replace(parameters=jax.tree.map(jnp.asarray, before.parameters))
    state, metrics = steps.train(state, batch)
    assert (int(state.skipped), int(state.skipped_in_a_row)) == (2, 0)
    # The schedule counts updates, so a skipped step does not use up warm-up.
    rate = inverse_sqrt_schedule(16, 5)
    assert float(metrics["learning_rate"]) == pytest.approx(float(rate(1)))


def test_the_moving_average_follows_the_parameters():
    config = dataclasses.replace(CONFIG, train=TrainConfig(warmup=5, ema_decay=0.4))
    steps = compile_steps(build(CONFIG.model, V), config, make_mesh(), bos=1)
    state, average = steps.init(), None
    for update in range(6):
        given = state._replace(
            parameters=jax.tree.map(jnp.copy, state.parameters),
            ema=jax.tree.map(jnp.copy, state.ema),
        )
        before = jax.device_get(given.ema)
        state, _ = steps.train(given, batch_of(20, seed=update))
        decay = min(0.4, (1 + update) / (10 + update))  # warm-up: .1, .18, .25, ...
        average = jax.tree.map(
            lambda old, new, decay=decay: decay * old + (1 - decay) * new,
            before,
            jax.device_get(state.parameters),
        )
        jax.tree.map(
            lambda got, want: np.testing.assert_allclose(got, want, atol=1e-6),
            state.ema,
            average,
        )
    assert state.best_parameters() is state.ema


def test_without_a_moving_average_there_is_none(steps):
    state = steps.init()
    assert jax.tree.leaves(state.ema) == []
    assert state.best_parameters() is state.parameters


def test_a_peak_moves_the_whole_curve():
    paper, ours = inverse_sqrt_schedule(128, 50), inverse_sqrt_schedule(128, 50, 0.01)
    assert float(ours(49)) == pytest.approx(0.01)
    for count in (0, 7, 49, 50, 1_000):
        ratio = float(ours(count)) / float(paper(count))
        assert ratio == pytest.approx(0.01 * (128 * 50) ** 0.5, rel=1e-5)


def test_evaluation_is_without_dropout_and_smoothing(steps):
    batch = batch_of(20)
    parameters = steps.init().parameters
    sums = [host(steps.evaluate(parameters, batch)) for _ in range(2)]
    assert_trees_equal(*sums)
    nll, tokens = sums[0]
    plain = steps_of(dropout=0.0)
    metrics = plain.train(plain.init(), batch)[1]
    assert nll / tokens == pytest.approx(float(metrics["nll"]), rel=1e-6)


def test_a_tiny_model_learns_a_batch_by_heart(steps):
    batch, state = batch_of(8), steps.init()
    first = None
    for _ in range(60):
        state, metrics = steps.train(state, batch)
        first = first or float(metrics["nll"])
    assert float(metrics["nll"]) < 0.6 * first
