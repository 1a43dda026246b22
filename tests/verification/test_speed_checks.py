"""What the checks of speed make of their figures; no test asserts a time."""

import dataclasses
import types

import numpy as np
import pytest

from t2t_jax.config import from_config_dict
from t2t_jax.costs import chips
from t2t_jax.data.shapes import Shape
from t2t_jax.tools.verify import measuring, speed
from t2t_jax.tools.verify.check import Context, Unavailable, run_check
from t2t_jax.tools.verify.measuring import StepCost
from t2t_jax.tools.verify.random_models import random_batch
from t2t_jax.tools.verify.table import CHECKS

TINY = {"layers": 1, "width": 32, "heads": 2, "hidden": 64}
COST = StepCost(
    parameters=10,
    dtype="float32",
    rows=8,
    source=16,
    target=16,
    first=3.0,
    seconds=0.5,
    awaited=0.625,
    flops=1e9,
    memory=2**30,
    planned_memory=2.0**30,
    planned_seconds=0.25,
    planned_by="somebody",
)


@pytest.fixture
def context(tmp_path, monkeypatch):
    """A context in which the matrix products and both steps were measured."""
    monkeypatch.setattr(chips, "matrix_rate", lambda *_: 2e9)
    context = Context(tmp_path, full=True)
    context.shared("matrix peaks", lambda: {"float32": 4e9, "bfloat16": 8e9})
    for name in ("base", "big"):
        context.shared(f"step of {name}", lambda: COST)
    return context


@pytest.fixture
def tiny(monkeypatch):
    """Sizes with which every check takes seconds."""
    sizes = speed.SIZES["cpu"]._replace(
        matrix={"float32": (64, 2), "bfloat16": (64, 2)},
        traffic=1 << 16,
        rows=dict.fromkeys(("base", "big"), (16, 128)),
        shrunk=dict.fromkeys(("base", "big"), TINY),
        small=TINY,
        small_rows=(16, 128),
        steps=1,
        attention=((32,), 64),
        pairs=2_000,
        batches=2,
        state=TINY,
        state_pieces=100,
        decoders={"decode": TINY, "decode_batch": TINY},
        decoded=(4, 6, 10),
        compared=(8, 6, 10),
        batch_tokens=(256, 512),
    )
    monkeypatch.setitem(speed.SIZES, "cpu", sizes)
    small = speed.ACCELERATOR._replace(rows={"base": (128, 1024)})
    monkeypatch.setattr(speed, "ACCELERATOR", small)
    monkeypatch.setattr(speed, "PIECES", 100)


def with_cost(context, **fields):
    context._shared["step of base"] = dataclasses.replace(COST, **fields)
    return context


def test_mfu_is_of_the_fastest_product_measured_here(context, monkeypatch):
    result = speed.step(context, "base")
    assert result.numbers["mfu"] == 0.5  # 1e9 / 0.5 s / 4e9
    assert result.figure == "500.0 ms, 512 tokens/s, MFU 50%"
    assert "a step that is waited for takes 625.0 ms" in result.details[1]
    monkeypatch.setattr(chips, "peak", lambda *_: 16e9)
    of_sheet = speed.step(context, "base").details[2]
    assert of_sheet == "MFU of the data sheet's 16 GFLOP/s: 12.5%"
    monkeypatch.setattr(chips, "matrix_rate", lambda *_: 8e9)
    assert speed.step(with_cost(context), "base").numbers["mfu"] == 0.25


def test_memory_may_be_little_more_than_the_forecast(context):
    assert speed.memory(context, "base").held is True
    allowed = 1.05 * 2**30 + 2**26
    most = with_cost(context, memory=int(allowed))
    assert speed.memory(most, "base").held is True
    more = with_cost(context, memory=int(allowed) + 2)
    assert speed.memory(more, "base").held is False
    with pytest.raises(Unavailable, match="peak of base is not known"):
        speed.memory(with_cost(context, memory=None), "base")
    with pytest.raises(Unavailable, match="plan has no forecast"):
        speed.memory(with_cost(context, planned_memory=None), "base")


def test_a_forecast_that_fails_is_told_and_loses_nothing(monkeypatch, capsys):
    def fails(*_):
        raise RuntimeError("no such kernel\nmore")

    monkeypatch.setattr(measuring.forecast, "forecast", fails)
    here = chips.Slice("cpu", chips.CHIPS["h100"], (1,))
    gpu, cpu = (types.SimpleNamespace(platform=name) for name in ("gpu", "cpu"))
    planned, seconds = measuring._planned(from_config_dict({}), here, gpu)
    assert (planned["planned_memory"], seconds) == (None, 0)
    told = capsys.readouterr().err
    assert "plan has no forecast: RuntimeError: no such kernel" in told
    with pytest.raises(RuntimeError):
        measuring._planned(from_config_dict({}), here, cpu)


def test_random_batches_have_frequent_tokens():
    batch = random_batch(Shape(64, 32, 32), 1_000)
    times = np.bincount(batch["target"].ravel(), minlength=1_000)
    assert times[:4].sum() == 0
    assert len(times) == 1_000
    harmonic = (1 / np.arange(1, 997)).sum()
    assert times[4] == pytest.approx(2048 / harmonic, rel=0.15)
    assert times[5] == pytest.approx(1024 / harmonic, rel=0.2)


def test_a_feeder_must_be_as_fast_as_a_step(context, tiny):
    assert speed.feeder(context).held is True
    slow = with_cost(context, seconds=1e-9)  # 2.6e11 tokens/s
    assert speed.feeder(slow).held is False


@pytest.mark.slow
@pytest.mark.usefixtures("eight_devices")
def test_the_whole_group_is_rehearsed_on_virtual_devices(tiny, tmp_path):
    context = Context(tmp_path, full=True)
    checks = {name: each for name, each in CHECKS.items() if each.group == "speed"}
    results = [run_check(name, each, context) for name, each in checks.items()]
    unchecked = {result.name for result in results if result.unchecked}
    assert unchecked == {"attention"}, [result.unchecked for result in results]
    assert not [result.error for result in results if result.held is False]
    of = {result.name: result.measured for result in results if result.measured}
    assert of["scaling"].figure.startswith("8 devices: ")
    assert "4 lines of 6 tokens to exactly 10" in of["decode"].details[0]
    assert {*of["decode_batch"].numbers} == {"256", "512"}
    assert of["saving"].numbers["on_disk"] > 0
