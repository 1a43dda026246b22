"""Compares packed with bucketed batches: real tokens trained per second.

    python -m benchmarks.batching --config=configs/tiny.py
    python -m benchmarks.batching --config=configs/base.py --config.data.train=PREFIX \
        --config.data.batch_tokens=1024

Both train the same model on the same text; rounds alternate. Shapes are compiled before
the clock starts.
"""

import dataclasses
import itertools
import statistics
import time

import jax
import numpy as np
from absl import flags
from ml_collections import config_flags

from benchmarks import run
from t2t_jax.config import Config, from_config_dict
from t2t_jax.data import prepare
from t2t_jax.data.corpus import open_corpora
from t2t_jax.data.feeding import feed, plan_for
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.tokenizers.training import make_tokenizer
from t2t_jax.model.model import build
from t2t_jax.parallel.mesh import make_mesh, place_batch
from t2t_jax.training.step import compile_steps

Batch = dict[str, np.ndarray]


class Contender:
    """One way of batching: a compiled step, and a sample of an epoch's batches."""

    def __init__(
        self, config: Config, pairs: Pairs, sizes: tuple[int, ...], steps: int
    ):
        model = build(config.model, *sizes)
        self.steps = compile_steps(
            model, config, make_mesh(devices=jax.devices()[:1]), bos=1
        )
        self.state = self.steps.init()
        self.plan = plan_for(pairs, config.data, config.train.seed, epoch=0)
        stream = feed(pairs, config.data, config.train.seed)
        batches = [batch for _, batch in itertools.islice(stream, len(self.plan))]
        stream.close()
        # One batch of each shape, to compile all of them.
        by_shape = {b["source"].shape + b["target"].shape: b for b in batches}
        self.train(list(by_shape.values()))
        # Every N-th batch, sorted by shape: the shapes in the epoch's proportions.
        every = max(1, len(batches) // steps)
        batches.sort(key=lambda b: b["source"].shape)
        self.sample = batches[every // 2 :: every]

    def train(self, batches: list[Batch]) -> float:
        """Trains on some batches; returns real tokens per second."""
        started = time.perf_counter()
        for batch in batches:
            placed = place_batch(self.steps.mesh, batch)
            self.state, metrics = self.steps.train(self.state, placed)
        jax.block_until_ready(metrics)
        sides = ("source_segment", "target_segment")
        real = sum(np.count_nonzero(batch[side]) for batch in batches for side in sides)
        return real / (time.perf_counter() - started)


def define_flags():
    config_flags.DEFINE_config_file("config", None, "A file of configs/.")
    flags.DEFINE_integer("steps", 20, "Approximate number of steps in a round.")
    flags.DEFINE_integer("rounds", 3, "Number of rounds; medians are printed.")


def main(_):
    given = flags.FLAGS
    config = from_config_dict(given.config)
    data = dataclasses.replace(config.data, feeder="numpy")
    training = open_corpora(data.train, data.source, data.target, data.dir)
    vocabulary = make_tokenizer(training, data)
    pairs = prepare.training_pairs(training, vocabulary, data)
    contenders = {}
    for batching in ("packed", "bucketed"):
        changed = dataclasses.replace(data, batching=batching)
        changed = dataclasses.replace(config, data=changed)
        contenders[batching] = Contender(changed, pairs, vocabulary.sizes, given.steps)
    rates = {name: [] for name in contenders}
    for _ in range(given.rounds):
        for name, contender in contenders.items():
            rates[name].append(contender.train(contender.sample))
    for name, contender in contenders.items():
        print(
            f"{name:9} {statistics.median(rates[name]):9,.0f} real tokens/s   "
            f"{contender.plan.efficiency:.3f} real/computed   "
            f"{len(contender.plan.shapes)} shapes"
        )
    ratio = statistics.median(rates["packed"]) / statistics.median(rates["bucketed"])
    print(f"packed / bucketed {ratio:.2f}")


if __name__ == "__main__":
    run(main, define_flags, config="tiny")
