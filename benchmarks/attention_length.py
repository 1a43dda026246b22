"""Time and memory of attention against the length of a row.

    python -m benchmarks.attention_length
    python -m benchmarks.attention_length --train=16384

Forward and backward pass of one layer of self-attention (width 256, 4 heads) with a row
of n tokens, each measurement in a process of its own. Memory is the peak above that
before the first call, compilation included. --train takes a step of a whole model
(2 + 2 layers, width 128, 1,000 pieces) with n source and n target tokens in one row.
"""

import jax
import jax.numpy as jnp
from absl import flags
from flax import nnx

from benchmarks import measuring, run
from t2t_jax.config import ModelConfig, from_config_dict
from t2t_jax.data.shapes import Shape
from t2t_jax.model.attention import ATTENTION, Attention
from t2t_jax.model.mask import Mask, Tokens
from t2t_jax.model.positions import POSITIONS
from t2t_jax.tools.verify.measuring import Trainer, median_seconds
from t2t_jax.tools.verify.own_process import in_own_process, megabytes
from t2t_jax.tools.verify.random_models import random_batch

WIDTH = 256


def layer(attention: str, positions: str, length: int, repeats: int):
    """Measures one layer; returns seconds (median), and peak memory in MiB."""
    config = ModelConfig(
        width=WIDTH, heads=4, attention=attention, positions=positions, layers=1
    )
    module = Attention(config, jax.random.key(0))
    position = POSITIONS[positions](config, True, jax.random.key(1))
    tokens = jnp.arange(length)[None]
    at = Tokens(jnp.ones_like(tokens), tokens)
    mask = Mask(at, at, causal=True, aligned=True)
    definition, state = nnx.split(module)

    def loss(state, x_btd):
        module = nnx.merge(definition, state)
        kv = module.keys_values(x_btd, at, position)
        return jnp.sum(module(x_btd, kv, mask, position) ** 2)

    compute = jax.jit(jax.value_and_grad(loss, (0, 1)))
    x_btd = jax.random.normal(jax.random.key(2), (1, length, WIDTH))
    return _measured(lambda: compute(state, x_btd), repeats)


def training(attention: str, positions: str, length: int, repeats: int):
    """Measures a step of a whole model; returns seconds, and peak memory in MiB."""
    config = from_config_dict(
        {
            "model": {"layers": 2, "width": 128, "heads": 4, "hidden": 512}
            | {"attention": attention, "positions": positions}
        }
    )
    trainer = Trainer(config, 1_000)
    batch = random_batch(Shape(1, length, length), 1_000)

    def step():
        trainer.step(batch)
        trainer.finish()

    return _measured(step, repeats)


def _measured(compute, repeats: int) -> tuple[float, float]:
    before = megabytes("VmRSS")
    seconds = median_seconds(compute, repeats)
    return seconds, megabytes("VmHWM") - before


def define_flags():
    flags.DEFINE_list("lengths", ["512", "1024", "2048", "4096", "8192"], "Tokens.")
    flags.DEFINE_list("attention", ["dense", "restricted", "chunked"], "Functions.")
    flags.DEFINE_string("positions", "sinusoid", "Position scheme.")
    flags.DEFINE_integer("train", 0, "Train a model with rows of this many tokens.")
    flags.DEFINE_integer("repeats", 3, "Repetitions; medians are printed.")


def main(_):
    given = flags.FLAGS
    measuring.warn_if_busy()
    functions = measuring.chosen(given.attention, ATTENTION, "attention")
    measure = training if given.train else layer
    lengths = [given.train] if given.train else map(int, given.lengths)
    print("| tokens | attention | seconds | peak MiB |\n|---|---|---|---|", flush=True)
    for length in lengths:
        for name in functions:
            arguments = name, given.positions, length, given.repeats
            seconds, peak = in_own_process(measure, *arguments)
            print(f"| {length:,} | {name} | {seconds:.3f} | {peak:,.0f} |", flush=True)


if __name__ == "__main__":
    run(main, define_flags)
