"""The laws of a model, as functions of a config; they run over the tables.

`cases.py` derives the configs from the tables of `ModelConfig`, so a line that is added
to a table is put through all laws that apply to it. A law returns the worst
figure that it saw, which has to be at most its bound; it raises `Excused` if a property
of the model says that it does not apply.

    python -m tests.model.laws    # the worst figure of each law and config
"""

import contextlib
import dataclasses
import functools
import itertools
import sys
import tempfile
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from t2t_jax.config import MeshConfig, ModelConfig
from t2t_jax.model import layers
from t2t_jax.model.architecture import logits, step_logits
from t2t_jax.model.attention import KV, weighted_values
from t2t_jax.model.layers import Dropout, DropoutRng
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.model import build
from t2t_jax.model.positions import Position, stack_positions
from t2t_jax.model.transformer import teacher_forcing
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.batch_placement import padded_rows, place_batch
from t2t_jax.tools.verify import numbers
from t2t_jax.tools.verify.numbers import float64_types
from t2t_jax.tools.verify.references import twin
from tests import one_file
from tests.compiler import quick_jit
from tests.model import cases, older_twins, twin_variants
from tests.model.subject import (
    BEAMS,
    BOS,
    LENGTH,
    ROWS,
    Excused,
    Subject,
    V,
    mean_nll,
    subject,
)


def worst(actual, expected, index=...) -> float:
    """The largest difference, relative to values above 1."""
    actual, expected = (np.asarray(x, np.float64)[index] for x in (actual, expected))
    return largest(np.abs(actual - expected) / np.maximum(1, np.abs(expected)))


def worst_leaf(actual, expected) -> float:
    """The largest difference of an array from another, relative to its norm.

    Of the bias of keys all gradients are rounding, beside those of other arrays.
    """
    pairs = [*zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)]
    norms = [np.linalg.norm(b) for _, b in pairs]
    floor = 1e-3 * max(1, *norms)
    return largest(
        [
            np.linalg.norm(np.subtract(a, b)) / max(floor, norm)
            for (a, b), norm in zip(pairs, norms, strict=True)
        ]
    )


def largest(figures) -> float:
    """The largest; infinite if one is NaN, which is neither more nor less than any."""
    return float(np.max(np.nan_to_num(figures, nan=np.inf), initial=0.0))


RATES = {"dropout", "attention_dropout", "activation_dropout"}


def with_dropout(config: ModelConfig, rate: float = 0.2, rates=RATES) -> ModelConfig:
    """The config with all dropout on that the model has, or that of some rates."""
    used = rates - cases.unused(config.kind)
    # Bits cannot be recorded in what is computed again.
    return dataclasses.replace(config, remat="none", **dict.fromkeys(used, rate))


def dropout_rng(batch) -> DropoutRng:
    return DropoutRng(jax.random.key(5), jnp.arange(len(batch["target"])))


@contextlib.contextmanager
def recorded_bits():
    """A list of the random bits of each dropout, in order, while a model is traced."""
    bits, draw = [], layers.random_bits

    def recorded(*arguments):
        bits.append(draw(*arguments))
        return bits[-1]

    with mock.patch.object(layers, "random_bits", recorded):
        yield bits


def dependence(arrays) -> float:
    """The correlation of the ranks of two arrays, in standard deviations: the largest.

    Arrays are compared element by element in the order of storage, up to the end of the
    shorter one: as long as two draws with one random key are alike, whatever is drawn.
    """
    figures = []
    for pair in itertools.combinations(arrays, 2):
        n = min(x.size for x in pair)
        ranks, ranks2 = (np.ravel(x)[:n].argsort().argsort() for x in pair)
        figures.append(np.arctanh(np.corrcoef(ranks, ranks2)[0, 1]) * (n - 3) ** 0.5)
    return largest(np.abs(figures))


# -------------------------------------------------------------------------------- laws


