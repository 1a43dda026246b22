"""Measures how fast batches are fed and how full they are, against length buckets.

    python -m benchmarks.input_pipeline
    python -m benchmarks.input_pipeline --wmt=1000000
    python -m benchmarks.input_pipeline --config=configs/multi30k.py \\
        --config.data.train=PREFIX --output=PATH
    python -m benchmarks.input_pipeline --wmt=40000000 --hosts=64 \\
        --config.data.batch_tokens=1600000

Without --config.data.train, or with --wmt, tokens are random, with simulated lengths of
4.5M pairs of WMT 2014 English-German (`benchmarks/made_up.py`).

The peer is the usual recipe in NumPy: pairs in random order, and ten length buckets
with bounds that grow by a constant factor. A batch takes as many pairs of one bucket as
the budget allows, padded to the bucket's bound on both sides. The limit is a copy of a
finished batch. Rates are in real tokens of both sides, without planning; rounds
alternate, and medians are printed. With --hosts, what the first of so many hosts does:
it plans all batches, fills its rows, and reads the pages of the token arrays that its
sentences are on.
"""

import dataclasses
import importlib.util
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
from absl import flags

from benchmarks import made_up, run
from benchmarks.measuring import (
    Row,
    Stopwatch,
    alternate,
    begin,
    publish,
    training_text,
)
from benchmarks.measuring import define_flags as define_shared_flags
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import Config, from_config_dict
from t2t_jax.data import feeding
from t2t_jax.data.feeding import AHEAD, HostBatch, feed, plan_for
from t2t_jax.data.filling import Layout
from t2t_jax.data.pairs import Pairs
from t2t_jax.tools.verify.own_process import megabytes

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
        batch_sizes = self.rows * self.bounds
        return real / sum(2 * int(batch_sizes[bucket]) for bucket, _ in batches)

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


def feed_rate(stream: Iterator[HostBatch], batches: int) -> float:
    """Real tokens a second, source and target, of batches that are being filled.

    Those that were filled ahead are used up before the clock starts.
    """
    for _ in range(2 * AHEAD):
        next(stream)
    real, began = 0, time.perf_counter()
    for batch in itertools.islice(stream, batches):
        real += sum(int(np.count_nonzero(batch[s])) for s in ("source", "target"))
    rate = real / (time.perf_counter() - began)
    stream.close()
    return rate


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


PAGE = 4_096  # bytes that are read from a file at a time


def measure_one_host(pairs: Pairs, config: Config, hosts: int, batches: int) -> None:
    """Prints what one of several hosts plans, fills and reads, by simulation."""
    memory_before = megabytes("VmRSS")
    lap = Stopwatch()
    plan = plan_for(pairs, config.data, config.train.seed, 0)
    seconds, growth = lap(), megabytes("VmRSS") - memory_before

    def share(layout: Layout) -> Layout:
        return layout.only(layout.row_p < -(-layout.shape.rows // hosts))

    data = dataclasses.replace(config.data, feeder="numpy")
    stream = (batch for _, batch in feed(pairs, data, config.train.seed, share=share))
    rate = feed_rate(stream, batches)
    mine_p = np.concatenate([share(layout).pair_p for layout in plan])
    touched = stored = sentence_bytes = 0
    for side in (pairs.source, pairs.target):
        first_p, end_p = (2 * side.offsets[mine_p + i] for i in (0, 1))  # in bytes
        pages = np.zeros(int(2 * side.offsets[-1]) // PAGE + 1, bool)
        for at_p in (first_p, end_p - 1):  # a sentence is on two pages at most
            pages[at_p // PAGE] = True
        sentence_bytes += int((end_p - first_p).sum())
        touched += PAGE * int(pages.sum())
        stored += int(2 * side.offsets[-1])
    print(
        f"{len(pairs):,} pairs, {hosts} hosts, {len(plan):,} batches of "
        f"{plan.shapes[0].rows:,} rows\n"
        f"planning an epoch: {seconds:.1f} s, {growth:,.0f} MB; peak of the process, "
        f"with {stored / 1e6:,.0f} MB of tokens in memory: {megabytes('VmHWM'):,.0f}\n"
        f"this host fills {rate / 1e6:.1f} million real tokens/s\n"
        f"in an epoch it reads pages of {touched / 1e6:,.0f} MB, of which "
        f"{sentence_bytes / 1e6:,.0f} MB are its sentences, of {stored / 1e6:,.0f} MB"
    )


def define_flags():
    define_config_flag()
    define_shared_flags(rounds=3)
    flags.DEFINE_integer("wmt", 0, "Pairs with simulated lengths, not a text.")
    flags.DEFINE_integer("hosts", 1, "Measure one of so many hosts.", lower_bound=1)
    flags.DEFINE_integer("batches", 300, "Batches in a round.", lower_bound=1)


def main(_):
    args = flags.FLAGS
    begin(args)
    config = from_config_dict(args.config)
    text = "--config.data.train" in " ".join(sys.argv)
    if args.wmt or not text:
        lengths = made_up.lengths(args.wmt or made_up.PAIRS)
        pairs = made_up.random_pairs(lengths, config.data.vocab_size)
        name = "simulated WMT"
    else:
        (_, pairs), name = training_text(config.data), config.data.train
    if args.hosts > 1:
        measure_one_host(pairs, config, args.hosts, args.batches)
    else:
        rows = measure(name, pairs, config, args.rounds, args.batches)
        publish(rows, args.output)


if __name__ == "__main__":
    run(main, define_flags, config="base")
