"""Power laws, and scaling laws of made-up runs: constants, frontier, prediction."""

import json

import numpy as np
import pytest

from experiments.measures import fits, scaling
from experiments.measures.scaling import Law, Runs, predict_loss
from t2t_jax.io.errors import UserError
from t2t_jax.tools.experiment.results import Context

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
    fit = scaling.fit(made_up(), resamples=1)
    np.testing.assert_allclose(fit.law, LAW, rtol=1e-4)
    assert not fit.at_bound
    with pytest.raises(UserError, match="8 runs with 4 .* and 2 of tokens; want at"):
        scaling.fit(made_up(data=DATA[:2]))


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
    fit = scaling.fit(flat._replace(loss=flat.loss * noise), resamples=3)
    assert str(fit.constants()["alpha"]) == "not identified"
    assert str(fit.exponents()["parameters"]) == "not identified"


def test_the_optimum_is_the_best_split_of_the_compute():
    n, d = LAW.optimum(1e12, 3.0)
    assert 3.0 * n * d == pytest.approx(1e12)
    for factor in (0.99, 1.01):
        assert LAW.loss(n, d) < LAW.loss(n * factor, d / factor)
    more_n, more_d = LAW.optimum(1e14, 3.0)
    assert np.log(more_n / n) / np.log(100) == pytest.approx(0.6 / 1.1)
    assert np.log(more_d / d) / np.log(100) == pytest.approx(0.5 / 1.1)


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
    prediction = predict_loss(context, parameters=2_000_000, steps=1_200)
    assert prediction["tokens"] == pytest.approx(2.4e6)
    assert prediction["loss"] == pytest.approx(float(LAW.loss(2e6, 2.4e6)), rel=1e-3)
    assert prediction["flops_per_product"]["value"] == pytest.approx(3.0)
    assert prediction["runs"] == 12
    json.dumps(prediction)  # as it is stored
    (tmp_path / "run3" / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match=r"run3 has no dev\.loss"):
        predict_loss(context, parameters=10**6, steps=100)


# -------------------------------------------------------------------------- power laws


def test_exact_exponents_are_found():
    x = [1, 2, 5, 10]
    law = fits.power_law(x, [3 * v**2 for v in x])
    np.testing.assert_allclose(law, (3, 2, 2, 2), rtol=1e-9)


def test_each_factor_has_its_exponent():
    n, d = np.array([1, 2, 4, 8, 4, 4]), np.array([3, 3, 3, 3, 9, 27])
    laws = fits.power_laws({"n": n, "d": d}, 5 * n**2.0 * d**0.5)
    np.testing.assert_allclose(laws["n"], (5, 2, 2, 2), rtol=1e-9)
    np.testing.assert_allclose(laws["d"], (5, 0.5, 0.5, 0.5), rtol=1e-9)


def test_intervals_cover_the_exponent_as_often_as_they_say():
    rng = np.random.default_rng(0)
    x = np.array([1.0, 2, 4, 8])  # of 4 points: 2 degrees of freedom, where t matters
    draws = 1000
    covered = 0
    for _ in range(draws):
        law = fits.power_law(x, x**1.5 * np.exp(0.1 * rng.normal(size=len(x))))
        covered += law.low <= 1.5 <= law.high
    assert abs(covered / draws - 0.95) < 3 * (0.95 * 0.05 / draws) ** 0.5


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 2], [1, 2], "2 points; want 3"),
        ([1, 2, 3], [1, 0, 2], "y has a value that is not positive"),
        ([2, 2, 2], [1, 1, 2], "do not determine"),
    ],
)
def test_points_that_give_no_law_are_refused(x, y, message):
    with pytest.raises(ValueError, match=message):
        fits.power_law(x, y)


def test_curves_cross_where_the_first_exceeds_the_second():
    x = [1, 2, 8, 16]
    constant, square = [10] * 4, [v**2 for v in x]
    assert fits.crossing(x, square, constant) == pytest.approx(10**0.5)
    assert fits.crossing(x, constant, square) is None  # above before, not after
    assert fits.crossing(x, constant, [20] * 4) is None
