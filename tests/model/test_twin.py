"""The formulas of the twin against facts that the papers print, and the model's too."""

import cmath
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from t2t_jax.config import from_config_dict
from t2t_jax.tools.verify.references import older_twins, twin

# The buckets of T5 (32 up to 128) for keys before the query, as its program makes them:
# the first distance of each bucket.
BOTH_SIDES = [*range(8), 8, 12, 16, 23, 32, 46, 64, 91]
ONE_SIDE = [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


def scheme(positions, place, **options):
    config = SimpleNamespace(positions=positions, options=options)
    batch = {"target_segment": [[1] * len(place)], "target_position": [place]}
    return twin.Scheme(config, {}, 0, twin.Side(batch, "target"), causal=True)


@pytest.mark.parametrize(("causal", "first"), [(False, BOTH_SIDES), (True, ONE_SIDE)])
def test_buckets_are_those_of_t5(causal, first):
    for far in range(200):
        want = int(np.searchsorted(first, far, side="right")) - 1
        after = 0 if causal or far == 0 else 16 + want
        found = [twin.t5_bucket(n, not causal, 32, 128) for n in (-far, far)]
        assert found == [want, after]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("count", "farthest"), [(32, 128), (64, 256), (5, 9), (6, 20)])
def test_buckets_of_the_model_are_exact(causal, count, farthest):
    options = {"t5_buckets": count, "t5_distance": farthest}
    config = from_config_dict({"model": {"positions": "t5", "options": options}}).model
    position = config.variant("positions")(config, causal, jax.random.key(0))
    distance = np.arange(-300, 301)
    want = [twin.t5_bucket(n, not causal, count, farthest) for n in distance.tolist()]
    assert position.bucket(distance).tolist() == want


def test_slopes_of_8_heads_are_the_powers_of_a_half():
    alibi = scheme("alibi", (0, 1, 2, 3))
    for head in range(8):
        score_ts = alibi.score(None, head, 8)[0]
        for s in range(4):
            assert score_ts[3, s] == -(0.5 ** (head + 1)) * (3 - s)


def test_products_of_turned_vectors_depend_on_the_distance():
    """Equation 11 of Su et al.: Re(q conj(k) e^(i (m - n) theta)) of each pair."""
    rng = np.random.default_rng(0)
    q_k, k_k = rng.normal(size=(2, 6))
    one, other = scheme("rotary", (3, 1)), scheme("rotary", (93, 91))
    turned = [each.turn(np.stack([[q_k, k_k]]))[0] for each in (one, other)]
    products = [q_k @ k_k for q_k, k_k in turned]
    q, k = (x[::2] + 1j * x[1::2] for x in (q_k, k_k))
    theta = [1, 10_000 ** (-1 / 3), 10_000 ** (-2 / 3)]
    want = sum(
        (q[i] * k[i].conjugate() * cmath.exp(2j * theta[i])).real for i in range(3)
    )
    np.testing.assert_allclose(products, want, rtol=1e-12)


def test_activations_have_their_known_values():
    # Phi(1) of a standard normal, and the sigmoid of 1, from tables.
    np.testing.assert_allclose(twin.gelu([1, -1, 0]), [0.8413447461, -0.1586552539, 0])
    np.testing.assert_allclose(twin.silu([1, -1, 0]), [0.7310585786, -0.2689414214, 0])


# ------------------------------------------- models before the Transformer, by hand

D = 4


def of_kind(kind, **options):
    return SimpleNamespace(
        kind=kind, norm_kind="layer", norm_epsilon=1e-6, options=options
    )


def test_attention_of_convolutions_by_hand():
    """Convolutions and queries are 0, the other layers the identity."""
    rng = np.random.default_rng(1)
    x_sd, y_td, *tables = (rng.normal(size=(n, D)) for n in (5, 3, 12, 11))
    identity = {"direction": np.eye(D), "norm": np.ones(D), "bias": np.zeros(D)}
    zero = identity | {"norm": np.zeros(D)}
    gate = {
        "direction": np.ones((4, D, 2 * D)),
        "norm": np.zeros(2 * D),
        "bias": np.zeros(2 * D),
    }
    names = ("encoder_in", "encoder_out", "decoder_in", "decoder_out")
    parameters = dict.fromkeys(names, identity) | {
        "encoder_positions": {"table": tables[0]},
        "decoder_positions": {"table": tables[1]},
        "encoder": {0: gate},
        "decoder": {0: {"conv": gate, "query": zero, "context": identity}},
    }
    got_td = older_twins.conv(of_kind("conv", conv_kernel=4), parameters, x_sd, y_td)
    e_sd, g_td = x_sd + tables[0][:5], y_td + tables[1][:3]
    z_sd = e_sd / 2**0.5
    scores_ts = np.exp(g_td @ z_sd.T)
    weights_ts = scores_ts / scores_ts.sum(1, keepdims=True)
    context_td = weights_ts @ (z_sd + e_sd) * 5**0.5
    np.testing.assert_allclose(got_td, (g_td + context_td / 2**0.5) / 2**0.5)


