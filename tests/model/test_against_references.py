"""The model against two references that share no line with it.

`twin.py` is the paper in NumPy float64; `torch_transformer.npz` holds what PyTorch's
Transformer, cross-entropy and Adam made of the same weights (make_torch_fixture.py).
The two references also have to agree with each other, to float64 rounding.

Numbers of order 1 to 10 in float32 are compared. Rounding changed them by 5e-6 at most
(logits, 150 random models; most by 1e-6), so 2e-5 leaves room for other machines and
none for a mistake.
"""

import functools
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_jax.config import Config, ModelConfig, TrainConfig
from t2t_jax.model.architecture import logits, step_logits
from t2t_jax.model.mask import Tokens
from t2t_jax.model.model import build
from t2t_jax.model.positions import sinusoids
from t2t_jax.model.transformer import teacher_forcing
from t2t_jax.search.beam import beam_search
from t2t_jax.tools.verify.random_models import (
    BOS,
    EOS,
    PAD,
    ROWS,
    SOURCE_LENGTH,
    TARGET_LENGTH,
    VOCABULARY,
    packed,
    random_parameters,
)
from t2t_jax.tools.verify.references import twin
from t2t_jax.training.step import initial_state, loss_sums, train_step

GREEDY = functools.partial(beam_search, beam=1)

pytestmark = pytest.mark.usefixtures("quick_compiler")

SMOOTHING = 0.1
CLOSE = {"rtol": 2e-5, "atol": 2e-5}
SHAPES = {  # all axes of different lengths, so that none can be mistaken
    "post, 1 layer": {"layers": 1},
    "post, learned, head_width": {
        "layers": 2,
        "positions": "learned",
        **{"width": 6, "heads": 4, "head_width": 5},
    },
    "pre, learned": {"layers": 1, "norm": "pre", "positions": "learned"},
    "pre, 2 layers, head_width": {
        "layers": 2,
        "norm": "pre",
        **{"width": 10, "heads": 2, "head_width": 3},
    },
}
SMALL = {"width": 8, "heads": 2, "hidden": 20, "dropout": 0.0, "max_positions": 16}
THREE_LAYERS = {"layers": 3, "width": 12, "heads": 3}


@partial(jax.jit, static_argnames="definition")
def everything(definition, parameters, batch):
    """(logits, (loss, nll, tokens), gradient of the mean loss) of the real model."""
    module = nnx.merge(definition, parameters)
    logits_btv = logits(module, teacher_forcing(batch, BOS))

    def mean_loss(parameters):
        module = nnx.merge(definition, parameters)
        sums = loss_sums(module, batch, SMOOTHING, BOS)
        return sums[0] / sums[2], sums

    gradient, sums = jax.grad(mean_loss, has_aux=True)(parameters)
    return logits_btv, sums, gradient


class Case(NamedTuple):
    """What the model made of a batch, and what it made it from."""

    config: ModelConfig
    definition: nnx.GraphDef
    parameters: dict[str, Any]
    batch: dict[str, np.ndarray]
    logits_btv: np.ndarray
    sums: tuple
    gradient: dict[str, Any]

    def twin_loss(self, parameters):
        """The twin's mean loss, for other parameters."""
        batch = twin.teacher_forcing(self.batch, BOS)
        return mean_loss_of_twin(self.config, parameters, batch)


def mean_loss_of_twin(config, parameters, batch):
    logits_btv = twin.logits(config, parameters, batch)
    loss, _, tokens = twin.loss_sums(logits_btv, batch, SMOOTHING)
    return loss / tokens


@pytest.fixture(scope="module", params=SHAPES)
def case(request):
    return make_case(request.param)


def make_case(name):
    config = ModelConfig(**SMALL | SHAPES[name])
    model = build(config, VOCABULARY)
    parameters, batch = random_parameters(model, seed=1), packed(ROWS, seed=2)
    made = everything(model.definition, parameters, batch)
    return Case(config, model.definition, parameters, batch, *jax.device_get(made))


# ------------------------------------------------------------------------- the twin


