"""The twin's formulas against what papers print, and its LSTM against PyTorch's."""

import cmath
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from t2t_jax.config import ModelConfig, from_config_dict
from t2t_jax.model.mask import Tokens
from t2t_jax.model.positions import Rotary
from t2t_jax.tools.verify.references import twin
from tests.model import twin_variants
from tests.model.older_twins import lstm_layer

# The buckets of T5 (32 up to 128) for keys before the query, as its program makes them:
# the first distance of each bucket.
BOTH_SIDES = [*range(8), 8, 12, 16, 23, 32, 46, 64, 91]
ONE_SIDE = [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


def scheme(positions, place, **options):
    config = SimpleNamespace(positions=positions, options=options)
    batch = {"target_segment": [[1] * len(place)], "target_position": [place]}
    return twin_variants.Scheme(config, {}, 0, twin.Side(batch, "target"))


@pytest.mark.parametrize(("causal", "starts"), [(False, BOTH_SIDES), (True, ONE_SIDE)])
def test_buckets_are_those_of_t5(causal, starts):
    for distance in range(200):
        expected = int(np.searchsorted(starts, distance, side="right")) - 1
        expected_after = 0 if causal or distance == 0 else 16 + expected
        actual = [
            twin_variants.t5_bucket(n, not causal, 32, 128)
            for n in (-distance, distance)
        ]
        assert actual == [expected, expected_after]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("count", "farthest"), [(32, 128), (5, 9)])
def test_buckets_of_the_model_are_exact(causal, count, farthest):
    options = {"t5_buckets": count, "t5_distance": farthest}
    config = from_config_dict({"model": {"positions": "t5", "options": options}}).model
    position = config.variant("positions")(config, causal, jax.random.key(0))
    distance = np.arange(-300, 301)
    expected = [
        twin_variants.t5_bucket(n, not causal, count, farthest)
        for n in distance.tolist()
    ]
    assert position.bucket(distance).tolist() == expected


def test_products_of_turned_vectors_depend_on_the_distance():
    """Equation 11 of Su et al.: Re(q conj(k) e^(i (m - n) theta)) of each pair."""
    rng = np.random.default_rng(0)
    q_k, k_k = rng.normal(size=(2, 6))
    near, moved = scheme("rotary", (3, 1)), scheme("rotary", (93, 91))
    turned = [place.turn(np.stack([[q_k, k_k]]))[0] for place in (near, moved)]
    products = [q_k @ k_k for q_k, k_k in turned]
    q, k = (x[::2] + 1j * x[1::2] for x in (q_k, k_k))
    theta = [1, 10_000 ** (-1 / 3), 10_000 ** (-2 / 3)]
    expected = sum(
        (q[i] * k[i].conjugate() * cmath.exp(2j * theta[i])).real for i in range(3)
    )
    np.testing.assert_allclose(products, expected, rtol=1e-12)


def test_the_gradient_of_a_rotation_turns_back():
    """x -> <turned x, y> is linear, so its slope at x in the direction x is its value.

    And a rotation keeps products: <turned x, turned y> = <x, y>.
    """
    config = ModelConfig(width=8, heads=2, positions="rotary")
    position = Rotary(config, False, jax.random.key(0))
    tokens = Tokens(np.ones((1, 3), int), np.array([[0, 1, 7]]))
    x_bthk, y_bthk = np.random.default_rng(0).normal(size=(2, 1, 3, 2, 4))
    turned, gradient = jax.vjp(lambda x: position.rotate(x, tokens), np.float32(x_bthk))
    (back,) = gradient(np.float32(y_bthk))
    np.testing.assert_allclose((back * x_bthk).sum(), (turned * y_bthk).sum(), 1e-5)
    (itself,) = gradient(turned)
    np.testing.assert_allclose(itself, x_bthk, atol=1e-6)


@pytest.fixture(scope="module")
def torch():
    """What PyTorch's LSTM layers made of random weights (make_torch_lstm.py)."""
    with np.load(Path(__file__).with_name("torch_lstm.npz")) as file:
        return dict(file)


def test_lstm_is_torchs(torch):
    """A layer of both directions and two of one: outputs and last states."""
    layers = {}
    for name, array in torch.items():
        kind, *path = name.split("/")
        if kind == "weights":
            _, layer, direction, part = path
            layers.setdefault(f"{layer}/{direction}", {})[part] = array
    layers = twin.float64(layers)
    for b, n in enumerate(torch["length"]):
        x_si = twin.float64(torch["x"][b, :n])
        states = {}
        forward_sd, states["0/forward"] = lstm_layer(layers["0/forward"], x_si)
        back_sd, states["0/backward"] = lstm_layer(layers["0/backward"], x_si[::-1])
        both_sf = np.concatenate([forward_sd, back_sd[::-1]], axis=1)
        h_sd, states["1/forward"] = lstm_layer(layers["1/forward"], both_sf)
        h_sd, states["2/forward"] = lstm_layer(layers["2/forward"], h_sd)
        for actual, expected in (
            (both_sf, torch["bidirectional"][b, :n]),
            (h_sd, torch["stacked"][b, :n]),
            *(
                (state, torch[f"final/encoder/{layer}"][:, b])
                for layer, state in states.items()
            ),
        ):
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)