def block(rng):
    """The weights of a residual block of ByteNet."""
    half = D // 2
    shapes = {"inner": (D, half), "conv": (3, half, half), "outer": (half, D)}
    weights = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        weights[f"{name}_bias"] = rng.normal(size=shape[-1])
    for name, width in ("norm1", D), ("norm2", half), ("norm3", half):
        scale, bias = rng.normal(size=(2, width))
        weights[name] = {"scale": 1 + scale, "bias": bias}
    return weights


def test_a_residual_block_by_hand():
    """For one token, which only the tap in the middle sees."""
    rng = np.random.default_rng(1)
    weights, x_d = block(rng), rng.normal(size=D)

    def rectified(name, x):
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-6)
        return np.maximum(0, weights[name]["scale"] * x + weights[name]["bias"])

    h = rectified("norm1", x_d) @ weights["inner"] + weights["inner_bias"]
    h = rectified("norm2", h) @ weights["conv"][1] + weights["conv_bias"]
    h = rectified("norm3", h) @ weights["outer"] + weights["outer_bias"]
    arguments = of_kind("bytenet"), weights, x_d[None], [-2, 0, 2]
    np.testing.assert_allclose(older_twins.residual_block(*arguments)[0], x_d + h)


@pytest.mark.parametrize(
    ("unfold", "extra", "columns"), [(1.2, 0, 6), (1.1, 1, 7), (0.5, 0, 5), (1, 2, 7)]
)
def test_unfolded_columns_reach_the_target(unfold, extra, columns):
    """Without blocks in the decoder, position t sees column t of the source."""
    rng = np.random.default_rng(1)
    weights = block(rng)
    for name in ("norm1", "norm2", "norm3"):
        weights[name]["bias"] += 3  # opens the ReLUs, so that changes come through
    parameters = {
        "encoder": dict.fromkeys(range(2), weights),  # reach two columns further
        "decoder": {},
        "final": np.eye(D),
        "final_bias": np.zeros(D),
        "final_norm": {"scale": np.ones(D), "bias": np.full(D, 9.0)},
    }
    config = of_kind("bytenet", bytenet_unfold=unfold, bytenet_extra=extra)
    y_td = np.ones((9, 1)) * rng.normal(size=D)
    one, other = (
        older_twins.bytenet(config, parameters, x_sd, y_td)
        for x_sd in rng.normal(size=(2, 5, D))
    )
    assert (one != other).any(1).tolist() == [t < columns for t in range(9)]


def cgru(rng, parts):
    """The weights of a unit of the Neural GPU; of the decoder with three parts."""
    shapes = {"gates": (3, 3, 1, 2, 1), "gates_bias": (2, 1)}
    shapes |= {"candidate": (3, 3, 1, 1), "candidate_bias": (1,)}
    shapes |= {"tape": (3, 3, 1, 3, 1)} if parts == 3 else {}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def test_a_unit_by_hand():
    """One cell and one feature, so that only the tap in the middle counts."""
    weights, (s, p) = cgru(np.random.default_rng(1), 3), (0.8, 1.5)
    gates, (tape_u, tape_r, tape) = (
        weights[name][1, 1].ravel() for name in ("gates", "tape")
    )
    gates = gates * s + weights["gates_bias"].ravel() + [tape_u * p, tape_r * p]
    u, r = 1 / (1 + np.exp(-gates))
    candidate = weights["candidate"][1, 1].item() * r * s + tape * p
    want = u * s + (1 - u) * np.tanh(candidate + weights["candidate_bias"].item())
    cell = np.ones((1, 1, 1))
    np.testing.assert_allclose(older_twins.cgru(weights, s * cell, p * cell), want)


def test_as_many_steps_as_source_tokens_and_one_an_output():
    """Weights of 0 make u = 1/2 and a candidate of 0: a unit halves the state."""
    rng = np.random.default_rng(1)
    zero = {parts: {k: 0 * x for k, x in cgru(rng, parts).items()} for parts in (2, 3)}
    parameters = {"encoder": dict.fromkeys(range(3), zero[2])}
    parameters["decoder"] = dict.fromkeys(range(2), zero[3])
    x_sd, y_td = rng.normal(size=(3, 1)), rng.normal(size=(5, 1))
    config = of_kind("neural_gpu", neural_gpu_rows=2)
    got_td = older_twins.neural_gpu(config, parameters, x_sd, y_td)
    want_td = [x_sd[t] / 2 ** (3 * 3 + 2 * (t + 1)) for t in range(3)]
    np.testing.assert_allclose(got_td, [*want_td, [0], [0]])
