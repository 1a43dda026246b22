"""Compares packed with bucketed batches: real tokens trained per second.

    python -m benchmarks.batching --config=configs/tiny.py
    python -m benchmarks.batching --config=configs/base.py --config.data.train=PREFIX \
        --config.data.batch_tokens=1024
    python -m benchmarks.batching --config=configs/base.py --wmt=200000

Both train the same model on the same text, or with --wmt on random tokens in sentences
of simulated lengths; rounds alternate. Shapes are compiled before the clock starts.
"""

import itertools
from functools import partial

from absl import flags

from benchmarks import made_up, measuring, run
from benchmarks.trainer import Trainer
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import Config, changed, from_config_dict
from t2t_jax.data.feeding import feed, plan_for
from t2t_jax.data.pairs import Pairs
from t2t_jax.model.layers import compute_dtype


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
    define_config_flag()
    measuring.define_flags(rounds=3)
    flags.DEFINE_integer("steps", 20, "Approximate number of steps in a round.")
    flags.DEFINE_integer("wmt", 0, "Pairs with simulated lengths of WMT, not a text.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    config = changed(from_config_dict(args.config), "data", feeder="numpy")
    if args.wmt:
        sizes = config.data.vocab_sizes
        pairs = made_up.random_pairs(made_up.lengths(args.wmt), min(sizes))
    else:
        vocabulary, pairs = measuring.training_text(config.data)
        sizes = vocabulary.sizes
    contenders = {
        batching: Contender(
            changed(config, "data", batching=batching), pairs, sizes, args.steps
        )
        for batching in ("packed", "bucketed")
    }
    rates, peaks = measuring.alternate_with_peak(
        {n: partial(c.trainer.rate, c.sample) for n, c in contenders.items()},
        args.rounds,
        compute_dtype(config.model).name,
        None,
        args.peak_sizes,
    )
    for name, contender in contenders.items():
        shapes = len(contender.plan.shapes)
        print(f"{name}: {contender.plan.efficiency:.3f} real/computed, {shapes} shapes")
    rows = measuring.rows_of(
        f"packed batches, {args['config'].config_filename}",
        "real tokens/s",
        rates,
        ours="packed",
    )
    measuring.publish(rows, args.output, matrix_peak=peaks)


if __name__ == "__main__":
    run(main, define_flags, config="tiny")