def test_logits_are_the_twins(case):
    batch = twin.teacher_forcing(case.batch, BOS)
    want_btv = twin.logits(case.config, case.parameters, batch)
    real_bt = batch["target_segment"] > 0
    assert np.std(want_btv[real_bt]) > 0.5  # not a model that says nothing
    np.testing.assert_allclose(case.logits_btv[real_bt], want_btv[real_bt], **CLOSE)


def test_losses_are_the_twins(case):
    batch = twin.teacher_forcing(case.batch, BOS)
    logits_btv = twin.logits(case.config, case.parameters, batch)
    want = twin.loss_sums(logits_btv, batch, SMOOTHING)
    assert case.sums[2] == want[2] == sum(t for row in ROWS for _, t in row)
    np.testing.assert_allclose(case.sums[:2], want[:2], **CLOSE)


def test_gradient_is_the_slope_of_the_twins_loss(case):
    """Central differences of the float64 loss in random directions of all weights."""
    random = np.random.default_rng(3)
    for _ in range(3):
        check_slope(
            case, jax.tree.map(lambda x: random.normal(size=x.shape), case.parameters)
        )


@pytest.mark.parametrize("name", ["post, 1 layer", "pre, learned"])
def test_every_weight_has_its_own_right_slope(name):
    """As above, but one weight at a time, so that none hides behind another."""
    case, random = make_case(name), np.random.default_rng(4)
    leaves, tree = jax.tree.flatten(case.parameters)
    for i in range(len(leaves)):
        directions = [np.zeros(x.shape) for x in leaves]
        directions[i] = random.normal(size=leaves[i].shape)
        check_slope(case, jax.tree.unflatten(tree, directions))


def check_slope(case, direction):
    step = 1e-8  # rounding is below 1e-7 then; a longer one meets ReLUs that turn

    def loss_at(distance):
        moved = jax.tree.map(
            lambda x, u: twin.float64(x) + distance * u, case.parameters, direction
        )
        return case.twin_loss(moved)

    products = jax.tree.map(
        lambda g, u: np.sum(twin.float64(g) * u), case.gradient, direction
    )
    want = (loss_at(step) - loss_at(-step)) / (2 * step)
    slope = sum(jax.tree.leaves(products))  # of all rounding errors of the gradient
    np.testing.assert_allclose(slope, want, rtol=2e-5, atol=5e-5)


PAIRS = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 7)), max_size=6)


@pytest.fixture(scope="module")
def model_of_any_batch():
    config = ModelConfig(**SMALL | THREE_LAYERS)
    model = build(config, VOCABULARY)
    apply = jax.jit(
        lambda parameters, batch: logits(
            nnx.merge(model.definition, parameters), teacher_forcing(batch, BOS)
        )
    )
    return config, random_parameters(model, seed=5), apply


@settings(max_examples=20, deadline=None)
@example(rows=(ROWS[0], ROWS[2]), seed=0)
@given(rows=st.tuples(PAIRS, PAIRS), seed=st.integers(0, 99))
def test_any_packing_is_the_twins(model_of_any_batch, rows, seed):
    config, parameters, apply = model_of_any_batch
    batch = packed([those_that_fit(row) for row in rows], seed)
    got_btv = np.asarray(apply(parameters, batch))
    batch = twin.teacher_forcing(batch, BOS)
    want_btv = twin.logits(config, parameters, batch)
    real_bt = batch["target_segment"] > 0
    np.testing.assert_allclose(got_btv[real_bt], want_btv[real_bt], **CLOSE)


def those_that_fit(pairs):
    """The first pairs, as many as a row holds."""
    source, target = np.cumsum(np.array(pairs).reshape(-1, 2), axis=0).T
    return pairs[: np.sum((source <= SOURCE_LENGTH) & (target <= TARGET_LENGTH))]


