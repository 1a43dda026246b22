"""FLOPs are counted in the program that runs, as they are by hand."""

import dataclasses
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.sharding import PartitionSpec

from t2t_jax import config as fields
from t2t_jax import load_config
from t2t_jax.config import Config, ModelConfig, from_config_dict
from t2t_jax.costs import step_costs
from t2t_jax.costs.flops import count
from t2t_jax.data.shapes import Shape
from t2t_jax.model import kernels
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.tools.plan.describe import describe
from t2t_jax.tools.plan.describe_command import page

VOCAB, WIDTH = 40, 16
CONFIG = Config(
    model=ModelConfig(layers=1, width=WIDTH, heads=2, hidden=24, dtype="float32")
)
SHAPE = Shape(rows=4, source=6, target=10)
X, W = jnp.ones((3, 4)), jnp.ones((4, 4))
ONE = 2 * 3 * 4 * 4  # x @ w


@jax.custom_vjp
def product(x, w):
    return x @ w


product.defvjp(lambda x, w: (x @ w, (x, w)), lambda saved, y: (y @ W, saved[0].T @ y))


def kernel(x_ref, w_ref, y_ref):
    y_ref[...] = x_ref[...] @ w_ref[...]


def blocks(x, w):
    """x @ w, two rows at a time."""
    return pl.pallas_call(
        kernel,
        grid=(3,),
        in_specs=[
            pl.BlockSpec((2, 4), lambda i: (i, 0)),
            pl.BlockSpec((4, 4), lambda i: (0, 0)),
        ],
        out_specs=pl.BlockSpec((2, 4), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((6, 4), jnp.float32),
    )(x, w)


def gradient(function):
    return jax.grad(lambda x, w: jnp.sum(function(x, w) ** 2), argnums=(0, 1))


def rounds(x, w, times):
    return jax.lax.fori_loop(0, times, lambda _, x: x @ w, x)


@pytest.mark.parametrize(
    ("function", "flops"),
    [
        (lambda x, w: x @ w, ONE),
        (lambda x, w: jnp.tanh(x) + x.sum() * w[0], 0),
        # 5 batches of [2, 3] by [3, 7]
        (
            lambda *_: jnp.einsum(
                "bij,bjk->bik", jnp.ones((5, 2, 3)), jnp.ones((5, 3, 7))
            ),
            2 * 5 * 2 * 3 * 7,
        ),
        # Two groups of 3 input features, a window of 2; 4 positions and 6 features out.
        (
            lambda *_: jax.lax.conv_general_dilated(
                *(jnp.ones((1, 6, 5)), jnp.ones((6, 3, 2))),
                *((1,), "VALID"),
                feature_group_count=2,
            ),
            2 * 4 * 6 * 2 * 3,
        ),
        # Each row meets the matrix of one group.
        (lambda x, w: jax.lax.ragged_dot(x, jnp.stack([w, w]), jnp.array([1, 2])), ONE),
        (lambda x, w: jax.jit(jax.jit(jnp.matmul))(x, w), ONE),
        (lambda x, w: rounds(x, w, 5), 5 * ONE),
        (lambda x, w: rounds(x, w, x[0, 0].astype(int)), math.nan),
        (lambda x, w: jax.lax.while_loop(jnp.any, jnp.sin, x) @ w, ONE),
        (
            lambda x, w: jax.lax.cond(
                x[0, 0] > 0, lambda: x @ w @ w, lambda: x @ w + x @ w + x @ w
            ),
            3 * ONE,
        ),
        (product, ONE),
        (gradient(product), 3 * ONE),
        (gradient(jnp.matmul), 3 * ONE),
        # The second product is not computed again: no gradient needs its result.
        (gradient(jax.checkpoint(lambda x, w: jnp.sin(x @ w) @ w)), 7 * ONE),
        (lambda x, w: blocks(jnp.concatenate([x, x]), w), 2 * ONE),
        (
            lambda x, w: jax.shard_map(
                jnp.matmul,
                mesh=meshes.make_mesh(devices=jax.devices()[:2]),
                in_specs=(PartitionSpec("data"), PartitionSpec()),
                out_specs=PartitionSpec("data"),
            )(jnp.concatenate([x, x]), w),
            2 * ONE,
        ),
    ],
)
def test_a_count_is_that_by_hand(eight_devices, function, flops):
    assert count(function, X, W) == pytest.approx(flops, rel=0, abs=0, nan_ok=True)


# By arithmetic: 2 for each weight and token, attention of all pairs of positions, and
# twice as much again in the backward pass.
@pytest.mark.parametrize(
    ("name", "flops", "source", "target"),
    [
        ("base", 9_621_327_052_800, 132_120_576, 245_784_576),
        ("big", 32_349_015_244_800, 528_482_304, 755_810_304),
    ],
)
def test_the_papers_models_are_counted_as_by_arithmetic(name, flops, source, target):
    config = from_config_dict(load_config(name))
    model = build(config.model, config.data.vocab_size)
    step = step_costs.step_flops(model, config, Shape(200, 128, 120))
    assert step == {"model": flops, "computed": flops}
    row = step_costs.row_flops(model, config)
    assert (row[1, 0], row[0, 1]) == (source, target)
    assert flops == 200 * sum(c * 128**i * 120**j for (i, j), c in row.items())


def test_a_cost_that_is_no_polynomial_of_the_lengths_is_not_given_as_one():
    config = fields.changed(CONFIG, "model", kind="neural_gpu")
    assert step_costs.row_flops(build(config.model, VOCAB), config) is None
    told = describe(fields.changed(config, "data", batching="bucketed"))
    flops = told["compute"]["flops_longest_row"]
    assert f"the longest sentences: {flops:.3g} FLOPs;" in page(told)


def test_what_remat_computes_again_is_counted():
    rows, s, t = dataclasses.astuple(SHAPE)
    whole = step_costs.model_flops(build(CONFIG.model, VOCAB), CONFIG, SHAPE)
    # All but the logits, and the keys and values of cross-attention.
    kept = 2 * rows * (t * VOCAB * WIDTH + s * 2 * WIDTH * WIDTH)
    for remat, again in (
        ("none", 0),
        ("dots", 4 * rows * WIDTH * (s * s + s * t + t * t)),
        ("full", whole / 3 - kept),
    ):
        config = fields.changed(CONFIG, "model", remat=remat)
        step = step_costs.step_flops(build(config.model, VOCAB), config, SHAPE)
        assert step == {"model": whole, "computed": whole + again}


def test_attention_in_a_kernel_is_counted_as_dense(monkeypatch):
    model, shape = build(CONFIG.model, VOCAB), Shape(rows=4, source=16, target=16)
    dense = step_costs.step_flops(model, CONFIG, shape)
    monkeypatch.setattr(
        meshes, "target_device", lambda: SimpleNamespace(platform="tpu")
    )
    monkeypatch.setattr(kernels, "_flash_supports", lambda *_: True)
    monkeypatch.setattr(kernels, "flash", lambda q_bthk, *_: q_bthk)
    assert step_costs.step_flops(model, CONFIG, shape) == dense


def test_a_branch_that_is_taken_at_times_counts_as_often():
    def function(x, w):
        return jax.lax.cond(x[0, 0] > 0, lambda: x @ w @ w @ w, lambda: x @ w)

    often = 0.25 * 3 * ONE + 0.75 * ONE
    assert count(function, X, W, taken=0.25) == pytest.approx(often)


def one_sided(kind, task, **train):
    """A model of one stack, its config, and the number of weights in matrices."""
    fields = {"kind": kind, "layers": 2, "width": 16, "heads": 2, "hidden": 24}
    config = from_config_dict(
        load_config("tiny", model=fields, task={"kind": task}, train=train)
    )
    return build(config.model, VOCAB), config, 2 * (4 * 16 * 16 + 2 * 16 * 24)


def test_a_language_model_takes_6_flops_for_each_weight_and_token():
    model, config, weights = one_sided("decoder_only", "language_model")
    row = step_costs.row_flops(model, config)
    assert row[0, 1] == 6 * (weights + VOCAB * 16)
    # Scores and weighted values of both layers, of all pairs of positions.
    assert row[0, 2] == 6 * 2 * 2 * 16
    assert row[1, 0] == row[2, 0] == row[1, 1] == 0


def test_a_masked_language_model_has_logits_of_hidden_pieces_alone():
    model, config, weights = one_sided("encoder_only", "masked_language_model")
    row = step_costs.row_flops(model, config)
    assert row[1, 0] == pytest.approx(6 * (weights + 0.15 * VOCAB * 16))
    step = step_costs.step_flops(model, config, Shape(4, 64, 64))
    # Two of eight chunks of positions have the hidden ones.
    more = (2 / 8 - 0.15) * 6 * VOCAB * 16 * 4 * 64
    assert step["computed"] - step["model"] == pytest.approx(more)


def test_frozen_parts_have_no_backward_pass():
    model, config, weights = one_sided("classifier", "classification")
    frozen = {"freeze": "embedding,encoder"}
    _, part, _ = one_sided("classifier", "classification", **frozen)
    shape = Shape(rows=4, source=16, target=2)
    whole = step_costs.model_flops(model, config, shape)
    saved = whole - step_costs.model_flops(model, part, shape)
    # Two thirds of the encoder's and of pooling's.
    attention, pooling = 2 * 2 * 16 * 16 * 16, 2 * 16 * 16 + 2 * 16 * 16
    least = 2 * 2 * 4 * (16 * weights + attention)
    assert least <= saved <= least + 2 * 2 * 4 * pooling
    assert step_costs.step_flops(model, part, shape)["computed"] < whole
