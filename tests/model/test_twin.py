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


# ----------------------------------------------------------------------------- ByteNet

D = 4


def block(rng):
    """The weights of a residual block of ByteNet."""
    half = D // 2
    shapes = {"inner": (D, half), "conv": (3, half, half), "outer": (half, D)}
    weights = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        weights[f"{name}_bias"] = rng.normal(size=shape[-1])
    for name, width in ("norm1", D), ("norm2", half), ("norm3", half):
        scale, bias = rng.normal(size=(2, width))
        # The ReLUs are open, so that changes come through.
        weights[name] = {"scale": 1 + scale, "bias": 3 + bias}
    return weights


@pytest.mark.parametrize(
    ("unfold", "extra", "columns"), [(1.2, 0, 6), (1.1, 1, 7), (0.5, 0, 5), (1, 2, 7)]
)
def test_unfolded_columns_reach_the_target(unfold, extra, columns):
    """Without blocks in the decoder, position t sees column t of the source."""
    rng = np.random.default_rng(1)
    parameters = {
        "encoder": dict.fromkeys(range(2), block(rng)),  # reach two columns further
        "decoder": {},
        "final": np.eye(D),
        "final_bias": np.zeros(D),
        "final_norm": {"scale": np.ones(D), "bias": np.full(D, 9.0)},
    }
    options = {"bytenet_unfold": unfold, "bytenet_extra": extra}
    config = SimpleNamespace(norm_kind="layer", norm_epsilon=1e-6, options=options)
    y_td = np.ones((9, 1)) * rng.normal(size=D)
    one, other = (
        older_twins.bytenet(config, parameters, x_sd, y_td)
        for x_sd in rng.normal(size=(2, 5, D))
    )
    assert (one != other).any(1).tolist() == [t < columns for t in range(9)]
