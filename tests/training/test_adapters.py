"""Adapters: a base and a low-rank change of it are one model, in every way."""

import collections
import dataclasses
import shutil
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t2t_jax import Translator, UserError, train
from t2t_jax.commands.translate import named_adapters
from t2t_jax.config import from_config_dict
from t2t_jax.extensions.model.low_rank import LowRank
from t2t_jax.model.model import build
from t2t_jax.model.products import product, quantized, transposed
from t2t_jax.parallel import mesh as meshes
from t2t_jax.tools.plan.describe import checkpoint_bytes
from t2t_jax.training.losses import loss_sums
from t2t_jax.training.step import compile_steps
from tests.small_run import assert_same, assert_same_run, config_for
from tests.training.small_model import LENGTH, ROWS, V, batch_of

LORA = {"adapter": "lora", "options": {"lora_rank": 2, "lora_weights": "all"}}
MODEL = {"layers": 1, "width": 16, "heads": 2, "hidden": 24, "dropout": 0.0}


def made(model=None, **train):
    """A config with an adapter; its model, and random parameters of both."""
    steps = {"warmup": 1, "peak_learning_rate": 0.01, "steps": 9}
    sections = {"model": MODEL | (model or {}), "train": steps | LORA | train}
    config = from_config_dict(sections)
    model, adapter = build(config.model, V), config.train.variant("adapter")
    base = model.init(jax.random.key(0))
    trained = adapter.model(model, config).init(jax.random.key(1))
    trained = jax.tree.map(  # `up` is 0 before the first step
        lambda x: x + 0.1 * jax.random.normal(jax.random.key(x.size), x.shape), trained
    )
    return config, model, adapter, base, trained


def mean_loss(model, parameters):
    return loss_sums(nnx.merge(model.definition, parameters), batch_of(), 0.1, 1)[0]


@pytest.mark.parametrize("weights", ["all", "query,value", "decoder.cross, ff.inner"])
def test_merged_is_unmerged_and_so_are_gradients(weights):
    options = {"lora_rank": 3, "lora_alpha": 5.0, "lora_weights": weights}
    config, model, adapter, base, trained = made(options=options)

    def unmerged(trained):
        return mean_loss(model, adapter.applied(base, trained, config))

    def merged(trained):
        return mean_loss(model, adapter.merged(base, trained, config))

    values = [jax.value_and_grad(f)(trained) for f in (unmerged, merged)]
    np.testing.assert_allclose(*(value for value, _ in values), rtol=1e-5)
    for a, b in zip(*(jax.tree.leaves(g) for _, g in values), strict=True):
        assert np.linalg.norm(a - b) <= 1e-4 * np.linalg.norm(b)
    assert abs(values[0][0] - mean_loss(model, base)) > 1e-3  # it changes something


def test_rank_0_is_the_base_to_the_bit_whatever_the_weight():
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((5, 3, 8), (8, 2, 4)))
    none = np.zeros((8, 0), np.float32), np.zeros((0, 2, 4), np.float32)
    kinds = [w, transposed({"w": w}, {"w": (0,)})["w"]]
    kinds.append(quantized({"w": w}, {"w": (0,)})["w"])
    for weight in kinds:
        changed = product("btd,dhk->bthk", x, LowRank(weight, *none))
        np.testing.assert_array_equal(changed, product("btd,dhk->bthk", x, weight))


def test_only_the_adapter_trains_and_is_in_the_state():
    config, model, _, base, _ = made(options={"lora_weights": "encoder"})
    steps = compile_steps(model, config, meshes.make_mesh(devices=jax.devices()[:1]), 1)
    before = jax.device_get(base)
    state, metrics = steps.train(steps.init(), batch_of(), base)
    assert_same(jax.device_get(base), before)
    assert {*state.parameters} == {"encoder"}
    moved = [jnp.abs(x).max() for x in jax.tree.leaves(state.optimizer[0].mu)]
    # `up` is 0, so only it has a gradient.
    assert sorted(m > 0 for m in moved) == [False] * 6 + [True] * 6
    whole = steps.whole(state.parameters, base)
    assert_same(whole["decoder"], base["decoder"])
    assert float(metrics["loss"]) == pytest.approx(
        float(mean_loss(model, base)) / batch_of()["target_segment"].sum(), rel=1e-5
    )
    sizes = checkpoint_bytes(config, model)
    assert sizes["parameters"] == sum(x.nbytes for x in jax.tree.leaves(state[0]))


def test_alpha_and_rank_scale_the_change():
    """Hu et al. 2021, section 4.1: alpha / r times down up."""
    options = {"lora_rank": 2, "lora_alpha": 6.0, "lora_weights": "encoder.0.ff.outer"}
    config, _, adapter, base, trained = made(options=options)
    merged = adapter.merged(base, trained, config)["encoder"][0]["ff"]["outer"]
    change = merged - base["encoder"][0]["ff"]["outer"]
    factors = trained["encoder"][0]["ff"]["outer"]
    np.testing.assert_allclose(
        change, 3 * factors["down"] @ factors["up"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.usefixtures("eight_devices")
def test_a_mesh_trains_an_adapter_as_one_device():
    config, model, _, base, _ = made()
    ends = []
    for sizes in ({"data": 1}, {"data": 2, "fsdp": 2, "tensor": 2}):
        mesh = dataclasses.replace(config.mesh, **sizes)
        mesh = meshes.make_mesh(mesh, jax.devices()[: 8 if len(sizes) > 1 else 1])
        steps = compile_steps(model, config, mesh, 1)
        place = lambda x, shape: jax.device_put(x, shape.sharding)  # noqa: E731
        placed = jax.tree.map(place, base, steps.frozen[0])
        state = steps.init()
        for seed in range(2):
            state, metrics = steps.train(state, batch_of(seed=seed), placed)
        ends.append(jax.device_get((state.parameters, metrics["loss"])))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), *ends)
    assert batch_of()["target"].shape == (ROWS, LENGTH)


