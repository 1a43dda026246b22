"""Times an LSTM layer beside PyTorch's: compilation, forward pass, with gradients.

    python -m benchmarks.recurrence
    python -m benchmarks.recurrence --peers= --sizes=32x64x256

Sizes are rows x tokens x width. The limit is the rate of its matrix products alone at
the measured peak. PyTorch is in the extra `[peers]`.
"""

import time

import jax
import jax.numpy as jnp
from absl import flags
from flax import nnx

from benchmarks import measuring, peers, run
from t2t_jax.costs.flops import count
from t2t_jax.model.lstm import LSTMLayer


def ours(b: int, t: int, d: int):
    """Returns a function with gradients, one without, FLOPs, and compile seconds."""
    definition, state = nnx.split(LSTMLayer(d, d, jax.random.key(0)))
    x_btd = jax.random.normal(jax.random.key(1), (b, t, d))
    segment_bt = jnp.ones((b, t), jnp.int32)

    def loss(state, x_btd):
        states = nnx.merge(definition, state)(x_btd, segment_bt)
        return jnp.sum(jnp.square(states.hidden))

    forward, both = jax.jit(loss), jax.jit(jax.value_and_grad(loss, (0, 1)))
    began = time.perf_counter()
    jax.block_until_ready(both(state, x_btd))
    seconds = time.perf_counter() - began
    jax.block_until_ready(forward(state, x_btd))
    return (
        lambda: jax.block_until_ready(both(state, x_btd)),
        lambda: jax.block_until_ready(forward(state, x_btd)),
        count(loss, state, x_btd),
        seconds,
    )


def torchs(b: int, t: int, d: int):
    """The same two functions of `torch.nn.LSTM`."""
    (torch,) = peers.need("torch")
    device = peers.device(torch)
    layer = torch.nn.LSTM(d, d, batch_first=True, device=device)
    x_btd = torch.randn(b, t, d, device=device, requires_grad=True)

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    def both():
        layer.zero_grad()
        x_btd.grad = None
        layer(x_btd)[0].square().sum().backward()
        wait()

    def forward():
        with torch.no_grad():
            layer(x_btd)[0].square().sum()
        wait()

    both()
    return both, forward


def rate(function) -> float:
    """Calls a second, after at least 5 calls and half a second."""
    began, calls = time.perf_counter(), 0
    while calls < 5 or time.perf_counter() - began < 0.5:
        function()
        calls += 1
    return calls / (time.perf_counter() - began)


def define_flags():
    flags.DEFINE_list("sizes", ["32x64x128", "32x64x256", "32x64x512"], "Sizes.")
    flags.DEFINE_list("peers", ["torch"], "Other programs: torch, or nothing.")
    measuring.define_flags()


def main(_):
    given = flags.FLAGS
    measuring.begin(given)
    others = measuring.chosen(given.peers, ["torch"], "peers")
    peaks, rows = measuring.matrix_peaks(), []
    for size in given.sizes:
        shape = tuple(map(int, size.split("x")))
        both, forward, flops, seconds = ours(*shape)
        print(f"{size}: compiled in {seconds:.1f} s", flush=True)
        contenders = {"ours": (both, forward)}
        if others:
            contenders["torch"] = torchs(*shape)
        for i, (work, products) in enumerate((("with gradients", 3), ("forward", 1))):
            medians = measuring.alternate(
                {name: lambda f=f[i]: rate(f) for name, f in contenders.items()},
                given.rounds,
            )
            share = measuring.share_of_limit(medians["ours"], products * flops, peaks)
            rows += measuring.rows_of(
                f"{size}, {work}", "calls/s", medians, share_of_limit=share
            )
    measuring.publish(rows, given.output, matrix_peak=peaks)


if __name__ == "__main__":
    run(main, define_flags)
