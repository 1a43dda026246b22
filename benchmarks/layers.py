"""Time of a single layer: attention by the length of a row, an LSTM next to PyTorch's.

    python -m benchmarks.layers --layer=attention [--train=16384]
    python -m benchmarks.layers --layer=kernel [--lengths=128,512,2048]
    python -m benchmarks.layers --layer=lstm [--peers=] [--sizes=32x64x256]

attention: forward and backward pass of one layer of self-attention (width 256, 4 heads)
with a row of n tokens, each measurement in a process of its own. Memory is the peak
above that before the first call, compilation included. --train takes a step of a whole
model (2 + 2 layers, width 128, 1,000 pieces) with n source and n target tokens.

kernel: forward and backward pass of the device's fused attention next to dense
attention, without projections: bfloat16, 8 heads of 64, causal, --tokens in rows of
each length. A device without a kernel computes dense attention alone.

lstm: forward pass, and with gradients; sizes are rows x tokens x width. The limit is
the rate of its matrix products alone at the measured peak.
"""

import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from absl import flags
from flax import nnx

from benchmarks import measuring, peers, run
from benchmarks.trainer import Trainer
from t2t_jax.config import ModelConfig, from_config_dict
from t2t_jax.costs.flops import count
from t2t_jax.costs.timing import median_seconds
from t2t_jax.data.shapes import Shape
from t2t_jax.extensions.model.lstm import LSTMLayer
from t2t_jax.io.messages import say
from t2t_jax.model.attention import ATTENTION, KV, Attention
from t2t_jax.model.kernels import kernel_for
from t2t_jax.model.layers import Dropout
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.positions import POSITIONS, Position
from t2t_jax.tools.verify.own_process import in_own_process, megabytes
from t2t_jax.tools.verify.random_models import random_batch

WIDTH = 256

# ------------------------------------------------------------------------- attention


def attention(function: str, positions: str, length: int, repeats: int):
    """Measures one layer; returns seconds (median), and peak memory in MiB."""
    config = ModelConfig(
        width=WIDTH, heads=4, attention=function, positions=positions, layers=1
    )
    module = Attention(config, jax.random.key(0))
    position = POSITIONS[positions](config, True, jax.random.key(1))
    tokens = jnp.arange(length)[None]
    row_tokens = Tokens(jnp.ones_like(tokens), tokens)
    mask = Mask(row_tokens, row_tokens, causal=True, aligned=True)
    definition, state = nnx.split(module)

    def loss(state, x_btd):
        module = nnx.merge(definition, state)
        kv = module.keys_values(x_btd, row_tokens, position)
        return jnp.sum(module(x_btd, kv, mask, position) ** 2)

    compute = jax.jit(jax.value_and_grad(loss, (0, 1)))
    x_btd = jax.random.normal(jax.random.key(2), (1, length, WIDTH))
    return _measured(lambda: compute(state, x_btd), repeats)


def training(function: str, positions: str, length: int, repeats: int):
    """Measures a step of a whole model; returns seconds, and peak memory in MiB."""
    sizes = {"layers": 2, "width": 128, "heads": 4, "hidden": 512}
    model = {**sizes, "attention": function, "positions": positions}
    trainer = Trainer(from_config_dict({"model": model}), 1_000)
    batch = random_batch(Shape(1, length, length), 1_000)

    def step():
        trainer.step(batch)
        trainer.finish()

    return _measured(step, repeats)


def _measured(compute, repeats: int) -> tuple[float, float | None]:
    memory_before = megabytes("VmRSS")
    seconds = median_seconds(compute, repeats)
    return seconds, memory_before and megabytes("VmHWM") - memory_before


def by_length(args) -> None:
    """Prints the table of attention functions by the length of rows."""
    functions = measuring.chosen(args.attention, ATTENTION, "attention")
    measure = training if args.train else attention
    rows = []
    for length in [args.train] if args.train else map(int, args.lengths):
        for name in functions:
            arguments = name, args.positions, length, args.rounds
            seconds, peak = in_own_process(measure, *arguments)
            rows.append({"tokens": length, "attention": name})
            rows[-1] |= {"seconds": seconds, "peak MiB": peak}
    measuring.publish(rows, args.output)


# ---------------------------------------------------------------------------- kernels


