"""Checks of numbers: against float64 references, a golden value, and one another.

Float32 products are computed in full precision here: the default of a GPU or TPU rounds
their factors to fewer bits, which would hide a mistake. `default_precision` says what
that costs.

Shape suffixes: b batch, n beam rows, t target, s source, h heads, k head width,
v vocabulary.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.model import kernels
from t2t_jax.model.architecture import step_logits
from t2t_jax.model.attention import KV, NO_POSITION, dense
from t2t_jax.model.layers import Dropout
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.batch_placement import place_batch
from t2t_jax.search.beam import beam_search
from t2t_jax.tools.verify.check import (
    Context,
    Measured,
    Unavailable,
    all_equal,
    at_most,
    reported,
    with_details,
    worst,
)
from t2t_jax.tools.verify.random_models import (
    BOS,
    PAPER,
    ROWS,
    SmallModel,
    packed,
    small_models,
)
from t2t_jax.tools.verify.references import search, twin
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
GOLDEN_LOSSES = 2.9654128551483154, 3.0271804332733154, 2.9951281547546387
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
    expected_btv = twin.Twin(small.config).logits(small.parameters, batch)
    real_bt = batch["target_segment"] > 0
    return float(np.max(np.abs(small.logits()[real_bt] - expected_btv[real_bt])))


def default_precision(context: Context) -> Measured:
    """Reports the error of logits with the products that this backend uses by default.

    It is not bounded: fewer bits are what makes an accelerator fast.
    """
    if jax.default_backend() == "cpu":
        raise Unavailable("a CPU computes float32 products in float32, see forward")
    error = worst(forward_error(small) for small in small_models().values())
    return reported(f"{error:.2g}", {"measured": error})


def reductions(context: Context) -> Measured:
    """Compares sums of squares of small products with those in float64.

    JAX 0.10.2 computes some of many wrongly on a CPU (jax-ml/jax#39103).
    """
    random = np.random.default_rng(0)
    matrix = random.normal(size=(3, 3)).astype(np.float32)
    x_nd = random.normal(size=(40_000, 3)).astype(np.float32)
    with exact():
        actual_n = jax.jit(jax.vmap(lambda x_d: jnp.sum((matrix @ x_d) ** 2)))(x_nd)
    expected_n = np.sum(np.square(np.float64(x_nd) @ np.float64(matrix).T), axis=1)
    return at_most(worst(np.abs(actual_n / expected_n - 1)), ROUNDING)


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
        logits_btv = twin.Twin(small.config).logits(parameters, batch)
        real_bt = batch["target_segment"] > 0
        total, tokens = twin.cross_entropy(
            logits_btv, batch["target"], real_bt, SMOOTHING
        )
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
    expected = reference(context)(small.parameters)

    def mean_loss(parameters):
        module = nnx.merge(small.model.definition, parameters)
        total, _, tokens = loss_sums(module, small.batch, SMOOTHING, BOS)
        return total / tokens

    with exact():
        actual = jax.device_get(jax.jit(jax.grad(mean_loss))(small.parameters))
    largest = worst(np.max(np.abs(x)) for x in jax.tree.leaves(expected))
    return at_most(_worst(actual, expected) / largest, GRADIENT_ROUNDING)


def adam_steps(context: Context) -> Measured:
    """Compares parameters after three training steps with Adam in float64.

    The steps are those of training, compiled as there: schedule, loss, gradient, Adam.
    """
    small = models(context)[PAPER]
    config = step_config()
    steps = compiled(small, config)
    state = steps.start(jax.tree.map(jnp.asarray, small.parameters))
    state, _ = trained(steps, small.batch, state)
    actual = jax.device_get(state.parameters)

    expected = twin.float64(small.parameters)
    m = v = jax.tree.map(np.zeros_like, expected)
    for step in range(1, STEPS + 1):
        rate = twin.learning_rate(step, small.config.width, WARMUP)
        gradient = reference(context)(expected)
        expected, m, v = twin.adam(expected, gradient, m, v, step, rate)
    moved = _worst(expected, small.parameters)
    return at_most(
        _worst(actual, expected) / moved, UPDATE_ROUNDING, largest_update=moved
    )


def step_config(warmup: int = WARMUP, **model) -> Config:
    """A config of the paper's small model, with changed fields of `config.model`."""
    model = dataclasses.replace(small_models()[PAPER].config, **model)
    train = {"warmup": warmup, "label_smoothing": SMOOTHING, "seed": 1}
    config = fields.from_config_dict({"train": train})
    return dataclasses.replace(config, model=model)


def compiled(small: SmallModel, config: Config, devices: Sequence = ()):
    """The functions of a run with a small model, by default on one device."""
    mesh = meshes.make_mesh(config.mesh, devices or jax.devices()[:1])
    return compile_steps(small.model, config, mesh, BOS)


def trained(steps: Steps, batch, state: TrainState | None = None):
    """Trains `STEPS` steps on one batch; returns the state and the losses, float32."""
    losses = []
    with exact():
        state = steps.init() if state is None else state
        placed = place_batch(steps.mesh, batch)
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
        exact_btv = small.logits()
    rounded_btv = dataclasses.replace(small, config=config).logits()
    real_bt = small.batch["target_segment"] > 0
    error = rounded_btv[real_bt] - exact_btv[real_bt]
    logits = float(np.linalg.norm(error) / np.linalg.norm(exact_btv[real_bt]))
    rounded, exact_loss = (
        mean_nll(x_btv, small.batch) for x_btv in (rounded_btv, exact_btv)
    )
    loss = abs(rounded - exact_loss) / exact_loss
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
        abs(float(loss) / stored - 1)
        for loss, stored in zip(losses, GOLDEN_LOSSES, strict=True)
    )
    equal = losses == [*map(np.float32, GOLDEN_LOSSES)]
    equality = "the stored ones" if equal else "not the stored ones"
    measured = at_most(error, GOLDEN_TOLERANCE, losses=[float(x) for x in losses])
    return with_details(measured, [f"to the last bit {equality}"])


