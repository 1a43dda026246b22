"""Measures how fast batches are fed and how full they are, against length buckets.

    python -m benchmarks.input_pipeline
    python -m benchmarks.input_pipeline --wmt=1000000
    python -m benchmarks.input_pipeline --config=configs/multi30k.py \\
        --config.data.train=PREFIX --output=PATH

Without --config.data.train, or with --wmt, tokens are random, with simulated lengths of
4.5M pairs of WMT 2014 English-German (`benchmarks/made_up.py`).

The peer is the usual recipe in NumPy: pairs in random order, and ten length buckets
with bounds that grow by a constant factor. A batch takes as many pairs of one bucket as
the budget allows, padded to the bucket's bound on both sides. The limit is a copy of a
finished batch. Rates are in real tokens of both sides, without planning; rounds
alternate, and medians are printed.
"""

import dataclasses
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
from absl import flags

from benchmarks import made_up, run
from benchmarks.measuring import Row, alternate, begin, publish, training_text
from benchmarks.measuring import define_flags as define_shared_flags
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import Config, from_config_dict
from t2t_jax.data import feeding
from t2t_jax.data.feeding import HostBatch, feed, plan_for
from t2t_jax.data.pairs import Pairs
from t2t_jax.tools.verify.measuring import Stopwatch, feed_rate, random_pairs

PEER = "length buckets, padded (NumPy)"
BUCKETS = 10
SHORTEST = 8  # tokens: the bound of the first bucket


class Padded:
    """The peer: one pair per row, padded to the bound of its length bucket."""

    def __init__(self, pairs: Pairs, batch_tokens: int, seed: int = 0):
        self.pairs, self.rng = pairs, np.random.default_rng(seed)
        longer_p = np.maximum(pairs.source.lengths, pairs.target.lengths)
        growing = np.geomspace(SHORTEST, max(SHORTEST, longer_p.max()), BUCKETS)
        self.bounds = np.unique(np.rint(growing).astype(int))
        self.rows = np.maximum(batch_tokens // self.bounds, 1)
        self.bucket_p = np.searchsorted(self.bounds, longer_p)

    def plan(self) -> list[tuple[int, np.ndarray]]:
        """Plans an epoch: (bucket, numbers of the pairs) of every batch, shuffled."""
        pair_p = self.rng.permutation(len(self.bucket_p))
        batches = []
        for bucket, rows in enumerate(self.rows):
            mine_p = pair_p[self.bucket_p[pair_p] == bucket]
            cuts = range(rows, len(mine_p), rows)
            batches += [(bucket, part) for part in np.split(mine_p, cuts) if len(part)]
        return [batches[i] for i in self.rng.permutation(len(batches))]

    def efficiency(self, batches) -> float:
        """Real tokens / computed tokens, source and target together."""
        real = self.pairs.source.offsets[-1] + self.pairs.target.offsets[-1]
        each = self.rows * self.bounds
        return real / sum(2 * int(each[bucket]) for bucket, _ in batches)

    def feed(self) -> Iterator[HostBatch]:
        """Yields the batches of an epoch again and again."""
        for bucket, pair_p in itertools.cycle(self.plan()):
            batch = {}
            for side in ("source", "target"):
                ragged = getattr(self.pairs, side)
                tokens = np.zeros((self.rows[bucket], self.bounds[bucket]), np.int32)
                for row, pair in enumerate(pair_p):
                    sentence = ragged[pair]
                    tokens[row, : len(sentence)] = sentence
                batch[side] = tokens
            yield batch


def copied(batch: HostBatch) -> Iterator[HostBatch]:
    """The limit: yields copies of the same batch."""
    while True:
        yield {name: array.copy() for name, array in batch.items()}


def timed(make: Callable, rounds: int) -> tuple[float, object]:
    """Median seconds of some calls, and the result of the last one."""
    seconds = []
    for _ in range(rounds):
        lap = Stopwatch()
        result = make()
        seconds.append(lap())
    return median(seconds), result


def streams(pairs: Pairs, config: Config, padded: Padded) -> dict[str, Callable]:
    """The streams to measure: name -> a function that starts a stream of batches."""
    seed = config.train.seed

    def fed(feeder):
        data = dataclasses.replace(config.data, feeder=feeder)
        return (batch for _, batch in feed(pairs, data, seed))

    feeders = {"numpy": lambda: fed("numpy")}
    if importlib.util.find_spec("tensorflow"):
        feeders["tfdata"] = lambda: fed("tfdata")
    batch = next(fed("numpy"))
    return {**feeders, "peer": padded.feed, "limit": lambda: copied(batch)}


def measure(
    name: str, pairs: Pairs, config: Config, rounds: int, batches: int
) -> list[Row]:
    """Measures one text, prints the results and returns them as rows."""
    padded = Padded(pairs, config.data.batch_tokens)
    seconds, plan = timed(
        lambda: plan_for(pairs, config.data, config.train.seed, 0), rounds
    )
    peer_seconds, peer_plan = timed(padded.plan, rounds)
    peer_efficiency = padded.efficiency(peer_plan)
    del peer_plan  # it is large
    rates = alternate(
        {
            feeder: lambda start=start: feed_rate(start(), batches)
            for feeder, start in streams(pairs, config, padded).items()
        },
        rounds,
    )
    shapes = ", ".join(f"{s.rows}x({s.source}+{s.target})" for s in plan.shapes)
    bounds = ", ".join(map(str, padded.bounds))
    print(f"{name}: {len(pairs):,} pairs in {len(plan):,} batches of {shapes}")
    print(f"peer: ten buckets up to {bounds}\n")
    rows = [
        Row(
            f"{name}, {feeder}",
            "real tokens/s",
            rate,
            rates["peer"],
            PEER,
            share_of_limit=rate / rates["limit"],
        )
        for feeder, rate in rates.items()
        if feeder in feeding.FEEDERS
    ]
    planning = Row("planning", "s", seconds, peer_seconds, PEER, more_is_better=False)
    full = Row("real/computed tokens", "share", plan.efficiency, peer_efficiency, PEER)
    return [*rows, full, planning]


def define_flags():
    define_config_flag()
    define_shared_flags(rounds=3)
    flags.DEFINE_integer("wmt", 0, "Pairs with simulated lengths, not a text.")
    flags.DEFINE_integer("batches", 300, "Batches in a round.", lower_bound=1)


def main(_):
    args = flags.FLAGS
    begin(args)
    config = from_config_dict(args.config)
    text = "--config.data.train" in " ".join(sys.argv)
    if args.wmt or not text:
        lengths = made_up.lengths(args.wmt or made_up.PAIRS)
        pairs = random_pairs(lengths, config.data.vocab_size)
        name = "simulated WMT"
    else:
        (_, pairs), name = training_text(config.data), config.data.train
    rows = measure(name, pairs, config, args.rounds, args.batches)
    publish(rows, args.output)


if __name__ == "__main__":
    run(main, define_flags, config="base")