@pytest.fixture(scope="module")
def adapter(trained, text, tmp_path_factory, compiled_once):
    """A base, and a run that has trained an adapter on it."""
    folder = tmp_path_factory.mktemp("adapter")
    base = shutil.copytree(trained[0], folder / "base")
    train(run_config(text, base), folder / "run")
    return base, folder / "run"


def run_config(text, base, steps=4, **changes):
    start = {"init_from": str(base), "steps": steps, "save_every": 2, "eval_every": 2}
    start |= {"peak_learning_rate": 0.05, "ema_decay": 0.5} | LORA | changes
    return config_for(text, data={"test": ""}, train=start)


def test_it_is_read_as_one_model_or_beside_its_base(adapter, text):
    base, run = adapter
    lines = (text / "dev.en").read_text("utf-8").splitlines()[:4]
    merged, plain = Translator.load(run), Translator.load(base)
    beside = plain.with_adapter(run)
    scores = [
        [s.log_prob for s in t.score([(line, line) for line in lines])]
        for t in (merged, beside, plain)
    ]
    np.testing.assert_allclose(*scores[:2], rtol=1e-4)
    assert max(map(abs, np.subtract(*scores[1:]))) > 1e-3
    texts = [[t.text for t in x.translate(lines, warn=False)] for x in (merged, beside)]
    assert texts[0] == texts[1]
    # The base's arrays are not copied.
    shared = {*map(id, jax.tree.leaves(plain.parameters))}
    assert shared <= {*map(id, jax.tree.leaves(beside.parameters))}
    hashes = {t.members[0].parameters_sha256() for t in (merged, beside, plain)}
    assert len(hashes) == 3
    with pytest.raises(UserError, match="has an adapter already"):
        beside.with_adapter(run)
    with pytest.raises(UserError, match="holds a whole model"):
        plain.with_adapter(base)


def test_lines_name_their_adapters(adapter):
    from t2t_jax.extensions.decoding.adapted import by_name

    base, run = adapter
    respond = lambda t, lines, number: [(t, line, number) for line in lines]  # noqa: E731
    plain = Translator.load(base)
    translate, record = by_name(plain, {"a": run}, respond)
    answers = translate(["a\tx", "\ty", "a\tz"], 5)
    assert [(t is plain, line, n) for t, line, n in answers] == [
        (False, "x", 5),
        (True, "y", 6),
        (False, "z", 5),
    ]
    assert [*record["adapters"]] == ["a"]
    for line in ("x", "b\tx"):
        with pytest.raises(UserError, match="line 6: .*want NAME<tab>TEXT"):
            translate(["a\tx", line], 5)


@pytest.mark.parametrize(
    ("given", "flags", "message"),
    [
        (["a=x", "b=y=z"], {}, None),
        (["x"], {"alignments": True}, None),
        (["a=x", "a=y"], {}, "each with another NAME"),
        (["=x"], {}, "want NAME=DIR"),
        (["a="], {}, "want NAME=DIR"),
        (["a=x", "y"], {}, "of several, each needs"),
        # They would be those of the base, or of the line with its name.
        (["a=x"], {"alignments": True}, "--alignments: not with lines that name"),
        (["a=x"], {"pairs": "p"}, "--pairs: not with lines that name"),
        (["a=x"], {"min_confidence": -0.5}, "--min_confidence: not with lines"),
    ],
)
def test_flags_of_named_adapters(given, flags, message):
    class Flags(collections.defaultdict):
        adapter = given

    args = Flags(lambda: SimpleNamespace(value=None))
    args |= {name: SimpleNamespace(value=value) for name, value in flags.items()}
    if message is None:
        names = {"a": "x", "b": "y=z"} if len(given) > 1 else {"": "x"}
        assert named_adapters(args) == names
        return
    with pytest.raises(UserError, match=message):
        named_adapters(args)


def test_it_resumes_to_the_bit(adapter, text, tmp_path):
    base, run = adapter
    with pytest.raises(KeyboardInterrupt):
        train(run_config(text, base), tmp_path / "run", after_step=_stop_after_3)
    train(run_config(text, base), tmp_path / "run")
    assert_same_run(run, tmp_path / "run", "names")


def _stop_after_3(step, *_):
    if step == 3:
        raise KeyboardInterrupt


def test_another_base_is_refused(adapter, text, tmp_path):
    _, run = adapter
    other = tmp_path / "other"
    train(config_for(text, data={"test": ""}, train={"seed": 7, "steps": 4}), other)
    with pytest.raises(UserError, match="parameters.*--checkpoint=average"):
        Translator.load(other).with_adapter(run)
    with pytest.raises(UserError, match="wants one model"):
        Translator.load([other, other]).with_adapter(run)


def test_what_contradicts_an_adapter_is_refused(trained, text, tmp_path):
    for changes, message in (
        ({"init_from": ""}, "changes a trained model, and none is named"),
        ({"freeze": "encoder"}, "leave out config.train.freeze='encoder'"),
        ({"options": {"lora_weights": "qery"}}, "did you mean 'query'"),
    ):
        config = run_config(text, trained[0], **changes)
        with pytest.raises(UserError, match=message):
            train(config, tmp_path / "work")
        assert not (tmp_path / "work").exists()