@pytest.mark.parametrize(
    ("name", "seed"), [("post, 1 layer", 8), ("pre, 2 layers, head_width", 6)]
)
def test_greedy_search_is_the_twins(name, seed):
    """Cached steps and search, padded sources: as whole forward passes, one by one."""
    config = ModelConfig(**SMALL | SHAPES[name])
    model = build(config, VOCABULARY)
    parameters = random_parameters(model, seed)
    random, lengths, limit = np.random.default_rng(7), [1, 6, 3, 5, 2, 4], 9
    source_bs = random.integers(EOS, VOCABULARY, (len(lengths), max(lengths)))
    segment_bs = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int32)

    @jax.jit
    def search(parameters, source_bs, segment_bs):
        module = nnx.merge(model.definition, parameters)
        position_bs = jnp.broadcast_to(jnp.arange(max(lengths)), source_bs.shape)
        memory = module.encode(source_bs, Tokens(segment_bs, position_bs))
        return GREEDY(
            partial(step_logits, module, memory),
            module.initial_cache(memory, 1, limit),
            jnp.full(len(lengths), limit),
            max_length=limit,
            **{"bos": BOS, "eos": EOS, "pad": PAD},
        )

    found = jax.device_get(search(parameters, source_bs * segment_bs, segment_bs))
    for b, length in enumerate(lengths):
        want, log_probability = twin.greedy(
            config,
            parameters,
            source_bs[b, :length],
            length=limit,
            never=(BOS, PAD),
            **{"bos": BOS, "eos": EOS},
        )
        assert found.tokens_bnt[b, 0, : found.length_bn[b, 0]].tolist() == want
        np.testing.assert_allclose(found.log_prob_bn[b, 0], log_probability, **CLOSE)
    assert {True, False} == set(found.ended_bn.ravel())  # both ends were seen


def test_sinusoids_are_the_printed_formula():
    want = [twin.sinusoid(position, 12) for position in range(3000)]
    np.testing.assert_allclose(sinusoids(3000, 12), want, rtol=0, atol=1e-7)


# --------------------------------------------------------------------------- PyTorch


class Torch(NamedTuple):
    """What PyTorch made, the batch it made it from in our form, and our config."""

    numbers: dict[str, np.ndarray]
    batch: dict[str, np.ndarray]
    config: Config

    def parameters(self, kind):
        """The parameters named `kind/...` as the model's nested dict."""
        nested = {}
        for name, array in self.numbers.items():
            start, *path = name.split("/")
            if start == kind:
                place = nested
                *folders, last = [int(x) if x.isdigit() else x for x in path]
                for folder in folders:
                    place = place.setdefault(folder, {})
                place[last] = array
        return nested

    def real_bt(self):
        return self.batch["target_segment"] > 0


@pytest.fixture(scope="module")
def torch():
    with np.load(Path(__file__).with_name("torch_transformer.npz")) as file:
        numbers = dict(file)
    batch = {}
    for side in ("source", "target"):
        tokens = numbers[side]
        place = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
        real = place < numbers[f"{side}_length"][:, None]
        batch[side] = tokens
        batch[f"{side}_segment"] = real.astype(np.int32)
        batch[f"{side}_position"] = (place * real).astype(np.int32)
    layer = "weights/encoder/0"
    width, heads, _ = numbers[f"{layer}/attention/query"].shape
    config = Config(
        model=ModelConfig(
            layers=2,
            width=width,
            heads=heads,
            hidden=numbers[f"{layer}/ff/inner"].shape[1],
            dropout=0.0,
        ),
        train=TrainConfig(
            warmup=int(numbers["warmup"]), label_smoothing=float(numbers["smoothing"])
        ),
    )
    assert numbers["bos"] == BOS
    assert numbers["smoothing"] == SMOOTHING
    return Torch(numbers, batch, config)


def test_torch_has_all_our_parameters(torch):
    model = build(torch.config.model, VOCABULARY)
    for kind in ("weights", "gradients", "after"):
        shapes = jax.tree.map(np.shape, torch.parameters(kind))
        assert shapes == jax.tree.map(lambda x: x.shape, model.shapes)


def test_logits_loss_and_gradients_are_torchs(torch):
    model = build(torch.config.model, VOCABULARY)
    logits_btv, sums, gradient = everything(
        model.definition, torch.parameters("weights"), torch.batch
    )
    real_bt, want_btv = torch.real_bt(), torch.numbers["logits"]
    np.testing.assert_allclose(logits_btv[real_bt], want_btv[real_bt], **CLOSE)
    np.testing.assert_allclose(sums[0] / sums[2], torch.numbers["losses"][0], **CLOSE)
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, **CLOSE),
        gradient,
        torch.parameters("gradients"),
    )