def future_is_unseen(subject: Subject) -> float:
    """What follows a token does not change its logits."""
    if not subject.model.generates:
        raise Excused("generates = False")
    batch = subject.alone(range(2 * ROWS))
    logits_before, real = subject.forced(batch), batch["target_segment"] > 0
    # Without residuals random layers let little of a token through.
    figure, threshold = 0.0, 1e-3 if subject.config.residual else 1e-4
    for t in (1, 4, 9):
        tokens = batch["target_input"].copy()
        tokens[:, t:] = (tokens[:, t:] + 5) % V
        changed = subject.forced(batch | {"target_input": tokens})
        figure = max(figure, worst(changed[:, :t], logits_before[:, :t], real[:, :t]))
        # But what it changes does.
        assert worst(changed[0, t:], logits_before[0, t:]) > threshold
    return figure


def source_is_seen(subject: Subject) -> float:
    """Logits depend on the source: 0 if they do."""
    if not subject.model.has_source:
        raise Excused("has_source = False")
    batch = subject.alone(range(2 * ROWS))
    changed = batch | {"source": (batch["source"] + 3) % V}
    return float(worst(subject.forced(changed), subject.forced(batch)) < 1e-3)


def both_directions_are_seen(subject: Subject) -> float:
    """Outputs depend on the tokens before and after their place: 0 if they do."""
    if subject.model.predicts != "source":
        raise Excused(f"predicts = {subject.model.predicts!r}")
    batch = subject.alone(range(2 * ROWS))
    logits_before, end = subject.forced(batch), LENGTH - 3  # of the longest sentence
    unseen = 0
    for changed, place in ((0, end), (end, 0)):
        source = batch["source"].copy()
        source[0, changed] = (source[0, changed] + 5) % V
        logits_after = subject.forced(batch | {"source": source})
        unseen += worst(logits_after[0, place], logits_before[0, place]) < 1e-4
    return float(unseen)


def packed_is_alone(subject: Subject) -> float:
    """Sentences that share a row have the logits that they have alone."""
    batch, layout = subject.packed
    assert layout.segment_p.max() > 1
    is_long = layout.pair_p == 7
    assert min(layout.source_start_p[is_long], layout.target_start_p[is_long]) > 0

    def forced(batch):
        return subject.forced(teacher_forcing(batch, BOS))

    return max(worst(*pair) for pair in numbers.packed_and_alone(forced, batch))


def padding_is_inert(subject: Subject) -> float:
    """Tokens that stand in padding change nothing."""
    batch = subject.batch
    noisy = numbers.noise_in_padding(batch, "source", "target_input")
    real = batch["target_segment"] > 0
    return worst(subject.forced(noisy), subject.forced(batch), real)


def cached_is_forced(subject: Subject) -> float:
    """Steps with a cache give the logits of teacher forcing.

    While hypotheses change rows, the cache grows, and another sentence takes a row.
    """
    if not subject.model.generates:
        raise Excused("generates = False")
    rng = np.random.default_rng(3)
    encode, step = (
        functools.partial(subject.compiled(f), subject.parameters)
        for f in (lambda module, *a: module.encode(a[0], Tokens(*a[1:])), step_logits)
    )
    module = nnx.merge(subject.model.definition, subject.parameters)
    batches = [subject.alone([search, 5]) for search in (0, 4)]
    memories = [
        encode(*(b[f"source{part}"][:2] for part in ("", "_segment", "_position")))
        for b in batches
    ]
    caches = [module.initial_cache(memory, BEAMS, 4) for memory in memories]
    tokens = [np.full((2, BEAMS, 0), BOS) for _ in batches]
    histories = [np.zeros((2, BEAMS, 0, V)) for _ in batches]
    steps = LENGTH - 3
    for t in range(steps):
        for i in range(len(caches)):
            new = (
                rng.integers(3, V, (2, BEAMS, 1)) if t else np.full((2, BEAMS, 1), BOS)
            )
            tokens[i] = np.concatenate([tokens[i], new], axis=2)
            memory, cache = memories[i], caches[i]
            new_logits, cache = step(
                memory, cache, jnp.asarray(new[:, :, 0]), jnp.int32(t)
            )
            histories[i] = np.concatenate(
                [histories[i], np.asarray(new_logits)[:, :, None]], axis=2
            )
            parents = rng.integers(0, BEAMS, (2, BEAMS))
            caches[i] = cache.moved(jnp.asarray(parents))
            for history in (tokens, histories):
                index = parents.reshape(2, BEAMS, *[1] * (history[i].ndim - 2))
                history[i] = np.take_along_axis(history[i], index, axis=1)
        if t == 3:
            caches = [cache.grown(LENGTH) for cache in caches]
        if t == 5:  # row 1 of the second search goes on in place of the first's row 0
            searches = [*zip(memories, caches, strict=True)]
            memories[0], caches[0] = jax.tree.map(
                lambda rows, rows2: jnp.stack([rows2[1], rows[1]]), *searches
            )
            for history in (tokens, histories):
                history[0][0] = history[1][1]
            batches[0] = {
                name: np.stack([batches[1][name][1], x[1]])
                for name, x in batches[0].items()
            }
    forced = subject.alone([])
    for row in range(2):
        for beam in range(BEAMS):
            place = row * BEAMS + beam
            for part in ("", "_segment", "_position"):
                forced[f"source{part}"][place] = batches[0][f"source{part}"][row]
            forced["target_input"][place, :steps] = tokens[0][row, beam]
            forced["target_segment"][place, :steps] = 1
            forced["target_position"][place, :steps] = range(steps)
    expected = subject.forced(forced)[: 2 * BEAMS, :steps]
    return worst(histories[0].reshape(expected.shape), expected)


