"""Costs of layers that can be counted by hand; no times."""

import jax
import jax.numpy as jnp
import pytest

from experiments.measures import layer_cost
from t2t_jax.costs import flops


def traced(count, layer, length, width, options=()):
    """Counts in the jaxpr of a layer for one sentence; compiles nothing."""
    apply, _, shapes = layer_cost.build_layer(layer, width, dict(options))
    x_btd = jax.ShapeDtypeStruct((1, length, width), jnp.float32)
    return count(apply, shapes, x_btd)


@pytest.mark.parametrize(
    ("layer", "options", "expected"),
    [
        ("attention", {}, lambda n, d: 4 * n**2 * d + 8 * n * d**2),
        ("attention_function", {}, lambda n, d: 4 * n**2 * d),
        # Blocks of r / 2 queries see three blocks of keys.
        ("restricted_function", {"neighbourhood": 64}, lambda n, d: 4 * n * 96 * d),
        ("recurrence", {}, lambda n, d: 16 * n * d**2),
        ("convolution", {"conv_kernel": 3}, lambda n, d: 4 * n * 3 * d**2),
    ],
)
def test_flops_are_those_of_the_formula(layer, options, expected):
    assert traced(flops.count, layer, 256, 128, options) == expected(256, 128)


def test_recurrence_alone_has_sequential_operations():
    counts = {
        layer: traced(layer_cost.sequential_operations, layer, 24, 64)
        for layer in layer_cost.LAYERS
    }
    assert counts.pop("recurrence") == 24
    assert set(counts.values()) == {1}


@pytest.mark.parametrize(
    ("layer", "options", "length", "expected"),
    [
        ("restricted", {"neighbourhood": 4}, 9, 4),  # 2 tokens to a side
        ("convolution", {"conv_kernel": 3}, 9, 8),  # 1 token to a side
        # Dilations 1, 2, 4 and 8: 1, 3, 7 and 15 tokens to a side.
        ("dilated_convolution", {"bytenet_kernel": 3}, 9, 4),
    ],
)
def test_paths_between_the_ends(layer, options, length, expected):
    result = layer_cost.path_lengths(None, layer, [length], 16, options)
    assert result["paths"] == [expected]
    assert result["longest"] == expected


def test_one_layer_is_measured():
    cost = layer_cost.layer_cost("attention_function", 32, 16, seconds=0.0)
    assert cost["forward"] > 0
    assert cost["time"] > 0
    # With gradients, the weights are stored: [b, h, t, s] in float32.
    assert cost["memory"] > 4 * 2 * 32 * 32
    assert cost["flops"] == 2 * 4 * 32**2 * 16
    assert cost["sequential"] == 1


def test_a_sweep_is_fitted_on_its_larger_halves(monkeypatch):
    def cost(layer, length, width, overhead):
        time = length**2 * width + overhead * (length < 16) * (width < 8)
        values = dict.fromkeys(layer_cost.QUANTITIES, float(time))
        sizes = {"length": length, "width": width, "sequential": length}
        return {**values, **sizes, "memory": None}

    monkeypatch.setattr(layer_cost, "layer_cost", cost)
    result = layer_cost.layer_costs(
        *(None, "attention", [32, 16, 8, 4], [4, 8, 16, 32], 4, 2), overhead=1e3
    )
    assert [point["length"] for point in result["lengths"]] == [4, 8, 16, 32]
    assert {point["width"] for point in result["lengths"]} == {2}
    assert [point["width"] for point in result["widths"]] == [4, 8, 16, 32]
    assert {point["length"] for point in result["widths"]} == {4}
    assert result["time_n"] == pytest.approx(2)
    assert result["time_d"] == pytest.approx(1)
    assert result["time_d_low"] == pytest.approx(1)  # its interval has no width
    assert "memory_n" not in result  # the compiler did not say
    assert result["sequential"] == 32
