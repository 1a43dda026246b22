"""The twins of the older translators against what can be computed by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from t2t_jax.tools.verify.references import older_twins, twin

D, V, ROWS = 8, 9, 2
SOURCE, TARGET = [3, 5, 4, 8, 6], [1, 7, 3, 3, 5, 8, 4, 6, 7]


def config_of(kind, **options):
    return SimpleNamespace(
        kind=kind,
        tied="target",
        embedding_scale=True,
        output_bias=True,
        norm_kind="layer",
        norm_epsilon=1e-6,
        options={"neural_gpu_rows": ROWS, **options},
    )


# Case -> (kind, options).
CASES = {
    "gnmt": ("lstm", {}),
    "luong": ("lstm", {"lstm_form": "luong"}),
    "conv": ("conv", {"conv_kernel": 4}),
    "bytenet": ("bytenet", {"bytenet_set": 2}),
    "neural_gpu": ("neural_gpu", {}),
}


def drawing(seed=0):
    """A function of a shape, which draws other numbers at each call."""
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.normal(size=shape) / 2


def lstm(draw, inputs):
    shapes = {"input": (inputs, 4, D), "recurrent": (D, 4, D), "bias": (4, D)}
    return {name: draw(*shape) for name, shape in shapes.items()}


def normalised(draw, *shape):
    last = shape[-1:]
    return {"direction": draw(*shape), "norm": draw(*last), "bias": draw(*last)}


def block(draw):
    """Its biases of norms keep most ReLUs open, so that changes come through."""
    half = D // 2
    norms = {
        f"norm{i}": {"scale": 1 + draw(width), "bias": 2 + draw(width)}
        for i, width in ((1, D), (2, half), (3, half))
    }
    shapes = {"inner": (D, half), "conv": (3, half, half), "outer": (half, D)}
    biases = {f"{name}_bias": draw(shape[-1]) for name, shape in shapes.items()}
    return norms | biases | {name: draw(*shape) for name, shape in shapes.items()}


def cgru(draw, parts):
    shapes = {"gates": (3, 3, D, 2, D), "gates_bias": (2, D)}
    shapes |= {"candidate": (3, 3, D, D), "candidate_bias": (D,)}
    shapes |= {"tape": (3, 3, D, 3, D)} if parts == 3 else {}
    return {name: draw(*shape) for name, shape in shapes.items()}


def parameters_of(name):
    """Random parameters of a case, with three layers in the encoder."""
    draw = drawing()
    own = {
        "gnmt": lambda: {
            "encoder": {
                0: {"forward": lstm(draw, D), "backward": lstm(draw, D)},
                1: {"forward": lstm(draw, 2 * D)},
                2: {"forward": lstm(draw, D)},
            },
            "attention": {"query": draw(D, D), "key": draw(D, D), "score": draw(D)},
            "decoder": {i: lstm(draw, 2 * D) for i in range(3)},
        },
        "luong": lambda: {
            "encoder": {i: {"forward": lstm(draw, D)} for i in range(3)},
            "attention": {"key": draw(D, D), "combine": draw(2 * D, D)},
            "decoder": {i: lstm(draw, D) for i in range(3)},
        },
        "conv": lambda: {
            **{
                f"{side}_{end}": normalised(draw, D, D)
                for side in ("encoder", "decoder")
                for end in ("in", "out")
            },
            "encoder_positions": {"table": draw(12, D)},
            "decoder_positions": {"table": draw(11, D)},
            "encoder": {i: normalised(draw, 4, D, 2 * D) for i in range(3)},
            "decoder": {
                i: {
                    "conv": normalised(draw, 4, D, 2 * D),
                    "query": normalised(draw, D, D),
                    "context": normalised(draw, D, D),
                }
                for i in range(2)
            },
        },
        "bytenet": lambda: {
            "encoder": {i: block(draw) for i in range(3)},
            "decoder": {i: block(draw) for i in range(2)},
            "final_norm": {"scale": 1 + draw(D), "bias": 2 + draw(D)},
            "final": draw(D, D),
            "final_bias": draw(D),
        },
        "neural_gpu": lambda: {
            "encoder": {i: cgru(draw, 2) for i in range(3)},
            "decoder": {i: cgru(draw, 3) for i in range(2)},
        },
    }
    embedding = {
        "tokens": draw(V, D),
        "source_tokens": draw(V + 1, D),
        "output_bias": draw(V),
    }
    return {"embedding": embedding, **own[name]()}


def batch_of(*rows):
    """Rows of (source, target_input) pairs, with a token of padding at the end."""
    batch = {}
    for i, (side, name) in enumerate(
        [("source", "source"), ("target", "target_input")]
    ):
        length = 1 + max(sum(len(pair[i]) for pair in row) for row in rows)
        for key in (name, f"{side}_segment", f"{side}_position"):
            batch[key] = np.zeros((len(rows), length), int)
        for b, row in enumerate(rows):
            start = 0
            for segment, pair in enumerate(row, start=1):
                at = slice(start, start + len(pair[i]))
                batch[name][b, at] = pair[i]
                batch[f"{side}_segment"][b, at] = segment
                batch[f"{side}_position"][b, at] = range(len(pair[i]))
                start = at.stop
    return batch


def logits_of(name, source=SOURCE, target=TARGET):
    kind, options = CASES[name]
    arguments = config_of(kind, **options), parameters_of(name)
    return twin.logits(*arguments, batch_of([(source, target)]))[0, : len(target)]


def changed(before_td, after_td) -> list[bool]:
    """At which positions."""
    return [bool(np.any(b != a)) for b, a in zip(before_td, after_td, strict=True)]


# ---------------------------------------------------------------------- all the models


@pytest.mark.parametrize("name", CASES)
def test_only_the_past_and_the_source_are_seen(name):
    before = logits_of(name)
    assert before.shape == (len(TARGET), V)
    for t in (1, 4):
        after = logits_of(name, target=[*TARGET[:t], 2, *TARGET[t + 1 :]])
        np.testing.assert_array_equal(after[:t], before[:t])
        assert np.abs(after[t] - before[t]).max() > 1e-4
    for s in range(len(SOURCE)):
        after = logits_of(name, source=[*SOURCE[:s], 9, *SOURCE[s + 1 :]])
        assert np.abs(after - before).max() > 1e-4


@pytest.mark.parametrize("name", CASES)
def test_sentences_of_a_row_are_as_alone(name):
    kind, options = CASES[name]
    pairs = [(SOURCE, TARGET[:4]), ([8], [1, 2, 3, 4, 5]), ([4, 4, 5], [1])]
    batch = batch_of(pairs, pairs[1:2])
    logits_btv = twin.logits(config_of(kind, **options), parameters_of(name), batch)
    want_tv = np.concatenate([logits_of(name, *pair) for pair in pairs])
    np.testing.assert_array_equal(logits_btv[0, : len(want_tv)], want_tv)
    np.testing.assert_array_equal(logits_btv[1, :5], want_tv[4:9])


def test_each_side_has_its_embeddings():
    """Source tokens that change their numbers, and rows of the table, are the same."""
    config, parameters = config_of("lstm", lstm_form="luong"), parameters_of("luong")
    batch = batch_of([(SOURCE, TARGET)])
    want = twin.logits(config, parameters, batch)
    embedding = parameters["embedding"]
    embedding["source_tokens"] = np.roll(embedding["source_tokens"], 1, axis=0)
    got = twin.logits(config, parameters, batch | {"source": batch["source"] + 1})
    np.testing.assert_array_equal(got, want)


# ------------------------------------------------------------------------------- LSTMs


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_gnmt_adds_the_input_from_the_third_layer_on(side):
    """A layer whose weights are 0 returns 0; the third adds its input to that."""
    config, parameters = config_of("lstm"), parameters_of("gnmt")
    draw = drawing(1)
    x_sd, y_td = draw(5, D), draw(4, D)

    def outputs(zero, layers, x_sd=x_sd):
        changed = {i: dict(parameters[side][i]) for i in range(layers)}
        cell = changed[zero]["forward"] if side == "encoder" else changed[zero]
        cell = {name: np.zeros(weights.shape) for name, weights in cell.items()}
        changed[zero] = {"forward": cell} if side == "encoder" else cell
        return older_twins.lstm(config, parameters | {side: changed}, x_sd, y_td)

    two = parameters | {side: {i: parameters[side][i] for i in range(2)}}
    want_td = older_twins.lstm(config, two, x_sd, y_td)
    np.testing.assert_allclose(outputs(zero=2, layers=3), want_td, rtol=1e-12)
    # The second layer adds nothing: what is above it no longer depends on the input.
    without_td = outputs(zero=1, layers=2)
    if side == "decoder":
        np.testing.assert_array_equal(without_td, 0)
    else:
        np.testing.assert_array_equal(without_td, outputs(1, 2, x_sd=2 * x_sd))


def test_gnmt_reads_in_both_directions():
    """With the same weights both ways, a reversed source exchanges the directions."""
    draw = drawing(1)
    layers, x_sd = [dict.fromkeys(["forward", "backward"], lstm(draw, D))], draw(5, D)
    z_se = older_twins.gnmt_encoder(layers, x_sd)
    reversed_se = older_twins.gnmt_encoder(layers, x_sd[::-1])
    want_se = np.concatenate([z_se[::-1, D:], z_se[::-1, :D]], axis=1)
    np.testing.assert_array_equal(reversed_se, want_se)
    forward_sd, _ = older_twins.lstm_layer(layers[0]["forward"], x_sd)
    np.testing.assert_array_equal(z_se[:, :D], forward_sd)


def test_gnmt_asks_with_the_first_layer():
    """If that returns 0, then nothing depends on what is multiplied by the query."""
    draw, config, parameters = drawing(1), config_of("lstm"), parameters_of("gnmt")
    x_sd, y_td = draw(5, D), draw(4, D)
    for asks in (True, False):
        first = parameters["decoder"][0]
        if not asks:
            for weights in first.values():
                weights[...] = 0
        before = older_twins.lstm(config, parameters, x_sd, y_td)
        parameters["attention"]["query"] = draw(D, D)
        after = older_twins.lstm(config, parameters, x_sd, y_td)
        # The first step asks with 0 in any case.
        assert changed(before, after) == [False] + [asks] * 3


def test_luong_scores_rows_of_the_key_by_the_source():
    z_sd, h_d, key_dd = np.eye(2), np.array([0, 1]), np.array([[0, 99], [0, 0]])
    context_d = older_twins.general_attention({"key": key_dd}, h_d, z_sd)
    np.testing.assert_allclose(context_d, z_sd[0], atol=1e-12)


def test_luong_starts_from_the_last_states_of_the_encoder():
    """Without context: the decoder goes on where the encoder stopped."""
    draw, parameters = drawing(1), parameters_of("luong")
    combine_fd = np.concatenate([np.zeros((D, D)), np.eye(D)])  # tanh(h)
    parameters["attention"]["combine"] = combine_fd
    parameters["decoder"] = {i: parameters["encoder"][i]["forward"] for i in range(3)}
    x_sd, y_td = draw(5, D), draw(4, D)
    config = config_of("lstm", lstm_form="luong")
    got_td = older_twins.lstm(config, parameters, x_sd, y_td)
    want_td = np.concatenate([x_sd, y_td])
    for weights in parameters["decoder"].values():
        want_td, _ = older_twins.lstm_layer(weights, want_td)
    np.testing.assert_allclose(got_td, np.tanh(want_td[5:]), rtol=1e-12)


def test_attention_without_weights_is_the_mean():
    draw = drawing(1)
    z_se = draw(3, D)
    weights = {"query": draw(D, D), "key": draw(D, D), "score": np.zeros(D)}
    mean_e = older_twins.additive_attention(weights, draw(D), z_se)
    np.testing.assert_allclose(mean_e, z_se.mean(0), rtol=1e-12)


# ------------------------------------------------------------------------ convolutions


def test_taps_are_at_their_offsets():
    draw = drawing(1)
    x_ti = draw(5, 2)
    kernel_kio = np.stack([np.eye(2) * factor for factor in (100, 1, 10)])
    y_to = older_twins.convolution(kernel_kio, [0, 3], x_ti, [-2, 0, 1])
    for t in range(5):
        want = x_ti[t] + [0, 3]
        want += 100 * x_ti[t - 2] if t >= 2 else 0
        want += 10 * x_ti[t + 1] if t < 4 else 0
        np.testing.assert_allclose(y_to[t], want)


def test_normalised_weights_have_their_norms():
    draw = drawing(1)
    weights = normalised(draw, 3, 2, 5)
    kernel_kio = older_twins.normalised(weights)
    norms = np.linalg.norm(kernel_kio.reshape(6, 5), axis=0)
    np.testing.assert_allclose(norms, np.abs(weights["norm"]))
    ratio = kernel_kio / weights["direction"]
    np.testing.assert_allclose(ratio, ratio[:1, :1].repeat(3, 0).repeat(2, 1))


def test_gates_are_the_second_half():
    np.testing.assert_allclose(older_twins.glu(np.array([[2.0, 3, 0, 0]])), [[1, 1.5]])


@pytest.mark.parametrize(("kernel", "before", "after"), [(3, 1, 1), (4, 1, 2)])
def test_an_encoder_of_convolutions_sees_both_sides(kernel, before, after):
    draw, parameters = drawing(1), parameters_of("conv")
    parameters["encoder"] = {0: normalised(draw, kernel, D, 2 * D)}
    config, e_sd = config_of("conv", conv_kernel=kernel), draw(9, D)
    first = older_twins.conv_encoder(config, parameters, e_sd)
    e_sd[4] += 1
    second = older_twins.conv_encoder(config, parameters, e_sd)
    assert changed(first, second) == [
        t - before <= 4 <= t + after for t in range(len(e_sd))
    ]


def test_attention_of_convolutions_by_hand():
    """Convolutions and queries are 0, the other layers the identity."""
    draw, parameters = drawing(1), parameters_of("conv")
    identity = {"direction": np.eye(D), "norm": np.ones(D), "bias": np.zeros(D)}
    zero, glu_zero = (
        normalised(draw, *shape)
        | {"norm": np.zeros(shape[-1]), "bias": np.zeros(shape[-1])}
        for shape in ((D, D), (4, D, 2 * D))
    )
    for name in ("encoder_in", "encoder_out", "decoder_in", "decoder_out"):
        parameters[name] = identity
    parameters["encoder"] = {0: glu_zero}
    parameters["decoder"] = {0: {"conv": glu_zero, "query": zero, "context": identity}}
    x_sd, y_td = draw(5, D), draw(3, D)
    got_td = older_twins.conv(config_of("conv", conv_kernel=4), parameters, x_sd, y_td)
    e_sd = x_sd + parameters["encoder_positions"]["table"][:5]
    g_td = y_td + parameters["decoder_positions"]["table"][:3]
    z_sd = e_sd / 2**0.5
    scores_ts = np.exp(g_td @ z_sd.T)
    weights_ts = scores_ts / scores_ts.sum(1, keepdims=True)
    context_td = weights_ts @ (z_sd + e_sd) * 5**0.5
    np.testing.assert_allclose(got_td, (g_td + context_td / 2**0.5) / 2**0.5)


def test_a_residual_block_by_hand():
    """For one token, which only the tap in the middle sees."""
    draw = drawing(1)
    weights, x_d = block(draw), draw(D)

    def rectified(i, x):
        norm = weights[f"norm{i}"]
        norm["bias"] -= 2  # so that ReLUs close, too
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-6)
        return np.maximum(0, norm["scale"] * x + norm["bias"])

    h = rectified(1, x_d) @ weights["inner"] + weights["inner_bias"]
    h = rectified(2, h) @ weights["conv"][1] + weights["conv_bias"]
    h = rectified(3, h) @ weights["outer"] + weights["outer_bias"]
    arguments = config_of("bytenet"), weights, x_d[None], [-2, 0, 2]
    np.testing.assert_allclose(older_twins.residual_block(*arguments)[0], x_d + h)


@pytest.mark.parametrize(
    ("unfold", "extra", "columns"), [(1.2, 0, 6), (1.1, 1, 7), (0.5, 0, 5), (1, 2, 7)]
)
def test_unfolded_columns_reach_the_target(unfold, extra, columns):
    """With the target's blocks turned off, position t sees column t of the source."""
    draw = drawing(1)
    parameters = parameters_of("bytenet")
    for weights in parameters["decoder"].values():
        weights["outer"] = np.zeros((D // 2, D))
        weights["outer_bias"] = np.zeros(D)
    config = config_of("bytenet", bytenet_unfold=unfold, bytenet_extra=extra)
    rows = draw(2, 5, D)
    y_td = np.ones((9, 1)) * draw(D)
    found = [older_twins.bytenet(config, parameters, x_sd, y_td) for x_sd in rows]
    assert changed(*found) == [t < columns for t in range(9)]


def test_bytenet_reaches_as_far_as_its_dilations():
    """Blocks of 1 and 2, kernel 3: six tokens back; in the encoder on both sides."""
    draw = drawing(1)
    config, parameters = config_of("bytenet"), parameters_of("bytenet")
    x_sd, y_td = draw(5, D), draw(9, D)
    before = older_twins.bytenet(config, parameters, x_sd, y_td)
    y_td[1] += draw(D)
    after = older_twins.bytenet(config, parameters, x_sd, y_td)
    assert changed(before, after) == [False] + [True] * 7 + [False]
    parameters["decoder"] = {}
    parameters["encoder"] = {0: block(draw), 1: block(draw)}
    x_sd = draw(8, D)
    before = older_twins.bytenet(config, parameters, x_sd, y_td)
    x_sd[1] += draw(D)
    after = older_twins.bytenet(config, parameters, x_sd, y_td)
    assert changed(before, after) == [True] * 5 + [False] * 4


# -------------------------------------------------------------------------- Neural GPU


def test_3x3_taps_are_at_their_offsets():
    draw = drawing(1)
    x_rci = draw(3, 4, 1)
    kernel = np.zeros((3, 3, 1, 1))
    kernel[0, 2], kernel[1, 0] = 1, 10  # the row above, one to the right; to the left
    y_rco = older_twins.convolution_3x3(kernel, x_rci)
    want = np.zeros((3, 4, 1))
    want[1:, :-1] += x_rci[:-1, 1:]
    want[:, 1:] += 10 * x_rci[:, :-1]
    np.testing.assert_allclose(y_rco, want)


def test_as_many_steps_as_source_tokens_and_one_an_output():
    """Weights of 0 make u = 1/2 and a candidate of 0: a unit halves the state."""
    draw, parameters = drawing(1), parameters_of("neural_gpu")
    for side in ("encoder", "decoder"):
        for weights in parameters[side].values():
            for name in weights:
                weights[name] = np.zeros_like(weights[name])
    units, steps = {side: len(parameters[side]) for side in ("encoder", "decoder")}, 3
    x_sd, y_td = draw(steps, D), draw(5, D)
    got_td = older_twins.neural_gpu(config_of("neural_gpu"), parameters, x_sd, y_td)
    for t in range(3):
        halved = units["encoder"] * steps + units["decoder"] * (t + 1)
        np.testing.assert_allclose(got_td[t], x_sd[t] / 2**halved)
    np.testing.assert_array_equal(got_td[3:], 0)


def test_a_unit_by_hand():
    """One cell and one feature, so that only the tap in the middle counts."""
    middle = {"gates": [0.3, -0.4], "candidate": 0.7, "tape": [0.2, 0.6, -0.5]}
    weights = {
        "gates": np.full((3, 3, 1, 2, 1), 9.0),
        "candidate": np.full((3, 3, 1, 1), 9.0),
        "tape": np.full((3, 3, 1, 3, 1), 9.0),
        "gates_bias": np.array([[0.1], [-0.2]]),
        "candidate_bias": np.array([0.3]),
    }
    for name, value in middle.items():
        weights[name][1, 1] = np.reshape(value, weights[name][1, 1].shape)
    s, p = 0.8, 1.5
    u = 1 / (1 + np.exp(-(0.3 * s + 0.2 * p + 0.1)))
    r = 1 / (1 + np.exp(-(-0.4 * s + 0.6 * p - 0.2)))
    want = u * s + (1 - u) * np.tanh(0.7 * r * s - 0.5 * p + 0.3)
    cell = np.ones((1, 1, 1))
    np.testing.assert_allclose(older_twins.cgru(weights, s * cell, p * cell), want)


def test_a_decoder_unit_looks_one_column_further_at_each_step():
    """The last of 6 source tokens is seen at position t after 5 - t steps or more."""
    draw = drawing(1)
    config, parameters = config_of("neural_gpu"), parameters_of("neural_gpu")
    parameters["encoder"] = {}
    parameters["decoder"] = {0: cgru(draw, 3)}
    x_sd, y_td = draw(6, D), draw(6, D)
    before = older_twins.neural_gpu(config, parameters, x_sd, y_td)
    x_sd[5] += 1
    after = older_twins.neural_gpu(config, parameters, x_sd, y_td)
    # Step t is the (t + 1)-th; a unit reaches two columns through r and the candidate.
    assert changed(before, after) == [t + 2 * (t + 1) >= 5 for t in range(6)]
