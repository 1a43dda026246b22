"""Each check sees what it is for: promises that are broken on purpose are caught."""

import functools
import shutil
import types

import numpy as np
import pytest

from t2t_jax.config import from_config_dict
from t2t_jax.costs import chips
from t2t_jax.data.shapes import Shape
from t2t_jax.model import kernels
from t2t_jax.tools.verify import determinism, memory, numbers, random_models
from t2t_jax.tools.verify.check import Context, Unavailable
from t2t_jax.tools.verify.references import search


@pytest.fixture
def context(tmp_path):
    return Context(tmp_path)


def test_random_batches_have_frequent_tokens():
    batch = random_models.random_batch(Shape(64, 32, 32), 1_000)
    times = np.bincount(batch["target"].ravel(), minlength=1_000)
    assert times[:4].sum() == 0
    assert len(times) == 1_000
    harmonic = (1 / np.arange(1, 997)).sum()
    assert times[4] == pytest.approx(2048 / harmonic, rel=0.15)
    assert times[5] == pytest.approx(1024 / harmonic, rel=0.2)


@pytest.mark.parametrize("broken", [False, True])
def test_a_broken_kernel_is_caught(context, monkeypatch, broken):
    def kernel(q_bthk, kv, mask, scores):
        """A stand-in for a GPU's, which may take the queries in another order."""
        q_bthk = q_bthk[:, ::-1] if broken else q_bthk
        return kernels.cudnn(q_bthk, kv, mask, scores, implementation="xla")

    with pytest.raises(Unavailable, match="no fused attention for cpu"):
        numbers.fused(context)
    monkeypatch.setattr(kernels, "kernel_for", lambda *_: kernel)
    monkeypatch.setattr(numbers, "FUSED_LENGTHS", (64,))
    assert numbers.fused(context).held is not broken


# -------------------------------------------------------------------- numbers, seeds


def test_this_jax_sums_products_rightly(context):
    """JAX 0.10.2, which setup.py excludes, does not on a CPU."""
    assert numbers.reductions(context).held


def test_another_loss_is_caught_and_other_bits_are_only_reported(context, monkeypatch):
    for factor, held, detail in (
        (1, True, "to the last bit the stored ones"),
        (1 + 1e-6, True, "to the last bit not the stored ones"),
        (1 + 1e-3, False, "to the last bit not the stored ones"),
        (float("nan"), False, "to the last bit not the stored ones"),
    ):
        losses = [np.float32(loss) for loss in numbers.GOLDEN_LOSSES]
        losses[1] *= np.float32(factor)
        monkeypatch.setattr(numbers, "losses_from_seed", lambda losses=losses: losses)
        result = numbers.golden(context)
        assert (result.held, result.details) == (held, (detail,))


def test_padding_that_is_seen_is_caught(context):
    batch = random_models.small_models()[random_models.PAPER].batch
    logits = np.zeros((*batch["target"].shape, 3), np.float32)
    stub = types.SimpleNamespace(batch=batch, logits=lambda batch=None: logits)
    context.shared("small models", lambda: {random_models.PAPER: stub})
    assert numbers.padding(context).held
    stub.logits = lambda batch=None: logits + (0.0 if batch is None else 1e-7)
    assert not numbers.padding(context).held


# ------------------------------------------------------------------------------- memory


def test_memory_may_be_little_more_than_the_forecast(context, monkeypatch):
    planned = {
        "dtype": "float32",
        "memory": {"needed": 2.0**30, "by": "somebody"},
    }

    def check(peak, planned=planned):
        figures = peak, planned
        monkeypatch.setattr(memory, "without_kept_memory", lambda *_: figures)
        return memory.memory(context)

    allowed = 1.05 * 2**30 + 2**26
    assert check(2**30).held
    assert check(int(allowed)).held
    assert not check(int(allowed) + 2).held
    with pytest.raises(Unavailable, match="the peak is not known"):
        check(None)
    with pytest.raises(Unavailable, match="plan has no forecast"):
        check(2**30, None)


