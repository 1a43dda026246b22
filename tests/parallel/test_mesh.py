"""The same numbers on every mesh, and what does not fit a mesh is told."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from t2t_jax.config import Config, MeshConfig, ModelConfig, TrainConfig
from t2t_jax.data.batching import plan_epoch
from t2t_jax.data.filling import fill, ragged
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training.step import compile_steps, microbatches, state_shardings

pytestmark = pytest.mark.usefixtures("eight_devices", "quick_compiler")

CONFIG = Config(
    model=ModelConfig(layers=1, width=16, heads=4, hidden=32, dropout=0.0),
    train=TrainConfig(warmup=400, seed=3),
)
VOCAB = 40


def changed(config=CONFIG, **sections):
    return dataclasses.replace(
        config,
        **{
            name: dataclasses.replace(getattr(config, name), **fields)
            for name, fields in sections.items()
        },
    )


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
def losses(config, devices, vocab=VOCAB, steps=20):
    """The losses of some steps on some devices, and the parameters after them."""
    sides, plan = text()
    mesh = meshes.make_mesh(config.mesh, jax.devices()[:devices])
    compiled = compile_steps(build(config.model, vocab), config, mesh, bos=1)
    state, found = compiled.init(), []
    for i in range(steps):
        layout = meshes.local_layout(mesh, plan[i % len(plan)], config.train.accumulate)
        batch = meshes.place_batch(mesh, fill(layout, *sides))
        assert len(batch["source"].sharding.device_set) == devices
        state, metrics = compiled.train(state, batch)
        found.append(float(metrics["loss"]))
    assert len(set(found)) == len(found)
    return found, jax.device_get(state.parameters)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("devices", "sections"),
    [
        slow(8, {}),
        slow(8, {"mesh": {"data": 2, "fsdp": 4}}),
        slow(8, {"mesh": {"data": 2, "fsdp": 2, "tensor": 2}}),
        slow(4, {"mesh": {"tensor": 4}}),
        slow(3, {}),  # 32 rows and one of padding
        slow(1, {"train": {"accumulate": 4}}),
        slow(
            8,
            {
                "mesh": {"fsdp": 2, "tensor": 2},
                "train": {"accumulate": 3},  # 32 rows and 4 of padding
                "model": {"remat": "dots"},
            },
        ),
        slow(1, {"model": {"remat": "full"}}),
    ],
)
def test_every_mesh_trains_as_one_device(devices, sections):
    one, one_end = losses(CONFIG, 1)
    many, many_end = losses(changed(**sections), devices)
    np.testing.assert_allclose(one, many, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), one_end, many_end
    )


def test_dropout_draws_the_same_on_every_mesh_and_in_every_microbatch():
    """Its bits belong to a place in the batch, not to a device."""
    config = changed(model={"dropout": 0.3})
    one, _ = losses(config, 1)
    parts = {"mesh": {"fsdp": 2, "tensor": 2}, "train": {"accumulate": 3}}
    many, _ = losses(changed(config, **parts), 8)
    np.testing.assert_allclose(one, many, rtol=1e-5)


@pytest.mark.slow
def test_a_vocabulary_that_does_not_divide_lies_whole():
    mesh = {"data": 2, "fsdp": 2, "tensor": 2}
    (one, _), (many, _) = losses(CONFIG, 1, 41), losses(changed(mesh=mesh), 8, 41)
    np.testing.assert_allclose(one, many, rtol=1e-5)


def test_microbatches_are_the_rows_of_a_batch_and_stay_on_their_devices():
    batch = {"source": np.arange(24 * 5).reshape(24, 5)}
    parts = microbatches(batch, 3)["source"]
    assert parts.shape == (3, 8, 5)
    for number, part in enumerate(parts):
        np.testing.assert_array_equal(part, batch["source"][number::3])


def test_the_state_is_made_in_parts_and_never_whole_on_a_device():
    config = changed(
        model={"width": 64, "hidden": 256},
        mesh={"data": 1, "fsdp": 4, "tensor": 2},
        train={"ema_decay": 0.9},
    )
    mesh = meshes.make_mesh(config.mesh)
    steps = compile_steps(build(config.model, 4096), config, mesh, bos=1)
    leaves = jax.tree.leaves(steps.shapes)
    whole = sum(x.size * x.dtype.itemsize for x in leaves)
    memory = steps.init.lower().compile().memory_analysis()
    assert memory.output_size_in_bytes < whole / 8 * 1.05  # but for norms and counters
    # Of what is made on the way the most is the random numbers of the parameters.
    assert memory.temp_size_in_bytes < whole / 4
    state = steps.init()
    first = state.parameters["embedding"]["tokens"]
    assert {s.data.shape for s in first.addressable_shards} == {(2048, 16)}
    for moment in (state.optimizer[0].mu, state.optimizer[0].nu, state.ema):
        assert moment["embedding"]["tokens"].sharding == first.sharding


@pytest.mark.parametrize("positions", ["sinusoid", "learned"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_weight_has_a_sharding_rule(positions, norm):
    config = dataclasses.replace(CONFIG.model, positions=positions, norm=norm)
    model = build(config, VOCAB)
    mesh = meshes.make_mesh(MeshConfig(data=1, fsdp=4, tensor=2))
    where = meshes.shardings(mesh, model.axes, model.shapes)
    jax.tree.map(lambda x, s: s.shard_shape(x.shape), model.shapes, where)
    ranks = jax.tree.map(lambda x: len(x.shape), model.shapes)
    assert jax.tree.leaves(ranks) == [len(s.spec) for s in jax.tree.leaves(where)]
    # What is left whole is small: LayerNorm's and the learned positions' other axis.
    whole = [
        path
        for path, s in jax.tree.leaves_with_path(where)
        if not any(s.spec) and "norm" not in jax.tree_util.keystr(path)
    ]
    assert not whole


def test_an_axis_without_a_rule_is_an_error():
    mesh = meshes.make_mesh()
    assert meshes.sharding(mesh, ("batch",)).spec == PartitionSpec(("data", "fsdp"))
    with pytest.raises(
        UserError, match="no sharding rule for the axis 'heds'; did you"
    ):
        meshes.sharding(mesh, ("heds",))


def test_a_mesh_takes_all_devices_or_is_refused():
    assert dict(meshes.make_mesh(MeshConfig(fsdp=2)).shape) == {
        "data": 4,
        "fsdp": 2,
        "tensor": 1,
    }
    with pytest.raises(UserError, match="data 3 x fsdp 2 x tensor 1 = 6 devices, but"):
        meshes.make_mesh(MeshConfig(data=3, fsdp=2))
    with pytest.raises(UserError, match="fsdp 3 x tensor 1 = 3 devices, but 8 are"):
        meshes.make_mesh(MeshConfig(fsdp=3))
    with pytest.raises(UserError, match="data 4 x .* = 4 devices, but 8 are"):
        meshes.make_mesh(MeshConfig(data=4))


@pytest.mark.parametrize("mesh", [{"data": 0}, {"fsdp": -1}, {"fsdp": -2}])
def test_a_mesh_that_means_nothing_is_refused(mesh):
    from t2t_jax.config import changed as changed_field

    with pytest.raises(UserError, match=r"config\.mesh"):
        changed_field(CONFIG, "mesh", **mesh)


def test_sizes_that_do_not_divide_are_told_with_the_numbers():
    mesh = meshes.make_mesh(MeshConfig(data=1, tensor=8))
    told = "'heads' of size 4 is not divisible by 8 devices .config.mesh: tensor 8"
    with pytest.raises(UserError, match=told):
        state_shardings(build(CONFIG.model, VOCAB), CONFIG, mesh)
