"""FLOPs are counted in the program that runs, as they are by hand."""

import dataclasses
import math

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
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.tools.plan.describe import describe

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
    """x @ w in a kernel, two rows at a time."""
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
        (lambda x, w: rounds(x, w, 5), 5 * ONE),
        (lambda x, w: rounds(x, w, x[0, 0].astype(int)), math.nan),
        (
            lambda x, w: jax.lax.cond(
                x[0, 0] > 0, lambda: x @ w @ w, lambda: x @ w + x @ w + x @ w
            ),
            3 * ONE,
        ),
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
def test_the_papers_model_is_counted_as_by_arithmetic():
    config = from_config_dict(load_config("base"))
    model = build(config.model, config.data.vocab_size)
    step = step_costs.step_flops(model, config, Shape(200, 128, 120))
    flops = 9_621_327_052_800
    assert step == {"model": flops, "computed": flops}
    row = step_costs.row_flops(model, config)
    assert (row[1, 0], row[0, 1]) == (132_120_576, 245_784_576)
    described = describe(config)["compute"]
    assert [described[f"flops_{x}_token"] for x in ("source", "target")] == [
        *(row[1, 0], row[0, 1])
    ]
    assert flops == 200 * sum(c * 128**i * 120**j for (i, j), c in row.items())


def test_what_remat_computes_again_is_counted():
    rows, s, t = dataclasses.astuple(SHAPE)
    total = step_costs.model_flops(build(CONFIG.model, VOCAB), CONFIG, SHAPE)
    # All but the logits, and the keys and values of cross-attention.
    stored = 2 * rows * (t * VOCAB * WIDTH + s * 2 * WIDTH * WIDTH)
    for remat, recomputed in (
        ("none", 0),
        ("dots", 4 * rows * WIDTH * (s * s + s * t + t * t)),
        ("full", total / 3 - stored),
    ):
        config = fields.changed(CONFIG, "model", remat=remat)
        step = step_costs.step_flops(build(config.model, VOCAB), config, SHAPE)
        assert step == {"model": total, "computed": total + recomputed}


@pytest.mark.parametrize("head", [8, 4])
def test_a_language_model_takes_6_flops_for_each_weight_and_token(head):
    model = {"kind": "decoder_only", "layers": 2, "width": 16, "heads": 2, "hidden": 24}
    model["head_width"] = head
    config = load_config("tiny", model=model, task={"kind": "language_model"})
    config = from_config_dict(config)
    row = step_costs.row_flops(build(config.model, VOCAB), config)
    assert row[0, 1] == 6 * (2 * (4 * 16 * 2 * head + 2 * 16 * 24) + VOCAB * 16)
    # Scores and weighted values of both layers, of all pairs of positions.
    assert row[0, 2] == 6 * 2 * 2 * 2 * head
    assert row[1, 0] == row[2, 0] == row[1, 1] == 0
