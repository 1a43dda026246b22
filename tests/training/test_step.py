"""One update: what it changes and counts; a dev set and its perplexity."""

import dataclasses
import shutil
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import UserError, train
from t2t_jax.config import Config, DataConfig, ModelConfig
from t2t_jax.data.filling import ragged
from t2t_jax.data.pairs import Pairs
from t2t_jax.metrics.likelihoods import perplexity
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training.step import compile_steps, gradient_norm
from t2t_jax.training.validation import cross_entropy_of
from tests.small_run import assert_same, config_for
from tests.training.small_model import batch_of, config_of, steps_of

PAPER = {"schedule": "paper", "warmup": 5}


def host(tree):
    return jax.tree.map(np.array, jax.device_get(tree))


@pytest.fixture(scope="module")
def steps():
    return steps_of(config_of(**PAPER), rate=0.1)


def test_a_step_is_a_function_of_state_and_batch(steps):
    batch = batch_of()
    runs = [host(steps.train(steps.init(), batch)) for _ in range(2)]
    assert_same(*runs)
    state, metrics = runs[0]
    assert (state.step, state.skipped) == (1, 0)
    assert metrics["tokens"] == np.count_nonzero(batch["target_segment"])
    later_state = steps.init()._replace(step=jnp.int32(7))  # dropout differs
    assert steps.train(later_state, batch)[1]["loss"] != metrics["loss"]


@pytest.fixture
def gpu(monkeypatch):
    """Programs are traced for a GPU, without kernels, and compiled for this machine."""
    device = types.SimpleNamespace(platform="gpu", compute_capability="0")
    monkeypatch.setattr(meshes, "target_device", lambda: device)


def test_a_gpu_sums_squares_of_arrays_alike_together(gpu):
    rng = np.random.default_rng(0)
    shapes = [(7,), (4, 7), (7, 4), (7, 2, 3), (7, 2, 5), (2, 3, 7), ()]
    gradients = [jnp.asarray(rng.normal(size=s), jnp.float32) for s in shapes]
    expected = np.sqrt(sum(np.square(np.float64(x)).sum() for x in gradients))
    np.testing.assert_allclose(gradient_norm(gradients), expected, rtol=1e-6)
    assert not np.isfinite(gradient_norm([*gradients, jnp.full(3, jnp.nan)]))


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_a_skipped_batch_is_as_if_it_had_not_been(platform, request):
    """Of parameters, moving average and optimizer; without dropout, which counts it.

    So the schedule counts updates, and a skipped step does not use up warm-up.
    """
    if platform == "gpu":
        request.getfixturevalue("gpu")
    steps = steps_of(config_of(**PAPER, ema_decay=0.9))
    text = steps.train.lower(steps.shapes, batch_of()).as_text()
    assert ("stablehlo.if" in text or "stablehlo.case" in text) == (platform == "cpu")
    ends = []
    for skipped in (0, 2):
        state, _ = steps.train(steps.init(), batch_of(seed=1))
        good = host(state.parameters)
        for number in range(1, skipped + 1):
            poisoned = jax.tree.map(lambda x: x * jnp.inf, good)
            state = state._replace(parameters=poisoned)
            state, metrics = steps.train(state, batch_of())
            assert not np.isfinite(metrics["gradient_norm"])
            assert_same(host(state.parameters), host(poisoned))
            counters = (
                state.skipped,
                state.skipped_in_a_row,
                metrics["skipped_in_a_row"],
            )
            assert (*map(int, counters),) == (number,) * 3
        state = state._replace(parameters=jax.tree.map(jnp.asarray, good))
        state, metrics = steps.train(state, batch_of(seed=2))
        assert (int(state.step), int(state.skipped)) == (2 + skipped, skipped)
        assert int(state.skipped_in_a_row) == 0
        assert metrics["learning_rate"] == pytest.approx(0.1 * 2 / 5)
        ends.append(host(state)[:3])
    assert_same(*ends)


def test_the_moving_average_follows_the_parameters():
    steps = steps_of(config_of(**PAPER, ema_decay=0.4))
    state = steps.init()
    for update in range(4):
        previous = host(state.ema)
        state, _ = steps.train(state, batch_of(seed=update))
        decay = min(0.4, (1 + update) / (10 + update))  # warm-up: .1, .18, .25, ...
        average = jax.tree.map(
            lambda old, new, decay=decay: decay * old + (1 - decay) * new,
            previous,
            jax.device_get(state.parameters),
        )
        jax.tree.map(
            lambda actual, expected: np.testing.assert_allclose(
                actual, expected, atol=1e-6
            ),
            state.ema,
            average,
        )


def test_evaluation_is_without_dropout_and_smoothing(steps):
    batch = batch_of()
    parameters = steps.init().parameters
    sums = [host(steps.evaluate(parameters, batch)) for _ in range(2)]
    assert_same(*sums)
    nll, tokens = sums[0]
    plain = steps_of(config_of(**PAPER))
    metrics = plain.train(plain.init(), batch)[1]
    assert nll / tokens == pytest.approx(float(metrics["nll"]), rel=1e-6)


# ----------------------------------------------------------------------- a dev set

CONFIG = Config(
    model=ModelConfig(layers=1, width=16, heads=2, hidden=16),
    data=DataConfig(batch_tokens=128, row_length=16),
)


def test_it_is_a_mean_over_tokens_of_any_batches():
    rng = np.random.default_rng(0)
    rows = [[rng.integers(3, 30, n) for n in rng.integers(2, 15, 40)] for _ in range(2)]
    steps = compile_steps(
        build(CONFIG.model, 30), CONFIG, meshes.make_mesh(devices=jax.devices()[:1]), 1
    )
    parameters = steps.init().parameters

    def cross_entropy(sources, targets, config=CONFIG):
        pairs = Pairs(ragged(sources), ragged(targets), {})
        return cross_entropy_of(steps, parameters, pairs, config)

    packed = cross_entropy(*rows)
    assert packed["perplexity"] == pytest.approx(np.exp(packed["loss"]))
    bucketed_data = dataclasses.replace(CONFIG.data, batching="bucketed", buckets=2)
    bucketed = cross_entropy(*rows, dataclasses.replace(CONFIG, data=bucketed_data))
    assert bucketed["loss"] == pytest.approx(packed["loss"], rel=1e-5)
    longest = cross_entropy(
        [[5] * 300, [6, 7]], [[8] * 2, [9] * 400]
    )  # nothing is too long
    assert np.isfinite(longest["loss"])
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
