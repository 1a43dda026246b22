"""Compares packed with bucketed batches: real tokens trained per second.

    python -m benchmarks.batching --config=configs/tiny.py
    python -m benchmarks.batching --config=configs/base.py --config.data.train=PREFIX \
        --config.data.batch_tokens=1024

Both train the same model on the same text; rounds alternate. Shapes are compiled before
the clock starts.
"""

import dataclasses
import itertools
from functools import partial

from absl import flags
from ml_collections import config_flags

from benchmarks import measuring, run
from t2t_jax.config import Config, from_config_dict
from t2t_jax.data.feeding import feed, plan_for
from t2t_jax.data.pairs import Pairs
from t2t_jax.tools.verify.measuring import Trainer


class Contender:
    """One way of batching: a compiled step, and a sample of an epoch's batches."""

    def __init__(
        self, config: Config, pairs: Pairs, sizes: tuple[int, ...], steps: int
    ):
        self.trainer = Trainer(config, *sizes)
        self.plan = plan_for(pairs, config.data, config.train.seed, epoch=0)
        stream = feed(pairs, config.data, config.train.seed)
        batches = [batch for _, batch in itertools.islice(stream, len(self.plan))]
        stream.close()
        # One batch of each shape, to compile all of them.
        by_shape = {b["source"].shape + b["target"].shape: b for b in batches}
        self.trainer.rate(by_shape.values())
        # Every N-th batch, sorted by shape: the shapes in the epoch's proportions.
        every = max(1, len(batches) // steps)
        batches.sort(key=lambda b: b["source"].shape)
        self.sample = batches[every // 2 :: every]


def define_flags():
    config_flags.DEFINE_config_file("config", None, "A file of configs/.")
    flags.DEFINE_integer("steps", 20, "Approximate number of steps in a round.")
    flags.DEFINE_integer("rounds", 3, "Number of rounds; medians are printed.")


def main(_):
    given = flags.FLAGS
    config = from_config_dict(given.config)
    data = dataclasses.replace(config.data, feeder="numpy")
    vocabulary, pairs = measuring.training_text(data)
    contenders = {}
    for batching in ("packed", "bucketed"):
        changed = dataclasses.replace(data, batching=batching)
        changed = dataclasses.replace(config, data=changed)
        contenders[batching] = Contender(changed, pairs, vocabulary.sizes, given.steps)
    rates = measuring.alternate(
        {n: partial(c.trainer.rate, c.sample) for n, c in contenders.items()},
        given.rounds,
    )
    for name, contender in contenders.items():
        print(
            f"{name:9} {rates[name]:9,.0f} real tokens/s   "
            f"{contender.plan.efficiency:.3f} real/computed   "
            f"{len(contender.plan.shapes)} shapes"
        )
    print(f"packed / bucketed {rates['packed'] / rates['bucketed']:.2f}")


if __name__ == "__main__":
    run(main, define_flags, config="tiny")
