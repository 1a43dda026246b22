"""The model against references that share no line with it.

`examples/transformer.py` is the paper, `twin.py` the same with packed rows, in float64;
`torch_transformer.npz` holds what PyTorch's Transformer, cross-entropy and Adam made of
the same weights (make_torch_fixture.py). The references also have to agree with each
other, to float64 rounding.

Numbers of order 1 to 10 in float32 are compared; rounding changed them by 5e-6 at most
(logits, 150 random models).
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t2t_jax.config import Config, ModelConfig, TrainConfig
from t2t_jax.model.architecture import logits
from t2t_jax.model.model import build
from t2t_jax.model.transformer import teacher_forcing
from t2t_jax.tools.verify import numbers
from t2t_jax.tools.verify.check import Context
from t2t_jax.tools.verify.random_models import BOS, VOCABULARY
from t2t_jax.tools.verify.references import twin
from t2t_jax.training.step import initial_state, loss_sums, train_step
from tests import one_file
from tests.compiler import quick_jit
from tests.model import twin_variants

SMOOTHING = 0.1
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


@partial(quick_jit, static_argnames="definition")
def model_numbers(definition, parameters, batch):
    """(logits, (loss, nll, tokens), gradient of the mean loss) of the real model."""
    module = nnx.merge(definition, parameters)
    logits_btv = logits(module, teacher_forcing(batch, BOS))

    def mean_loss(parameters):
        module = nnx.merge(definition, parameters)
        sums = loss_sums(module, batch, SMOOTHING, BOS)
        return sums[0] / sums[2], sums

    gradient, sums = jax.grad(mean_loss, has_aux=True)(parameters)
    return logits_btv, sums, gradient


@pytest.mark.slow  # of the package's formulas; PyTorch's numbers are below
@pytest.mark.parametrize("name", ["gradients", "adam_steps"])
def test_small_models_are_the_twins(name, tmp_path):
    """The checks of `verify`: gradients, array by array; three updates."""
    result = getattr(numbers, name)(Context(tmp_path))
    assert result.held, result


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
                *folders, leaf = [int(x) if x.isdigit() else x for x in path]
                for folder in folders:
                    place = place.setdefault(folder, {})
                place[leaf] = array
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


def test_logits_loss_and_gradients_are_torchs(torch):
    model = build(torch.config.model, VOCABULARY)
    logits_btv, sums, gradient = model_numbers(
        model.definition, torch.parameters("weights"), torch.batch
    )
    real_bt, expected_btv = torch.real_bt(), torch.numbers["logits"]
    np.testing.assert_allclose(logits_btv[real_bt], expected_btv[real_bt], **CLOSE)
    np.testing.assert_allclose(sums[0] / sums[2], torch.numbers["losses"][0], **CLOSE)
    jax.tree.map(
        lambda actual, expected: np.testing.assert_allclose(actual, expected, **CLOSE),
        gradient,
        torch.parameters("gradients"),
    )


def test_three_steps_of_training_are_torchs(torch):
    """Schedule, Adam and its bias correction, and the step that uses them."""
    model, config = build(torch.config.model, VOCABULARY), torch.config
    parameters = jax.tree.map(jnp.asarray, torch.parameters("weights"))
    state = initial_state(parameters, config)
    step = quick_jit(
        partial(train_step, definition=model.definition, config=config, bos=BOS)
    )
    metrics = []
    for _ in range(3):
        state, step_metrics = step(state, torch.batch)
        metrics.append(jax.device_get(step_metrics))

    for name, our_name in ("losses", "loss"), ("gradient_norms", "gradient_norm"):
        actual = [step_metrics[our_name] for step_metrics in metrics]
        np.testing.assert_allclose(actual, torch.numbers[name][:3], **CLOSE)
    jax.tree.map(
        lambda actual, expected: np.testing.assert_allclose(actual, expected, **CLOSE),
        state.parameters,
        torch.parameters("after"),
    )
    logits_btv, *_ = model_numbers(model.definition, state.parameters, torch.batch)
    real_bt, expected_btv = torch.real_bt(), torch.numbers["logits_after"]
    np.testing.assert_allclose(logits_btv[real_bt], expected_btv[real_bt], **CLOSE)


def twin_logits(torch, batch):
    return twin.Twin(torch.config.model).logits(torch.parameters("weights"), batch)


def variant_logits(torch, batch):
    """Those of the twin that has variants, of which none is chosen."""
    return twin_variants.logits(torch.config.model, torch.parameters("weights"), batch)


def example_logits(torch, batch):
    """Those of `examples/transformer.py`, all of it in NumPy and float64."""
    weights = twin.float64(torch.parameters("weights"))
    return one_file.in_numpy.logits(weights, batch["source"], batch["target_input"])


@pytest.mark.parametrize("logits_of", [twin_logits, variant_logits, example_logits])
def test_the_references_are_torch(torch, logits_of):
    batch = twin.teacher_forcing(torch.batch, BOS)
    real_bt, expected_btv = torch.real_bt(), torch.numbers["logits"]
    assert (batch["target_input"] == torch.numbers["target_input"])[real_bt].all()
    actual_btv = logits_of(torch, batch)
    np.testing.assert_allclose(
        actual_btv[real_bt], expected_btv[real_bt], rtol=0, atol=1e-12
    )
    loss, tokens = twin.cross_entropy(actual_btv, batch["target"], real_bt, SMOOTHING)
    np.testing.assert_allclose(loss / tokens, torch.numbers["losses"][0], rtol=1e-12)