def gradient_is_slope(subject: Subject) -> float:
    """Gradients agree with finite differences, along random directions of length 1.

    The error, a root mean square, is relative to the slope to be expected in such a
    direction.
    """
    _, gradient = subject.gradient
    parameters, loss = jax.device_get(subject.parameters), subject.compiled(mean_nll)
    leaves, tree = jax.tree.flatten(parameters)
    size = sum(x.size for x in leaves)
    expected = float(optax.tree.norm(gradient)) / size**0.5
    rng, h, errors = np.random.default_rng(7), 1e-2, []
    for _ in range(8):
        direction = jax.tree.unflatten(
            tree, [(rng.normal(size=x.shape) / size**0.5).astype("f4") for x in leaves]
        )
        ends = [
            loss(
                jax.tree.map(lambda x, v, s=s: x + s * v, parameters, direction),
                subject.batch,
            )
            for s in (np.float32(h), np.float32(-h))
        ]
        slope = float(ends[0] - ends[1]) / (2 * h)
        expected_slope = float(optax.tree.vdot(gradient, direction))
        errors.append((slope - expected_slope) / expected)
    return largest(np.sqrt(np.mean(np.square(errors))))


def every_weight_is_used(subject: Subject) -> float:
    """No parameter has a gradient of zero everywhere; the number that has."""
    if subject.config.attention_bias:
        raise Excused("a bias of keys has no gradient: it does not change the softmax")
    _, gradient = subject.gradient
    return float(sum(not np.any(g) for g in jax.tree.leaves(gradient)))


def rematerialized_is_stored(subject: Subject) -> float:
    """Recomputing activations changes neither loss nor gradients."""
    config = dataclasses.replace(subject.config, remat="full")
    rng = DropoutRng(jax.random.key(5), jnp.arange(2 * ROWS))  # in training only
    definition = build(config, *subject.sizes).definition
    loss = subject.compiled(mean_nll, definition, jit=False)
    recomputed = quick_jit(jax.value_and_grad(loss))
    return worst_leaf(
        recomputed(subject.parameters, subject.batch, rng), subject.gradient
    )


def initial_weights_are_independent(subject: Subject) -> float:
    """No two arrays of initial parameters are drawn with one random key."""
    drawn = [np.ravel(x) for x in jax.tree.leaves(subject.drawn)]
    # Of constants, as biases are, most elements are equal.
    return dependence([x for x in drawn if len({*x}) > max(8, x.size / 2)])


def dropouts_are_independent(subject: Subject) -> float:
    """No two places where a model drops share their random bits.

    Sub-layers, layers and sides; `weights_drop_out_apart` has the blocks of attention.
    """
    config = with_dropout(subject.config)
    if config.reads("attention"):
        config = dataclasses.replace(config, attention="dense", options={})
    definition = build(config, *subject.sizes).definition

    def bits(module, batch, rng):
        with recorded_bits() as recorded:
            logits(module, batch, rng)
        return recorded

    batch = subject.batch
    drawn = subject.compiled(bits, definition)(
        subject.parameters, batch, dropout_rng(batch)
    )
    return dependence([np.asarray(x) for x in drawn])