@pytest.mark.slow
def test_the_memory_of_a_step_is_nearly_the_forecast(context):
    result = memory.memory(context)
    assert result.held, result
    assert result.numbers["peak"] > 0.8 * result.numbers["forecast"]


def test_a_forecast_that_fails_is_told_and_loses_nothing(monkeypatch, capsys):
    def fails(*_):
        raise RuntimeError("no such kernel\nmore")

    monkeypatch.setattr(memory.forecast, "forecast", fails)
    chip = chips.Slice("cpu", chips.CHIPS["h100"], (1,))
    gpu, cpu = (types.SimpleNamespace(platform=name) for name in ("gpu", "cpu"))
    assert memory._forecast(from_config_dict({}), chip, gpu) is None
    printed = capsys.readouterr().err
    assert "plan has no forecast: RuntimeError: no such kernel" in printed
    with pytest.raises(RuntimeError):
        memory._forecast(from_config_dict({}), chip, cpu)


# ------------------------------------------------------------------------------- search


def test_a_search_that_loses_an_output_is_caught():
    options = search.Options(
        vocabulary=5, beam=32, nbest=4, alpha=1.0, penalty="length"
    )

    def exhaustive(table, seed_b, limit_b, end=4):
        rows = [
            search.exhaustive(
                search.table_log_probs(table, seed, np.float64), limit, 5, 1.0, "length"
            )[4 - end : end]
            for seed, limit in zip(seed_b, limit_b, strict=True)
        ]
        return search.as_hypotheses(rows, 4)

    assert numbers.search_differences(exhaustive, options, 0) == (0, 16)
    lossy = functools.partial(exhaustive, end=3)  # the best is missing
    differing, compared = numbers.search_differences(lossy, options, 0)
    assert differing > 4
    assert compared == 16


# --------------------------------------------------------------------- runs, workdirs


def test_a_workdir_in_which_one_value_differs_is_caught(trained, tmp_path):
    original, copy = trained[0], tmp_path / "work"
    shutil.copytree(original, copy)
    result = determinism.same_workdirs(original, copy, "killed")
    assert result.held
    assert result.details == ("killed",)
    assert result.numbers["compared"] > 100

    log = copy / "metrics.jsonl"
    lines = log.read_text().splitlines()
    lines[1] = lines[1].replace('"loss": ', '"loss": 1')
    log.write_text("\n".join(lines) + "\n")
    result = determinism.same_workdirs(original, copy)
    assert not result.held
    assert result.numbers["differing"] == 1
    assert result.details[0].startswith("metrics: entry 2: loss is 1")


def test_losses_of_other_steps_are_not_compared():
    difference = determinism.loss_difference
    assert difference({1: 2.0, 2: 4.0}, {1: 2.0, 2: 4.0}) == 0
    assert difference({1: 2.0, 2: 4.4}, {1: 2.0, 2: 4.0}) == pytest.approx(0.1)
    assert difference({1: 2.0}, {1: 2.0, 2: 4.0}) == np.inf
    assert difference({}, {}) == np.inf
    assert np.isnan(difference({1: np.nan}, {1: 2.0}))


# -------------------------------------------------------------------------------- lines


def test_a_translation_that_depends_on_its_batch_is_caught(context, monkeypatch):
    monkeypatch.setattr(determinism, "random_translator", lambda: None)

    def independent(_, texts, batch_size):
        return [text[::-1] for text in texts]

    monkeypatch.setattr(determinism, "results", independent)
    assert determinism.lines(context).held

    def dependent(_, texts, batch_size):
        return [f"{text} {len(texts) > 16}" for text in texts]

    monkeypatch.setattr(determinism, "results", dependent)
    result = determinism.lines(context)
    assert not result.held
    assert result.numbers["differing"] == 4 * 16  # those of the one larger call
