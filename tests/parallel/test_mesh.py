"""The same numbers on every mesh, and what does not fit a mesh is told."""

import functools

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from t2t_jax import config as fields
from t2t_jax.config import Config, MeshConfig, ModelConfig, TrainConfig
from t2t_jax.data import filling
from t2t_jax.data.batching import plan_epoch
from t2t_jax.data.filling import fill, ragged
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.batch_placement import local_layout, place_batch
from t2t_jax.training.step import compile_steps, state_shardings

pytestmark = pytest.mark.usefixtures("eight_devices")

CONFIG = Config(
    model=ModelConfig(layers=1, width=16, heads=4, hidden=32, dropout=0.0),
    train=TrainConfig(warmup=400, seed=3),
)
VOCAB = 40


def changed(config=CONFIG, **sections):
    for name, values in sections.items():
        config = fields.changed(config, name, **values)
    return config


@functools.cache
def text():
    rng = np.random.default_rng(0)
    sides = [
        ragged([rng.integers(3, VOCAB, n) for n in rng.integers(2, 14, 800)])
        for _ in range(2)
    ]
    lengths = (side.lengths for side in sides)
    options = {"batch_tokens": 512, "batching": "packed", "row_length": 16}
    return sides, plan_epoch(*lengths, **options, seed=0, epoch=0)


@functools.cache
def losses(config, devices, vocab=VOCAB, steps=4):
    """The losses of some steps on some devices, and the parameters after them."""
    sides, plan = text()
    mesh = meshes.make_mesh(config.mesh, jax.devices()[:devices])
    compiled = compile_steps(build(config.model, vocab), config, mesh, bos=1)
    state, step_losses = compiled.init(), []
    for i in range(steps):
        layout = local_layout(mesh, plan[i % len(plan)], config.train.accumulate)
        batch = place_batch(mesh, fill(layout, *sides))
        assert len(batch["source"].sharding.device_set) == devices
        state, metrics = compiled.train(state, batch)
        step_losses.append(float(metrics["loss"]))
    assert len(set(step_losses)) == len(step_losses)
    return step_losses, jax.device_get(state.parameters)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("devices", "vocab", "sections"),
    [
        (8, VOCAB, {"mesh": {"fsdp": 2, "tensor": 2}, "train": {"accumulate": 3}}),
        # A vocabulary that does not divide is replicated.
        slow(8, VOCAB + 1, {"mesh": {"data": 2, "fsdp": 2, "tensor": 2}}),
        slow(3, VOCAB, {}),  # 32 rows and one of padding
    ],
)
def test_dropout_draws_the_same_on_every_mesh_and_in_every_microbatch(
    devices, vocab, sections
):
    """Its bits belong to a place in the batch, not to a device."""
    config = changed(model={"dropout": 0.3})
    alone, alone_end = losses(config, 1, vocab)
    divided, divided_end = losses(changed(config, **sections), devices, vocab)
    np.testing.assert_allclose(alone, divided, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), alone_end, divided_end
    )


def gradient(config, devices):
    """That of the first step: Adam's first moment after it, divided by 1 - beta_1."""
    sides, plan = text()
    mesh = meshes.make_mesh(config.mesh, jax.devices()[:devices])
    steps = compile_steps(build(config.model, VOCAB), config, mesh, bos=1)
    layout = local_layout(mesh, plan[0], config.train.accumulate)
    batch = fill(layout, *sides)
    random = np.random.default_rng(1)
    linked = (*batch["target"].shape, filling.LINKS_OF_A_WORD)
    batch[filling.SOURCE_WORD] = random.integers(1, 9, batch["source"].shape, np.int32)
    batch[filling.LINK] = random.integers(0, 9, linked, np.int32)
    state, _ = steps.train(steps.init(), place_batch(mesh, batch))
    return jax.tree.map(lambda x: x / 0.1, jax.device_get(state.optimizer[0].mu))