def dropout_is_the_papers(subject: Subject) -> float:
    """With dropout, logits and gradients are those of the twin with the same masks.

    So it is where section 5.4 has it: on each sub-layer's output, before it is added to
    the sub-layer's input, and on the embeddings plus positions of both sides; it is on
    attention weights and hidden units if their own rates say so, and nowhere else.
    """
    kind = twinned(subject)
    if subject.config.kind not in twin_variants.KINDS:
        raise Excused(f"the twin has no dropout of kind={subject.config.kind}")
    rates = {"dropout"} if kind == "paper" else RATES
    if subject.config.attention in ("chunked", "restricted"):
        # In blocks its masks are not in the twin's order: see `weights_drop_out_apart`.
        rates = rates - {"attention_dropout"}
    config = with_dropout(subject.config, rates=rates)
    definition = build(config, *subject.sizes).definition
    full_batch = subject.alone(range(2)) if kind == "paper" else subject.batch
    batch = {name: x[:2] for name, x in full_batch.items()}  # the twin is slow
    real_bt = batch["target_segment"] > 0
    projected_btv = np.random.default_rng(4).normal(size=(*real_bt.shape, V))
    projected_btv *= real_bt[..., None]

    def model_sum(parameters):
        module = nnx.merge(definition, parameters)
        with recorded_bits() as bits:
            actual_btv = logits(module, batch, dropout_rng(batch))
        return jnp.sum(actual_btv * projected_btv), (actual_btv, bits)

    def twin_sum(parameters, bits):
        remaining = iter(bits)

        def drop(x, rate=config.dropout):
            if not rate:
                return x
            keep = (next(remaining) >= round(rate * 2**32)).reshape(x.shape)
            return jnp.where(keep, x / (1 - rate), 0)

        if kind == "paper":
            sides = batch["source"], batch["target_input"]
            expected_btv = one_file.in_jax.logits(parameters, *sides, drop)
        else:
            expected_btv = twin_variants.logits(config, parameters, batch, drop=drop)
        assert not [*remaining], "the model drops more often than the twin"
        return jnp.sum(expected_btv * projected_btv), expected_btv

    (_, (actual_btv, bits)), gradient = quick_jit(
        jax.value_and_grad(model_sum, has_aux=True)
    )(subject.parameters)
    bits = jax.device_get(bits)
    with float64_types():
        parameters = jax.tree.map(lambda x: np.asarray(x, "f8"), subject.parameters)
        (_, expected_btv), expected = quick_jit(
            jax.value_and_grad(twin_sum, has_aux=True)
        )(parameters, bits)
    assert worst(actual_btv, subject.forced(full_batch)[:2], real_bt) > 1e-2
    return max(worst(actual_btv, expected_btv, real_bt), worst_leaf(gradient, expected))


def weights_drop_out_apart(subject: Subject) -> float:
    """Attention drops each of its weights by itself, and rescales the others.

    So are its gradients. The mask is compared with itself, moved by any number of rows,
    heads, queries and keys: blocks that share their random bits agree.
    """
    if not subject.config.reads("attention"):
        raise Excused("the model has an attention of its own")
    entry = subject.config.variant("attention")
    if entry.weights is None:
        raise Excused("no attention weights")
    options = subject.config.own_options(entry)
    options = {"options": options} if options else {}
    b, h, t, rate = 8, 4, 2 * LENGTH, 0.3
    tokens = Tokens(np.ones((b, t), int), np.tile(np.arange(t), (b, 1)))
    mask = Mask(tokens, tokens, aligned=True)
    position = Position(subject.config, False, None)
    rng = DropoutRng(jax.random.key(5), jnp.arange(b))

    # Each value is a unit vector: the sum of the weighted values is the weights.
    unit_bshk = jnp.broadcast_to(jnp.eye(t)[:, None], (b, t, h, t))
    random = np.random.default_rng(2)
    sides = tuple(random.normal(size=(2, b, t, h, 4)).astype("f4"))
    projected_bhts = random.normal(size=(b, h, t, t)).astype("f4")

    def dropped(q_bthk, k_bshk):
        arguments = q_bthk, KV(k_bshk, unit_bshk), mask, position
        y_bthk = entry.attend(*arguments, Dropout(rate, rng), **options)
        dropped_bhts = y_bthk.swapaxes(1, 2)
        return jnp.sum(dropped_bhts * projected_bhts), dropped_bhts

    def formula(q_bthk, k_bshk, keep):
        arguments = q_bthk, KV(k_bshk, unit_bshk), mask, position
        weights = entry.weights(*arguments, **options)
        dropped_bhts = jnp.where(keep, weights / (1 - rate), 0)
        return jnp.sum(dropped_bhts * projected_bhts), (dropped_bhts, weights > 0)

    (_, actual), gradients = quick_jit(jax.value_and_grad(dropped, (0, 1), True))(
        *sides
    )
    keep = np.asarray(actual) != 0
    (_, (expected, allowed)), exact = quick_jit(
        jax.value_and_grad(formula, (0, 1), True)
    )(*sides, keep)
    assert worst(actual, expected) < 1e-5
    assert worst_leaf(gradients, exact) < 1e-5
    allowed = np.asarray(allowed)
    # Twice: what is moved out does not come back.
    shape = [2 * n for n in allowed.shape]

    def moved(x):  # the sum of the products of x and x moved, for every move
        axes = range(x.ndim)
        return np.fft.irfftn(np.abs(np.fft.rfftn(x, shape, axes)) ** 2, shape, axes)

    number = np.round(moved(allowed))
    number.flat[0] = 0  # not moved
    total = moved(np.where(allowed, keep - (1 - rate), 0)) / (rate * (1 - rate))
    return largest(np.abs(total[number > 200]) / np.sqrt(number[number > 200]))