def losses_from_seed() -> list[np.float32]:
    """The losses of three steps of one layer; all that is random comes from a seed."""
    config = step_config(warmup=40, layers=1, dropout=0.1)
    small = SmallModel(config.model)
    _, losses = trained(compiled(small, config), small.batch)
    return losses


# -------------------------------------------------------- two ways to the same: kernels

# Of a fused kernel in bfloat16, relative to dense attention in float32: it rounds
# queries, keys, values, weights and results to 8 bits each.
FUSED_RESULTS, FUSED_GRADIENTS = 0.02, 0.04
FUSED_LENGTHS = 64, 96, 128, 256  # of which a kernel may take some
SCORES = 1e-5  # of hypotheses, against float64


def fused(context: Context) -> Measured:
    """Compares this backend's fused attention with dense attention, gradients too.

    Rows hold two sentences and padding. The mask is that of a decoder: its own causal
    one, and that to the source, in rows without padding there, so that padding has
    nothing to attend to.
    """
    errors, names = {}, set()
    for length in FUSED_LENGTHS:
        for cross in (False, True):
            arrays = attention_arrays(length=length, cross=cross)
            kernel = kernels.kernel_for(*arrays, NO_POSITION, Dropout(0.0, None))
            if kernel:
                names.add(kernel.__name__)
                whom = f"{length} tokens, {'cross' if cross else 'self'}-attention"
                errors[whom] = fused_errors(kernel, *arrays)
    if not errors:
        raise Unavailable(
            f"there is no fused attention for {jax.devices()[0].device_kind}; "
            "attention is computed as dense everywhere"
        )
    results, gradients = map(worst, zip(*errors.values(), strict=True))
    return Measured(
        f"{results:.2g}, {gradients:.2g}",
        f"<= {FUSED_RESULTS:g}, {FUSED_GRADIENTS:g}",
        results <= FUSED_RESULTS and gradients <= FUSED_GRADIENTS,
        {"results": results, "gradients": gradients, "errors": errors},
        (f"kernel {', '.join(names)}: {'; '.join(errors)}",),
    )