@pytest.mark.slow  # the law sharded_is_one_device, and test_losses.py, have their parts
@pytest.mark.parametrize(
    ("model", "train"),
    [
        ({"kind": "lstm"}, {"accumulate": 2, "freeze": "embedding"}),
        (
            {"kind": "neural_gpu", "options": {"neural_gpu_rows": 4}},
            {"accumulate": 2},
        ),
        ({}, {"loss": "guided", "freeze": "encoder"}),
    ],
    ids=lambda fields: "-".join(map(str, fields.values())),
)
def test_the_gradient_of_a_step_is_that_of_one_device(model, train):
    config = changed(model={"dropout": 0.2, **model}, train=train)
    expected = gradient(config, 1)
    actual = gradient(changed(config, mesh={"data": 2, "fsdp": 2, "tensor": 2}), 8)

    def near(actual, expected):
        assert np.linalg.norm(actual - expected) <= 1e-4 * np.linalg.norm(expected)

    jax.tree.map(near, actual, expected)


def test_the_state_is_made_in_parts_and_never_whole_on_a_device():
    config = changed(
        model={"width": 64, "hidden": 256},
        mesh={"data": 1, "fsdp": 4, "tensor": 2},
        train={"ema_decay": 0.9},
    )
    mesh = meshes.make_mesh(config.mesh)
    steps = compile_steps(build(config.model, 4096), config, mesh, bos=1)
    leaves = jax.tree.leaves(steps.shapes)
    total = sum(x.size * x.dtype.itemsize for x in leaves)
    memory = steps.init.lower().compile().memory_analysis()
    assert memory.output_size_in_bytes < total / 8 * 1.05  # but for norms and counters
    # Of what is made on the way the most is the random numbers of the parameters.
    assert memory.temp_size_in_bytes < total / 4
    state = steps.init()
    tokens = state.parameters["embedding"]["tokens"]
    assert {s.data.shape for s in tokens.addressable_shards} == {(2048, 16)}
    for moment in (state.optimizer[0].mu, state.optimizer[0].nu, state.ema):
        assert moment["embedding"]["tokens"].sharding == tokens.sharding


def test_every_weight_has_a_sharding_rule():
    model = build(changed(model={"positions": "learned", "norm": "pre"}).model, VOCAB)
    mesh = meshes.make_mesh(MeshConfig(data=1, fsdp=4, tensor=2))
    shardings = meshes.shardings(mesh, model.axes, model.shapes)
    jax.tree.map(lambda x, s: s.shard_shape(x.shape), model.shapes, shardings)
    ranks = jax.tree.map(lambda x: len(x.shape), model.shapes)
    assert jax.tree.leaves(ranks) == [len(s.spec) for s in jax.tree.leaves(shardings)]
    # What is left whole is small: LayerNorm's and the learned positions' other axis.
    undivided = [
        path
        for path, s in jax.tree.leaves_with_path(shardings)
        if not any(s.spec) and "norm" not in jax.tree_util.keystr(path)
    ]
    assert not undivided


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ({"data": 3, "fsdp": 2}, "data 3 x fsdp 2 x tensor 1 = 6 devices, but 8 are"),
        ({"fsdp": 3}, "fsdp 3 x tensor 1 = 3 devices, but 8 are"),
        ({"data": 0}, r"config\.mesh"),
    ],
)
def test_a_mesh_takes_all_devices_or_is_refused(mesh, message):
    shape = dict(meshes.make_mesh(MeshConfig(fsdp=2)).shape)
    assert shape == {"data": 4, "fsdp": 2, "tensor": 1}
    with pytest.raises(UserError, match=message):
        meshes.make_mesh(changed(mesh=mesh).mesh)


def test_an_axis_without_a_rule_or_that_does_not_divide_is_an_error():
    mesh = meshes.make_mesh(MeshConfig(data=1, tensor=8))
    assert meshes.sharding(mesh, ("batch",)).spec == PartitionSpec(("data", "fsdp"))
    with pytest.raises(UserError, match="no sharding rule for the axis 'heds'; did"):
        meshes.sharding(mesh, ("heds",))
    message = "'heads' of size 4 is not divisible by 8 devices .config.mesh: tensor 8"
    with pytest.raises(UserError, match=message):
        state_shardings(build(CONFIG.model, VOCAB), CONFIG, mesh)
