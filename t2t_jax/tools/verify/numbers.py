"""Checks of numbers against references in float64, and against a golden value.

Float32 products are computed in full precision here: the default of a GPU or TPU rounds
their factors to fewer bits, which would hide a mistake. `default_precision` says what
that costs.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.parallel import mesh as meshes
from t2t_jax.tools.verify.check import (
    Context,
    Measured,
    Unavailable,
    at_most,
    reported,
    with_details,
    worst,
)
from t2t_jax.tools.verify.random_models import BOS, PAPER, SmallModel, small_models
from t2t_jax.tools.verify.references import twin
from t2t_jax.training.losses import loss_sums
from t2t_jax.training.step import Steps, TrainState, compile_steps

# Logits are of order 1 to 10. Rounding changed them by 5e-6 at most, over 150 random
# models on a CPU; the bound leaves room for other machines, and none for a mistake.
ROUNDING = 2e-5
# Of a gradient, relative to its largest entry.
GRADIENT_ROUNDING = 2e-5
# Of three updates, relative to the largest. Adam divides each gradient by its own size,
# so that a rounding error counts for more where a gradient is small.
UPDATE_ROUNDING = 2e-3
# Of logits and of a loss in bfloat16, which has 8 bits: relative to those in float32.
BFLOAT16_LOGITS, BFLOAT16_LOSS = 0.04, 0.02
SMOOTHING, WARMUP, STEPS = 0.1, 4, 3

# The losses of three steps of `losses_from_seed`, on a CPU.
# Rounding differs between machines by some 1e-6; another dropout mask, another order
# of sentences or another initial value changes them by more than 1e-3.
GOLDEN_LOSSES = 3.4271419048309326, 3.3304054737091064, 3.3691654205322266
GOLDEN_TOLERANCE = 1e-4


def exact():
    """A context in which float32 products are computed as float32."""
    return jax.default_matmul_precision("highest")


def models(context: Context) -> dict[str, SmallModel]:
    """The small models that the checks share, with what they have compiled."""
    return context.shared("small models", small_models)


def forward(context: Context) -> Measured:
    """Compares the logits of small models with those of the float64 twin."""
    with exact():
        errors = {name: forward_error(small) for name, small in models(context).items()}
    return at_most(worst(errors.values()), ROUNDING, models=errors)


def forward_error(small: SmallModel) -> float:
    """The largest difference to the twin, of logits of real target tokens."""
    batch = twin.teacher_forcing(small.batch, BOS)
    want_btv = twin.logits(small.config, small.parameters, batch)
    real_bt = batch["target_segment"] > 0
    return float(np.max(np.abs(small.logits()[real_bt] - want_btv[real_bt])))


def default_precision(context: Context) -> Measured:
    """Reports the error of logits with the products that this backend uses by default.

    It is not bounded: fewer bits are what makes an accelerator fast.
    """
    if jax.default_backend() == "cpu":
        raise Unavailable("a CPU computes float32 products in float32, see forward")
    error = worst(forward_error(small) for small in small_models().values())
    return reported(f"{error:.2g}", {"measured": error})


# ---------------------------------------------------------------- gradients and updates


@contextlib.contextmanager
def float64_types() -> Iterator[None]:
    """Turns on 64-bit types, on a processor: a TPU has none."""
    with jax.enable_x64(True):
        try:
            processor = jax.devices("cpu")[0]
        except RuntimeError:  # JAX_PLATFORMS leaves the processor out
            processor = None
        with jax.default_device(processor):
            yield


def reference(context: Context) -> Callable[[dict], dict]:
    """The gradient of the mean loss of the paper's small model in float64.

    A function of parameters, compiled once; it returns NumPy arrays.
    """
    small = models(context)[PAPER]
    batch = twin.teacher_forcing(small.batch, BOS)

    def mean_loss(parameters):
        logits_btv = twin.logits(small.config, parameters, batch)
        total, _, tokens = twin.loss_sums(logits_btv, batch, SMOOTHING)
        return total / tokens

    compiled = context.shared("float64", lambda: jax.jit(jax.grad(mean_loss)))

    def gradient(parameters):
        with float64_types():
            parameters = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), parameters)
            return jax.device_get(compiled(parameters))

    return gradient


def gradients(context: Context) -> Measured:
    """Compares the gradient of the mean loss with that in float64, array by array."""
    small = models(context)[PAPER]
    want = reference(context)(small.parameters)

    def mean_loss(parameters):
        module = nnx.merge(small.model.definition, parameters)
        total, _, tokens = loss_sums(module, small.batch, SMOOTHING, BOS)
        return total / tokens

    with exact():
        got = jax.device_get(jax.jit(jax.grad(mean_loss))(small.parameters))
    largest = worst(np.max(np.abs(x)) for x in jax.tree.leaves(want))
    return at_most(_worst(got, want) / largest, GRADIENT_ROUNDING)


def adam_steps(context: Context) -> Measured:
    """Compares parameters after three training steps with Adam in float64.

    The steps are those of training, compiled as there: schedule, loss, gradient, Adam.
    """
    small = models(context)[PAPER]
    config = step_config()
    steps = compiled(small, config)
    state = steps.start(jax.tree.map(jnp.asarray, small.parameters))
    state, _ = trained(steps, small.batch, state)
    got = jax.device_get(state.parameters)

    leaves, tree = jax.tree.flatten(small.parameters)
    leaves = [twin.float64(x) for x in leaves]
    moments = [None] * len(leaves)
    for step in range(1, STEPS + 1):
        gradient = reference(context)(jax.tree.unflatten(tree, leaves))
        rate = twin.learning_rate(step, small.config.width, WARMUP)
        updated = [
            twin.adam(x, g, m, step, rate)
            for x, g, m in zip(leaves, jax.tree.leaves(gradient), moments, strict=True)
        ]
        leaves, moments = zip(*updated, strict=True)
    want = jax.tree.unflatten(tree, leaves)
    moved = _worst(want, small.parameters)
    return at_most(_worst(got, want) / moved, UPDATE_ROUNDING, largest_update=moved)


def step_config(warmup: int = WARMUP, **model) -> Config:
    """A config of the paper's small model, with changed fields of `config.model`."""
    model = dataclasses.replace(small_models()[PAPER].config, **model)
    train = {"warmup": warmup, "label_smoothing": SMOOTHING, "seed": 1}
    config = fields.from_config_dict({"train": train})
    return dataclasses.replace(config, model=model)


