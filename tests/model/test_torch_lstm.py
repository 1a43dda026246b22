"""LSTM layers, the model's and the twin's, against PyTorch's (make_torch_lstm.py)."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t2t_jax.model.lstm import LSTMLayer
from t2t_jax.tools.verify.references import formulas, older_twins

CLOSE = {"rtol": 2e-5, "atol": 2e-5}  # of float32


@pytest.fixture(scope="module")
def torch():
    with np.load(Path(__file__).with_name("torch_lstm.npz")) as file:
        return dict(file)


def torch_layers(torch, kind):
    """The arrays named `kind/encoder/LAYER/DIRECTION/...`: {(layer, direction): {}}."""
    layers = {}
    for name, array in torch.items():
        start, *path = name.split("/")
        if start == kind:
            _, layer, direction, part = path
            layers.setdefault((int(layer), direction), {})[part] = array
    return layers


def stacked(layers, x_si):
    """The twin's outputs of the first and the last layer, and all last states."""
    forward_sd, state = older_twins.lstm_layer(layers[0, "forward"], x_si)
    backward_sd, back = older_twins.lstm_layer(layers[0, "backward"], x_si[::-1])
    both_sf = np.concatenate([forward_sd, backward_sd[::-1]], axis=1)
    states = {"0/forward": state, "0/backward": back}
    h_sd, states["1/forward"] = older_twins.lstm_layer(layers[1, "forward"], both_sf)
    h_sd, states["2/forward"] = older_twins.lstm_layer(layers[2, "forward"], h_sd)
    return both_sf, h_sd, states


def test_lstm_is_torchs(torch):
    layers = formulas.float64(torch_layers(torch, "weights"))
    for b, n in enumerate(torch["length"]):
        both_sf, h_sd, states = stacked(layers, formulas.float64(torch["x"][b, :n]))
        for got, want in (
            (both_sf, torch["bidirectional"][b, :n]),
            (h_sd, torch["stacked"][b, :n]),
            *((states[of], torch[f"final/encoder/{of}"][:, b]) for of in states),
        ):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)


def recur(weights, x_bsi, segment_bs, reverse=False):
    """Outputs and cells of the model's layer with these weights."""
    layer = LSTMLayer(x_bsi.shape[-1], weights["bias"].shape[-1], jax.random.key(0))
    nnx.update(layer, weights)
    states = layer(x_bsi, segment_bs, reverse=reverse)
    return states.hidden, states.cell


@pytest.mark.usefixtures("quick_compiler")
def test_lstm_of_the_model_is_torchs(torch):
    """Outputs, last states, gradients, of padded rows."""
    weights, length = torch_layers(torch, "weights"), torch["length"]
    x_bsi, cotangent_bsd = torch["x"], torch["cotangent"]
    segment_bs = (np.arange(x_bsi.shape[1]) < length[:, None]).astype(np.int32)

    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1), has_aux=True)
    def gradients_and_outputs(layers, x_bsi):
        forward, backward = (
            recur(layers[0, way], x_bsi, segment_bs, reverse=way == "backward")
            for way in ("forward", "backward")
        )
        both_bsf = jnp.concatenate([forward[0], backward[0]], axis=-1)
        second = recur(layers[1, "forward"], both_bsf, segment_bs)
        third = recur(layers[2, "forward"], second[0], segment_bs)
        loss = jnp.sum(third[0] * cotangent_bsd)
        return loss, (both_bsf, third[0], (forward, backward, second, third))

    found, (both_bsf, h_bsd, states) = gradients_and_outputs(weights, x_bsi)
    real = segment_bs == 1
    np.testing.assert_allclose(both_bsf[real], torch["bidirectional"][real], **CLOSE)
    np.testing.assert_allclose(h_bsd[real], torch["stacked"][real], **CLOSE)
    names = "0/forward", "0/backward", "1/forward", "2/forward"
    for name, (h_bsd, c_bsd) in zip(names, states, strict=True):
        last = length - 1 if name.endswith("forward") else 0 * length
        got = [x_bsd[np.arange(len(length)), last] for x_bsd in (h_bsd, c_bsd)]
        np.testing.assert_allclose(got, torch[f"final/encoder/{name}"], **CLOSE)
    want = torch_layers(torch, "gradients"), torch["gradient_of_x"]
    jax.tree.map(lambda *x: np.testing.assert_allclose(*x, **CLOSE), found, want)
