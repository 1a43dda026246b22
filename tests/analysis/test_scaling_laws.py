"""Scaling laws: constants, frontier and prediction, from made-up runs."""

import json

import numpy as np
import pytest

from t2t_jax.io.errors import UserError
from t2t_jax.tools.experiment import scaling
from t2t_jax.tools.experiment.results import Context
from t2t_jax.tools.experiment.scaling import Law, Runs, predict_loss

LAW = Law(E=0.5, A=200.0, alpha=0.5, B=3_000.0, beta=0.6)
SIZES, DATA = (1.5e5, 2.5e5, 4e5, 8e5), (3e5, 6e5, 1.2e6)


def made_up(noise=0.0, seed=0, sizes=SIZES, data=DATA):
    n, d = (np.ravel(values) for values in np.meshgrid(sizes, data))
    factor = np.exp(noise * np.random.default_rng(seed).normal(size=n.size))
    return Runs(n, d, LAW.loss(n, d) * factor, 3 * n * d)


@pytest.fixture(scope="module")
def noisy():
    return scaling.fit(made_up(noise=0.002), resamples=20)


def test_exact_losses_give_the_constants_back():
    found = scaling.fit(made_up(), resamples=1)
    np.testing.assert_allclose(found.law, LAW, rtol=1e-4)
    assert not found.at_bound


def test_intervals_hold_the_constants_and_a_new_run(noisy):
    for name, interval in noisy.constants().items():
        assert interval.low < getattr(LAW, name) < interval.high
    exponents = noisy.exponents()  # of the frontier
    assert sum(e.value for e in exponents.values()) == pytest.approx(1)
    assert exponents["parameters"].low < 0.6 / 1.1 < exponents["parameters"].high
    predicted = noisy.predict(2e6, 2.4e6)
    assert predicted.identified
    assert predicted.low < LAW.loss(2e6, 2.4e6) < predicted.high


def test_constants_that_the_runs_do_not_determine_are_not_printed():
    # The loss does not fall with parameters.
    runs = made_up(noise=0.01)
    flat = runs._replace(loss=0.5 + 3_000.0 * runs.tokens**-0.6)
    noise = np.exp(0.01 * np.random.default_rng(1).normal(size=12))
    found = scaling.fit(flat._replace(loss=flat.loss * noise), resamples=3)
    assert str(found.constants()["alpha"]) == "not identified"
    assert str(found.exponents()["parameters"]) == "not identified"


def test_the_optimum_is_the_best_split_of_the_compute():
    n, d = LAW.optimum(1e12, 3.0)
    assert 3.0 * n * d == pytest.approx(1e12)
    for factor in (0.99, 1.01):
        assert LAW.loss(n, d) < LAW.loss(n * factor, d / factor)
    more_n, more_d = LAW.optimum(1e14, 3.0)
    assert np.log(more_n / n) / np.log(100) == pytest.approx(0.6 / 1.1)
    assert np.log(more_d / d) / np.log(100) == pytest.approx(0.5 / 1.1)


@pytest.mark.parametrize(
    ("sizes", "data", "problem"),
    [
        (SIZES[:2], DATA, "6 runs with 2 numbers of parameters and 3 of tokens"),
        (SIZES, DATA[:2], "8 runs with 4 numbers of parameters and 2 of tokens"),
    ],
)
def test_too_few_runs_are_refused(sizes, data, problem):
    with pytest.raises(UserError, match=f"{problem}; want at least 8 runs"):
        scaling.fit(made_up(sizes=sizes, data=data))


def grid_on_disk(folder, runs):
    needs = {}
    for i, (n, d, loss, flops) in enumerate(zip(*runs, strict=True)):
        path = folder / f"run{i}"
        path.mkdir()
        outcome = {"parameters": n, "tokens": d, "flops": flops, "steps": d / 2_000}
        (path / "outcome.json").write_text(json.dumps(outcome))
        entry = {"kind": "dev", "step": 1, "loss": loss}
        (path / "metrics.jsonl").write_text(json.dumps(entry) + "\n")
        needs[f"run{i}"] = [path]
    return needs


def test_the_prediction_is_made_of_the_grid_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(
        scaling, "fit", lambda runs, fit=scaling.fit: fit(runs, resamples=3)
    )
    needs = grid_on_disk(tmp_path, made_up())
    # A larger run beside the grid, which no row needs, must not be read.
    larger = made_up(sizes=(2e6,), data=(2.4e6,))
    (tmp_path / "other").mkdir()
    grid_on_disk(tmp_path / "other", larger._replace(loss=larger.loss * 9))
    context = Context(tmp_path, None, needs)
    found = predict_loss(context, parameters=2_000_000, steps=1_200)
    assert found["tokens"] == pytest.approx(2.4e6)
    assert found["loss"] == pytest.approx(float(LAW.loss(2e6, 2.4e6)), rel=1e-3)
    assert found["flops_per_product"]["value"] == pytest.approx(3.0)
    assert found["runs"] == 12
    json.dumps(found)  # as it is stored
    (tmp_path / "run3" / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match=r"run3 has no dev\.loss"):
        predict_loss(context, parameters=10**6, steps=100)
