"""Laws of every optimizer in the table, against the library's own and on a mesh."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from t2t_jax.config import from_config_dict
from t2t_jax.data.feeding import Position
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import weight
from t2t_jax.model.model import build, from_constructor
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel import processes
from t2t_jax.parallel.batch_placement import place_batch
from t2t_jax.training.checkpoint import Checkpoints, RunProgress
from t2t_jax.training.optimizers import (
    OPTIMIZERS,
    depths,
    is_decayed,
    joined,
    optimizer,
    split_frozen,
)
from t2t_jax.training.schedules import schedule
from t2t_jax.training.step import compile_steps
from t2t_jax.workdir import Workdir
from tests.small_run import assert_same
from tests.training.small_model import (
    WIDTH,
    Bigrams,
    batch_of,
    config_of,
    model_of,
    steps_of,
    trained,
)
from tests.training.test_step import host

pytestmark = pytest.mark.usefixtures("eight_devices")

# Small matrices are factored, too.
OPTIONS = {"adafactor": {"adafactor_factored_from": 4}, "sgd": {"nesterov": True}}
MESH = {"data": 2, "fsdp": 2, "tensor": 2}


def config_for(name, **fields):
    fields = {"peak_learning_rate": 0.01, "warmup": 5} | fields
    return config_of(optimizer=name, options=OPTIONS.get(name, {}), **fields)


def updates_of(transform, count=3):
    """Parameters after some updates with random gradients, and the state."""
    random = np.random.default_rng(0)
    parameters, *gradients = (
        jax.tree.map(
            lambda x: jnp.asarray(random.normal(size=x.shape), jnp.float32),
            model_of().shapes,
        )
        for _ in range(count + 1)
    )
    state = transform.init(parameters)
    for gradient in gradients:
        updates, state = transform.update(gradient, state, parameters)
        parameters = optax.apply_updates(parameters, updates)
    return parameters, state


def test_by_default_it_is_adam_to_the_bit_and_its_state_is_adams():
    config = config_of()
    adam = optax.adam(schedule(config), b1=0.9, b2=0.98, eps=1e-9)
    updates, optax_updates = updates_of(optimizer(config)), updates_of(adam)
    assert jax.tree.structure(updates) == jax.tree.structure(optax_updates)
    assert_same(updates, optax_updates)


LIBRARY = {
    "adam": lambda rate: optax.adamw(rate, 0.9, 0.98, 1e-9, weight_decay=0.1),
    "adafactor": lambda rate: optax.chain(
        optax.adafactor(min_dim_size_to_factor=4), optax.scale_by_schedule(rate)
    ),
    "lion": lambda rate: optax.lion(rate, weight_decay=0.1),
    "sgd": lambda rate: optax.sgd(rate, 0.9, nesterov=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_is_the_librarys(name, monkeypatch):
    decay = 0.1 if name in ("adam", "lion") else 0.0
    monkeypatch.setattr(  # the library's default is to decay everything
        "t2t_jax.training.optimizers.is_decayed",
        lambda tree: jax.tree.map(lambda _: True, tree),
    )
    config = config_for(name, weight_decay=decay)
    updates = updates_of(optimizer(config))[0]
    library_updates = updates_of(LIBRARY[name](schedule(config)))[0]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
        updates,
        library_updates,
    )


def test_gradients_are_clipped_and_reported_as_they_were():
    clipped, plain = (
        trained(config_for("sgd", clip_norm=norm, warmup=1)) for norm in (0.01, 0.0)
    )
    assert clipped[1]["gradient_norm"] == plain[1]["gradient_norm"] > 0.1
    start = host(steps_of(config_for("sgd")).init()).parameters
    step = jax.tree.map(jnp.subtract, clipped[0].parameters, start)
    # Nesterov's first step is 1.9 times the gradient.
    assert optax.tree.norm(step) == pytest.approx(1.9 * 0.01 * 0.01, rel=1e-3)


def test_weights_decay_by_the_learning_rate_and_biases_do_not():
    config = config_for("adam", weight_decay=0.5, warmup=1)
    transform = optimizer(config)
    parameters = jax.tree.map(lambda x: jnp.ones(x.shape), model_of().shapes)
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    updates, _ = transform.update(zeros, transform.init(parameters), parameters)
    np.testing.assert_allclose(updates["embedding"]["tokens"], -0.5 * 0.01)
    np.testing.assert_allclose(updates["query"], -0.5 * 0.01)
    np.testing.assert_array_equal(updates["bias"], 0)
    # Biases of attention have two axes.
    names = is_decayed(
        {"query_bias": parameters["query"][0], "scale": parameters["bias"]}
    )
    assert not any(names.values())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_learns_on_a_mesh_as_on_one_device_and_is_stored_and_restored(
    name, tmp_path
):
    fields = {"weight_decay": 0.1, "clip_norm": 1.0}
    steps = steps_of(config_for(name, mesh=MESH, **fields), devices=8)
    alone = steps_of(config_for(name, **fields))
    state, state1 = steps.init(), alone.init()
    losses = []
    for _ in range(4):
        state, metrics = steps.train(state, place_batch(steps.mesh, batch_of()))
        state1, _ = alone.train(state1, batch_of())
        losses.append(float(metrics["loss"]))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 1e-3
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(state1), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
    checkpoints = Checkpoints(Workdir(tmp_path), 1, 1)
    checkpoints.save(state, RunProgress(Position(0, 4)), parameters=False)
    checkpoints.wait()
    restored, _ = checkpoints.restore(steps.shapes)
    checkpoints.close()
    placed = processes.distribute(restored, steps.shapes)
    assert_same(placed, state)
    for x, y, shape in zip(
        *map(jax.tree.leaves, (placed, state, steps.shapes)), strict=True
    ):
        assert x.sharding.is_equivalent_to(shape.sharding, x.ndim)
        assert y.sharding.is_equivalent_to(shape.sharding, x.ndim)


# -------------------------------------------------------- frozen parts, layers' depths


def shapes_of(kind="transformer", **fields):
    sizes = {"width": 8, "heads": 2, "hidden": 8}
    config = from_config_dict({"model": {"kind": kind, **sizes, **fields}})
    return build(config.model, 16).shapes


@pytest.mark.parametrize("name", ["adam", "adafactor"])
def test_a_frozen_part_keeps_its_bits_and_has_no_state(name):
    fields = {"weight_decay": 0.1, "ema_decay": 0.5, "clip_norm": 0.1}
    steps = steps_of(config_of(optimizer=name, freeze="embedding, bias", **fields))
    state = steps.init()
    start = host(state)
    for seed in range(2):
        state, _ = steps.train(state, batch_of(seed=seed))
    end = host(state)
    for part in ("embedding", "bias"):
        assert_same(end.parameters[part], start.parameters[part])
        assert_same(end.ema[part], start.parameters[part])
    query = start.parameters["query"]
    assert not np.array_equal(query, end.parameters["query"])
    assert max(x.size for x in jax.tree.leaves(end.optimizer)) <= query.size
    paths = jax.tree_util.tree_leaves_with_path(end.optimizer)
    assert "embedding" not in str([path for path, _ in paths])


def test_a_part_is_all_that_bears_its_name():
    shapes = shapes_of(layers=1, norm="pre", positions="learned")
    trained, frozen = split_frozen(shapes, "encoder,embedding")
    assert {*frozen} == {"embedding", "encoder", "encoder_norm", "encoder_positions"}
    assert {*trained} == {"decoder", "decoder_norm", "decoder_positions"}
    with pytest.raises(UserError, match="'encodr'.*did you mean 'encoder'"):
        split_frozen(shapes, "encodr")
    with pytest.raises(UserError, match="nothing would be trained"):
        split_frozen(model_of().shapes, "embedding,query,bias")
    for name, message in {
        "encoder:2": "encoder has 1 layers; want encoder, or encoder:1 to encoder:1",
        "encoder:0": "'encoder:0'",
        "encoder:x": "'encoder:x'",
        "embedding:1": "embedding has 0 layers; want embedding$",
    }.items():
        with pytest.raises(UserError, match=message):
            split_frozen(shapes, name)


class Layer(nnx.Module):
    def __init__(self, rng):
        self.inner = weight(rng, {"width": WIDTH}, {"hidden": WIDTH})


class Stack(Bigrams):
    def __init__(self, rng):
        super().__init__(0.0, rng)
        self.encoder = nnx.List([Layer(r) for r in jax.random.split(rng, 3)])

    def outputs(self, batch, rng=None, trace=None):
        x_btd = super().outputs(batch)
        for layer in self.encoder:
            x_btd = x_btd + jnp.tanh(x_btd @ layer.inner[...])
        return x_btd


def test_frozen_layers_keep_their_bits_and_the_others_train_as_without():
    def one_step(freeze):
        config, model = config_of(freeze=freeze, ema_decay=0.5), from_constructor(Stack)
        steps = compile_steps(
            model, config, meshes.make_mesh(config.mesh, jax.devices()[:1]), 1
        )
        start = host(state := steps.init()).parameters
        return start, host(steps.train(state, batch_of())[0])

    start, end = one_step("encoder:2, bias")
    _, unfrozen = one_step("")
    layers = start["encoder"] | {2: unfrozen.parameters["encoder"][2]}
    expected = unfrozen.parameters | {"encoder": layers, "bias": start["bias"]}
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6)
    jax.tree.map(close, end.parameters, expected)
    assert_same(end.parameters["encoder"][1], start["encoder"][1])
    assert_same(end.ema["encoder"][0], start["encoder"][0])
    assert {*end.optimizer[0].mu["encoder"]} == {2}
    assert_same(joined(*split_frozen(start, "encoder:1")), start)


@pytest.mark.parametrize("kind", ["transformer", "lstm"])
def test_depth_counts_layers_from_the_output(kind):
    by_depth = depths(shapes_of(kind, layers=3, decoder_layers=2))
    for part, layers in (("encoder", 3), ("decoder", 2)):
        for layer in range(layers):
            assert {*jax.tree.leaves(by_depth[part][layer])} == {layers - layer}
    assert {*jax.tree.leaves(by_depth["embedding"])} == {4}


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

    layers = {0: {"w": 0.25}, 1: {"w": 0.5}}
    factors = {"embedding": {"tokens": 0.125}, "encoder": layers, "head": 1.0}
    jax.tree.map(
        lambda x, y, factor: np.testing.assert_allclose(x, y * factor, rtol=1e-6),
        *(updates(layer_decay=0.5), updates(), factors),
    )
