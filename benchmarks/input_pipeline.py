"""Measures how fast batches are fed and how full they are, against length buckets.

    python -m benchmarks.input_pipeline
    python -m benchmarks.input_pipeline --wmt=1000000
    python -m benchmarks.input_pipeline --config=configs/multi30k.py \\
        --config.data.train=PREFIX --output=PATH

Without --config.data.train, or with --wmt, tokens are random, with simulated lengths of
4.5M pairs of WMT 2014 English-German (`benchmarks/wmt.py`).

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
from ml_collections import config_flags

from benchmarks import results, run, wmt
from benchmarks.measuring import Row, alternate, publish, training_text
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


def row(work: str, unit: str, ours: float, peer: float, **other) -> Row:
    """One comparison with the peer."""
    return Row(work, unit, ours, peer, PEER, **other)


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
    real = plan.real_source + plan.real_target
    print(f"text        {name}: {len(pairs):,} pairs, {real:,} real tokens")
    print(f"ours        {len(plan):,} batches of {shapes}; {plan.efficiency:.4f} real")
    print(f"peer        ten buckets up to {bounds}; {peer_efficiency:.4f} real")
    print(
        f"plan        {seconds:.2f} s of {sum(a.nbytes for a in plan.arrays):,} bytes"
    )
    print(f"peer plan   {peer_seconds:.2f} s")
    for feeder, tokens in rates.items():
        print(
            f"{feeder:11} {tokens:13,.0f} real tokens/s   "
            f"{tokens / rates['peer']:6.2f} x peer   {tokens / rates['limit']:.3f} of "
            f"the limit   {tokens / flags.FLAGS.appetite:8,.0f} x the step's appetite"
        )
    rows = [
        row(
            f"{name}, real tokens/s, {f}",
            "tokens/s",
            r,
            rates["peer"],
            share_of_limit=r / rates["limit"],
        )
        for f, r in rates.items()
        if f in feeding.FEEDERS
    ]
    return [
        *rows,
        row(
            f"{name}, real/computed tokens",
            "share",
            plan.efficiency,
            peer_efficiency,
            share_of_limit=plan.efficiency,
        ),
        row(
            f"{name}, seconds to plan an epoch",
            "s",
            seconds,
            peer_seconds,
            more_is_better=False,
        ),
    ]


class _Pairs(flags.IntegerParser):
    """Parses a number of pairs; --wmt without a value means the size of WMT 2014."""

    def parse(self, argument):
        return wmt.PAIRS if argument in (True, "true") else super().parse(argument)


def define_flags():
    config_flags.DEFINE_config_file("config", None, "A file of configs/.")
    flags.DEFINE_flag(
        flags.Flag(
            _Pairs(lower_bound=1),
            flags.ArgumentSerializer(),
            "wmt",
            None,
            "Number of pairs with simulated lengths; 4,500,000 without a value.",
            boolean=True,
        )
    )
    flags.DEFINE_integer("batches", 300, "Batches in a round.", lower_bound=1)
    flags.DEFINE_integer(
        "rounds", 3, "Number of rounds; medians are printed.", lower_bound=1
    )
    flags.DEFINE_float(
        "appetite", 20_000, "Real tokens/s of both sides that the train step consumes."
    )
    flags.DEFINE_string("output", None, "New file for the rows and their conditions.")


def main(_):
    given = flags.FLAGS
    results.check_new(given.output)
    config = from_config_dict(given.config)
    text = "--config.data.train" in " ".join(sys.argv)
    if given.wmt or not text:
        lengths = wmt.lengths(given.wmt or wmt.PAIRS)
        pairs = random_pairs(lengths, config.data.vocab_size)
        name = "simulated WMT"
    else:
        (_, pairs), name = training_text(config.data), config.data.train
    rows = measure(name, pairs, config, given.rounds, given.batches)
    publish(rows, given.output)


if __name__ == "__main__":
    run(main, define_flags, config="base")