def rows_drop_out_alike(subject: Subject) -> float:
    """With every dropout on, a row is computed alike in any part of a batch."""
    definition = build(with_dropout(subject.config), *subject.sizes).definition
    compute = subject.compiled(logits, definition)

    def dropped(batch, rows):
        rng = DropoutRng(jax.random.key(5), jnp.asarray(rows))
        return np.asarray(compute(subject.parameters, batch, rng))

    real = subject.batch["target_segment"] > 0
    order = np.random.default_rng(2).permutation(2 * ROWS)
    moved = {name: x[order] for name, x in subject.batch.items()}
    in_order = dropped(subject.batch, np.arange(2 * ROWS))
    assert worst(in_order, subject.forced(subject.batch), real) > 1e-2
    assert worst(in_order, dropped(subject.batch, 99 + order), real) > 1e-2
    return worst(dropped(moved, order), in_order[order], real[order])


def bfloat16_is_near(subject: Subject) -> float:
    """Logits in bfloat16 are near those in float32, and are float32 numbers."""
    config = dataclasses.replace(subject.config, dtype="bfloat16")
    definition = build(config, *subject.sizes).definition
    compute = subject.compiled(logits, definition)
    rounded = compute(subject.parameters, subject.batch)
    assert rounded.dtype == jnp.float32
    exact = subject.forced(subject.batch)
    real = subject.batch["target_segment"] > 0
    error = np.asarray(rounded)[real] - exact[real]
    return float(np.linalg.norm(error) / np.linalg.norm(exact[real]))


def sharded_is_one_device(subject: Subject, sizes=(2, 2, 2)) -> float:
    """A mesh (data, fsdp, tensor) gives the loss and the gradients of one device."""
    config = MeshConfig(*sizes)
    mesh = meshes.make_mesh(config, jax.devices()[: int(np.prod(sizes))])
    model, rows = subject.model, padded_rows(mesh, 2 * ROWS)
    batch = {name: np.resize(x, (rows, LENGTH)) for name, x in subject.batch.items()}
    parameters = jax.device_put(
        subject.parameters, meshes.shardings(mesh, model.axes, model.shapes)
    )
    # With dropout: on each device, other rows.
    definition = build(with_dropout(subject.config), *subject.sizes).definition
    loss = subject.compiled(mean_nll, definition, jit=False)

    def sharded(*arguments):
        with meshes.compiling_for(mesh):
            return loss(*arguments)

    rng, placed = dropout_rng(batch), place_batch(mesh, batch)
    expected = quick_jit(jax.value_and_grad(loss))(subject.parameters, batch, rng)
    actual = quick_jit(jax.value_and_grad(sharded))(parameters, placed, rng)
    return worst_leaf(actual, expected)