def attention_arrays(length: int, cross: bool):
    """Random queries, keys and values in bfloat16, and a mask of packed rows.

    Two rows, two heads of 64. `cross`: the keys are those of a source without padding;
    else the queries' own tokens, up to each.
    """
    random, rows = np.random.default_rng(0), 2
    q_bthk, k_bshk, v_bshk = (
        jnp.asarray(random.normal(size=(rows, length, 2, 64)), jnp.bfloat16)
        for _ in range(3)
    )
    place = np.arange(length)
    second, padding = length // 3, length - length // 5
    segment = 1 + (place >= second) - 2 * (place >= padding)
    position = place - second * (segment == 2)
    tokens = Tokens(
        *(jnp.asarray(np.tile(x, (rows, 1)), jnp.int32) for x in (segment, position))
    )
    mask = Mask(tokens, tokens, causal=True, aligned=True)
    if cross:
        source = tokens._replace(
            segment=jnp.where(tokens.segment == 0, 2, tokens.segment)
        )
        mask = Mask(tokens, source)
    return q_bthk, KV(k_bshk, v_bshk), mask


def fused_errors(kernel, q_bthk, kv, mask) -> tuple[float, float]:
    """Relative errors of a kernel: of its results, and of the worst gradient."""
    real_bthk = (mask.query.segment > 0)[:, :, None, None]
    weights = np.random.default_rng(1).normal(size=q_bthk.shape).astype(np.float32)

    def evaluated(attend, q_bthk, kv):
        def total(q_bthk, kv):
            y_bthk = jnp.where(real_bthk, attend(q_bthk, kv).astype(jnp.float32), 0)
            return jnp.sum(y_bthk * weights), y_bthk

        (_, y_bthk), gradients = jax.jit(
            jax.value_and_grad(total, argnums=(0, 1), has_aux=True)
        )(q_bthk, kv)
        return [
            np.asarray(x, np.float32) for x in (y_bthk, *jax.tree.leaves(gradients))
        ]

    actual = evaluated(lambda q, kv: kernel(q, kv, mask, None), q_bthk, kv)
    single = jax.tree.map(lambda x: x.astype(jnp.float32), (q_bthk, kv))
    with exact():
        expected = evaluated(
            lambda q, kv: dense(q, kv, mask, NO_POSITION, Dropout(0.0, None)), *single
        )
    errors = [
        float(np.linalg.norm(a - b) / np.linalg.norm(b))
        for a, b in zip(actual, expected, strict=True)
    ]
    return errors[0], worst(errors[1:])


# ------------------------------------------------------------------- caches, batches


def cached(context: Context) -> Measured:
    """Compares logits of cached steps with those of teacher forcing, token by token."""
    small = models(context)[PAPER]
    with exact():
        return at_most(cached_error(small), ROUNDING)


def cached_error(small: SmallModel) -> float:
    """The largest difference between a cached step's logits and the forced ones."""
    pairs = [(13, 11), (5, 11), (1, 11)]
    batch = packed([[pair] for pair in pairs] + [[]] * (len(ROWS) - len(pairs)), seed=5)
    forced_btv = small.logits(batch)[: len(pairs)]
    source = [batch[f"source{part}"][: len(pairs)] for part in SOURCE_PARTS]
    target_bt = batch["target"][: len(pairs)]
    length = target_bt.shape[1]

    @jax.jit
    def steps(parameters, source_bs, segment_bs, position_bs, token_bt):
        module = nnx.merge(small.model.definition, parameters)
        memory = module.encode(source_bs, Tokens(segment_bs, position_bs))

        def step(cache, inputs):
            token_b, t = inputs
            logits_bnv, cache = step_logits(module, memory, cache, token_b[:, None], t)
            return cache, logits_bnv[:, 0]

        cache = module.initial_cache(memory, 1, length)
        _, logits_tbv = jax.lax.scan(step, cache, (token_bt.T, jnp.arange(length)))
        return logits_tbv.swapaxes(0, 1)

    begin_b1 = np.full((len(pairs), 1), BOS, np.int32)
    token_bt = np.concatenate([begin_b1, target_bt[:, :-1]], axis=1)
    stepped_btv = np.asarray(steps(small.parameters, *source, token_bt))
    return float(np.max(np.abs(stepped_btv - forced_btv)))


SOURCE_PARTS = "", "_segment", "_position"


def packing(context: Context) -> Measured:
    """Compares logits of sentences that share a row with those that they have alone."""
    with exact():
        return at_most(packing_error(models(context)[PAPER]), ROUNDING)


def packing_error(small: SmallModel) -> float:
    """The largest difference that the other sentences of a row make."""
    pairs = packed_and_alone(small.logits, small.batch)
    return worst(np.max(np.abs(x_tv - y_tv), initial=0) for x_tv, y_tv in pairs)