def compiled(small: SmallModel, config: Config):
    """The functions of a run with a small model, on one device."""
    mesh = meshes.make_mesh(config.mesh, jax.devices()[:1])
    return compile_steps(small.model, config, mesh, BOS)


def trained(steps: Steps, batch, state: TrainState | None = None):
    """Trains `STEPS` steps on one batch; returns the state and the losses, float32."""
    losses = []
    with exact():
        state = steps.init() if state is None else state
        placed = meshes.place_batch(steps.mesh, batch)
        for _ in range(STEPS):
            state, metrics = steps.train(state, placed)
            losses.append(np.float32(metrics["loss"]))
    return state, losses


def _worst(a, b) -> float:
    """The largest difference of two trees of arrays; NaN if there is one."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return worst(np.max(np.abs(np.subtract(x, y))) for x, y in pairs)


# ------------------------------------------------------------------- formats and seeds


def bfloat16(context: Context) -> Measured:
    """Compares logits and loss in bfloat16 with those in float32, from equal weights.

    Both errors are relative: that of logits to their norm.
    """
    small = models(context)[PAPER]
    config = dataclasses.replace(small.config, dtype="bfloat16")
    with exact():
        want_btv = small.logits()
    got_btv = dataclasses.replace(small, config=config).logits()
    real_bt = small.batch["target_segment"] > 0
    error = got_btv[real_bt] - want_btv[real_bt]
    logits = float(np.linalg.norm(error) / np.linalg.norm(want_btv[real_bt]))
    got, want = (mean_nll(x_btv, small.batch) for x_btv in (got_btv, want_btv))
    loss = abs(got - want) / want
    return Measured(
        f"{logits:.2g}, {loss:.2g}",
        f"<= {BFLOAT16_LOGITS:g}, {BFLOAT16_LOSS:g}",
        logits <= BFLOAT16_LOGITS and loss <= BFLOAT16_LOSS,
        {"logits": logits, "loss": loss},
    )


def mean_nll(logits_btv: np.ndarray, batch) -> float:
    """The mean -log p of the real target tokens."""
    nll_bt = optax.softmax_cross_entropy_with_integer_labels(
        logits_btv, batch["target"]
    )
    return float(np.mean(nll_bt[batch["target_segment"] > 0]))


def golden(context: Context) -> Measured:
    """Compares the losses of three steps from a seed, with dropout, with stored ones.

    Whether they are equal to the last bit is reported, and depends on the processor.
    """
    losses = losses_from_seed()
    error = worst(
        abs(float(got) / want - 1)
        for got, want in zip(losses, GOLDEN_LOSSES, strict=True)
    )
    equal = losses == [*map(np.float32, GOLDEN_LOSSES)]
    said = "the stored ones" if equal else "not the stored ones"
    measured = at_most(error, GOLDEN_TOLERANCE, losses=[float(x) for x in losses])
    return with_details(measured, [f"to the last bit {said}"])


def losses_from_seed() -> list[np.float32]:
    """The losses of three steps of one layer; all that is random comes from a seed."""
    config = step_config(warmup=40, layers=1, dropout=0.1)
    small = SmallModel(config.model)
    _, losses = trained(compiled(small, config), small.batch)
    return losses