# The entries that have a formula in twin_variants.py or older_twins.py.
TWINS = {
    "kind": {*twin_variants.KINDS, *older_twins.MODELS},
    "positions": {"sinusoid", "learned", "none", "rotary", "relative", "t5", "alibi"},
    "norm_kind": {"layer", "rms", "none"},
    "attention": {"fused", "dense", "unscaled", "chunked", "restricted"},
    "feed_forward": {"relu", "gelu", "silu", "swiglu", "geglu"},
}


def model_is_its_twin(subject: Subject) -> float:
    """Logits are those of the papers' formulas in float64: `examples/transformer.py`.

    Or `twin_variants.py`, which has the variants, and rows of several sentences.

    The difference is relative to the logits where they are large, as they are without
    normalization.
    """
    papers_own = twinned(subject) == "paper"
    rows = slice(0, 2)  # it is slow
    full_batch = subject.alone(range(2)) if papers_own else subject.batch
    batch = {name: x[rows] for name, x in full_batch.items()}
    parameters = twin.float64(subject.parameters)
    if papers_own:  # the student's file, which has no packed rows
        sides = batch["source"], batch["target_input"]
        expected = one_file.in_numpy.logits(parameters, *sides)
    else:
        older = older_twins.outputs
        expected = twin_variants.logits(subject.config, parameters, batch, older)
    real = batch["target_segment"] > 0
    size = max(1.0, float(np.sqrt(np.mean(np.square(expected[real])))))
    return worst(subject.forced(full_batch)[rows], expected, real) / size


def twinned(subject: Subject) -> str:
    """The twin of a model: that of the "paper", or "variants"."""
    for field in cases.TABLES:
        entry = getattr(subject.config, field.name)
        if field.name in cases.unused(subject.config.kind):
            continue
        if entry not in TWINS.get(field.name, {field.default}):
            raise Excused(f"the twin does not know {field.name}={entry}")
    defaults = dataclasses.replace(cases.config_of(), dtype="float32", dropout=0.0)
    return "paper" if subject.config == defaults else "variants"


def weights_add_up(subject: Subject) -> float:
    """Attention weights of a query add up to 1, and are 0 where it may not look.

    The sums are left out if `AttentionFunction.normalized` is False.
    """
    if not subject.traces:
        raise Excused("no attention weights")
    config, batch = subject.config, subject.batch
    entry = config.variant("attention") if config.reads("attention") else None
    self_normalized = entry is None or entry.normalized
    cross = self_normalized or not entry.cross
    _, trace = subject.forced_and_trace(subject.parameters, batch)
    source, target = batch["source_segment"], batch["target_segment"]
    figure = 0.0
    for side_weights, query, key, causal, normalized in (
        (trace.encoder, source, source, False, self_normalized),
        (trace.decoder, target, target, True, self_normalized),
        (trace.cross, target, source, False, cross),
    ):
        allowed = query[:, :, None] == key[:, None, :]
        if causal:
            allowed &= np.tri(LENGTH, dtype=bool)
        real = (query > 0)[:, None, :, None]
        for weights in side_weights:
            sums = np.where(real, np.asarray(weights), 0).sum(-1, keepdims=True)
            if normalized:
                figure = max(figure, worst(sums, np.ones_like(sums) * real))
            elsewhere = np.where(allowed[:, None] | ~real, 0, np.asarray(weights))
            figure = max(figure, largest(np.abs(elsewhere)))
    return figure


def weights_are_of_attention(subject: Subject) -> float:
    """Attention weights times values are what attention returns."""
    if not subject.traces:
        raise Excused("no attention weights")
    if "attention" in cases.unused(subject.config.kind):
        raise Excused("the model has an attention of its own")
    config = subject.config.side("decoder")
    entry = config.variant("attention")
    options = config.own_options(entry)
    options = {"options": options} if options else {}
    position = stack_positions(config, True, jax.random.key(4))[0]
    batch = subject.batch
    tokens = Tokens(batch["target_segment"], batch["target_position"])
    mask = Mask(tokens, tokens, causal=True, aligned=True)

    @quick_jit
    def results(key):
        widths = config.width_of_head, config.width_of_head, config.width_of_value
        q, *kv = (
            jax.random.normal(part, (*tokens.segment.shape, config.heads, width))
            for part, width in zip(jax.random.split(key, 3), widths, strict=True)
        )
        arguments = q, KV(*kv), mask, position
        weights = entry.weights(*arguments, **options)
        drop = Dropout(0.0, None)
        return (
            entry.attend(*arguments, drop, **options),
            weighted_values(weights, *arguments[1:]),
        )

    return worst(*results(jax.random.key(6)), tokens.segment > 0)