def packed_and_alone(
    logits: Callable[[dict], np.ndarray], batch: dict
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the logits [t, v] of each sentence, in its row and alone in one."""
    together_btv = logits(batch)
    for segment in range(1, int(batch["target_segment"].max()) + 1):
        alone_btv = logits(only_segment(batch, segment))
        for b, row in enumerate(batch["target_segment"] == segment):
            yield together_btv[b, row], alone_btv[b, : row.sum()]


def only_segment(batch, segment: int) -> dict[str, np.ndarray]:
    """A batch of the same shape in which each row has one sentence, at its start."""
    alone = {name: np.zeros_like(x) for name, x in batch.items()}
    for side in ("source", "target"):
        for b, in_segment in enumerate(batch[f"{side}_segment"] == segment):
            n = in_segment.sum()
            alone[side][b, :n] = batch[side][b, in_segment]
            alone[f"{side}_segment"][b, :n] = 1
            alone[f"{side}_position"][b, :n] = range(n)
    return alone


def padding(context: Context) -> Measured:
    """Counts the logits that change when other tokens stand where padding is."""
    small = models(context)[PAPER]
    real_bt = small.batch["target_segment"] > 0
    noisy = noise_in_padding(small.batch, "source", "target")
    with exact():
        changed, expected = small.logits(noisy)[real_bt], small.logits()[real_bt]
    return all_equal(int(np.sum(changed != expected)), expected.size, "logits")


def noise_in_padding(batch: dict, *names: str) -> dict:
    """A batch with another token wherever arrays of tokens have padding."""
    tokens = {}
    for name in names:
        real = batch[f"{name.split('_')[0]}_segment"] > 0
        tokens[name] = np.where(real, batch[name], 7)
    return batch | tokens


# ------------------------------------------------------------------------------- search


def beam(context: Context) -> Measured:
    """Compares a beam that is wide enough to lose nothing with exhaustive search.

    The models are tables with two letters and EOS; of outputs of at most four tokens
    there are 31. Tokens must be equal, and scores within `SCORES`.
    """
    options = search.Options(vocabulary=5, beam=32, nbest=32)
    tables = range(8 if context.full else 3)
    differing = compared = 0
    for alpha, penalty in (0.0, "none"), (0.6, "gnmt"), (1.0, "length"):
        variant = options._replace(alpha=alpha, penalty=penalty)
        run = table_search(variant)
        for seed in tables:
            wrong, outputs = search_differences(run, variant, seed)
            differing, compared = differing + wrong, compared + outputs
    return all_equal(differing, compared, "outputs")


def table_search(options: search.Options):
    """The product's beam search of table models: (table, seeds, limits) -> result."""
    arguments = {**options._asdict(), **search.SPECIAL}
    del arguments["vocabulary"]

    @jax.jit
    def run(table, seed_b, limit_b):
        step = search.table_step(table, seed_b)
        cache = search.table_cache(len(seed_b), options.beam)
        longest = search.MAX_LENGTH
        return beam_search(step, cache, limit_b, max_length=longest, **arguments)

    return run


def search_differences(run, options: search.Options, seed: int) -> tuple[int, int]:
    """Counts outputs of a random table: those that exhaustive search has not, and all.

    Four sentences, which may have 1, 2, 3 and 4 tokens.
    """
    table = search.smooth_table(seed, options.vocabulary)
    seed_b, limit_b = np.arange(4, dtype=np.int32), np.array([1, 2, 3, 4], np.int32)
    rows = [
        search.exhaustive(
            search.table_log_probs(table, s, np.float64),
            limit,
            options.vocabulary,
            options.alpha,
            options.penalty,
        )
        for s, limit in zip(seed_b, limit_b, strict=True)
    ]
    expected = search.as_hypotheses(
        [row[: options.nbest] for row in rows], options.nbest
    )
    actual = jax.device_get(run(table, seed_b, limit_b))
    near = functools.partial(np.isclose, rtol=SCORES, atol=SCORES)
    same_bn = (
        np.all(actual.tokens_bnt == expected.tokens_bnt, axis=2)
        & (actual.length_bn == expected.length_bn)
        & (actual.ended_bn == expected.ended_bn)
        & near(actual.score_bn, expected.score_bn)
        & near(actual.log_prob_bn, expected.log_prob_bn)
    )
    return int(np.sum(~same_bn)), same_bn.size
