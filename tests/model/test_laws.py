"""Laws of parts of the model, what it refuses, and which laws an entry declines."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t2t_jax.config import ModelConfig
from t2t_jax.data.batching import plan_epoch
from t2t_jax.data.filling import fill, ragged
from t2t_jax.io import ideas
from t2t_jax.io.errors import UserError
from t2t_jax.model import attention
from t2t_jax.model.architecture import logits, step_logits
from t2t_jax.model.attention import ATTENTION
from t2t_jax.model.layers import DropoutRng, dropout, random_bits
from t2t_jax.model.mask import Tokens
from t2t_jax.model.model import build
from t2t_jax.model.neural_gpu import column_kernel, convolved
from t2t_jax.model.transformer import teacher_forcing
from t2t_jax.sections import Options
from tests import mutants
from tests.model import cases, laws
from tests.model.cases import config_of
from tests.model.subject import Excused, Subject

pytestmark = pytest.mark.usefixtures("quick_compiler")

V = 23


def small(**changes):
    fields = {"layers": 2, "width": 16, "heads": 4, "hidden": 24, "max_positions": 64}
    return ModelConfig(**fields | changes)


def compiled(config):
    """Logits of a model with random weights, as one program."""
    model = build(config, V)

    def compute(parameters, *arguments):
        return logits(nnx.merge(model.definition, parameters), *arguments)

    return partial(jax.jit(compute), model.init(jax.random.key(0)))


def batch_of(sources, targets, **options):
    sides = [ragged(sources), ragged(targets)]
    options = {"batching": "packed", "batch_tokens": 512, "row_length": 16} | options
    plan = plan_epoch(
        *(s.lengths for s in sides), seed=0, epoch=0, shuffle=False, **options
    )
    assert len(plan) == 1
    return teacher_forcing(fill(plan[0], *sides), bos=1), plan[0]


@pytest.fixture(scope="module")
def sentences():
    rng = np.random.default_rng(0)
    return [
        [rng.integers(3, V, n).tolist() for n in rng.integers(1, 9, 12)]
        for _ in range(2)
    ]


def test_the_decoder_input_starts_every_segment_with_bos(sentences):
    batch, layout = batch_of(*sentences)
    for p, pair in enumerate(layout.pair_p):
        row, start = layout.row_p[p], layout.target_start_p[p]
        wanted = [1, *sentences[1][pair][:-1]]
        got = batch["target_input"][row, start : start + len(wanted)]
        assert got.tolist() == wanted


def test_dropout_keeps_the_mean_and_drops_its_share():
    x, key = jnp.ones((400, 500)), DropoutRng(jax.random.key(0), jnp.arange(400))
    y = np.asarray(dropout(x, 0.3, key))
    assert np.unique(y).size == 2
    assert (y == 0).mean() == pytest.approx(0.3, abs=5e-3)
    assert y.mean() == pytest.approx(1, abs=8e-3)
    np.testing.assert_array_equal(dropout(x, 0.3, None), x)
    np.testing.assert_array_equal(dropout(x, 0.0, key), x)


def test_dropout_bits_are_as_good_as_random():
    """Every bit is even, and independent of its neighbours, of other keys and rows."""
    bits = {
        seed: np.asarray(
            random_bits(DropoutRng(jax.random.key(seed), jnp.arange(64)), (50, 80))
        )
        for seed in (0, 1)
    }
    ones = {seed: np.unpackbits(x.view(np.uint8)) for seed, x in bits.items()}
    expected = 3.9 / ones[0].size ** 0.5  # of a mean of +-1: once in 10,000 beyond
    assert abs(2 * ones[0].mean() - 1) < expected
    assert abs(2 * (ones[0] ^ ones[1]).mean() - 1) < expected
    for axis in range(3):  # rows, positions, features
        one, two = (
            np.take(bits[0], range(start, bits[0].shape[axis] + start - 1), axis)
            for start in (0, 1)
        )
        differ = np.unpackbits((one ^ two).view(np.uint8))
        assert abs(2 * differ.mean() - 1) < 3.9 / differ.size**0.5
    # The highest byte, which a rate is compared with: all values alike often.
    counts = np.bincount((bits[0] >> 24).ravel(), minlength=256)
    chi2 = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert chi2 < 255 + 3.9 * (2 * 255) ** 0.5


def test_the_advice_on_long_rows_fits_the_model(sentences):
    batch, _ = batch_of(*sentences)
    with pytest.raises(UserError, match="or use config.model.positions='sinusoid'"):
        compiled(small(positions="learned", max_positions=8))(batch)
    with pytest.raises(UserError, match="shorten the rows or raise it(?!,)"):
        compiled(small(kind="conv", max_positions=8))(batch)


def test_a_language_model_needs_no_column_of_the_source(sentences):
    model = compiled(small(kind="decoder_only", layers=1))
    batch, _ = batch_of(*sentences)
    empty = {name: x[:, :0] for name, x in batch.items() if name.startswith("source")}
    np.testing.assert_array_equal(model(batch | empty), model(batch))


def test_a_classifier_reads_its_own_vocabulary_however_tables_are_tied():
    for tied in ("all", "target", "none"):
        shapes = build(small(kind="classifier", tied=tied), 3, V).shapes
        assert {*shapes["embedding"]} == {"tokens"}
        assert shapes["embedding"]["tokens"].shape == (V, 16)
        assert shapes["head"]["labels"].shape == (3, 16)


def test_one_side_with_two_vocabularies_needs_two_tables():
    with pytest.raises(UserError, match="23 tokens to read and 29 to predict"):
        build(small(kind="encoder_only"), 29, V)
    build(small(kind="encoder_only", tied="none"), 29, V)


def test_a_choice_without_effect_is_refused():
    with pytest.raises(UserError, match="positions='rotary' has no effect with .*conv"):
        build(small(kind="conv", positions="rotary"), V)
    # The model does not read `positions`, so neither the options of its default.
    options = Options(sinusoid_layout="half")
    build(small(options=options), V)
    with pytest.raises(UserError, match="sinusoid_layout='half' has no effect with"):
        build(small(kind="conv", options=options), V)
    build(small(kind="conv", options=Options(conv_kernel=5)), V)


def test_weight_normalised_layers_begin_as_their_draw():
    """Gehring et al. 2017, section 3.5: N(0, sqrt(4 p / n)) before a gate, p kept."""
    config = small(kind="conv", width=64, layers=1, dropout=0.2)
    parameters = build(config, V).init(jax.random.key(0))
    for layer, variance in (
        (parameters["encoder"][0], 4 * 0.8 / (3 * 64)),
        (parameters["encoder_in"], 0.8 / 64),
        (parameters["decoder"][0]["query"], 1 / 64),
    ):
        direction = layer["direction"].reshape(-1, layer["norm"].size)
        assert direction.var() == pytest.approx(variance, rel=0.1)
        norms = np.linalg.norm(direction, axis=0)
        np.testing.assert_allclose(layer["norm"], norms, rtol=1e-5)


def test_head_width_is_free_of_the_model_width():
    """Table 3, row (B): d_k = 16 in the base model."""
    shapes = build(small(head_width=3), V).shapes
    assert shapes["encoder"][0]["attention"]["query"].shape == (16, 4, 3)


# ------------------------------------------------------------------- the Neural GPU


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_product_column_kernel_is_the_convolution(rows):
    """Also in a row of a longer array."""
    x_bcrd, kernel = (
        jax.random.normal(jax.random.key(i), shape)
        for i, shape in enumerate([(2, 5, rows, 3), (3, 3, 3, 4)])
    )
    got_bcre = convolved(x_bcrd, column_kernel(kernel, rows))
    want_brce = jax.lax.conv_general_dilated(
        x_bcrd.swapaxes(1, 2),
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    np.testing.assert_allclose(got_bcre, want_brce.swapaxes(1, 2), atol=1e-5)
    longer_bcrd = jnp.pad(x_bcrd, ((0, 0), (0, 4), (0, 0), (0, 0)))
    longer_bcre = convolved(longer_bcrd, column_kernel(kernel, rows))
    # Another shape is another program: XLA may sum its products in another order.
    np.testing.assert_allclose(longer_bcre[:, :5], got_bcre, atol=1e-5)


def test_a_translation_longer_than_its_source_gets_columns():
    """The search's room grows past the columns of the source."""
    config = ModelConfig(kind="neural_gpu", layers=1, width=6, dtype="float32")
    model = build(config, 11)
    parameters = model.init(jax.random.key(0))
    source, target_input = np.array([[3, 4]]), np.array([[1, 5, 6, 7, 3, 8]])
    batch = {"source": source, "target": target_input, "target_input": target_input}
    for side in ("source", "target"):
        batch[f"{side}_segment"] = np.ones_like(batch[side])
        batch[f"{side}_position"] = np.arange(batch[side].shape[1])[None]
    module = nnx.merge(model.definition, parameters)
    forced = logits(module, batch)[0]
    at = Tokens(batch["source_segment"], batch["source_position"])
    memory = module.encode(source, at)
    cache = module.initial_cache(memory, 1, 2)
    for t, token in enumerate(target_input[0]):
        if t == 2:
            cache = cache.grown(6)
        token_bn = jnp.full((1, 1), token)
        found, cache = step_logits(module, memory, cache, token_bn, t)
        np.testing.assert_allclose(found[0, 0], forced[t], atol=1e-5)


