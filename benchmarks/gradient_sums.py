"""Compares sums of weights' gradients across devices in bfloat16 and in float32.

    python -m benchmarks.gradient_sums
    python -m benchmarks.gradient_sums --devices=32 --steps=400

A TPU's compiler sums the gradients of weights across devices in the dtype of their
products, bfloat16 by default, and those of tables, biases and gains in float32. Here
microbatches stand for devices: each sum is rounded to bfloat16 after each of them, as
in a ring, or not at all. Both runs see the same batches from the same seed, and a third
differs from the one with float32 by its seed alone. The reported difference of
gradients is ||rounded - exact|| / ||exact|| over all weights of products.
"""

import dataclasses
import itertools
from unittest import mock

import jax
import jax.numpy as jnp
import optax
from absl import flags

from benchmarks import measuring, run
from benchmarks.trainer import Trainer
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import changed, from_config_dict
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.feeding import feed
from t2t_jax.data.pairs import tokenize_in_memory
from t2t_jax.io.messages import say
from t2t_jax.model.products import bfloat16
from t2t_jax.training import step
from t2t_jax.training.validation import cross_entropy_of


def summed(rounds: bool):
    """`step.accumulated` with sums of weights' gradients in bfloat16, if it rounds.

    The difference between both sums becomes a metric of the step.
    """

    def is_weight(path) -> bool:  # tables have their own sum; vectors are float32
        return not any("bias" in str(key) or "embedding" in str(key) for key in path)

    def rounded(path, total, part):
        if part.ndim < 2 or not is_weight(path):
            return total + part
        return bfloat16(total + bfloat16(part)).astype(part.dtype)

    def accumulated(gradient, parameters, batch, count):
        def add(total, microbatch):
            (result, exact), inexact = total
            new, gradients = gradient(parameters, microbatch)
            result, exact = jax.tree.map(jnp.add, (result, exact), (new, gradients))
            inexact = jax.tree_util.tree_map_with_path(rounded, inexact, gradients)
            return ((result, exact), inexact), None

        parts = step.microbatches(batch, count)
        shapes = jax.eval_shape(gradient, parameters, batch)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        total, _ = jax.lax.scan(add, (zeros, zeros[1]), parts)
        ((loss, sums), exact), inexact = total
        apart = jax.tree.map(jnp.subtract, inexact, exact)
        weights = [
            jax.tree_util.tree_map_with_path(
                lambda path, x: x * (x.ndim > 1 and is_weight(path)), tree
            )
            for tree in (apart, exact)
        ]
        difference = optax.tree.norm(weights[0]) / optax.tree.norm(weights[1])
        sums = sums | {"difference": (difference, jnp.ones(()))}
        return (loss, sums), inexact if rounds else exact

    return accumulated


def define_flags():
    define_config_flag()
    measuring.define_flags()
    flags.DEFINE_integer("devices", 8, "Devices that share a batch.", lower_bound=2)
    flags.DEFINE_integer("steps", 200, "Updates of each run.", lower_bound=1)


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    config = from_config_dict(args.config)
    config = changed(config, "model", dtype="bfloat16")
    config = changed(config, "train", accumulate=args.devices)
    data = dataclasses.replace(config.data, feeder="numpy")
    vocabulary, pairs = measuring.training_text(data)
    corpora = open_corpora(data.dev, data.source, data.target, data.dir)
    dev_lines = [pair for corpus in corpora for pair in corpus.pairs()]
    dev = tokenize_in_memory(dev_lines, vocabulary)
    seed = config.train.seed
    rows = []
    for name, rounds, used in (
        ("float32", False, seed),
        ("bfloat16", True, seed),
        ("float32", False, seed + 1),
    ):
        # The order of batches is that of the first seed.
        stream = feed(pairs, data, seed)
        trainer = Trainer(changed(config, "train", seed=used), *vocabulary.sizes)
        differences = []
        with mock.patch.object(step, "accumulated", summed(rounds)):
            for _, batch in itertools.islice(stream, args.steps):
                trainer.step(batch)
                differences.append(float(trainer.metrics["difference"]))
        stream.close()
        parameters = trainer.state.best_parameters()
        loss = cross_entropy_of(trainer.steps, parameters, dev, trainer.config)["loss"]
        row = {"sums in": name, "devices": args.devices, "seed": used}
        row["difference of the first gradient"] = differences[0]
        row["largest"] = max(differences)
        row["dev loss"] = loss
        say(", ".join(f"{column} {value}" for column, value in row.items()))
        rows.append(row)
    measuring.publish(rows, args.output)


if __name__ == "__main__":
    run(main, define_flags, "tiny")