def by_kernel(args) -> None:
    """Prints the table of fused and dense attention by the length of rows."""
    rows = []
    for length in map(int, args.lengths):
        qkv, mask = attention_inputs(max(1, args.tokens // length), length)
        further_inputs = (
            mask,
            Position(ModelConfig(), True, jax.random.key(0)),
            Dropout(0.0, None),
        )
        names = ["fused", "dense"]
        if kernel_for(qkv[0], KV(*qkv[1:]), *further_inputs) is None:
            device = jax.devices()[0].device_kind
            say(f"warning: {device} has no fused kernel for rows of {length}")
            names = ["dense"]
        calls = {
            n: partial(gradient(ATTENTION[n].attend, further_inputs), *qkv)
            for n in names
        }
        medians = measuring.alternate(
            {n: partial(median_seconds, call, 3) for n, call in calls.items()},
            args.rounds,
        )
        row = {"tokens a row": length, "rows": len(qkv[0])}
        row |= {f"{name} ms": 1e3 * medians[name] for name in names}
        if "fused" in medians:
            row["times as fast"] = medians["dense"] / medians["fused"]
        rows.append(row)
    measuring.publish(rows, args.output)


def attention_inputs(rows: int, length: int) -> tuple[list[jax.Array], Mask]:
    """Queries, keys and values [rows, length, 8, 64], and the mask of a decoder."""
    rngs, shape = jax.random.split(jax.random.key(0), 3), (rows, length, 8, 64)
    arrays = [jax.random.normal(rng, shape, jnp.bfloat16) for rng in rngs]
    position = jnp.broadcast_to(jnp.arange(length), (rows, length))
    row_tokens = Tokens(jnp.ones_like(position), position)
    return arrays, Mask(row_tokens, row_tokens, causal=True, aligned=True)


def gradient(attend: Callable, further_inputs: tuple) -> Callable:
    """The gradient by queries, keys and values of a sum over the results."""

    def total(q, k, v):
        return attend(q, KV(k, v), *further_inputs).astype(jnp.float32).sum()

    return jax.jit(jax.grad(total, (0, 1, 2)))


# ------------------------------------------------------------------------------- lstm


def ours(b: int, t: int, d: int):
    """Returns a function with gradients, one without, FLOPs, and compile seconds."""
    definition, state = nnx.split(LSTMLayer(d, d, jax.random.key(0)))
    x_btd = jax.random.normal(jax.random.key(1), (b, t, d))
    segment_bt = jnp.ones((b, t), jnp.int32)

    def loss(state, x_btd):
        states = nnx.merge(definition, state)(x_btd, segment_bt)
        return jnp.sum(jnp.square(states.hidden))

    forward, with_gradient = jax.jit(loss), jax.jit(jax.value_and_grad(loss, (0, 1)))
    began = time.perf_counter()
    jax.block_until_ready(with_gradient(state, x_btd))
    seconds = time.perf_counter() - began
    jax.block_until_ready(forward(state, x_btd))
    return (
        lambda: jax.block_until_ready(with_gradient(state, x_btd)),
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

    def with_gradient():
        layer.zero_grad()
        x_btd.grad = None
        layer(x_btd)[0].square().sum().backward()
        wait()

    def forward():
        with torch.no_grad():
            layer(x_btd)[0].square().sum()
        wait()

    with_gradient()
    return with_gradient, forward


def rate(function) -> float:
    """Calls a second, after at least 5 calls and half a second."""
    began, calls = time.perf_counter(), 0
    while calls < 5 or time.perf_counter() - began < 0.5:
        function()
        calls += 1
    return calls / (time.perf_counter() - began)


def against_torch(args) -> None:
    """Prints the table of LSTM layers."""
    peer_names = measuring.chosen(args.peers, ["torch"], "peers")
    torch = peers.need("torch")[0] if peer_names else None
    peaks = measuring.matrix_peaks("float32", torch, args.peak_sizes)
    rows = []
    for size in args.sizes:
        shape = tuple(map(int, size.split("x")))
        with_gradient, forward, flops, seconds = ours(*shape)
        print(f"{size}: compiled in {seconds:.1f} s", flush=True)
        contenders = {"ours": (with_gradient, forward)}
        if peer_names:
            contenders["torch"] = torchs(*shape)
        for i, (work, products) in enumerate((("with gradients", 3), ("forward", 1))):
            medians = measuring.alternate(
                {name: lambda f=f[i]: rate(f) for name, f in contenders.items()},
                args.rounds,
            )
            share = measuring.share_of_limit(medians["ours"], products * flops, peaks)
            rows += measuring.rows_of(
                f"{size}, {work}", "calls/s", medians, share_of_limit=share
            )
    measuring.publish(rows, args.output, matrix_peak=peaks)


LAYERS = {"attention": by_length, "kernel": by_kernel, "lstm": against_torch}


def define_flags():
    measuring.define_flags(rounds=5)
    flags.DEFINE_enum("layer", None, LAYERS, "The layer to measure.", required=True)
    flags.DEFINE_list("lengths", ["512", "1024", "2048", "4096", "8192"], "Tokens.")
    flags.DEFINE_list("attention", ["dense", "restricted", "chunked"], "Functions.")
    flags.DEFINE_string("positions", "sinusoid", "Position scheme.")
    flags.DEFINE_integer("train", 0, "Train a model with rows of this many tokens.")
    flags.DEFINE_integer("tokens", 16_384, "Of a batch of kernels.", lower_bound=1)
    flags.DEFINE_list("sizes", ["32x64x128", "32x64x256", "32x64x512"], "Of the LSTM.")
    flags.DEFINE_list("peers", ["torch"], "Next to the LSTM: torch, or nothing.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    LAYERS[args.layer](args)


if __name__ == "__main__":
    run(main, define_flags)