def test_three_steps_of_training_are_torchs(torch):
    """Schedule, Adam and its bias correction, and the step that uses them."""
    model, config = build(torch.config.model, VOCABULARY), torch.config
    parameters = jax.tree.map(jnp.asarray, torch.parameters("weights"))
    state = initial_state(parameters, config)
    step = jax.jit(
        partial(train_step, definition=model.definition, config=config, bos=BOS)
    )
    metrics = []
    for _ in range(3):
        state, made = step(state, torch.batch)
        metrics.append(jax.device_get(made))

    for name, ours in ("losses", "loss"), ("gradient_norms", "gradient_norm"):
        got = [made[ours] for made in metrics]
        np.testing.assert_allclose(got, torch.numbers[name][:3], **CLOSE)
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, **CLOSE),
        state.parameters,
        torch.parameters("after"),
    )
    logits_btv, *_ = everything(model.definition, state.parameters, torch.batch)
    real_bt, want_btv = torch.real_bt(), torch.numbers["logits_after"]
    np.testing.assert_allclose(logits_btv[real_bt], want_btv[real_bt], **CLOSE)


# ------------------------------------------------------ the references, by themselves


def test_the_twin_is_torch(torch):
    batch = twin.teacher_forcing(torch.batch, BOS)
    real_bt, want_btv = torch.real_bt(), torch.numbers["logits"]
    assert (batch["target_input"] == torch.numbers["target_input"])[real_bt].all()
    got_btv = twin.logits(torch.config.model, torch.parameters("weights"), batch)
    np.testing.assert_allclose(got_btv[real_bt], want_btv[real_bt], rtol=0, atol=1e-12)
    loss = mean_loss_of_twin(torch.config.model, torch.parameters("weights"), batch)
    np.testing.assert_allclose(loss, torch.numbers["losses"][0], rtol=1e-12)


def test_gradients_and_adam_of_the_twin_are_torchs(torch):
    """Three steps, by the twin's own formulas; the file has float32."""
    batch = twin.teacher_forcing(torch.batch, BOS)
    model, close = torch.config.model, {"rtol": 1e-6, "atol": 1e-8}
    leaves, tree = jax.tree.flatten(torch.parameters("weights"))
    moments = [None] * len(leaves)
    with jax.enable_x64(True):
        loss_and_gradient = jax.jit(
            jax.value_and_grad(lambda p: mean_loss_of_twin(model, p, batch))
        )
        for step in (1, 2, 3):
            leaves = [jnp.asarray(x, jnp.float64) for x in leaves]
            loss, gradient = loss_and_gradient(jax.tree.unflatten(tree, leaves))
            want = torch.numbers["losses"][step - 1]
            np.testing.assert_allclose(loss, want, rtol=1e-12)
            if step == 1:
                close_to_torch = functools.partial(np.testing.assert_allclose, **close)
                jax.tree.map(close_to_torch, gradient, torch.parameters("gradients"))
            rate = twin.learning_rate(step, model.width, int(torch.numbers["warmup"]))
            updated = [
                twin.adam(np.asarray(x), np.asarray(g), m, step, rate)
                for x, g, m in zip(
                    leaves, jax.tree.leaves(gradient), moments, strict=True
                )
            ]
            leaves, moments = zip(*updated, strict=True)
    after = jax.tree.unflatten(tree, leaves)
    jax.tree.map(close_to_torch, after, torch.parameters("after"))


@pytest.mark.parametrize(
    "name", ["post, learned, head_width", "pre, 2 layers, head_width"]
)
def test_the_twin_sees_a_packed_sentence_as_if_alone(name):
    config = ModelConfig(**SMALL | SHAPES[name])
    parameters = random_parameters(build(config, VOCABULARY), seed=8)
    batch = twin.teacher_forcing(packed(ROWS, seed=9), BOS)
    logits_btv = twin.logits(config, parameters, batch)
    for b, row in enumerate(ROWS):
        for segment in range(1, len(row) + 1):
            alone = {
                name: array[b : b + 1, batch[f"{name[:6]}_segment"][b] == segment]
                for name, array in batch.items()
            }
            want_btv = twin.logits(config, parameters, alone)
            got_tv = logits_btv[b, batch["target_segment"][b] == segment]
            np.testing.assert_allclose(got_tv, want_btv[0], rtol=0, atol=1e-12)
