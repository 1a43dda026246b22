"""Laws of every loss in the table, and the formulas of each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t2t_jax.config import from_config_dict
from t2t_jax.io.errors import UserError
from t2t_jax.model.attention import LayerTrace
from t2t_jax.model.layers import DropoutRng
from t2t_jax.model.model import build
from t2t_jax.model.transformer import teacher_forcing
from t2t_jax.training import cross_entropy as chunks
from t2t_jax.training.frozen_models import frozen_workdirs
from t2t_jax.training.losses import LOSSES
from t2t_jax.training.step import merged
from tests.training.small_model import (
    LENGTH,
    ROWS,
    V,
    batch_of,
    config_of,
    frozen_of,
    model_of,
    trained,
)

pytestmark = pytest.mark.usefixtures("eight_devices")


def assert_close(actual, expected):
    """Two results of `trained`, in which the update is the gradient."""
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def sgd(name, **fields):
    return config_of(loss=name, optimizer="sgd", **fields)


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_the_finite_difference(name):
    random = np.random.default_rng(0)
    model, batch = model_of(rate=0.3), batch_of()
    shapes = model.shapes
    config = config_of(loss=name)
    frozen = frozen_of(config)
    with jax.enable_x64(True):
        rng = DropoutRng(jax.random.key(0), jnp.arange(ROWS))
        parameters, direction = (
            jax.tree.map(lambda x: jnp.asarray(random.normal(size=x.shape)), shapes)
            for _ in range(2)
        )

        @jax.jit
        def total(parameters):
            module, modules = nnx.merge(model.definition, parameters), merged(*frozen)
            return LOSSES[name].sums_of(module, modules, batch, rng, config, 1)[0]

        gradient = jax.jit(jax.grad(total))(parameters)
        slope = jax.tree.reduce(jnp.add, jax.tree.map(jnp.vdot, gradient, direction))
        h = 1e-5
        ahead, behind = (
            total(jax.tree.map(lambda x, d, h=h: x + h * d, parameters, direction))
            for h in (h, -h)
        )
        assert float(slope) == pytest.approx(float(ahead - behind) / (2 * h), rel=1e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_padding_parts_and_devices_change_nothing(name, monkeypatch):
    # The mesh is not in the state; dropout is that of the row, on any device.
    plain = trained(sgd(name), rate=0.3)
    mesh = {"data": 2, "fsdp": 2, "tensor": 2}
    assert_close(trained(sgd(name, mesh=mesh), rate=0.3, devices=8), plain)
    _, metrics = plain
    tokens = batch_of()["target_segment"].sum()
    assert metrics["tokens"] == metrics["nll_count"] == tokens
    assert metrics["loss_count"] == LOSSES[name].count(batch_of())
    # Padding, microbatches and chunks.
    plain = trained(sgd(name))
    padding = [(0, ROWS), (0, 3), (0, 0)]
    padded = {k: np.pad(x, padding[: x.ndim]) for k, x in batch_of().items()}
    sizes = []
    monkeypatch.setattr(chunks, "_chunks", lambda shape, *_: sizes.append(shape) or 3)
    assert_close(trained(sgd(name, accumulate=4), padded), plain)
    assert sizes


class Fixed:
    """A module whose passes are given."""

    predicts = "target"

    def __init__(self, table_vd, *outputs):
        self.table_vd, self.given = table_vd, list(outputs)
        self.bias_v = None

    def output_layer(self):
        return self.table_vd, self.bias_v

    cross_layers = 3

    def outputs(self, batch, rng=None, trace=None):
        if trace is not None:
            trace.cross.append(self.given.pop())
        return self.given.pop(0)


def test_r_drop_is_the_formula():
    random = np.random.default_rng(1)
    batch, alpha, smoothing = batch_of(), 3.0, 0.1
    table = random.normal(size=(V, 5))
    passes = random.normal(size=(2, *batch["target"].shape, 5))
    log_p, log_q = (
        x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in passes @ table.T
    )
    target_probs = (1 - smoothing) * np.eye(V)[batch["target"]] + smoothing / V
    entropies = -(target_probs * (log_p + log_q)).sum(-1)
    nll = -(np.eye(V)[batch["target"]] * (log_p + log_q)).sum(-1) / 2
    p, q = np.exp(log_p), np.exp(log_q)
    kl = (p * (log_p - log_q)).sum(-1), (q * (log_q - log_p)).sum(-1)
    # The paper's equation 4, halved.
    costs = (entropies + alpha / 2 * (kl[0] + kl[1])) / 2
    real = batch["target_segment"] > 0
    config = config_of(loss="r_drop", options={"r_drop_alpha": alpha})
    module = Fixed(*(jnp.asarray(x, jnp.float32) for x in (table, *passes)))
    total, sums = LOSSES["r_drop"].sums(module, batch, None, config, 1)
    assert int(sums["kl"][1]) == real.sum()
    kl = (kl[0] + kl[1]) / 2
    for actual, expected in (
        (total, costs),
        (sums["kl"][0], kl),
        (sums["nll"][0], nll),
    ):
        np.testing.assert_allclose(actual, expected[real].sum(), rtol=1e-5)
    _, metrics = trained(sgd("r_drop"), rate=0.3)
    assert metrics["kl"] > 0.01  # the two passes differ in dropout


ALPHA, TEMPERATURE = 0.3, 2.0


def taught(alpha=ALPHA):
    options = {"teacher_weight": alpha, "teacher_temperature": TEMPERATURE}
    return sgd("distillation", options=options | {"teacher": "a,b"})


@pytest.mark.parametrize("sparse", [False, True])
def test_distillation_is_the_formula(sparse):
    """In float64, of two teachers, one of them wider than the model."""
    random = np.random.default_rng(2)
    batch, smoothing = batch_of(), 0.1
    tables = [random.normal(size=(V, d)) for d in (5, 5, 9)]
    passes = [random.normal(size=(*batch["target"].shape, len(t.T))) for t in tables]
    bias = random.normal(size=V)
    logits = [x @ table.T for x, table in zip(passes, tables, strict=True)]
    logits[2] += bias

    def softmax(x):
        return np.exp(x) / np.exp(x).sum(-1, keepdims=True)

    one_hot = np.eye(V)[batch["target"]]
    log_p = np.log(softmax(logits[0]))
    entropy = -(((1 - smoothing) * one_hot + smoothing / V) * log_p).sum(-1)
    # The mean of the teachers' probabilities, not of their logits.
    q = sum(softmax(x / TEMPERATURE) for x in logits[1:]) / 2
    log_p_soft = np.log(softmax(logits[0] / TEMPERATURE))
    teacher_entropy = TEMPERATURE**2 * -(q * log_p_soft).sum(-1)
    costs = (1 - ALPHA) * entropy + ALPHA * teacher_entropy
    real = batch["target_segment"] > 0
    modules = [Fixed(table, x) for table, x in zip(tables, passes, strict=True)]
    modules[2].bias_v = bias
    modules[0].predicts = "source" if sparse else "target"
    with jax.enable_x64(True):
        total, sums = LOSSES["distillation"].sums(
            modules[0], batch, None, taught(), 1, modules[1:]
        )
    kl = (q * (np.log(q) - log_p_soft)).sum(-1)
    nll = -(one_hot * log_p).sum(-1)
    assert int(sums["kl"][1]) == real.sum()
    for actual, expected in (
        (total, costs),
        (sums["kl"][0], kl),
        (sums["nll"][0], nll),
    ):
        np.testing.assert_allclose(actual, expected[real].sum(), rtol=1e-12)


def test_no_teacher_and_impossible_options_are_refused():
    with pytest.raises(UserError, match=r"needs a teacher, but .*teacher=''"):
        frozen_workdirs(sgd("distillation"))
    assert frozen_workdirs(taught()) == ("a", "b")
    with pytest.raises(UserError, match=r"teacher_weight=1\.5 is too large"):
        taught(alpha=1.5)


@pytest.mark.parametrize("kernel", [1.0, 0.0])
def test_guided_alignment_is_the_formula(kernel):
    """In float64, with loops; weights of 0 on all linked words have a finite loss."""
    random = np.random.default_rng(3)
    batch, weight, alignment, linked = batch_of(), 0.4, 0.0, 0
    table, x = random.normal(size=(V, 5)), random.normal(size=(ROWS, LENGTH, 5))
    weights = kernel * random.dirichlet(np.ones(LENGTH), (ROWS, LENGTH))
    for b, t in zip(*np.nonzero(batch["target_segment"]), strict=True):
        if words := {*batch["link"][b, t].tolist()} - {0}:
            linked_s = [s for s in range(LENGTH) if batch["source_word"][b, s] in words]
            alignment -= np.log(sum(weights[b, t, s] for s in linked_s) + 1e-9)
            linked += 1
    config = sgd("guided", options={"guided_weight": weight})
    with jax.enable_x64(True):
        module = Fixed(table, x, weights[:, None])
        total, sums = LOSSES["guided"].sums(module, batch, None, config, 1)
        text_loss = LOSSES["cross_entropy"].sums(
            Fixed(table, x), batch, None, config, 1
        )
    assert int(sums["alignment"][1]) == linked > 10
    assert float(sums["alignment"][0]) == pytest.approx(alignment, rel=1e-12)
    assert sums["nll"] == text_loss[1]["nll"]
    assert float(total - text_loss[0]) == pytest.approx(weight * alignment, rel=1e-9)


SMALL = {"layers": 3, "width": 16, "heads": 4, "hidden": 16, "dropout": 0.1}


@pytest.mark.parametrize(("remat", "layers"), [("none", 0), ("full", 5)])
def test_one_head_of_one_layer_is_traced(remat, layers):
    model = build(from_config_dict({"model": SMALL | {"remat": remat}}).model, V)
    rng = DropoutRng(jax.random.key(1), jnp.arange(ROWS))

    def total(parameters):
        module = nnx.merge(model.definition, parameters)
        return LOSSES["guided"].sums(module, batch_of(), rng, sgd("guided"), 1)[0]

    jaxpr = str(jax.make_jaxpr(total)(model.shapes))
    assert jaxpr.count("remat2[") == layers  # of 6: the traced one is not
    # Nobody computes the weights of other heads and layers once more.
    shapes = [f"f32[{ROWS},{heads},{LENGTH},{LENGTH}] = exp" for heads in (1, 4)]
    assert [*map(jaxpr.count, shapes)] == [1, 3 * 3]
    assert jax.make_jaxpr(jax.grad(total))(model.shapes)  # no tracer leaks
    module = nnx.merge(model.definition, model.init(jax.random.key(0)))
    traces = LayerTrace([], [], []), LayerTrace(None, None, [], layer=1, heads=1)
    for trace in traces:
        module.outputs(teacher_forcing(batch_of(), 1), None, trace)
    every, (head,) = (trace.cross for trace in traces)
    np.testing.assert_allclose(head[:, 0], every[1][:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("section", "fields"),
    [
        *(("model", {"kind": k}) for k in ("decoder_only", "lstm", "conv", "bytenet")),
        ("data", {"subword_dropout": 0.1}),
        ("data", {"augment": "case"}),
        ("data", {"train": "en-de:x,spans:y.en"}),
    ],
)
def test_what_cannot_learn_to_align_is_refused(section, fields):
    def check(sections):
        config = from_config_dict({"train": {"loss": "guided"}} | sections)
        LOSSES["guided"].check(config, build(config.model, V))

    check({"model": SMALL})
    with pytest.raises(UserError, match="guided' teaches the links of words"):
        check({"model": SMALL, section: fields})