# ------------------------------------------------------------------ an idea of a user's

SIGMOID = """
import jax
from t2t_jax.model.attention import *
from t2t_jax.model import attention


def weights(q_bthk, kv, mask, position):
    return jax.nn.sigmoid(attention.scores(q_bthk, kv, mask, position))


def sigmoid(q_bthk, kv, mask, position, drop):
    weights_bhts = drop(weights(q_bthk, kv, mask, position))
    weights_bhts = weights_bhts.astype(q_bthk.dtype)
    return attention.weighted_values(weights_bhts, kv, mask, position)


entry = attention.AttentionFunction(sigmoid, weights, normalized=False)
attention.ATTENTION["sigmoid"] = entry
"""


def weights_of_all(q_bthk, kv, mask, position):
    mask = dataclasses.replace(mask, causal=False)
    return jax.nn.sigmoid(attention.scores(q_bthk, kv, mask, position))


def test_an_idea_obeys_what_it_does_not_decline(monkeypatch, tmp_path):
    """Sigmoid attention, whose weights do not sum to 1; the twin does not know it."""
    monkeypatch.setitem(ATTENTION, "sigmoid", None)  # removed afterwards
    monkeypatch.setattr(ideas, "imported", {})
    file = tmp_path / "sigmoid_attention_of_a_test.py"
    file.write_text(SIGMOID)
    ideas.load(str(file))
    assert cases.own({"attention": "sigmoid"})
    assert laws.laws_of({"attention": "sigmoid"}) == [*laws.LAWS]
    one = Subject(config_of(attention="sigmoid"))
    for law in (laws.weights_add_up, laws.weights_are_of_attention):
        assert law(one) <= laws.LAWS[law]
    with pytest.raises(Excused, match="does not know attention=sigmoid"):
        laws.model_is_its_twin(one)
    entry = ATTENTION["sigmoid"]
    for wrong in (
        entry._replace(normalized=True),
        entry._replace(weights=weights_of_all),  # also where a query may not look
    ):
        monkeypatch.setitem(ATTENTION, "sigmoid", wrong)
        assert laws.weights_add_up(Subject(config_of(attention="sigmoid"))) > 0.1


def test_every_law_has_a_defect_that_breaks_it():
    assert [law.__name__ for law in laws.LAWS] == [m.name for m in mutants.LAWS]
