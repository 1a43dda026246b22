"""The same numbers on one device and on eight."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from t2t_jax.config import Config, ModelConfig, TrainConfig
from t2t_jax.data.batching import fill, plan_epoch
from t2t_jax.data.prepare import ragged
from t2t_jax.errors import UserError
from t2t_jax.model.transformer import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training.step import compile_steps

CONFIG = Config(
    model=ModelConfig(layers=1, width=16, heads=2, hidden=32),
    train=TrainConfig(warmup=5, seed=3),
)


def losses(devices, config, steps=6):
    """The losses of some steps on some devices, and the parameters after them."""
    rng = np.random.default_rng(0)
    sides = [
        ragged([rng.integers(3, 40, n) for n in rng.integers(2, 14, 200)])
        for _ in range(2)
    ]
    plan = plan_epoch(
        *(s.lengths for s in sides),
        batch_tokens=256,
        batching="packed",
        row_length=16,
        seed=0,
        epoch=0,
    )
    mesh = meshes.make_mesh(jax.devices()[:devices])
    compiled = compile_steps(build(config.model, 40), config, mesh, bos=1)
    state, found = compiled.init(), []
    for i in range(steps):
        batch = meshes.place_batch(mesh, fill(plan[i], *sides))
        assert len(batch["source"].sharding.device_set) == devices
        state, metrics = compiled.train(state, batch)
        found.append(float(metrics["loss"]))
    return found, jax.device_get(state.parameters)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_eight_devices_train_as_one(rate):
    """With dropout too: its bits belong to a place in the batch, not to a device."""
    model = dataclasses.replace(CONFIG.model, dropout=rate)
    config = dataclasses.replace(CONFIG, model=model)
    (one, one_end), (eight, eight_end) = (losses(n, config) for n in (1, 8))
    np.testing.assert_allclose(one, eight, rtol=1e-5)
    assert len(set(one)) == len(one)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), one_end, eight_end
    )


@pytest.mark.parametrize("positions", ["sinusoid", "learned"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_weight_has_a_sharding_rule(positions, norm):
    config = dataclasses.replace(CONFIG.model, positions=positions, norm=norm)
    model = build(config, 40)
    where = meshes.shardings(meshes.make_mesh(), model.axes)
    jax.tree.map(lambda x, s: s.shard_shape(x.shape), model.shapes, where)
    ranks = jax.tree.map(lambda x: len(x.shape), model.shapes)
    assert jax.tree.leaves(ranks) == [len(s.spec) for s in jax.tree.leaves(where)]


def test_an_axis_without_a_rule_is_an_error():
    mesh = meshes.make_mesh()
    assert meshes.sharding(mesh, ("batch",)).spec == PartitionSpec("data")
    with pytest.raises(
        UserError, match="no sharding rule for the axis 'heds'; did you"
    ):
        meshes.sharding(mesh, ("heds",))


def test_rows_that_do_not_divide_are_told_with_the_numbers():
    mesh = meshes.make_mesh(jax.devices()[:3])
    with pytest.raises(UserError, match="16 rows does not divide into 3 devices"):
        meshes.place_batch(mesh, {"source": np.zeros((16, 4), np.int32)})
