"""Frozen parts keep their bits and cost no state; layers learn by their depth."""

import jax
import numpy as np
import pytest

from t2t_jax.config import from_config_dict
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training.optimizers import OPTIMIZERS, depths, optimizer, split_frozen
from tests.training.small_model import batch_of, config_of, model_of, steps_of

pytestmark = pytest.mark.usefixtures("eight_devices", "quick_compiler")

SIZES = {"width": 8, "heads": 2, "hidden": 8}


def shapes_of(kind="transformer", **fields):
    config = from_config_dict({"model": {"kind": kind, **SIZES, **fields}})
    return build(config.model, 16).shapes


def step_of(config, count=2, devices=1):
    """The state before and after some steps, as NumPy arrays."""
    steps = steps_of(config, devices=devices)
    state = steps.init()
    before = jax.tree.map(np.array, jax.device_get(state))
    for seed in range(count):
        batch = meshes.place_batch(steps.mesh, batch_of(seed=seed))
        state, _ = steps.train(state, batch)
    return before, jax.tree.map(np.array, jax.device_get(state))


@pytest.mark.parametrize("name", ["adam", "adafactor"])
def test_a_frozen_part_keeps_its_bits_and_has_no_state(name):
    fields = {"weight_decay": 0.1, "ema_decay": 0.5, "clip_norm": 0.1}
    config = config_of(optimizer=name, freeze="embedding, bias", **fields)
    before, after = step_of(config)
    for part in ("embedding", "bias"):
        frozen = before.parameters[part], after.parameters[part], after.ema[part]
        jax.tree.map(np.testing.assert_array_equal, frozen[:1] * 2, frozen[1:])
    assert not np.array_equal(before.parameters["query"], after.parameters["query"])
    query = before.parameters["query"].size
    assert max(x.size for x in jax.tree.leaves(after.optimizer)) <= query
    paths = jax.tree_util.tree_leaves_with_path(after.optimizer)
    assert "embedding" not in str([path for path, _ in paths])


def test_the_others_train_as_without_frozen_parts():
    # By SGD in one step: their updates do not depend on those of the frozen part.
    sgd = {"optimizer": "sgd", "options": {"momentum": 0.0}}
    plain, frozen = (step_of(config_of(**sgd, freeze=f), 1)[1] for f in ("", "bias"))
    for part in ("query", "embedding"):
        parts = (state.parameters[part] for state in (plain, frozen))
        jax.tree.map(np.testing.assert_array_equal, *parts)


def test_a_mesh_does_not_matter():
    mesh = {"data": 2, "fsdp": 2, "tensor": 2}
    fields = {"freeze": "embedding", "layer_decay": 0.5}
    one, many = config_of(**fields), config_of(mesh, **fields)
    _, a = step_of(one)
    _, b = step_of(many, devices=8)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5),
        a.parameters,
        b.parameters,
    )


def test_a_part_is_all_that_bears_its_name():
    shapes = shapes_of(layers=1, norm="pre", positions="learned")
    trained, frozen = split_frozen(shapes, "encoder,embedding")
    assert sorted(frozen) == [
        *("embedding", "encoder", "encoder_norm", "encoder_positions")
    ]
    assert sorted(trained) == ["decoder", "decoder_norm", "decoder_positions"]
    assert split_frozen(shapes, "") == (shapes, {})


def test_mistakes_name_the_parts():
    with pytest.raises(UserError, match="'encodr'.*did you mean 'encoder'"):
        split_frozen(shapes_of(layers=1), "encodr")
    with pytest.raises(UserError, match="nothing would be trained"):
        split_frozen(model_of().shapes, "embedding,query,bias")
    with pytest.raises(UserError, match=r"layer_decay=1.5 is too large"):
        config_of(layer_decay=1.5)


@pytest.mark.parametrize("kind", ["transformer", "lstm", "conv"])
def test_depth_counts_layers_from_the_output(kind):
    found = depths(shapes_of(kind, layers=3, decoder_layers=2))
    for part, layers in (("encoder", 3), ("decoder", 2)):
        for layer in range(layers):
            assert {*jax.tree.leaves(found[part][layer])} == {layers - layer}
    assert {*jax.tree.leaves(found["embedding"])} == {4}


def test_norms_are_with_the_output_and_position_tables_with_the_embedding():
    found = depths(shapes_of(layers=2, norm="pre", positions="learned"))
    assert {*jax.tree.leaves(found["encoder_norm"])} == {0}
    assert {*jax.tree.leaves(found["encoder_positions"])} == {3}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_decay_with_the_depth(name):
    random = np.random.default_rng(0)

    def tree():
        w = lambda: random.normal(size=(4, 4)).astype(np.float32)  # noqa: E731
        layers = {0: {"w": w()}, 1: {"w": w()}}
        return {"embedding": {"tokens": w()}, "encoder": layers, "head": w()}

    parameters, gradients = tree(), tree()

    def updates(**fields):
        transform = optimizer(config_of(optimizer=name, weight_decay=0.1, **fields))
        return transform.update(gradients, transform.init(parameters), parameters)[0]

    one = {
        "embedding": {"tokens": 0.125},
        "encoder": {0: {"w": 0.25}, 1: {"w": 0.5}},
        "head": 1.0,
    }
    jax.tree.map(
        lambda x, y, factor: np.testing.assert_allclose(x, y * factor, rtol=1e-6),
        *(updates(layer_decay=0.5), updates(), one),
    )
