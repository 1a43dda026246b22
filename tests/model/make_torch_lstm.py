"""Makes torch_lstm.npz: torch.nn.LSTM's numbers for our parameters.

Run once, by hand, where PyTorch is installed; the tests need only the file:

    python tests/model/make_torch_lstm.py

A bidirectional layer, as GNMT's encoder begins, and a stack of two layers in one
direction on its outputs; sentences of several lengths, packed, so that the backward
direction begins at the last token of each. Computed in float64, on weights that float32
holds exactly.

The file has, by our names of parameters: `weights/*` (PyTorch's two biases are one
here, their sum); the inputs `x` and their `length`; the outputs `bidirectional` and
`stacked`; `final/*`, the last h and c.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

INPUT, WIDTH, LENGTH = 5, 6, [7, 4, 6]
PLACE = Path(__file__).with_name("torch_lstm.npz")


def run(layers: nn.LSTM, x_bsi):
    """The outputs [b, s, ...], zero behind a sentence, and the last (h, c)."""
    packed = pack_padded_sequence(x_bsi, LENGTH, batch_first=True, enforce_sorted=False)
    packed, state = layers(packed)
    outputs, _ = pad_packed_sequence(packed, batch_first=True)
    return outputs, state


def randomise(layers: nn.LSTM):
    """Multiples of 1 / 1024, so that the sum of two biases is a float32 as well."""
    for parameter in layers.parameters():
        value = 0.5 * torch.randn(parameter.shape)
        parameter.data = torch.round(1024 * value).double() / 1024


def by_our_names(layers: nn.LSTM, first_layer: int) -> dict[str, np.ndarray]:
    """The parameters by our names.

    PyTorch has the four gates (input, forget, cell, output) one after another in the
    rows of a matrix, and multiplies by its transpose.
    """
    named = {}
    for i in range(layers.num_layers):
        for direction in ("forward", "backward")[: 1 + layers.bidirectional]:
            suffix = f"l{i}" + ("_reverse" if direction == "backward" else "")
            array = {
                part: getattr(layers, f"{part}_{suffix}").detach().numpy()
                for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            }
            name = f"encoder/{first_layer + i}/{direction}"
            for part, matrix in (("input", "weight_ih"), ("recurrent", "weight_hh")):
                gates_gdi = array[matrix].reshape(4, WIDTH, -1)
                named[f"{name}/{part}"] = gates_gdi.transpose(2, 0, 1)
            bias = array["bias_ih"] + array["bias_hh"]
            named[f"{name}/bias"] = bias.reshape(4, WIDTH)
    return named


def main():
    torch.manual_seed(20160926)
    bidirectional = nn.LSTM(INPUT, WIDTH, batch_first=True, bidirectional=True).double()
    stack = nn.LSTM(2 * WIDTH, WIDTH, num_layers=2, batch_first=True).double()
    for layers in (bidirectional, stack):
        randomise(layers)
    x = torch.randn(len(LENGTH), max(LENGTH), INPUT).double()

    bidirectional_y, first_state = run(bidirectional, x)
    stacked_y, last_state = run(stack, bidirectional_y)

    saved = {}
    for layers, start in (bidirectional, 0), (stack, 1):
        for name, array in by_our_names(layers, start).items():
            assert (array == array.astype(np.float32)).all()
            saved[f"weights/{name}"] = array.astype(np.float32)
    names = "0/forward", "0/backward", "1/forward", "2/forward"
    states = [
        np.stack([part[i].detach().numpy() for part in state])
        for state in (first_state, last_state)
        for i in range(2)
    ]
    for name, state in zip(names, states, strict=True):
        saved[f"final/encoder/{name}"] = state
    saved |= {
        "x": x.detach().numpy().astype(np.float32),
        "length": np.array(LENGTH),
        "bidirectional": bidirectional_y.detach().numpy(),
        "stacked": stacked_y.detach().numpy(),
        "torch_version": np.array(torch.__version__),
    }
    np.savez(PLACE, **saved)
    print(f"{PLACE}: {PLACE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