def restored_is_saved(subject: Subject) -> float:
    """Parameters come back from a checkpoint bit by bit: the number that do not."""
    import orbax.checkpoint as ocp

    with (
        tempfile.TemporaryDirectory() as folder,
        ocp.StandardCheckpointer() as checkpointer,
    ):
        checkpointer.save(f"{folder}/saved", subject.parameters)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(f"{folder}/saved", subject.model.shapes)
    pairs = zip(
        jax.tree.leaves(restored), jax.tree.leaves(subject.parameters), strict=True
    )
    return float(sum(not np.array_equal(a, b) for a, b in pairs))


# Law -> the most that its figure may be.
LAWS = {
    future_is_unseen: 0.0,
    source_is_seen: 0.0,
    both_directions_are_seen: 0.0,
    packed_is_alone: 2e-4,
    padding_is_inert: 0.0,
    cached_is_forced: 2e-4,
    gradient_is_slope: 0.05,
    every_weight_is_used: 0.0,
    rematerialized_is_stored: 1e-4,
    initial_weights_are_independent: 6.0,
    dropouts_are_independent: 6.0,
    dropout_is_the_papers: 1e-4,
    weights_drop_out_apart: 8.0,
    rows_drop_out_alike: 1e-5,
    bfloat16_is_near: 0.08,
    sharded_is_one_device: 1e-4,
    model_is_its_twin: 2e-5,
    weights_add_up: 1e-5,
    weights_are_of_attention: 1e-5,
    restored_is_saved: 0.0,
}
# For variants that are combined: the laws that a bad composition breaks.
COMPOSITION = [
    *(future_is_unseen, packed_is_alone, padding_is_inert, cached_is_forced),
    model_is_its_twin,
]
# Their programs take longest to compile. The slow test of all cases has them, and the
# normal one has them of the defaults, the user's entries and a loop over its weights.
SLOW = [sharded_is_one_device, dropout_is_the_papers]
# Other law -> the tables whose entries can break it; all tables if it is not here.
DEPENDS = {
    source_is_seen: {},
    both_directions_are_seen: {},
    gradient_is_slope: {},  # JAX makes the gradients of the package's entries
    every_weight_is_used: {},
    rematerialized_is_stored: {},
    initial_weights_are_independent: {"positions", "feed_forward"},
    dropouts_are_independent: {},
    weights_drop_out_apart: {"attention"},
    rows_drop_out_alike: {"attention"},
    bfloat16_is_near: {"positions", "attention", "norm_kind"},
    weights_add_up: {"positions", "attention"},
    weights_are_of_attention: {"positions", "attention"},
    restored_is_saved: {},
}


def laws_of(case: dict) -> list:
    """The laws that a case of `cases.alone` is put through.

    The defaults and an entry of the user's have all of them, a model all but those
    that a slow test has; another entry those that it can break and that `cases.pairs`
    does not try; a choice that is not an entry of a table, such as a size, those of
    compositions.
    """
    changed = cases.entries(case)
    if not case or cases.own(case):
        return [*LAWS]
    if "kind" in changed:
        looped = {sharded_is_one_device} if case["kind"] == "lstm" else set()
        return [law for law in LAWS if law not in SLOW or law in looped]
    if not changed:
        return COMPOSITION
    rest_of_laws = [law for law in LAWS if law not in COMPOSITION + SLOW]
    return [
        law for law in rest_of_laws if law not in DEPENDS or changed & {*DEPENDS[law]}
    ]


def main() -> None:
    names = [law.__name__ for law in LAWS]
    print("| | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for name in cases.alone():
        cells = []
        for law in LAWS:
            try:
                cells.append(f"{law(subject(name)):.1e}")
            except Excused as e:
                cells.append(str(e))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_disable_most_optimizations", True)
    from t2t_jax.model import attention

    attention.SMALLEST_BLOCK = 4
    sys.exit(main())
